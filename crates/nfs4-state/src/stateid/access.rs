//! The open that a stateid stands for, and its accesses.

use file_state::Modes;
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::door_table::DoorTable;
use super::table::{Kind, State, StateKey, StateTable};

/// The accesses of the open behind a stateid; a lock has those of its open.
pub(super) fn access_of(
    table: &DoorTable,
    states: &StateTable,
    client: ClientId4,
    state: &State,
) -> Result<Modes, NfsStat4> {
    let owner = match state.kind {
        Kind::Open { owner, .. } => owner,
        Kind::Lock { open, .. } => states.open_owner(client, open).ok_or(NfsStat4::BadStateId)?,
        Kind::Layout => return Err(NfsStat4::BadStateId),
        Kind::Delegation { kind, .. } => return Ok(kind.access()),
    };
    let share = table.lock().file(state.file).share_of(table.owner(client, owner));
    Ok(share.ok_or(NfsStat4::BadStateId)?.access)
}

/// The open behind an open stateid, and its owner.
pub(super) fn judge_open(
    states: &StateTable,
    client: ClientId4,
    file: FileId,
    stateid: StateId4,
) -> Result<(StateKey, u64), NfsStat4> {
    match states.judge(client, stateid, file)? {
        State { key, kind: Kind::Open { owner, .. }, .. } => Ok((key, owner)),
        _ => Err(NfsStat4::BadStateId),
    }
}
