//! Owners that wait for a lock, and CB_NOTIFY_LOCK as far as it is state (RFC 8881 §20.11).
//!
//! A waiter keeps its owner's name known: the client finds the process that sleeps by the name that it gave.

use std::time::Duration;

use file_state::{LockKind, Owner};
use nfs4::{ClientId4, StateOwner4};
use types::{ByteRange, FileId};
use xdr::Opaque;

use super::door_table::DoorTable;
use super::owners::Owners;

/// A client that is to be told that a lock might be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockNotice {
    pub client: ClientId4,
    pub file: FileId,
    /// As the client named it in LOCK.
    pub owner: StateOwner4,
    notice: file_state::LockNotice,
}

pub struct Waiters<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) owners: &'a mut Owners,
}

impl Waiters<'_> {
    /// The waiters to notify now. One that does not retry LOCK within `patience` loses its place to the next.
    pub fn notices(&mut self, now: Duration, patience: Duration) -> Vec<LockNotice> {
        let notices = self.table.lock().waiters().notices(now, patience);
        let addressed = notices.into_iter().filter_map(|notice| {
            let client = self.table.client_of(notice.owner.holder)?;
            let name = self.owners.name(notice.owner.number)?;
            let owner = StateOwner4 { clientid: client, owner: Opaque(name) };
            Some(LockNotice { client, file: notice.file, owner, notice })
        });
        let addressed = addressed.collect();
        self.release_forgotten();
        addressed
    }

    /// The client could not be told; the next are to be.
    pub fn notice_unheard(&mut self, notice: &LockNotice) {
        self.table.lock().waiters().notice_unheard(notice.notice);
        self.release_forgotten();
    }

    pub(super) fn wait(&mut self, file: FileId, owner: Owner, range: ByteRange, kind: LockKind) {
        if self.table.lock().waiters().wait(file, owner, range, kind) {
            self.owners.hold(owner.number);
        }
    }

    /// Each waiter was one use of its owner. (Only clients of this door wait.)
    pub(super) fn release_forgotten(&mut self) {
        let forgotten = self.table.lock().waiters().take_forgotten();
        for owner in forgotten {
            self.owners.release(owner.number);
        }
    }
}
