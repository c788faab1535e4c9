//! The transfer that a COPY asks for, read from its headers.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, header};
use http_client::{AbsoluteUrl, UrlError};
use http_server::Response;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `Source`: the remote file is fetched, the request's path is where it goes.
    Pull,
    /// `Destination`: the request's path is sent there.
    Push,
}

#[derive(Clone, Debug)]
pub struct CopyRequest {
    pub direction: Direction,
    pub remote: AbsoluteUrl,
    /// For every request to the other server. All are marked as secrets, so none is sent on to another origin.
    pub transfer_headers: HeaderMap,
    pub overwrite: bool,
    /// `None`: the client leaves it to us.
    pub require_checksum: Option<bool>,
    /// At least one; bounded where they are opened.
    pub streams: usize,
    /// `Copy-Flags: NoHead` forbids asking the other server before the copy.
    pub may_ask_before: bool,
    /// `SciTag`: the flow's id for packet marking.
    pub flow_id: Option<u16>,
}

/// A COPY that is answered by a status instead of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRefusal {
    pub status: StatusCode,
    pub message: String,
}

impl CopyRefusal {
    fn bad(message: impl Into<String>) -> CopyRefusal {
        CopyRefusal { status: StatusCode::BAD_REQUEST, message: message.into() }
    }

    pub fn into_response(self) -> Response {
        let response = Response::text(self.status, self.message);
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                response.with(header::RETRY_AFTER, RETRY_AFTER)
            }
            _ => response,
        }
    }
}

const RETRY_AFTER: HeaderValue = HeaderValue::from_static("30");
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";
const CREDENTIAL: &str = "credential";
const STREAMS: &str = "x-number-of-streams";
const REQUIRE_CHECKSUM: &str = "requirechecksumverification";
const TRANSFER_PREFIX: &str = "transferheader";
/// The ids that packet marking has room for.
const FLOW_IDS: std::ops::RangeInclusive<u32> = 65..=65_535;

/// Headers that the transfer sets itself, or that would change the copied bytes: not the client's to set.
const OWN_HEADERS: &[HeaderName] = &[
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::RANGE,
    header::IF_RANGE,
    header::CONTENT_RANGE,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
];

/// Whether a COPY is third-party copy rather than one inside this server (RFC 4918 §9.8).
///
/// A `Destination` that is our own is a plain copy, unless headers of third-party copy say otherwise.
pub fn is_third_party(headers: &HeaderMap, is_own: impl Fn(&AbsoluteUrl) -> bool) -> bool {
    if headers.contains_key(SOURCE) {
        return true;
    }
    let Some(destination) = headers.get(DESTINATION) else {
        // Neither: both kinds of copy refuse it alike.
        return false;
    };
    let text = String::from_utf8_lossy(destination.as_bytes());
    let text = text.trim();
    // A path, as RFC 4918 §10.3 allows.
    if text.starts_with('/') {
        return false;
    }
    let is_marked = headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with(TRANSFER_PREFIX) || [CREDENTIAL, STREAMS, REQUIRE_CHECKSUM].contains(&name)
    });
    match AbsoluteUrl::parse(text) {
        Ok(url) => is_marked || !is_own(&url),
        Err(UrlError::Scheme(_)) => true,
        Err(_) => is_marked,
    }
}

impl CopyRequest {
    pub fn parse(headers: &HeaderMap) -> Result<CopyRequest, CopyRefusal> {
        let (direction, url) = match (single(headers, SOURCE)?, single(headers, DESTINATION)?) {
            (Some(source), None) => (Direction::Pull, source),
            (None, Some(destination)) => (Direction::Push, destination),
            (Some(_), Some(_)) => {
                return Err(CopyRefusal::bad("give either Source or Destination, not both"));
            }
            (None, None) => return Err(CopyRefusal::bad("give Source or Destination")),
        };
        let remote = AbsoluteUrl::parse(url)
            .map_err(|error| CopyRefusal { status: error.status(), message: error.to_string() })?;
        check_credential(headers)?;
        let copy_flags = single(headers, "copy-flags")?.unwrap_or("");
        Ok(CopyRequest {
            direction,
            remote,
            transfer_headers: transfer_headers(headers)?,
            overwrite: choice(headers, "overwrite", ("T", "F"))?.unwrap_or(true),
            require_checksum: choice(headers, REQUIRE_CHECKSUM, ("true", "false"))?,
            streams: streams(headers)?,
            may_ask_before: !copy_flags.split(',').any(|flag| flag.trim().eq_ignore_ascii_case("nohead")),
            flow_id: flow_id(headers),
        })
    }
}

/// The same said twice is one word: gfal2 sends `Credential: none` so.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, CopyRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(CopyRefusal::bad(format!("header {name} is there with different values")));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(CopyRefusal::bad(format!("header {name} is not text"))),
    }
}

fn choice(headers: &HeaderMap, name: &str, (yes, no): (&str, &str)) -> Result<Option<bool>, CopyRefusal> {
    match single(headers, name)? {
        None => Ok(None),
        Some(value) if value.eq_ignore_ascii_case(yes) => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case(no) => Ok(Some(false)),
        Some(_) => Err(CopyRefusal::bad(format!("header {name} is {yes} or {no}"))),
    }
}

/// Nobody delegates to us; who wants us to act for them sends a `TransferHeaderAuthorization`.
fn check_credential(headers: &HeaderMap) -> Result<(), CopyRefusal> {
    match single(headers, CREDENTIAL)?.map(str::to_ascii_lowercase).as_deref() {
        None | Some("none") => Ok(()),
        Some("gridsite" | "oidc") => Err(CopyRefusal {
            status: StatusCode::NOT_IMPLEMENTED,
            message: "delegation is not offered; send Credential: none and TransferHeaderAuthorization"
                .to_owned(),
        }),
        Some(_) => Err(CopyRefusal::bad("header credential is none, gridsite or oidc")),
    }
}

fn streams(headers: &HeaderMap) -> Result<usize, CopyRefusal> {
    match single(headers, STREAMS)? {
        None => Ok(1),
        // gfal2 sends 0 when nobody told it how many.
        Some(text) => match text.parse::<u32>() {
            Ok(streams) => Ok(streams.max(1) as usize),
            Err(_) => Err(CopyRefusal::bad(format!("header {STREAMS} is not a number"))),
        },
    }
}

/// A wrong one is no reason to refuse a transfer.
fn flow_id(headers: &HeaderMap) -> Option<u16> {
    let id: u32 = headers.get("scitag")?.to_str().ok()?.trim().parse().ok()?;
    FLOW_IDS.contains(&id).then(|| u16::try_from(id).ok()).flatten()
}

fn transfer_headers(headers: &HeaderMap) -> Result<HeaderMap, CopyRefusal> {
    let mut out = HeaderMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(TRANSFER_PREFIX) else { continue };
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| CopyRefusal::bad("a TransferHeader has no name of a header behind it"))?;
        if OWN_HEADERS.contains(&name) {
            continue;
        }
        let mut value: HeaderValue = value.clone();
        value.set_sensitive(true);
        out.append(name, value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn parse(list: &[(&'static str, &'static str)]) -> Result<CopyRequest, u16> {
        CopyRequest::parse(&headers(list)).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn exactly_one_of_source_and_destination_is_given() {
        let pull = parse(&[("source", "https://h/a?authz=x")]).unwrap();
        assert_eq!((pull.direction, pull.remote.path_and_query().as_str()), (Direction::Pull, "/a?authz=x"));
        assert_eq!(parse(&[("destination", "https://h/a")]).unwrap().direction, Direction::Push);
        assert_eq!(parse(&[]).unwrap_err(), 400);
        assert_eq!(parse(&[("source", "https://h/a"), ("destination", "https://h/a")]).unwrap_err(), 400);
        assert_eq!(parse(&[("source", "https://h/a"), ("source", "https://h/b")]).unwrap_err(), 400);
    }

    #[test]
    fn a_url_that_cannot_be_fetched_is_told_from_a_wrong_one() {
        assert_eq!(parse(&[("source", "root://h//a")]).unwrap_err(), 501);
        assert_eq!(parse(&[("source", "gsiftp://h/a")]).unwrap_err(), 501);
        assert_eq!(parse(&[("source", "https://user:password@h/a")]).unwrap_err(), 400);
        assert_eq!(parse(&[("source", "/a")]).unwrap_err(), 400);
    }

    #[test]
    fn transfer_headers_are_passed_on_as_secrets_but_for_our_own() {
        let request = parse(&[
            ("source", "https://h/a"),
            ("transferheaderauthorization", "Bearer x"),
            ("transferheaderscitag", "66"),
            ("transferheaderhost", "evil"),
            ("transferheadercontent-length", "7"),
            ("transferheaderrange", "bytes=0-1"),
            ("authorization", "Bearer for us"),
        ])
        .unwrap();
        let mut names: Vec<_> = request.transfer_headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "scitag"]);
        assert_eq!(request.transfer_headers["authorization"], "Bearer x");
        assert!(request.transfer_headers["authorization"].is_sensitive());
        assert_eq!(parse(&[("source", "https://h/a"), ("transferheader", "x")]).unwrap_err(), 400);
    }

    #[test]
    fn credentials_other_than_none_are_not_offered_or_not_known() {
        let with = |credential| parse(&[("source", "https://h/a"), ("credential", credential)]);
        assert!(with("none").is_ok() && with("None").is_ok());
        assert_eq!(with("gridsite").unwrap_err(), 501);
        assert_eq!(with("oidc").unwrap_err(), 501);
        assert_eq!(with("magic").unwrap_err(), 400);
        let twice =
            |second| parse(&[("source", "https://h/a"), ("credential", "none"), ("credential", second)]);
        assert!(twice("none").is_ok(), "as gfal2 sends it");
        assert_eq!(twice("oidc").unwrap_err(), 400);
    }

    #[test]
    fn choices_have_defaults_and_two_values() {
        let plain = parse(&[("source", "https://h/a")]).unwrap();
        assert!(plain.overwrite && plain.may_ask_before);
        assert_eq!((plain.require_checksum, plain.streams, plain.flow_id), (None, 1, None));
        let full = parse(&[
            ("source", "https://h/a"),
            ("overwrite", "F"),
            ("requirechecksumverification", "true"),
            ("x-number-of-streams", "4"),
            ("copy-flags", "NoHead"),
            ("scitag", "65"),
        ])
        .unwrap();
        assert!(!full.overwrite && !full.may_ask_before);
        assert_eq!((full.require_checksum, full.streams, full.flow_id), (Some(true), 4, Some(65)));
        for (name, value) in [
            ("overwrite", "yes"),
            ("requirechecksumverification", "maybe"),
            ("x-number-of-streams", "many"),
            ("x-number-of-streams", "-1"),
        ] {
            assert_eq!(
                parse(&[("source", "https://h/a"), (name, value)]).unwrap_err(),
                400,
                "{name}: {value}"
            );
        }
        let untold = parse(&[("source", "https://h/a"), ("x-number-of-streams", "0")]).unwrap();
        assert_eq!(untold.streams, 1, "gfal2 that was not told how many");
        assert_eq!(parse(&[("source", "https://h/a"), ("scitag", "70000")]).unwrap().flow_id, None);
    }

    #[test]
    fn a_copy_to_ourselves_is_plain_unless_it_is_marked() {
        let own = |url: &AbsoluteUrl| url.host() == "here";
        let is = |list: &[(&'static str, &'static str)]| is_third_party(&headers(list), own);
        assert!(is(&[("source", "https://here/a")]));
        assert!(is(&[("destination", "https://there/a")]));
        assert!(is(&[("destination", "root://there/a")]));
        assert!(is(&[("destination", "https://here/a"), ("credential", "none")]));
        assert!(is(&[("destination", "https://here/a"), ("transferheaderauthorization", "x")]));
        assert!(!is(&[("destination", "https://here/a")]));
        assert!(!is(&[("destination", "/a"), ("credential", "none")]));
        assert!(!is(&[]));
    }
}
