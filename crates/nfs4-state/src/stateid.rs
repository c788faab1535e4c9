//! Stateids of opens, locks, layouts and delegations (RFC 8881 §8.2), over the conflict table that all doors share.
//!
//! [`ClientState`] has a part for each kind of state. A part is what an operation asks once: it judges the stateid, asks
//! the conflict table, and answers the new stateid or a status. Invariants: an open stateid stands for one (open-owner,
//! file), a lock stateid for one (lock owner, open), a layout or delegation stateid for one (client, file); each has its
//! counterpart in [`FileState`]; seqids grow by one. State of a client goes when the client goes, so nothing here expires
//! by itself; a revoked layout is gone at once, and its stateid a bad one, while a revoked delegation leaves a stateid that
//! says so until it is freed. The state that NFS clients have of a file is changed here only: between two looks at the
//! table only other doors change it.

mod access;
mod delegations;
mod departed;
mod departures;
mod door_table;
mod io;
mod layouts;
mod locks;
mod lost;
mod opens;
mod owners;
mod recalls;
mod table;
mod terms;
mod waiters;

use std::sync::Arc;

use file_state::{Door, FileState};
use nfs4::ClientId4;
use parking_lot::Mutex;

pub use delegations::Delegations;
pub use door_table::{client_of, holder};
pub use file_state::{DelegationKind, FileStateError, Granted, LayoutMode, LayoutModes, LockKind, Modes};
pub use layouts::{LayoutRequest, Layouts, iomode};
pub use locks::{LockOutcome, LockRequest, Locker, Locks};
pub use lost::Lost;
pub use opens::{OpenRequest, Opens};
pub use recalls::{AddressedRecall, Recalls, Revoked};
pub use terms::{DelegatedTimes, DelegationTerms};
pub use waiters::{LockNotice, Waiters};

use departures::Departures;
use door_table::DoorTable;
use lost::LostLocks;
use owners::Owners;
use table::StateTable;

/// Lock stateids of one client. A client that frees them as Linux does never comes near.
const LOCK_STATES_MAX: usize = 1 << 16;

/// Opens, locks, layouts and delegations of all clients of the head, with their stateids.
#[derive(Debug)]
pub struct ClientState {
    table: DoorTable,
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
            table: DoorTable { files, door },
            states: StateTable::new(boot),
            owners: Owners::default(),
            departed: Departures::default(),
            lost: LostLocks::default(),
            lock_states_max,
        }
    }

    /// The door that the clients came through.
    pub fn door(&self) -> Door {
        self.table.door
    }

    pub fn opens(&mut self) -> Opens<'_> {
        Opens {
            table: &self.table,
            states: &mut self.states,
            owners: &mut self.owners,
            lost: &mut self.lost,
            lock_states_max: self.lock_states_max,
        }
    }

    pub fn locks(&mut self) -> Locks<'_> {
        Locks {
            table: &self.table,
            states: &mut self.states,
            owners: &mut self.owners,
            states_max: self.lock_states_max,
        }
    }

    pub fn waiters(&mut self) -> Waiters<'_> {
        Waiters { table: &self.table, owners: &mut self.owners }
    }

    pub fn layouts(&mut self) -> Layouts<'_> {
        Layouts { table: &self.table, states: &mut self.states, lost: &self.lost }
    }

    pub fn delegations(&mut self) -> Delegations<'_> {
        Delegations { table: &self.table, states: &mut self.states, lost: &mut self.lost }
    }

    pub fn recalls(&mut self) -> Recalls<'_> {
        Recalls { table: &self.table, states: &mut self.states, lost: &mut self.lost }
    }

    pub fn lost(&mut self) -> Lost<'_> {
        Lost { table: &self.table, memory: &mut self.lost }
    }

    pub fn held_by(&self, client: ClientId4) -> HeldBy {
        let held = self.table.lock().holders().held(self.table.holder(client));
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
        self.table.lock().is_waited_for(self.table.holder(client))
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

#[cfg(test)]
mod tests;
