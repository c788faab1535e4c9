//! The length that the replica is known to have had on disk. Bytes missing below it were lost, and are not a hole.
//!
//! It stands in the label, which is raised after a sync and lowered before a cut. So a power cut may leave it lower than the
//! data, and then less is noticed; it is never higher.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{PoolError, Presence};
use parking_lot::Mutex;
use rustix::io::Errno;
use types::Epoch;

use super::{Claim, Replica};
use crate::label;
use crate::parts::PoolParts;
use crate::store::{Extent, look_at};

#[derive(Default)]
pub struct Length {
    known: AtomicU64,
    /// The label says what is known. One of an older version does not.
    noted: AtomicBool,
    /// Cuts begun. Counted after `known` was lowered and before the file is cut.
    cuts: AtomicU64,
    /// Held while the label is written, and by a cut until the file is cut. After `ordering`.
    labelling: Mutex<()>,
    /// The log says already that something is missing.
    told: AtomicBool,
}

/// The length known before a look at the file.
#[derive(Clone, Copy)]
pub struct KnownLength {
    length: u64,
    cuts: u64,
}

impl Replica {
    /// To be asked before the file is.
    pub fn known(&self) -> KnownLength {
        let cuts = self.length.cuts.load(Ordering::Acquire);
        KnownLength { length: self.length.known.load(Ordering::Acquire), cuts }
    }

    /// As the label says, when the file is found.
    pub(super) fn learn_length(&self, length: Option<u64>) {
        self.length.known.store(length.unwrap_or_default(), Ordering::Release);
        self.length.noted.store(length.is_some(), Ordering::Release);
    }

    /// All below `size` is known to be on disk.
    pub(super) fn is_known_to(&self, size: u64) -> bool {
        size <= self.length.known.load(Ordering::Acquire)
    }

    /// The file was found to end at `end`. An error if it was longer on disk and nobody has cut it.
    pub fn check_end(&self, shared: &PoolParts, known: KnownLength, end: u64) -> Result<(), PoolError> {
        if end >= known.length || self.length.cuts.load(Ordering::Acquire) != known.cuts {
            return Ok(());
        }
        Err(self.lost(shared, &format!("its replica ends at {end}, and had {} bytes on disk", known.length)))
    }

    /// An error if bytes are missing that were on disk.
    pub fn check_whole(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let known = self.known();
        match self.open_file() {
            Some(file) if known.length > 0 => {
                let size = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?.size;
                self.check_end(shared, known, size)
            }
            _ => Ok(()),
        }
    }

    /// An error if somebody else than the head has removed the open file, or put another in its place: bytes written to
    /// it go with the last descriptor.
    pub(super) fn check_linked(&self, shared: &PoolParts, extent: Extent) -> Result<(), PoolError> {
        if !extent.is_unlinked {
            return Ok(());
        }
        // A removal holds it until it is known as one.
        let _opening = self.opening.lock();
        if self.is_removed() {
            return Ok(());
        }
        if !self.orphaned.swap(true, Ordering::AcqRel) {
            shared.counters.replicas.subtract(1);
            shared.index.note(self.file);
        }
        Err(self.lost(shared, "its replica was removed, and not by the head"))
    }

    /// Whether what is written here goes nowhere, as `check_linked` says.
    pub fn is_orphaned(&self, shared: &PoolParts) -> Result<bool, PoolError> {
        let Some(file) = self.open_file() else { return Ok(false) };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        Ok(self.check_linked(shared, extent).is_err())
    }

    /// An error if the ticket says that there is a file, and there is none.
    pub fn check_present(&self, shared: &PoolParts, claim: Claim) -> Result<(), PoolError> {
        match claim.presence {
            _ if self.open_file().is_some() => Ok(()),
            Presence::Unmade => Ok(()),
            Presence::Made => Err(PoolError::NoReplica(shared.id())),
            Presence::Written => Err(self.lost(shared, "it has data, and its replica is gone")),
        }
    }

    pub(super) fn lost(&self, shared: &PoolParts, reason: &str) -> PoolError {
        let (pool, file) = (shared.id(), self.file);
        if !self.length.told.swap(true, Ordering::AcqRel) {
            tracing::error!(%pool, %file, reason, "data of a file is missing");
        }
        PoolError::Io { pool, operation: "find the data of the file", reason: reason.to_owned() }
    }

    /// Writes the label as things are.
    pub(super) fn write_label(&self, shared: &PoolParts, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let _labelling = self.length.labelling.lock();
        self.label(shared, file, self.length.known.load(Ordering::Acquire))
    }

    /// Called with `labelling` held.
    fn label(&self, shared: &PoolParts, file: BorrowedFd<'_>, length: u64) -> Result<(), Errno> {
        let epoch = Epoch(self.epoch.load(Ordering::Acquire));
        label::write(file, &shared.store.label(self.file, self.birth(), epoch, length))?;
        self.length.noted.store(true, Ordering::Release);
        Ok(())
    }

    /// Before a sync: what it brings to the disk at least, unless a cut comes in between.
    pub(super) fn length_to_sync(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
    ) -> Result<KnownLength, PoolError> {
        let _labelling = self.length.labelling.lock();
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        self.check_linked(shared, extent)?;
        Ok(KnownLength { length: extent.size, cuts: self.length.cuts.load(Ordering::Acquire) })
    }

    /// After the sync. The label goes to the disk with what comes next.
    pub(super) fn note_synced(&self, shared: &PoolParts, file: BorrowedFd<'_>, synced: KnownLength) {
        if synced.length <= self.length.known.load(Ordering::Acquire) {
            return;
        }
        let _labelling = self.length.labelling.lock();
        let is_old = self.length.cuts.load(Ordering::Acquire) != synced.cuts;
        if is_old || synced.length <= self.length.known.load(Ordering::Acquire) {
            return;
        }
        match self.label(shared, file, synced.length) {
            Ok(()) => self.length.known.store(synced.length, Ordering::Release),
            Err(errno) => {
                tracing::debug!(pool = %shared.id(), file = %self.file, %errno, "label keeps an old length")
            }
        }
    }

    /// Sets the file's length. Under `ordering`, alone. From here on the label tells a cut from a loss: a start after a kill
    /// looks at it.
    pub(super) fn cut(&self, shared: &PoolParts, file: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
        let _labelling = self.length.labelling.lock();
        let known = self.length.known.load(Ordering::Acquire);
        if size < known || !self.length.noted.load(Ordering::Acquire) {
            self.label(shared, file, size.min(known))?;
            self.length.known.store(size.min(known), Ordering::Release);
        }
        self.length.cuts.fetch_add(1, Ordering::AcqRel);
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, size))
    }
}
