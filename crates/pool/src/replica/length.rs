//! The length that the replica is known to have had on disk. Bytes missing below it were lost, and are not a hole.
//!
//! It stands in the label, which is raised after a sync and lowered before a cut. So a power cut may leave it lower than the
//! data, and then less is noticed. It is higher only where the journal has records of the rest on disk: a length that the
//! journal promises is on disk in the label before the records go.
//!
//! A replica may be longer than its label when it is found: a write or a longer length that was under way at a kill left bytes
//! that nobody was promised. The label does not state these unless somebody writes them again: the namespace would take the
//! length over from it after the next kill.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

#[derive(Default)]
pub struct Length {
    known: AtomicU64,
    /// The label says what is known. One of an older version does not.
    noted: AtomicBool,
    /// Of the writes that the journal has, or had.
    promised: AtomicU64,
    /// Of the label on disk, at least.
    durable: AtomicU64,
    /// Cuts begun. Counted after `known` was lowered and before the file is cut.
    cuts: AtomicU64,
    /// The file was longer than its label when it was found.
    has_tail: AtomicBool,
    tail: Mutex<Option<Tail>>,
    /// Held while the label is written, and by a cut until the file is cut. After `ordering`.
    labelling: Mutex<()>,
}

/// Bytes that were found behind the length of the label.
struct Tail {
    end: u64,
    /// The label's length, or the end of what was written since.
    claimed: u64,
}

/// The length known before a look at the file.
#[derive(Clone, Copy)]
pub struct KnownLength {
    pub length: u64,
    cuts: u64,
}

/// The right to write the label.
pub struct Labelling<'a> {
    length: &'a Length,
    _held: MutexGuard<'a, ()>,
}

impl Length {
    /// To be asked before the file is.
    pub fn known(&self) -> KnownLength {
        let cuts = self.cuts.load(Ordering::Acquire);
        KnownLength { length: self.known.load(Ordering::Acquire), cuts }
    }

    /// As the label says, when the file is found and has `size` bytes.
    pub fn learn(&self, length: Option<u64>, size: u64) {
        self.known.store(length.unwrap_or_default(), Ordering::Release);
        self.noted.store(length.is_some(), Ordering::Release);
        let tail = length.filter(|length| *length < size).map(|claimed| Tail { end: size, claimed });
        self.has_tail.store(tail.is_some(), Ordering::Release);
        *self.tail.lock() = tail;
    }

    /// The file was written up to `end`, or has got that length.
    pub fn claim(&self, end: u64) {
        if !self.has_tail.load(Ordering::Acquire) {
            return;
        }
        let mut tail = self.tail.lock();
        if let Some(left) = &mut *tail {
            left.claimed = left.claimed.max(end);
        }
        tail.take_if(|left| left.claimed >= left.end);
        self.has_tail.store(tail.is_some(), Ordering::Release);
    }

    /// The length that the label may state after a sync of a file of `size` bytes.
    fn claimed(&self, size: u64) -> u64 {
        if !self.has_tail.load(Ordering::Acquire) {
            return size;
        }
        self.tail.lock().as_ref().filter(|tail| size <= tail.end).map_or(size, |tail| size.min(tail.claimed))
    }

    /// All below `size` is known to be on disk.
    pub fn covers(&self, size: u64) -> bool {
        size <= self.known.load(Ordering::Acquire)
    }

    /// The file was found to end at `end`, and nobody has cut it: it was longer on disk.
    pub fn is_missing_behind(&self, end: u64, known: KnownLength) -> bool {
        end < known.length && !self.was_cut_since(known)
    }

    pub fn was_cut_since(&self, known: KnownLength) -> bool {
        self.cuts.load(Ordering::Acquire) != known.cuts
    }

    /// A stable write up to `end` has a record. Called before that may be settled.
    pub fn promise(&self, end: u64) {
        self.promised.fetch_max(end, Ordering::AcqRel);
    }

    /// As promised so far.
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Acquire)
    }

    /// The label on disk may state less.
    pub fn is_due(&self, promised: u64) -> bool {
        promised.min(self.promised()) > self.durable.load(Ordering::Acquire)
    }

    pub fn lock(&self) -> Labelling<'_> {
        Labelling { length: self, _held: self.labelling.lock() }
    }
}

impl Labelling<'_> {
    /// The length that a sync brings to the disk at least, unless a cut comes in between.
    pub fn to_sync(&self, size: u64) -> KnownLength {
        let cuts = self.length.cuts.load(Ordering::Acquire);
        KnownLength { length: self.length.claimed(size), cuts }
    }

    /// Writes the label as things are.
    pub fn write(&self, label: impl FnOnce(u64) -> Result<(), Errno>) -> Result<(), Errno> {
        self.write_length(self.length.known.load(Ordering::Acquire), label)
    }

    fn write_length(&self, length: u64, label: impl FnOnce(u64) -> Result<(), Errno>) -> Result<(), Errno> {
        label(length)?;
        self.length.noted.store(true, Ordering::Release);
        Ok(())
    }

    /// After a sync that found the file `length` long.
    pub fn raise(&self, length: u64, label: impl FnOnce(u64) -> Result<(), Errno>) -> Result<(), Errno> {
        self.write_length(length, label)?;
        self.length.known.store(length, Ordering::Release);
        Ok(())
    }

    /// Before a sync of the whole file: states what was promised then and was not cut off since. Returns what the sync brings
    /// to the disk, unless a cut comes in between.
    pub fn keep_promise(
        &self,
        promised: u64,
        label: impl FnOnce(u64) -> Result<(), Errno>,
    ) -> Result<KnownLength, Errno> {
        let promised = promised.min(self.length.promised());
        if !self.length.covers(promised) {
            self.raise(promised, label)?;
        }
        Ok(self.length.known())
    }

    /// After that sync.
    pub fn note_durable(&self, kept: KnownLength) {
        if !self.length.was_cut_since(kept) {
            self.length.durable.fetch_max(kept.length, Ordering::AcqRel);
        }
    }

    /// Before the file is cut to `size`. Returns what was promised, for a cut that fails.
    pub fn begin_cut(&self, size: u64, label: impl FnOnce(u64) -> Result<(), Errno>) -> Result<u64, Errno> {
        let known = self.length.known.load(Ordering::Acquire);
        if size < known || !self.length.noted.load(Ordering::Acquire) {
            self.write_length(size.min(known), label)?;
            self.length.known.store(size.min(known), Ordering::Release);
        }
        self.length.cuts.fetch_add(1, Ordering::AcqRel);
        // Its records are settled, and no write is under way.
        self.length.durable.fetch_min(size, Ordering::AcqRel);
        Ok(self.length.promised.fetch_min(size, Ordering::AcqRel))
    }
}
