//! Stateids of opens, locks, layouts and delegations (RFC 8881 §8.2), over the conflict table that all doors share.
//!
//! [`ClientState`] is what an operation asks once: it judges the stateid, asks the conflict table, and answers the new
//! stateid or a status. Invariants: an open stateid stands for one (open-owner, file), a lock stateid for one (lock
//! owner, open), a layout or delegation stateid for one (client, file); each has its counterpart in [`FileState`]; seqids
//! grow by one. State of a client goes when the client goes, so nothing here expires by itself; a revoked layout is gone
//! at once, and its stateid a bad one, while a revoked delegation leaves a stateid that says so until it is freed. The
//! state that NFS clients have of a file is changed here only: between two looks at the table only other doors change it.

mod delegation;
mod departed;
mod io;
mod layout;
mod lock;
mod lost;
mod open;
mod owners;
mod recall;
mod table;
mod waiters;

use std::sync::Arc;

use file_state::{Door, FileState, Holder, Owner};
use nfs4::{ClientId4, NfsStat4, StateId4};
use parking_lot::Mutex;

pub use delegation::{DelegatedTimes, DelegationTerms};
pub use file_state::{DelegationKind, FileStateError, Granted, LayoutMode, LayoutModes, LockKind, Modes};
pub use layout::{LayoutRequest, iomode};
pub use lock::{LockOutcome, LockRequest, Locker};
pub use open::OpenRequest;
pub use recall::{AddressedRecall, Revoked};
pub use waiters::LockNotice;

use departed::Departures;
use lost::LostLocks;
use owners::Owners;
use table::StateTable;

/// Lock stateids of one client. A client that frees them as Linux does never comes near.
const LOCK_STATES_MAX: usize = 1 << 16;

/// Opens, locks, layouts and delegations of all clients of the head, with their stateids.
#[derive(Debug)]
pub struct ClientState {
    /// The table that all doors share. Leaf lock: taken for one question at a time, by a caller that has this state
    /// already.
    files: Arc<Mutex<FileState>>,
    /// The clients' door, as the table knows it.
    door: Door,
    states: StateTable,
    owners: Owners,
    departed: Departures,
    lost: LostLocks,
    lock_states_max: usize,
}

/// Counts of what a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBy {
    pub opens: u64,
    pub locks: u64,
    pub layouts: u64,
    pub delegations: u64,
}

impl ClientState {
    /// `boot` differs between starts of the server: stateids of another start are bad ones here.
    pub fn new(boot: u32, door: Door, files: Arc<Mutex<FileState>>) -> ClientState {
        ClientState::with_lock_states_max(boot, door, files, LOCK_STATES_MAX)
    }

    pub fn with_lock_states_max(
        boot: u32,
        door: Door,
        files: Arc<Mutex<FileState>>,
        lock_states_max: usize,
    ) -> ClientState {
        ClientState {
            files,
            door,
            states: StateTable::new(boot),
            owners: Owners::default(),
            departed: Departures::default(),
            lost: LostLocks::default(),
            lock_states_max,
        }
    }

    /// The door that the clients came through.
    pub fn door(&self) -> Door {
        self.door
    }

    pub fn held_by(&self, client: ClientId4) -> HeldBy {
        let held = self.files.lock().holders().held(holder(self.door, client));
        HeldBy {
            opens: held.opens as u64,
            locks: held.locks as u64,
            layouts: held.layouts as u64,
            delegations: held.delegations as u64,
        }
    }

    /// Opens, locks, layouts and delegations of a client.
    pub fn count(&self, client: ClientId4) -> u64 {
        let HeldBy { opens, locks, layouts, delegations } = self.held_by(client);
        opens + locks + layouts + delegations
    }

    /// Whether others wait for locks where the client has some.
    pub fn is_waited_for(&self, client: ClientId4) -> bool {
        self.files.lock().is_waited_for(holder(self.door, client))
    }

    /// Nobody has a stateid, nobody is remembered but for locks that were lost, and nobody waits to be released.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.owners.is_empty() && self.departed.is_empty()
    }

    /// Whether the client has any state; lock stateids without a lock do not count, for their opens do.
    pub fn holds(&self, client: ClientId4) -> bool {
        self.held_by(client) != HeldBy::default()
    }
}

/// The client of a door, as the conflict table knows it.
pub fn holder(door: Door, client: ClientId4) -> Holder {
    Holder::of(door, client.0)
}

/// `None`: the holder is another door's.
pub fn client_of(door: Door, holder: Holder) -> Option<ClientId4> {
    (holder.door == door).then_some(ClientId4(holder.number))
}

fn owner_of(door: Door, client: ClientId4, number: u64) -> Owner {
    Owner { holder: holder(door, client), number }
}

/// For opens and locks. At a bound the application gets an error at once: there is nothing to wait for.
fn refusal(error: FileStateError) -> NfsStat4 {
    match error {
        FileStateError::ShareDenied => NfsStat4::ShareDenied,
        FileStateError::Locked(_) => NfsStat4::Denied,
        FileStateError::RecallConflict | FileStateError::InUse => NfsStat4::RecallConflict,
        FileStateError::Gone => NfsStat4::Stale,
        FileStateError::Limit(_) => NfsStat4::ServerFault,
    }
}

/// RFC 8881 §8.2.2: zero stands for the newest.
fn judge_seqid(given: StateId4, newest: u32) -> Result<(), NfsStat4> {
    // Half of the circle is older, half is newer.
    match newest.wrapping_sub(given.seqid) as i32 {
        _ if given.seqid == 0 => Ok(()),
        0 => Ok(()),
        1.. => Err(NfsStat4::OldStateId),
        _ => Err(NfsStat4::BadStateId),
    }
}

#[cfg(test)]
mod tests;
