//! TEST_STATEID and FREE_STATEID.

use nfs4::{FreeStateId4Args, NfsStat4, StateId4, TestStateId4Args, TestStateId4ResOk};

use super::clients::Clients;
use super::copy::Copies;
use crate::context::Compound;

/// Stateids judged in one TEST_STATEID.
const TESTED_MAX: usize = 1024;

pub(super) fn test(
    compound: &Compound,
    copies: &Copies,
    args: &TestStateId4Args,
) -> Result<TestStateId4ResOk, NfsStat4> {
    let client = compound.client()?;
    if args.stateids.len() > TESTED_MAX {
        return Err(NfsStat4::ReqTooBig);
    }
    let states = copies.clients.states.lock();
    let test = |stateid: &StateId4| match states.test(client, *stateid) {
        NfsStat4::BadStateId if copies.offloads.knows(client, *stateid) => NfsStat4::Ok,
        judged => judged,
    };
    Ok(TestStateId4ResOk { status_codes: args.stateids.iter().map(test).collect() })
}

pub(super) fn free(compound: &Compound, clients: &Clients, args: &FreeStateId4Args) -> Result<(), NfsStat4> {
    let (client, stateid) = (compound.client()?, compound.resolve(args.stateid)?);
    let had_revoked = {
        let mut states = clients.states.lock();
        let had_revoked = states.delegations().has_revoked(client);
        states.free(client, stateid)?;
        had_revoked
    };
    if had_revoked {
        clients.tell_of_revoked(client);
    }
    Ok(())
}
