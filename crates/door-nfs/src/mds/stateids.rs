//! TEST_STATEID, FREE_STATEID, and whether a stateid allows an I/O.

use access::{FileChangeGuard, Share, Want};
use nfs4::{FreeStateId4Args, NfsStat4, StateId4, TestStateId4Args, TestStateId4ResOk};
use nfs4_state::stateid::Modes;
use types::{Access, FileId};

use super::{Head, courtesy, recall};
use crate::context::Compound;

/// Stateids judged in one TEST_STATEID.
const TESTED_MAX: usize = 1024;

/// `access` is READ or WRITE; CURRENT must have been resolved. Without an open, others' delegations are recalled first;
/// the answered [`FileChangeGuard`] keeps new ones away until it is dropped, after the bytes are written.
pub(super) async fn check_io(
    compound: &Compound,
    head: &Head,
    stateid: StateId4,
    file: FileId,
    access: Access,
) -> Result<Option<FileChangeGuard>, NfsStat4> {
    // Without an open the I/O might meet a denial that is still to be reclaimed (RFC 8881 §8.4.2.1).
    if stateid == StateId4::ANONYMOUS && head.sessions.in_grace() {
        return Err(NfsStat4::Grace);
    }
    let modes = if access.contains(Access::WRITE) { Modes::WRITE } else { Modes::READ };
    let client = compound.client()?;
    let changing = if stateid.is_special() {
        Some(recall::make_way(compound, head, file, modes, Modes::NONE).await?)
    } else {
        None
    };
    let mut judged = head.states.lock().check_io(client, file, stateid, modes);
    let want = Want::Share(Share::new(modes, Modes::NONE));
    if judged == Err(NfsStat4::Locked) && courtesy::dislodge(head, file, want).await? {
        judged = head.states.lock().check_io(client, file, stateid, modes);
    }
    judged.map(|()| changing)
}

pub(super) fn test(
    compound: &Compound,
    head: &Head,
    args: &TestStateId4Args,
) -> Result<TestStateId4ResOk, NfsStat4> {
    let client = compound.client()?;
    if args.stateids.len() > TESTED_MAX {
        return Err(NfsStat4::ReqTooBig);
    }
    let states = head.states.lock();
    let test = |stateid: &StateId4| match states.test(client, *stateid) {
        NfsStat4::BadStateId if head.offloads.knows(client, *stateid) => NfsStat4::Ok,
        judged => judged,
    };
    Ok(TestStateId4ResOk { status_codes: args.stateids.iter().map(test).collect() })
}

pub(super) fn free(compound: &Compound, head: &Head, args: &FreeStateId4Args) -> Result<(), NfsStat4> {
    let (client, stateid) = (compound.client()?, compound.resolve(args.stateid)?);
    let had_revoked = {
        let mut states = head.states.lock();
        let had_revoked = states.has_revoked(client);
        states.free(client, stateid)?;
        had_revoked
    };
    if had_revoked {
        recall::tell_of_revoked(head, client);
    }
    Ok(())
}
