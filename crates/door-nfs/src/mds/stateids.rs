//! TEST_STATEID, FREE_STATEID, and whether a stateid allows an I/O.

use nfs4::{
    FreeStateId4Args, NfsStat4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED, StateId4, TestStateId4Args,
    TestStateId4ResOk,
};
use nfs4_state::stateid::Modes;
use types::{Access, FileId};

use super::{Head, recall};
use crate::context::Compound;

/// Stateids judged in one TEST_STATEID.
const TESTED_MAX: usize = 1024;

/// `access` is READ or WRITE; CURRENT must have been resolved.
pub(super) async fn check_io(
    compound: &Compound<'_>,
    head: &Head,
    stateid: StateId4,
    file: FileId,
    access: Access,
) -> Result<(), NfsStat4> {
    // Without an open the I/O might meet a denial that is still to be reclaimed (RFC 8881 §8.4.2.1).
    if stateid == StateId4::ANONYMOUS && head.sessions.in_grace() {
        return Err(NfsStat4::Grace);
    }
    let modes = if access.contains(Access::WRITE) { Modes::WRITE } else { Modes::READ };
    let client = compound.client()?;
    let judged = head.states.lock().check_io(client, file, stateid, modes);
    let Err(NfsStat4::Delay) = judged else { return judged };
    // Another client's delegation stands in the way of I/O without an open.
    recall::make_way(compound, head, file, modes, Modes::NONE).await?;
    head.states.lock().check_io(client, file, stateid, modes)
}

pub(super) fn test(
    compound: &Compound<'_>,
    head: &Head,
    args: &TestStateId4Args,
) -> Result<TestStateId4ResOk, NfsStat4> {
    let client = compound.client()?;
    if args.stateids.len() > TESTED_MAX {
        return Err(NfsStat4::ReqTooBig);
    }
    let states = head.states.lock();
    Ok(TestStateId4ResOk {
        status_codes: args.stateids.iter().map(|stateid| states.test(client, *stateid)).collect(),
    })
}

pub(super) fn free(compound: &Compound<'_>, head: &Head, args: &FreeStateId4Args) -> Result<(), NfsStat4> {
    let (client, stateid) = (compound.client()?, compound.resolve(args.stateid)?);
    let mut states = head.states.lock();
    states.free(client, stateid)?;
    if !states.has_revoked(client) {
        head.sessions.lower_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    }
    Ok(())
}
