//! One replica: its file, its fencing epoch, and what is known of it going wrong.
//!
//! All methods that touch the file block and run in the engine's threads. Data goes under a shared `ordering`;
//! truncation, removal and fencing take it alone, so each of them has a before and an after: when a fence is answered
//! no older write is running, and none comes.
//!
//! The parts, each of which imports only those before it: `descriptors`, `fence`, `faults`, `length`; `record`, which is
//! what the label says; `file`, which is looked for, made and removed; `unsynced`, which brings writes to the disk, and its `pending`;
//! `gathered`, which keeps writes in memory; `commit`, by the journal; `compared`, which has block sums for reads. Locks are taken in
//! the order `ordering`, `recording`, those of ranges, `syncing`, then those of the file.

mod claim;
mod commit;
mod compared;
mod condemn;
mod descriptors;
mod faults;
mod fence;
mod file;
mod gathered;
mod length;
mod pending;
mod ranges;
mod record;
mod unsynced;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use api::{Birth, PoolError, ReplicaFacts, Stability};
use io_engine::{FileIo, Ran, WriteFailure, write};
use parking_lot::{Mutex, RwLock};
use types::{ByteRange, Epoch, FileId};
use write_journal::{Record, Turn};

use crate::journal::Waiter;
use crate::parts::PoolParts;
use crate::store::{Extent, look_at};

pub use self::claim::Claim;
use self::compared::Compared;
use self::file::ReplicaFile;
use self::gathered::Gathered;
pub use self::length::KnownLength;
pub use self::ranges::CopySource;
use self::unsynced::{Promise, Unsynced};

pub struct Replica {
    file: ReplicaFile,
    unsynced: Unsynced,
    io: FileIo,
    gathered: Gathered,
    compared: Compared,
    /// Shared by writes; taken alone by truncation, removal and fencing. Before the locks of `file` and `unsynced`.
    ordering: RwLock<()>,
    /// Whether the journal has the creation of the file. Held while a write is done and its record appended, so that
    /// overlapping writes have the same order in both. After `ordering`.
    recording: Mutex<bool>,
}

/// The outcome of a write that was to be recorded.
#[must_use]
pub struct Recorded {
    /// The waiter is told. Else the write is done and has to be synced, and the waiter is gone.
    pub is_recorded: bool,
    /// To be led on a thread that may block.
    pub turn: Option<Turn>,
}

impl Replica {
    pub fn new(file: FileId) -> Replica {
        Replica {
            file: ReplicaFile::new(file),
            unsynced: Unsynced::default(),
            io: FileIo::default(),
            gathered: Gathered::default(),
            compared: Compared::default(),
            ordering: RwLock::new(()),
            recording: Mutex::new(false),
        }
    }

    pub fn id(&self) -> FileId {
        self.file.id()
    }

    pub fn file(&self) -> &ReplicaFile {
        &self.file
    }

    pub fn unsynced(&self) -> &Unsynced {
        &self.unsynced
    }

    pub fn io(&self) -> &FileIo {
        &self.io
    }

    /// Nothing would be lost with this object that is not on disk, and its file would be closed.
    pub fn may_be_given_up(&self) -> bool {
        if self.file.descriptors().are_lent() {
            return false;
        }
        if self.file.is_known_as_orphaned() {
            return true;
        }
        let record = self.file.record();
        if record.faults.is_broken() {
            return record.faults.is_broken_recorded();
        }
        !self.has_unsettled() && record.fence.is_recorded()
    }

    /// Some writes are not on disk, or not even in the file.
    pub fn has_unsettled(&self) -> bool {
        // In this order: a flush is counted as a change before it has taken the bytes from memory.
        self.has_gathered() || !self.unsynced.is_empty()
    }

    /// A sync has nothing to do.
    pub fn is_stable(&self) -> bool {
        !self.has_gathered() && self.unsynced.is_stable()
    }

    /// An empty file, if there is none.
    pub fn make(&self, shared: &PoolParts, birth: Birth) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.file.load(shared)?;
        if self.file.is_removed() {
            return Err(PoolError::NoReplica(shared.id()));
        }
        self.file.record().check_birth(shared, birth)?;
        self.file.record().learn_birth(birth);
        self.file.create(shared).map(drop)
    }

    pub fn write(
        &self,
        shared: &PoolParts,
        claim: Claim,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        let (file, extent) = self.prepare_write(shared, claim, offset, data)?;
        let is_stable = stability != Stability::Unstable;
        if is_stable || !self.gather(shared, offset, data) {
            let written = self.write_file(shared, (file, extent.size), (offset, data), is_stable);
            let range = ByteRange::new(offset, data.len() as u64);
            match (&written, range) {
                (Ok(Ran::Buffered), Some(range)) if !is_stable => {
                    self.note_write(shared);
                    self.unsynced.note_in_cache(range);
                }
                _ => self.note_change(shared),
            }
            written?;
        }
        shared.counters.written_bytes.add(data.len() as u64);
        Ok(())
    }

    fn write_file(
        &self,
        shared: &PoolParts,
        file: (BorrowedFd<'_>, u64),
        data: (u64, &[u8]),
        is_stable: bool,
    ) -> Result<Ran, PoolError> {
        let waits = self.io.waits();
        let written = self.write_behind_gathered(shared, file, data, is_stable);
        if written.is_ok() {
            self.file.record().claim_length(data.0 + data.1.len() as u64);
        }
        if self.io.waits() != waits {
            let (now, window) = (Instant::now(), shared.engine.path().thresholds().contention.window);
            if self.io.is_contended(now) {
                shared.contended.note(self.id(), now, window);
            }
        }
        written
    }

    /// Behind what was gathered of the range.
    fn write_behind_gathered(
        &self,
        shared: &PoolParts,
        (file, size): (BorrowedFd<'_>, u64),
        (offset, data): (u64, &[u8]),
        is_stable: bool,
    ) -> Result<Ran, PoolError> {
        let path = shared.engine.path();
        shared.store.faults.of_write(self.id()).map_err(|errno| shared.write_failure("write data", errno))?;
        if !self.has_gathered() {
            let written = path.write(file, &self.io, size, offset, data, is_stable);
            return written.map_err(|failure| explain(shared, failure));
        }
        let _range = self.lock_flushed(shared, offset, data.len() as u64)?;
        // A flush may have made the file longer.
        let written = look_at(file)
            .and_then(|extent| path.write_locked(file, &self.io, extent.size, offset, data, is_stable));
        written.map_err(|errno| shared.write_failure("write data", errno))
    }

    /// The file to write to, and its extent before that. Under `ordering`.
    fn prepare_write(
        &self,
        shared: &PoolParts,
        claim: Claim,
        offset: u64,
        data: &[u8],
    ) -> Result<(BorrowedFd<'_>, Extent), PoolError> {
        let end = offset.saturating_add(data.len() as u64);
        let extent = self.admit_write(shared, claim, offset, end)?;
        shared.admit_bytes(extent, offset, end)?;
        Ok((self.file.create(shared)?, extent))
    }

    /// As [`Replica::write`], and appends a record of it to the journal, if that takes one.
    pub fn write_recorded(
        &self,
        shared: &PoolParts,
        claim: Claim,
        offset: u64,
        data: &[u8],
        waiter: Waiter,
    ) -> Result<Recorded, PoolError> {
        let _ordering = self.ordering.read();
        let (file, extent) = self.prepare_write(shared, claim, offset, data)?;
        let mut has_creation = self.recording.lock();
        // The disk gets it later, as an unstable write.
        let written = self.write_file(shared, (file, extent.size), (offset, data), false);
        self.note_write(shared);
        let recorded = match &written {
            Ok(_) => self.record(shared, &mut has_creation, &[(offset, data)], waiter),
            Err(_) => Recorded { is_recorded: false, turn: None },
        };
        if !recorded.is_recorded {
            self.unsynced.note_past();
        }
        written?;
        shared.counters.written_bytes.add(data.len() as u64);
        Ok(recorded)
    }

    /// One record of each piece. Called with `recording` held.
    fn record(
        &self,
        shared: &PoolParts,
        has_creation: &mut bool,
        pieces: &[(u64, &[u8])],
        waiter: Waiter,
    ) -> Recorded {
        let (file, record) = (self.id(), self.file.record());
        let (birth, epoch) = (u64::from(record.birth().0), u64::from(record.fence.epoch().0));
        let mut recorded = Recorded { is_recorded: false, turn: None };
        if self.file.is_removed() {
            return recorded;
        }
        // A length that the label states was synced, and the name with it.
        let is_named = self.unsynced.is_named() || record.is_known_to(1);
        if !is_named && !*has_creation {
            if !self.file.is_fresh() {
                return recorded;
            }
            match shared.journal.append(&Record::Create { file, birth, epoch }, Box::new(|_| {})) {
                None => return recorded,
                Some(turn) => recorded.turn = turn,
            }
            *has_creation = true;
        }
        // The journal keeps their order: the last one is told when all are on disk.
        let mut waiter = Some(waiter);
        for (at, (offset, bytes)) in pieces.iter().enumerate() {
            let waiter = waiter.take_if(|_| at + 1 == pieces.len()).unwrap_or_else(|| Box::new(|_| {}));
            let write = Record::Write { file, birth, epoch, offset: *offset, bytes };
            let Some(turn) = shared.journal.append(&write, waiter) else { return recorded };
            record.promise_length(offset + bytes.len() as u64);
            recorded.turn = recorded.turn.or(turn);
        }
        recorded.is_recorded = true;
        recorded
    }

    /// A record of a write did not come to the disk: only a sync brings it there.
    pub fn note_unrecorded(&self) {
        self.unsynced.note_past();
    }

    /// Brings everything written so far, and the replica's name, to the disk, and sees to it that no replay goes over it.
    pub fn settle(&self, shared: &PoolParts) -> Result<(), PoolError> {
        self.flush(shared)?;
        self.settle_file(shared)
    }

    /// The same of what is in the file.
    fn settle_file(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let (past, newest) = self.sync(shared)?;
        if newest.is_some() {
            shared.journal.barrier(shared)?;
        }
        self.unsynced.note_stable(past);
        Ok(())
    }

    /// As [`Replica::settle`] before a note of it is on disk. Returns the changes past the journal that are stable then.
    pub fn write_back(&self, shared: &PoolParts) -> Result<u64, PoolError> {
        self.sync(shared).map(|(past, _)| past)
    }

    fn sync(&self, shared: &PoolParts) -> Result<(u64, Option<u64>), PoolError> {
        let past = self.unsynced.past();
        let (newest, length) = {
            // A write that was done before this has its record.
            let _recording = self.recording.lock();
            (shared.journal.newest(self.id()), self.file.record().promised_length())
        };
        let is_recorded = newest.is_none_or(|newest| shared.journal.is_durable(newest));
        self.unsynced.settle(shared, &self.file, Promise { length, is_recorded })?;
        if let Some(newest) = newest {
            shared.journal.settled(self.id(), newest);
        }
        Ok((past, newest))
    }

    /// There is no file of it any more that a replay might write to.
    pub fn is_gone(&self) -> bool {
        self.file.is_removed() || self.file.is_known_as_orphaned()
    }

    pub fn is_broken_on_disk(&self) -> bool {
        self.file.record().faults.is_broken_recorded()
    }

    /// Before a change without a record, under `ordering` alone.
    fn settle_records(&self, shared: &PoolParts) -> Result<(), PoolError> {
        if shared.journal.newest(self.id()).is_some() { self.settle_file(shared) } else { Ok(()) }
    }

    pub fn truncate(&self, shared: &PoolParts, size: u64) -> Result<ReplicaFacts, PoolError> {
        if size > write::OFFSET_MAX {
            return Err(PoolError::TooLarge);
        }
        {
            let _ordering = self.ordering.write();
            self.file.load(shared)?;
            if self.file.is_removed() {
                return Err(PoolError::NoReplica(shared.id()));
            }
            self.file.check_unbroken(shared)?;
            if self.file.open().is_none() && size == 0 {
                return Ok(self.file.facts_of_none(0));
            }
            let failed = |errno| shared.write_failure("truncate a replica", errno);
            let file = self.file.create(shared)?;
            let record = self.file.record();
            let known = record.known_length();
            let extent = look_at(file).map_err(failed)?;
            self.file.check_linked(shared, extent)?;
            if extent.size < size {
                record.check_end(shared, known, extent.size)?;
            }
            // Gathered bytes may lie beyond the end of the file: it gets the length all the same.
            if self.gathered.length(extent.size) != size || extent.size != size {
                self.settle_records(shared)?;
                let cut = record.cut(shared, file, size);
                self.note_change(shared);
                cut.map_err(failed)?;
                shared.store.faults.in_cut();
                self.cut_gathered(size);
            } else {
                record.claim_length(size);
            }
        }
        // Also what an earlier process wrote and did not sync: from here on it is a length that somebody was promised. Gathered bytes
        // below it stay unstable: on a full disk their flush would fail a truncation that is done.
        if !self.unsynced.is_empty() || !self.file.record().is_known_to(size) {
            self.settle_file(shared)?;
        }
        let gone = self.file.facts_of_none(size);
        Ok(self.facts(shared)?.unwrap_or(gone))
    }

    pub fn remove(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        self.file.remove(shared)?;
        // For those who have it open. No later write is gathered, so that none waits here for a flush that does not find it.
        if self.flush_ordered(shared).is_err() {
            self.file.record().faults.note_broken();
            self.cut_gathered(0);
        }
        Ok(())
    }

    pub fn fence(&self, shared: &PoolParts, epoch: Epoch) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        self.file.load(shared)?;
        let record = self.file.record();
        if self.file.is_removed() || record.fence.has_recorded(epoch) {
            return Ok(());
        }
        // Refused from here on, also if it cannot be written down and the caller has to come again.
        record.fence.raise(epoch);
        match self.file.open() {
            Some(file) => {
                let failed = |errno| shared.write_failure("write a fence", errno);
                record.write_label(shared, file).map_err(failed)?;
                self.unsynced.settle_label(shared, &self.file, file)?;
            }
            None => shared.index.fence(self.id(), epoch).map_err(|reason| PoolError::Io {
                pool: shared.id(),
                operation: "write a fence",
                reason,
            })?,
        }
        record.fence.note_recorded(epoch);
        Ok(())
    }

    /// Also after a failure, which may have come half-way.
    fn note_change(&self, shared: &PoolParts) {
        self.note_write(shared);
        self.unsynced.note_past();
    }

    /// The same of a change that the journal may have.
    fn note_write(&self, shared: &PoolParts) {
        self.unsynced.note_write();
        shared.index.note(self.id());
    }
}

fn explain(shared: &PoolParts, failure: WriteFailure) -> PoolError {
    match failure {
        WriteFailure::Write(errno) => shared.write_failure("write data", errno),
        WriteFailure::Busy => PoolError::Busy(shared.id()),
    }
}
