//! The terms of an upload, as the headers of a PUT have them.

use api::{Activity, Replace};
use files::UploadTerms;
use http::header::{self, HeaderMap};
use http_server::RequestBody;
use http_wire::dav::{Condition, State};
use http_wire::digest;
use types::{Checksum, Timestamp};

use crate::call::Call;
use crate::refusal::Refusal;
use crate::resolve::PathTarget;

pub(super) fn terms(call: &Call, target: &PathTarget, body: &RequestBody) -> Result<UploadTerms, Refusal> {
    let replace = match &target.found {
        // The condition was checked; here it is kept true until the name is given.
        Some(found) if speaks_of_state(call)? => Replace::Exactly { file: found.file, change: found.change },
        None if call.headers.contains_key(header::IF_NONE_MATCH) => Replace::Never,
        // Without Delete nothing that appears meanwhile may be replaced.
        None if !call.caller.may(Activity::Delete, &target.path) => Replace::Never,
        _ => Replace::Any,
    };
    let (size, mtime) = (body.length(), given_mtime(&call.headers));
    Ok(UploadTerms { replace, size, mtime, ..UploadTerms::default() })
}

/// The checksums that the client promises: `Digest`, `Repr-Digest`, `Content-MD5`.
pub(super) fn promised(headers: &HeaderMap) -> Result<Vec<Checksum>, Refusal> {
    digest::announced(headers).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Whether the request holds for the file as it is only, by any header that says so.
fn speaks_of_state(call: &Call) -> Result<bool, Refusal> {
    let is_etag = |condition: &Condition| matches!(condition.state, State::ETag(_));
    let lists_etag = call
        .if_header()?
        .is_some_and(|header| header.lists().iter().any(|list| list.conditions.iter().any(is_etag)));
    let names = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];
    Ok(lists_etag || names.iter().any(|name| call.headers.contains_key(name)))
}
/// `X-OC-Mtime`, as rclone and the ownCloud clients send it: seconds since 1970.
fn given_mtime(headers: &HeaderMap) -> Option<Timestamp> {
    let value = headers.get("x-oc-mtime")?.to_str().ok()?;
    let (seconds, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Timestamp::new(seconds.parse().ok()?, nanoseconds)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    #[test]
    fn an_mtime_comes_in_seconds_with_or_without_a_fraction() {
        let given = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-oc-mtime", HeaderValue::from_static(text));
            given_mtime(&headers)
        };
        assert_eq!(given("1700000000"), Timestamp::new(1_700_000_000, 0));
        assert_eq!(given("1700000000.25"), Timestamp::new(1_700_000_000, 250_000_000));
        assert_eq!(given("yesterday"), None);
    }
}
