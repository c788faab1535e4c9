//! POST: requests for macaroons.

use std::sync::Arc;
use std::time::Duration;

use api::{Activities, Activity, Authenticator, MacaroonRequest, Role};
use http::StatusCode;
use http::header::{self, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::{content, json, list, target};
use serde::{Deserialize, Serialize};
use types::Name;

use crate::call::Call;
use crate::lock_table::Path;
use crate::refusal::Refusal;

const MACAROON_REQUEST: &str = "application/macaroon-request";
const MACAROON_REQUEST_BYTES_MAX: u64 = 16 << 10;

pub(crate) struct Macaroons {
    pub authenticator: Arc<dyn Authenticator>,
}

/// As dCache and xrootd take it (`application/macaroon-request`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MacaroonBody {
    caveats: Vec<String>,
    validity: Option<String>,
}

#[derive(Serialize)]
struct MacaroonAnswer {
    macaroon: String,
    uri: MacaroonUris,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MacaroonUris {
    target_with_macaroon: String,
    base_with_macaroon: String,
    target: String,
    base: String,
}

impl Macaroons {
    pub async fn post(&self, call: &Call, mut body: RequestBody) -> Result<Response, Refusal> {
        let content_type = call.headers.get(header::CONTENT_TYPE);
        if !content_type.is_some_and(|value| content::is_type(value.as_bytes(), MACAROON_REQUEST)) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("POST takes {MACAROON_REQUEST}; files are written with PUT"),
            ));
        }
        if call.caller.role == Role::Anonymous {
            return Err(call.denied());
        }
        if !call.origin.gets_macaroons() {
            return Err(Refusal::forbidden("macaroons are given over TLS only"));
        }
        let body = body.collect(MACAROON_REQUEST_BYTES_MAX).await?;
        let request = macaroon_request(&call.path, &macaroon_body(&body)?)?;
        let macaroon = self.authenticator.mint(&call.caller, &request)?;
        let scheme = if call.origin.is_encrypted { "https" } else { "http" };
        let host = call.header(&header::HOST).unwrap_or("localhost");
        let (base, target) = (
            format!("{scheme}://{host}/"),
            format!("{scheme}://{host}{}", target::encode_path(&call.path, false)),
        );
        let with = |url: &str| format!("{url}?authz={}", macaroon.token);
        let answer = MacaroonAnswer {
            uri: MacaroonUris {
                target_with_macaroon: with(&target),
                base_with_macaroon: with(&base),
                target,
                base,
            },
            macaroon: macaroon.token,
        };
        let json = serde_json::to_vec(&answer).expect("strings are JSON");
        Ok(Response::full(StatusCode::OK, "application/json", json)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
    }
}

fn macaroon_body(body: &[u8]) -> Result<MacaroonBody, Refusal> {
    if body.is_empty() {
        return Ok(MacaroonBody::default());
    }
    json::object(body).map_err(|error| Refusal::bad_request(format!("not a macaroon request: {error}")))
}

fn macaroon_request(path: &Path, asked: &MacaroonBody) -> Result<MacaroonRequest, Refusal> {
    let mut request = MacaroonRequest { path: Some(path.clone()), ..MacaroonRequest::default() };
    for caveat in &asked.caveats {
        let (kind, value) =
            caveat.split_once(':').ok_or_else(|| Refusal::bad_request(format!("caveat {caveat:?}")))?;
        match kind.trim() {
            "activity" => {
                let more = activities(value)?;
                request.activities =
                    Some(request.activities.map_or(more, |so_far| so_far.intersection(more)));
            }
            "path" => {
                let below = target::parse_path(value.trim())
                    .map_err(|error| Refusal::bad_request(error.to_string()))?;
                // Below the path of the request, never beside it.
                let joined: Vec<Name> = path.iter().cloned().chain(below).collect();
                request.path = Some(joined);
            }
            "before" => request.ends.push(value.trim().to_owned()),
            "ip" => request.addresses.extend(value.split(',').map(|net| net.trim().to_owned())),
            _ => return Err(Refusal::bad_request(format!("caveat {kind:?} is not known"))),
        }
    }
    if let Some(validity) = &asked.validity {
        let seconds = iso_duration_s(validity)
            .ok_or_else(|| Refusal::bad_request(format!("validity {validity:?} is no ISO 8601 duration")))?;
        request.validity = Some(Duration::from_secs(seconds));
    }
    Ok(request)
}

fn activities(list: &str) -> Result<Activities, Refusal> {
    let one = |name: &str| match name {
        "READ_METADATA" => Ok(Activity::ReadMetadata),
        "UPDATE_METADATA" => Ok(Activity::UpdateMetadata),
        "LIST" => Ok(Activity::List),
        "DOWNLOAD" => Ok(Activity::Download),
        "UPLOAD" => Ok(Activity::Upload),
        "MANAGE" => Ok(Activity::Manage),
        "DELETE" => Ok(Activity::Delete),
        "STAGE" => Ok(Activity::Stage),
        other => Err(Refusal::bad_request(format!("activity {other:?} is not known"))),
    };
    let known = list.split(',').map(|name| one(name.trim())).collect::<Result<Vec<_>, _>>()?;
    Ok(Activities::of(&known))
}

/// Designators of ISO 8601 in their order, before and after `T`, with their seconds. A year and a month count as the shortest
/// there are: a validity is never longer than was meant.
const DATE_UNITS: &[(char, u64)] =
    &[('Y', 365 * 86_400), ('M', 28 * 86_400), ('W', 7 * 86_400), ('D', 86_400)];
const TIME_UNITS: &[(char, u64)] = &[('H', 3_600), ('M', 60), ('S', 1)];
/// Digits behind these do not make a second.
const FRACTION_DIGITS: u32 = 9;

/// `P1DT2H3M4S` in seconds, rounded down. The last number may have a fraction.
fn iso_duration_s(text: &str) -> Option<u64> {
    let rest = text.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some(both) => both,
        None => (rest, ""),
    };
    let mut seconds: u64 = 0;
    for (mut part, mut units, is_last) in [(date, DATE_UNITS, time.is_empty()), (time, TIME_UNITS, true)] {
        while !part.is_empty() {
            let (number, after) = part.split_at(part.find(|c: char| c.is_ascii_alphabetic())?);
            let (designator, after) = (after.chars().next()?, &after[1..]);
            let at = units.iter().position(|(name, _)| *name == designator)?;
            let is_last = is_last && after.is_empty();
            seconds = seconds.checked_add(scaled(number, units[at].1, is_last)?)?;
            (part, units) = (after, &units[at + 1..]);
        }
    }
    (seconds > 0).then_some(seconds)
}

/// A number of so many seconds each, rounded down.
fn scaled(number: &str, unit_s: u64, may_be_fraction: bool) -> Option<u64> {
    let (whole, fraction) = match number.split_once(['.', ',']) {
        Some((whole, fraction)) if may_be_fraction => (whole, Some(fraction)),
        Some(_) => return None,
        None => (number, None),
    };
    let seconds = list::decimal(whole.as_bytes())?.checked_mul(unit_s)?;
    let Some(fraction) = fraction else { return Some(seconds) };
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS as usize)];
    let part = list::decimal(kept.as_bytes())? * unit_s / 10_u64.pow(kept.len() as u32);
    seconds.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_is_a_duration_that_is_never_longer_than_meant() {
        for (text, seconds) in [
            ("PT30M", 1_800),
            ("P1DT2H3M4S", 93_784),
            ("P1M", 28 * 86_400),
            ("P1Y", 365 * 86_400),
            ("P1Y2M3W4DT5H6M7S", (365 + 56 + 21 + 4) * 86_400 + 18_367),
            ("PT1.5H", 5_400),
            ("PT1,5H", 5_400),
            ("P0.5D", 43_200),
            ("P1DT0.999S", 86_400),
            ("PT1.00000000000000000000000001H", 3_600),
            ("PT0.9999999999999999999999999H", 3_599),
        ] {
            assert_eq!(iso_duration_s(text), Some(seconds), "{text}");
        }
        for bad in [
            "",
            "P",
            "PT",
            "30M",
            "PT1",
            "PTM",
            "P99999999999999999999D",
            "P1DT",
            "P1H",
            "PT1D",
            "PT1M1H",
            "PT1H1H",
            "PT1.5H30M",
            "P1.5DT1H",
            "PT.5H",
            "PT1.H",
            "PT1.5.5H",
            "PT1.+5H",
            "PT+1H",
            "PT-1H",
            "PT1\u{e4}H",
            "PT0.5S",
        ] {
            assert_eq!(iso_duration_s(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_for_a_macaroon_is_an_object_or_nothing() {
        assert!(macaroon_body(b"").is_ok() && macaroon_body(b" \r\n{}").is_ok());
        for bad in [&b"[]"[..], b" []", b"[[\"activity:LIST\"], \"PT1H\"]", b"null", b"\"\"", b"{", b" "] {
            let refusal = macaroon_body(bad).unwrap_err();
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_path_caveat_lies_below_the_path_of_the_request() {
        let asked = MacaroonBody { caveats: vec!["path:/b".to_owned()], validity: None };
        let names = |text: &str| target::parse_path(text).unwrap();
        assert_eq!(macaroon_request(&names("/a"), &asked).unwrap().path, Some(names("/a/b")));
    }

    #[test]
    fn a_before_caveat_is_an_end_beside_the_validity() {
        let body = r#"{"caveats":["before: 2100-01-01T00:00:00Z"],"validity":"PT1H"}"#;
        let asked = macaroon_request(&Path::default(), &serde_json::from_str(body).unwrap()).unwrap();
        assert_eq!(asked.ends, ["2100-01-01T00:00:00Z"]);
        assert_eq!(asked.validity, Some(Duration::from_secs(3_600)));
    }
}
