//! The callers who may see checksums.

use api::{Activity, Caller};
use types::Name;

/// A checksum tells of contents. Readers get it, and uploaders, who compare it with the one of what they have
/// sent: the WLCG profile has it in the `stat` that each of these scopes allows. A caller who may only add files (by a macaroon
/// for UPLOAD alone, as it is given to strangers) learns nothing of those that are there. The mode bits have their own say.
pub(crate) fn may_see_sums(caller: &Caller, path: &[Name]) -> bool {
    let may = |activities: &[Activity]| activities.iter().any(|activity| caller.may(*activity, path));
    may(&[Activity::Download, Activity::Stage])
        || (may(&[Activity::Upload]) && may(&[Activity::Delete, Activity::Manage, Activity::List]))
}
