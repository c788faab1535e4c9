//! The conflict table as the clients of one door use it.

use std::sync::Arc;

use file_state::{Door, FileState, FileStateError, Holder, Owner};
use nfs4::{ClientId4, NfsStat4};
use parking_lot::{Mutex, MutexGuard};

#[derive(Debug)]
pub(super) struct DoorTable {
    /// The table that all doors share. Leaf lock: taken for one question at a time, by a caller that has the clients'
    /// state already.
    pub files: Arc<Mutex<FileState>>,
    /// The clients' door, as the table knows it.
    pub door: Door,
}

impl DoorTable {
    pub fn lock(&self) -> MutexGuard<'_, FileState> {
        self.files.lock()
    }

    pub fn holder(&self, client: ClientId4) -> Holder {
        holder(self.door, client)
    }

    pub fn owner(&self, client: ClientId4, number: u64) -> Owner {
        Owner { holder: self.holder(client), number }
    }

    pub fn client_of(&self, holder: Holder) -> Option<ClientId4> {
        client_of(self.door, holder)
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

/// For opens and locks. At a bound the application gets an error at once: there is nothing to wait for.
pub(super) fn refusal(error: FileStateError) -> NfsStat4 {
    match error {
        FileStateError::ShareDenied => NfsStat4::ShareDenied,
        FileStateError::Locked(_) => NfsStat4::Denied,
        FileStateError::RecallConflict | FileStateError::InUse => NfsStat4::RecallConflict,
        FileStateError::Gone => NfsStat4::Stale,
        FileStateError::Limit(_) => NfsStat4::ServerFault,
    }
}
