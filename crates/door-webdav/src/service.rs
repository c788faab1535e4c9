//! OPTIONS, requests for macaroons, and the documents at well-known places.

use std::time::Duration;

use api::{Activities, Activity, MacaroonRequest, Role};
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_server::{RequestBody, Response};
use http_wire::target;
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::Name;

use crate::call::Call;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;

pub(crate) const ALLOW: HeaderValue = HeaderValue::from_static(
    "OPTIONS, GET, HEAD, PUT, POST, DELETE, MKCOL, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK",
);
const MACAROON_REQUEST: &str = "application/macaroon-request";
const MACAROON_REQUEST_BYTES_MAX: u64 = 16 << 10;

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

impl Front {
    pub(crate) async fn post(&self, call: &Call, mut body: RequestBody) -> Result<Response, Refusal> {
        let content_type = call.header(&header::CONTENT_TYPE).unwrap_or("");
        if content_type.split(';').next().map(str::trim) != Some(MACAROON_REQUEST) {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("POST takes {MACAROON_REQUEST}; files are written with PUT"),
            ));
        }
        if call.caller.role == Role::Anonymous {
            return Err(call.denied());
        }
        if !call.origin.is_encrypted && !call.origin.address.is_loopback() {
            return Err(Refusal::forbidden("macaroons are given over TLS only"));
        }
        let body = body.collect(MACAROON_REQUEST_BYTES_MAX).await?;
        let asked: MacaroonBody = if body.is_empty() {
            MacaroonBody::default()
        } else {
            serde_json::from_slice(&body)
                .map_err(|error| Refusal::bad_request(format!("not a macaroon request: {error}")))?
        };
        let request = macaroon_request(&call.path, &asked)?;
        let macaroon = self.services.authenticator.mint(&call.caller, &request)?;
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

    /// `/.well-known/…`: what clients look for before they know anything.
    pub async fn well_known(&self, method: &Method, name: &str) -> Option<Response> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        match name {
            // A disk-only instance has nothing to stage; saying so here keeps clients from asking further.
            "wlcg-tape-rest-api" => Some(Response::text(
                StatusCode::NOT_FOUND,
                "this instance has no tape: every file is on disk, and there is nothing to stage",
            )),
            "wlcg-storage-record.json" => {
                Some(self.storage_record().await.unwrap_or_else(Refusal::into_response))
            }
            _ => None,
        }
    }

    /// The WLCG storage resource record: what accounting polls.
    async fn storage_record(&self) -> Result<Response, Refusal> {
        let usage = self.services.namespace.usage().await?;
        let total: u64 = self.services.pools.pools().iter().map(|pool| pool.total_bytes).sum();
        let now_s = self.now_s();
        let scheme = if self.config.is_tls { "https" } else { "http" };
        let endpoints: Vec<_> = self
            .config
            .authorities
            .iter()
            .map(|authority| {
                json!({
                    "name": authority,
                    "endpointurl": format!("{scheme}://{authority}/"),
                    "interfacetype": scheme,
                    "interfaceversion": "1.1",
                    "capabilities": ["data.transfer", "data.access.flat", "data.management.transfer"],
                    "qualitylevel": "production",
                    "assignedshares": ["all"],
                })
            })
            .collect();
        let record = json!({ "storageservice": {
            "name": self.config.site,
            "id": self.config.site,
            "servicetype": "forebay",
            "implementation": "forebay",
            "implementationversion": env!("CARGO_PKG_VERSION"),
            "qualitylevel": "production",
            "capabilities": ["data.access", "data.transfer", "data.management.transfer"],
            "latestupdate": now_s,
            "storagecapacity": { "online": { "totalsize": total, "usedsize": usage.bytes, "reservedsize": 0 } },
            "storageendpoints": endpoints,
            "storageshares": [{
                "name": "all",
                "timestamp": now_s,
                "totalsize": total,
                "usedsize": usage.bytes,
                "numberoffiles": usage.files,
                "path": ["/"],
                "vos": [],
                "assignedendpoints": ["all"],
                "servingstate": "open",
            }],
        }});
        Ok(Response::full(StatusCode::OK, "application/json", record.to_string()))
    }
}

pub(crate) fn options() -> Response {
    Response::new(StatusCode::OK)
        .with(header::ALLOW, ALLOW)
        .with(HeaderName::from_static("dav"), HeaderValue::from_static("1, 2"))
        .with(HeaderName::from_static("ms-author-via"), HeaderValue::from_static("DAV"))
        .with(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))
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

/// `P1DT2H3M4S` in seconds; months and years have no fixed length and are not taken.
fn iso_duration_s(text: &str) -> Option<u64> {
    let rest = text.strip_prefix('P')?;
    let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
    let mut seconds: u64 = 0;
    for (part, units) in
        [(days, &[('W', 604_800), ('D', 86_400)][..]), (time, &[('H', 3_600), ('M', 60), ('S', 1)])]
    {
        let mut number = String::new();
        for letter in part.chars() {
            if letter.is_ascii_digit() {
                number.push(letter);
                continue;
            }
            let (_, unit) = units.iter().find(|(name, _)| *name == letter)?;
            seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(*unit)?)?;
            number.clear();
        }
        if !number.is_empty() {
            return None;
        }
    }
    (seconds > 0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_is_a_duration_of_fixed_length() {
        assert_eq!(iso_duration_s("PT30M"), Some(1_800));
        assert_eq!(iso_duration_s("P1DT2H3M4S"), Some(93_784));
        for bad in ["", "P", "PT", "30M", "P1M", "PT1", "PTM", "P99999999999999999999D"] {
            assert_eq!(iso_duration_s(bad), None, "{bad}");
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
