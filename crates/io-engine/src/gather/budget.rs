//! The memory that the gathered writes of all files of a pool share, and the order in which extents are due.
//!
//! Invariants: the charged bytes and fragments never pass the limits. Every open extent stands in the queue once; one
//! that is in flight or failed stands in none, and stays charged.
//!
//! The lock is held for a few steps in memory. It is taken after the lock of a file's `Gather`, so nothing here calls
//! back into one: [`Budget::due`] names files, and its caller takes their extents.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use types::FileId;

use super::counters::{Counters, GatherCounts};
use super::limits::GatherLimits;
use super::memory::Memories;
use super::verdict::Bypass;

pub struct Budget {
    limits: GatherLimits,
    charges: Mutex<Charges>,
    counters: Counters,
    memories: Arc<Memories>,
}

#[derive(Default)]
struct Charges {
    bytes: usize,
    fragments: usize,
    /// Open extents, the oldest first.
    queue: BTreeMap<Position, FileId>,
    /// Makes positions of one time distinct.
    opened: u64,
    is_tight: bool,
}

type Position = (Instant, u64);

/// Memory in use, of all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    pub bytes: usize,
    pub fragments: usize,
    /// Extents that are neither in flight nor failed.
    pub open_extents: usize,
}

/// A file whose extents opened up to a time are to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub file: FileId,
    pub opened_until: Instant,
}

/// Room for new extents and fragments that is taken and not yet shared out.
pub(super) struct Reserved<'a> {
    budget: &'a Arc<Budget>,
    extents: usize,
    fragments: usize,
}

/// The share of one extent. Dropping it gives the memory back.
pub(super) struct Charge {
    budget: Arc<Budget>,
    fragments: usize,
    position: Option<Position>,
}

impl Budget {
    pub fn new(limits: GatherLimits) -> Arc<Budget> {
        limits.check();
        let memories = Memories::new(limits.extent_bytes, limits.pool_bytes_max);
        Arc::new(Budget { limits, charges: Mutex::default(), counters: Counters::default(), memories })
    }

    pub fn limits(&self) -> &GatherLimits {
        &self.limits
    }

    pub fn in_use(&self) -> BudgetUse {
        let charges = self.charges.lock();
        BudgetUse { bytes: charges.bytes, fragments: charges.fragments, open_extents: charges.queue.len() }
    }

    pub fn counts(&self) -> GatherCounts {
        self.counters.snapshot()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// While the memory of the host is tight, no write is gathered and every open extent is due.
    pub fn set_tight(&self, is_tight: bool) {
        self.charges.lock().is_tight = is_tight;
        if is_tight {
            self.memories.free_kept();
        }
    }

    pub(super) fn memories(&self) -> &Arc<Memories> {
        &self.memories
    }

    pub(super) fn is_tight(&self) -> bool {
        self.charges.lock().is_tight
    }

    /// At most `files_max` files with extents that are to be flushed: those older than `age_max`, and the oldest while
    /// open extents take more than three quarters of the memory. The last quarter is for extents in flight.
    pub fn due(&self, now: Instant, files_max: usize) -> Vec<Due> {
        let limits = &self.limits;
        let charges = self.charges.lock();
        let calm_extents = limits.pool_bytes_max / 4 * 3 / limits.extent_bytes;
        let mut over = match charges.is_tight {
            true => charges.queue.len(),
            false => charges.queue.len().saturating_sub(calm_extents),
        };
        let mut due = BTreeMap::<FileId, Instant>::new();
        let _ = charges.queue.iter().try_for_each(|(&(opened, _), &file)| {
            let is_old = now.saturating_duration_since(opened) >= limits.age_max;
            let is_room = due.len() < files_max || due.contains_key(&file);
            if !(is_old || over > 0) || !is_room {
                return ControlFlow::Break(());
            }
            over = over.saturating_sub(1);
            // The queue is in the order of time, so the last is the latest.
            due.insert(file, opened);
            ControlFlow::Continue(())
        });
        due.into_iter().map(|(file, opened_until)| Due { file, opened_until }).collect()
    }

    /// Time at which the oldest extent is due by its age.
    pub fn next_due(&self) -> Option<Instant> {
        let charges = self.charges.lock();
        let (&(opened, _), _) = charges.queue.first_key_value()?;
        Some(opened + self.limits.age_max)
    }

    /// All of it or nothing.
    pub(super) fn reserve(
        self: &Arc<Self>,
        extents: usize,
        fragments: usize,
    ) -> Result<Reserved<'_>, Bypass> {
        let mut charges = self.charges.lock();
        let bytes = charges.bytes + extents * self.limits.extent_bytes;
        if bytes > self.limits.pool_bytes_max && extents > 0 {
            return Err(Bypass::NoMemory);
        }
        if charges.fragments + fragments > self.limits.pool_fragments_max {
            return Err(Bypass::NoFragments);
        }
        charges.bytes = bytes;
        charges.fragments += fragments;
        Ok(Reserved { budget: self, extents, fragments })
    }

    fn release(&self, bytes: usize, fragments: usize, position: Option<Position>) {
        let mut charges = self.charges.lock();
        charges.bytes -= bytes;
        charges.fragments -= fragments;
        if let Some(position) = position {
            charges.queue.remove(&position);
        }
    }
}

impl Reserved<'_> {
    /// The share of an extent that opens now, without fragments yet.
    pub(super) fn open(&mut self, file: FileId, now: Instant) -> Charge {
        assert!(self.extents > 0, "room was reserved for each extent");
        self.extents -= 1;
        let mut charges = self.budget.charges.lock();
        charges.opened += 1;
        let position = (now, charges.opened);
        charges.queue.insert(position, file);
        Charge { budget: Arc::clone(self.budget), fragments: 0, position: Some(position) }
    }

    /// Moves room to an extent that has grown by `fragments`.
    pub(super) fn grow(&mut self, charge: &mut Charge, fragments: usize) {
        assert!(self.fragments >= fragments, "room was reserved for each fragment");
        self.fragments -= fragments;
        charge.fragments += fragments;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let bytes = self.extents * self.budget.limits.extent_bytes;
        if bytes > 0 || self.fragments > 0 {
            self.budget.release(bytes, self.fragments, None);
        }
    }
}

impl Charge {
    /// The extent is no longer open: it is in flight, or failed.
    pub(super) fn leave_queue(&mut self) {
        if let Some(position) = self.position.take() {
            self.budget.release(0, 0, Some(position));
        }
    }

    /// The extent has this many fragments, no more than before.
    pub(super) fn shrink_to(&mut self, fragments: usize) {
        assert!(fragments <= self.fragments, "more fragments need a reservation");
        if fragments < self.fragments {
            self.budget.release(0, self.fragments - fragments, None);
            self.fragments = fragments;
        }
    }

    /// Takes over the fragments of an extent that is merged into this one; its memory is given back.
    pub(super) fn absorb(&mut self, mut other: Charge) {
        self.fragments += std::mem::take(&mut other.fragments);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.budget.limits.extent_bytes, self.fragments, self.position.take());
    }
}
