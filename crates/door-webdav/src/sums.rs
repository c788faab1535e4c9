//! Requests for checksums, and the callers who may see them.

use api::{Activity, Caller};
use http::HeaderMap;
use http_wire::digest;
use types::Name;

/// A checksum tells of contents. Readers get it, and uploaders, who compare it with the one of what they have
/// sent: the WLCG profile has it in the `stat` that each of these scopes allows. A caller who may only add files (by a macaroon
/// for UPLOAD alone, as it is given to strangers) learns nothing of those that are there. The mode bits have their own say.
pub(crate) fn may_see_sums(caller: &Caller, path: &[Name]) -> bool {
    let may = |activities: &[Activity]| activities.iter().any(|activity| caller.may(*activity, path));
    may(&[Activity::Download, Activity::Stage])
        || (may(&[Activity::Upload]) && may(&[Activity::Delete, Activity::Manage, Activity::List]))
}

pub(crate) fn asks_for_digest(headers: &HeaderMap) -> bool {
    headers.contains_key(digest::WANT_DIGEST) || headers.contains_key(digest::WANT_REPR_DIGEST)
}
