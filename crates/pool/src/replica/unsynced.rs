//! The writes of a replica that are done and not on disk, and the syncs that bring them there.
//!
//! Invariant: one sync runs at a time, and none after one that failed says that all is well. `synced` never passes
//! `written`.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::PoolError;
use io_engine::SyncGate;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use types::ByteRange;

use super::file::ReplicaFile;
use super::pending::Pending;
use crate::journal::PAYLOAD_BYTES_MAX;
use crate::parts::PoolParts;

#[derive(Default)]
pub struct Unsynced {
    /// The name of the file is on disk.
    named: AtomicBool,
    /// Writes done, and those of them that a sync has covered.
    written: AtomicU64,
    synced: AtomicU64,
    /// Changes done that the journal does not have, and those of them that no restart takes back.
    past: AtomicU64,
    stable: AtomicU64,
    /// The changes that are past and not stable. Locked when either is counted.
    pending: Mutex<Pending>,
    gate: SyncGate,
    /// Held while the disk is asked for a sync, until what it tells is remembered. After `ordering`.
    syncing: Mutex<()>,
}

/// A length that a replica is promised to have at the next start.
#[derive(Clone, Copy)]
pub struct Promise {
    pub length: u64,
    /// All of it is on disk, in the file or in the journal. Otherwise a label that reached the disk first would tell of bytes
    /// that were never there.
    pub is_recorded: bool,
}

/// The ranges of all changes that are not stable, but for those whose records are on their way. If they do not get records,
/// only a sync brings them to the disk.
pub struct Few<'a> {
    unsynced: &'a Unsynced,
    pub ranges: Vec<ByteRange>,
    /// Changes past the journal so far.
    pub past: u64,
    pub are_recorded: bool,
}

impl Drop for Few<'_> {
    fn drop(&mut self) {
        if !self.are_recorded {
            self.unsynced.note_past();
        }
    }
}

/// The extent of a sync.
#[derive(Clone, Copy)]
enum Scope {
    /// The written bytes, and where they are.
    Data,
    /// The same, and everything about the file.
    All,
    /// The label. The caller has `ordering` alone, so that every write that was begun is counted.
    Label,
}

impl Unsynced {
    pub fn gate(&self) -> &SyncGate {
        &self.gate
    }

    /// All is on disk, and a restart leaves it so.
    pub fn is_empty(&self) -> bool {
        self.is_synced() && self.is_stable()
    }

    fn is_synced(&self) -> bool {
        // `synced` first: it never passes `written`.
        let synced = self.synced.load(Ordering::Acquire);
        synced == self.written.load(Ordering::Acquire)
    }

    /// A sync has nothing to do: the rest is in the journal.
    pub fn is_stable(&self) -> bool {
        let stable = self.stable.load(Ordering::Acquire);
        stable == self.past.load(Ordering::Acquire)
    }

    pub fn is_named(&self) -> bool {
        self.named.load(Ordering::Acquire)
    }

    /// Counted after the bytes are in the page cache and before the write is answered.
    pub fn note_write(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// As [`Unsynced::note_write`], of one that the journal does not have.
    pub fn note_past(&self) {
        let mut pending = self.pending.lock();
        pending.add_many(self.past.fetch_add(1, Ordering::AcqRel) + 1);
    }

    /// The same of a write whose bytes the page cache keeps.
    pub fn note_in_cache(&self, range: ByteRange) {
        let mut pending = self.pending.lock();
        pending.add(range, self.past.fetch_add(1, Ordering::AcqRel) + 1, PAYLOAD_BYTES_MAX as u64);
    }

    /// The bytes of all changes that are not stable. `None`: they are too many, or not known.
    pub fn few_bytes(&self) -> Option<u64> {
        let pending = self.pending.lock();
        pending.are_few(self.stable.load(Ordering::Acquire)).then(|| pending.bytes())
    }

    pub fn take_few(&self) -> Option<Few<'_>> {
        let mut pending = self.pending.lock();
        pending.are_few(self.stable.load(Ordering::Acquire)).then(|| Few {
            unsynced: self,
            ranges: pending.take(),
            past: self.past.load(Ordering::Acquire),
            are_recorded: false,
        })
    }

    /// Changes past the journal so far.
    pub fn past(&self) -> u64 {
        self.past.load(Ordering::Acquire)
    }

    /// So many changes past the journal are on disk, and no replay goes over them.
    pub fn note_stable(&self, past: u64) {
        let mut pending = self.pending.lock();
        pending.forget(self.stable.fetch_max(past, Ordering::AcqRel).max(past));
    }

    /// Brings everything written so far, and the replica's name, to the disk; and the label, as far as it is promised to state
    /// a length.
    pub fn settle(
        &self,
        shared: &PoolParts,
        replica: &ReplicaFile,
        promise: Promise,
    ) -> Result<(), PoolError> {
        let syncing = self.syncing.lock();
        replica.check_unbroken(shared)?;
        let Some(file) = replica.open() else { return Ok(()) };
        let covered = self.written.load(Ordering::Acquire);
        let named = self.named.load(Ordering::Acquire);
        let length = replica.length_to_sync(shared, file)?;
        let data = if named { Scope::Data } else { Scope::All };
        if !replica.record().is_promise_due(promise.length) {
            self.sync(shared, replica, file, data, &syncing)?;
        } else {
            if !promise.is_recorded {
                self.sync(shared, replica, file, data, &syncing)?;
            }
            let kept = match replica.record().keep_promise(shared, file, promise.length) {
                Ok(kept) => Some(kept),
                // The namespace is about to have the length as well, and data that needs no room is not to be refused.
                Err(Errno::NOSPC | Errno::DQUOT) => None,
                Err(errno) => return Err(shared.write_failure("write a label", errno)),
            };
            self.sync(shared, replica, file, Scope::All, &syncing)?;
            if let Some(kept) = kept {
                replica.record().note_promise_kept(kept);
            }
        }
        if !named {
            if !replica.is_removed() {
                let synced = shared.store.sync_name(replica.id());
                synced.map_err(|errno| replica.record().faults.fail(shared, file, errno))?;
            }
            self.named.store(true, Ordering::Release);
        }
        self.synced.fetch_max(covered, Ordering::AcqRel);
        drop(syncing);
        replica.record().note_synced(shared, file, length);
        Ok(())
    }

    /// An error if the disk has lost some of what was written. `false`: a sync that runs is to be told.
    pub fn check_write_back(
        &self,
        shared: &PoolParts,
        replica: &ReplicaFile,
        file: BorrowedFd<'_>,
        ranges: &[ByteRange],
    ) -> Result<bool, PoolError> {
        let Some(_syncing) = self.syncing.try_lock() else { return Ok(false) };
        replica.check_unbroken(shared)?;
        let checked = ranges.iter().try_for_each(|range| shared.store.check_write_back(file, *range));
        checked.map(|()| true).map_err(|errno| replica.record().faults.fail(shared, file, errno))
    }

    /// Written data may be lost. Waits for a sync that runs, so that no later one misses it.
    pub fn fail(
        &self,
        shared: &PoolParts,
        replica: &ReplicaFile,
        file: BorrowedFd<'_>,
        errno: Errno,
    ) -> PoolError {
        let _syncing = self.syncing.lock();
        replica.record().faults.fail(shared, file, errno)
    }

    /// Brings the label to the disk. Under `ordering`, alone.
    pub fn settle_label(
        &self,
        shared: &PoolParts,
        replica: &ReplicaFile,
        file: BorrowedFd<'_>,
    ) -> Result<(), PoolError> {
        self.sync(shared, replica, file, Scope::Label, &self.syncing.lock())
    }

    /// The only way to sync a replica. The disk reports lost data once, to the first sync: another one that runs
    /// meanwhile would get no error, so one runs at a time and the next finds the replica broken.
    fn sync(
        &self,
        shared: &PoolParts,
        replica: &ReplicaFile,
        file: BorrowedFd<'_>,
        scope: Scope,
        _syncing: &MutexGuard<'_, ()>,
    ) -> Result<(), PoolError> {
        let synced = match scope {
            Scope::Data => shared.store.sync_data(file),
            Scope::All | Scope::Label => shared.store.sync_all(file),
        };
        synced.map_err(|errno| match scope {
            // No data can have been lost.
            Scope::Label if self.is_synced() => shared.write_failure("write a label", errno),
            _ => replica.record().faults.fail(shared, file, errno),
        })
    }
}
