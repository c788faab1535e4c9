//! The facts that the label of a replica and tickets state: file, birth, fencing epoch, length, faults.
//!
//! The birth belongs to the file that was made then, and to no other with the same id. It stands in the label. A replica
//! with an older label takes the birth from the first ticket that may change the replica; the next write of the label
//! records it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use api::{Birth, PoolError};
use rustix::io::Errno;
use types::FileId;

use super::claim::Claim;
use super::faults::Faults;
use super::fence::Fence;
use super::length::{KnownLength, Length};
use crate::label::{self, Label};
use crate::parts::PoolParts;

pub struct Record {
    file: FileId,
    /// Of its file ([`Birth`]); 0 as long as it is not known.
    birth: AtomicU32,
    pub fence: Fence,
    pub faults: Faults,
    length: Length,
}

impl Record {
    pub fn new(file: FileId) -> Record {
        Record {
            file,
            birth: AtomicU32::new(0),
            fence: Fence::default(),
            faults: Faults::new(file),
            length: Length::default(),
        }
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    pub fn birth(&self) -> Birth {
        Birth(self.birth.load(Ordering::Acquire))
    }

    /// From the label, when the file is found and has `size` bytes.
    pub fn learn(&self, labelled: &Label, size: u64) {
        self.length.learn(labelled.length, size);
        self.learn_birth(labelled.birth);
    }

    /// From the label, or from a ticket that may change the replica.
    pub fn learn_birth(&self, birth: Birth) {
        let unknown = Birth::UNKNOWN.0;
        let _ = self.birth.compare_exchange(unknown, birth.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// An error if the ticket is fenced, or of another file of this id, or if the replica is damaged.
    pub fn check_claim(&self, shared: &PoolParts, claim: Claim) -> Result<(), PoolError> {
        self.fence.check(claim.epoch)?;
        self.faults.check_undamaged(shared)?;
        self.check_birth(shared, claim.birth)
    }

    pub fn check_birth(&self, shared: &PoolParts, birth: Birth) -> Result<(), PoolError> {
        if self.birth().agrees_with(birth) {
            return Ok(());
        }
        let reason = "its replica is that of another file, which was made at another time";
        Err(self.faults.lost(shared, reason))
    }

    /// To be asked before the file is.
    pub fn known_length(&self) -> KnownLength {
        self.length.known()
    }

    /// All below `size` is known to be on disk.
    pub fn is_known_to(&self, size: u64) -> bool {
        self.length.covers(size)
    }

    /// The file was found to end at `end`. An error if it was longer on disk and nobody has cut it.
    pub fn check_end(&self, shared: &PoolParts, known: KnownLength, end: u64) -> Result<(), PoolError> {
        if !self.length.is_missing_behind(end, known) {
            return Ok(());
        }
        let reason = format!("its replica ends at {end}, and had {} bytes on disk", known.length);
        Err(self.faults.lost(shared, &reason))
    }

    /// Writes the label as things are.
    pub fn write_label(&self, shared: &PoolParts, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.length.lock().write(|length| self.label(shared, file, length))
    }

    /// Called with the length locked.
    fn label(&self, shared: &PoolParts, file: BorrowedFd<'_>, length: u64) -> Result<(), Errno> {
        label::write(file, &shared.store.label(self.file, self.birth(), self.fence.epoch(), length))
    }

    /// Before a sync: what it brings to the disk at least, unless a cut comes in between. `look` asks the file how long
    /// it is.
    pub fn length_to_sync(
        &self,
        look: impl FnOnce() -> Result<u64, PoolError>,
    ) -> Result<KnownLength, PoolError> {
        let labelling = self.length.lock();
        Ok(labelling.to_sync(look()?))
    }

    /// The file was written up to `end`, or has got that length.
    pub fn claim_length(&self, end: u64) {
        self.length.claim(end);
    }

    /// The journal has a record of a write up to `end`.
    pub fn promise_length(&self, end: u64) {
        self.length.promise(end);
    }

    pub fn promised_length(&self) -> u64 {
        self.length.promised()
    }

    /// The label on disk may state less than was promised.
    pub fn is_promise_due(&self, promised: u64) -> bool {
        self.length.is_due(promised)
    }

    /// Writes a promised length into the label, for the next sync of the whole file.
    pub fn keep_promise(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        promised: u64,
    ) -> Result<KnownLength, Errno> {
        self.length.lock().keep_promise(promised, |length| self.label(shared, file, length))
    }

    /// After that sync.
    pub fn note_promise_kept(&self, kept: KnownLength) {
        self.length.lock().note_durable(kept);
    }

    /// After the sync. The label goes to the disk with what comes next.
    pub fn note_synced(&self, shared: &PoolParts, file: BorrowedFd<'_>, synced: KnownLength) {
        if self.is_known_to(synced.length) {
            return;
        }
        let labelling = self.length.lock();
        if self.length.was_cut_since(synced) || self.is_known_to(synced.length) {
            return;
        }
        if let Err(errno) = labelling.raise(synced.length, |length| self.label(shared, file, length)) {
            tracing::debug!(pool = %shared.id(), file = %self.file, %errno, "label keeps an old length");
        }
    }

    /// Sets the file's length. Under `ordering`, alone. From here on the label tells a cut from a loss: a start after a kill
    /// looks at it.
    pub fn cut(&self, shared: &PoolParts, file: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
        let labelling = self.length.lock();
        let promised = labelling.begin_cut(size, |length| self.label(shared, file, length))?;
        // If that fails, the bytes are there, and the next sync has the label state them again.
        let cut = rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, size));
        match cut {
            Ok(()) => self.length.claim(u64::MAX),
            Err(_) => self.length.promise(promised),
        }
        cut
    }
}
