//! Delayed allocation: small unstable writes of a file are gathered in memory and written as complete aligned extents.
//!
//! Pure: no system call, no clock; the owner of the file makes the writes, and holds a lock around each call. A gathered
//! byte is what the page cache is to the kernel: newer than the file, lost in a crash, and covered by COMMIT.
//!
//! Invariants: the bytes of an acknowledged write are in the file, in flight or in memory, until a newer write or a cut
//! replaces them; also after a failed flush. At most one flush of an extent is in flight, and a newer one of the same
//! extent starts after it. Memory stays within the [`Budget`] of the pool.
//!
//! Deliberately absent: stable writes, which are not gathered, and the order between a flush and another write to the
//! file, which is the caller's (see [`Gather`]).

mod admission;
mod budget;
mod counters;
mod extent;
mod fragments;
mod limits;
mod memory;
mod runs;
mod verdict;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rustix::io::Errno;
use types::{ByteRange, FileId};

use crate::write::OFFSET_MAX;
use admission::{Admission, Flushed};
use extent::{About, InFlight, OpenExtent};

pub use budget::{Budget, BudgetUse, Due};
pub use counters::GatherCounts;
pub use limits::GatherLimits;
pub use runs::Runs;
pub use verdict::{Bypass, Verdict};

/// The gathered writes of one file. Its owner keeps these rules:
///
/// 1. To flush: lock the whole of an extent that [`Gather::extents`] or its like name, then [`Gather::take`] it, write each
///    piece to the file, drop the pieces, and tell [`Gather::written`]. So nothing is ever behind another flush. After the last
///    extent, [`Gather::note_together`].
/// 2. Before a write goes to the file, because it was bypassed or is stable: lock [`Gather::whole_extents`] of its range and
///    flush them, without a mark. If a flush fails, so does the write.
/// 3. COMMIT: [`Gather::mark`], then flush the extents up to the mark. If there is a [`Gather::failure`] then, it is the
///    answer. Otherwise sync the file.
/// 4. Read: [`Gather::overlay`] first, then the file, then [`Overlay::apply`]. In the other order, a flush between the two
///    would take the bytes from both.
/// 5. Truncation: change the file, then [`Gather::cut`]. No write and no flush runs meanwhile. So a cut of a full disk needs no
///    flush, and one that fails has lost no byte.
/// 6. Bytes that are freed: lock their range, free them in the file, then [`Gather::discard`].
/// 7. Search for data and holes: [`Gather::runs`] first, then the file, as in a read.
/// 8. Before the owner is given up, [`Gather::is_empty`] must hold, or the file be removed.
pub struct Gather {
    file: FileId,
    budget: Arc<Budget>,
    /// By their position in the file, in extents. Also those whose flush has failed.
    open: BTreeMap<u64, OpenExtent>,
    /// Older than the open ones of the same position.
    in_flight: BTreeMap<u64, InFlight>,
    admission: Admission,
    failure: Option<Failure>,
    /// Numbers writes and flushes.
    sequence: u64,
}

/// An extent that is to be written to the file.
#[derive(Debug)]
pub struct Flush {
    pub id: FlushId,
    /// In the order of their offsets. One that is as long as the extent, if it is complete.
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlushId {
    position: u64,
    number: u64,
}

/// Bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub data: Bytes,
}

/// The flushes that bring some bytes to the file.
#[must_use]
#[derive(Debug, Default)]
pub struct Take {
    pub flushes: Vec<Flush>,
    /// Flushes in flight of the same bytes: none, if the owner locks whole extents. If there are any, take again after they
    /// were told.
    pub behind: Vec<FlushId>,
}

/// Extents that are taken one after the other for the same reason.
#[must_use]
#[derive(Debug, Default)]
pub struct Together(Flushed);

/// A time in the order of the writes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The gathered bytes of a range at one moment.
#[must_use]
#[derive(Debug, Default)]
pub struct Overlay {
    /// A later piece is newer.
    pieces: Vec<Piece>,
}

/// A flush has failed: every COMMIT is answered with the error.
///
/// The bytes stay in memory and are tried again by each COMMIT and before each overlapping write. After an error of the
/// device the failure stays for ever, as the kernel's own write-back has lost bytes of such a file. Any other error, as of a
/// full disk, loses nothing: that failure ends when all of the bytes are in the file, or were cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub errno: Errno,
    pub is_passing: bool,
}

impl Failure {
    /// A write that failed so has lost nothing: its bytes are in memory, and those before it are where they were.
    pub fn is_passing(errno: Errno) -> bool {
        let is_of_device = matches!(
            errno,
            Errno::IO | Errno::NXIO | Errno::NODEV | Errno::UCLEAN | Errno::SHUTDOWN | Errno::STALE
        );
        !is_of_device
    }
}

/// The bytes of a write, or of another range, that lie in one extent.
struct Part {
    position: u64,
    /// Within the extent.
    at: Range<usize>,
}

impl Gather {
    pub fn new(file: FileId, budget: Arc<Budget>) -> Gather {
        Gather {
            file,
            budget,
            open: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            admission: Admission::default(),
            failure: None,
            sequence: 0,
        }
    }

    /// Of an unstable write.
    pub fn write(&mut self, offset: u64, data: &[u8], now: Instant) -> Verdict {
        match self.try_write(offset, data, now) {
            Ok(completes) => {
                self.budget.counters().note_gathered(data.len());
                Verdict::Gathered { completes }
            }
            Err(reason) => {
                self.budget.counters().note_bypassed(reason);
                Verdict::Bypassed(reason)
            }
        }
    }

    /// The length that readers of the file see, if the file itself has `file_bytes`.
    pub fn length(&self, file_bytes: u64) -> u64 {
        let end = |position: u64, about: &About| self.base(position) + about.fragments.end() as u64;
        let open = self.open.last_key_value().map_or(0, |(at, extent)| end(*at, &extent.about));
        let in_flight = self.in_flight.last_key_value().map_or(0, |(at, flight)| end(*at, &flight.about));
        file_bytes.max(open).max(in_flight)
    }

    pub fn overlay(&self, range: ByteRange) -> Overlay {
        let mut pieces = Vec::new();
        for (&position, flight) in self.in_flight.range(self.positions(range)) {
            pieces.extend(flight.pieces(self.base(position), self.clip(position, range)));
        }
        for (&position, extent) in self.open.range(self.positions(range)) {
            pieces.extend(extent.copy(self.base(position), self.clip(position, range)));
        }
        Overlay { pieces }
    }

    /// Where there are gathered bytes of a range.
    pub fn runs(&self, range: ByteRange) -> Runs {
        let open = self.open.range(self.positions(range)).map(|(at, extent)| (*at, &extent.about));
        let in_flight = self.in_flight.range(self.positions(range)).map(|(at, flight)| (*at, &flight.about));
        let of_extent = |(position, about): (u64, &About)| -> Vec<ByteRange> {
            let (base, within) = (self.base(position), self.clip(position, range));
            let fragments = about.fragments.within(within);
            fragments.filter_map(|it| ByteRange::new(base + it.start as u64, it.len() as u64)).collect()
        };
        Runs::new(open.chain(in_flight).flat_map(of_extent).collect())
    }

    /// The first gathered bytes of a range, as far as they lie in one extent; those behind them may be gathered, too.
    pub fn first(&self, range: ByteRange) -> Option<ByteRange> {
        let first_of = |position: u64, about: &About| {
            let at = about.fragments.within(self.clip(position, range)).next()?;
            ByteRange::new(self.base(position) + at.start as u64, at.len() as u64)
        };
        let mut open = self.open.range(self.positions(range));
        let mut in_flight = self.in_flight.range(self.positions(range));
        let open = open.find_map(|(at, extent)| first_of(*at, &extent.about));
        let in_flight = in_flight.find_map(|(at, flight)| first_of(*at, &flight.about));
        open.into_iter().chain(in_flight).min_by_key(|bytes| bytes.offset())
    }

    /// No byte is in memory: the file has them all.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty()
    }

    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Behind all writes so far. Later ones may go on without end; a caller that takes up to the mark does not wait for
    /// them.
    pub fn mark(&self) -> Mark {
        Mark(self.sequence)
    }

    /// Takes the extents that have bytes of a range, and were opened before the mark. `together`: with the other extents that
    /// are taken for the same reason.
    pub fn take(&mut self, range: ByteRange, mark: Mark, together: &mut Together) -> Take {
        let is_wanted = |this: &Gather, position: u64, about: &About| {
            about.first_write < mark.0 && about.fragments.overlap(this.clip(position, range))
        };
        let open = self.open.range(self.positions(range));
        let open = open.filter(|(at, extent)| is_wanted(self, **at, &extent.about));
        let wanted: Vec<u64> = open.map(|(position, _)| *position).collect();
        let flights = self.in_flight.range(self.positions(range)).filter(|(position, flight)| {
            wanted.binary_search(position).is_ok() || is_wanted(self, **position, &flight.about)
        });
        let behind = flights.map(|(_, flight)| flight.id).collect();
        let flushes = wanted.into_iter().filter_map(|position| self.take_off(position, &mut together.0));
        Take { flushes: flushes.collect(), behind }
    }

    /// After the extents were taken: says how much the file may gather from now on. A COMMIT takes extents that had no time to be
    /// filled: they count as one.
    pub fn note_together(&mut self, together: Together) {
        self.admission.note_flush(together.0, self.budget.limits());
    }

    /// The extents that have bytes of a range, open or in flight, and were opened before the mark.
    pub fn extents(&self, range: ByteRange, mark: Mark) -> Vec<ByteRange> {
        self.extents_if(|position, about| {
            about.first_write < mark.0 && about.fragments.overlap(self.clip(position, range))
        })
    }

    /// The extents whose first write was at `opened` or sooner, as [`Budget::due`] names them, but for those whose flush has
    /// failed.
    pub fn extents_opened_until(&self, opened: Instant) -> Vec<ByteRange> {
        self.extents_if(|_, about| about.opened <= opened && !about.has_failed)
    }

    /// Extents that are complete, and those that have too many separate ranges.
    pub fn extents_ready(&self) -> Vec<ByteRange> {
        let ready = self.open.iter().filter(|(_, extent)| extent.is_ready());
        ready.filter_map(|(position, _)| self.extent(*position)).collect()
    }

    /// The extents that a range touches, as one range.
    pub fn whole_extents(&self, range: ByteRange) -> ByteRange {
        let positions = self.positions(range);
        let end = positions.end.saturating_mul(self.budget.limits().extent_bytes as u64);
        ByteRange::from_bounds(self.base(positions.start), end).expect("a range is not empty")
    }

    /// The flushes in flight that have bytes of a range.
    pub fn behind(&self, range: ByteRange) -> Vec<FlushId> {
        let flights = self.in_flight.range(self.positions(range));
        let flights = flights.filter(|(at, flight)| flight.about.fragments.overlap(self.clip(**at, range)));
        flights.map(|(_, flight)| flight.id).collect()
    }

    /// The flush is over: all of its pieces are in the file, or some may be missing.
    pub fn written(&mut self, id: FlushId, outcome: Result<(), Errno>) {
        let flight = self.in_flight.remove(&id.position).expect("a flush is told once");
        assert!(flight.id == id, "one flush of an extent is in flight at a time");
        if let Err(errno) = outcome {
            self.budget.counters().note_failed();
            let mut failed = flight.come_back();
            if let Some(newer) = self.open.remove(&id.position) {
                failed.absorb(newer);
            }
            self.open.insert(id.position, failed);
            self.fail(errno);
        }
        self.forget_passed_failure();
    }

    /// Forgets the gathered bytes from `size` on, and returns their number. If flushes of them are in flight, it forgets
    /// nothing and names the flushes: one that lands later would bring the bytes back.
    pub fn cut(&mut self, size: u64) -> Result<u64, Vec<FlushId>> {
        let Some(range) = ByteRange::from_bounds(size, u64::MAX) else { return Ok(0) };
        let behind = self.behind(range);
        if !behind.is_empty() {
            return Err(behind);
        }
        let extent_bytes = self.budget.limits().extent_bytes;
        let mut discarded = 0;
        for (&position, extent) in self.open.range_mut(self.positions(range)) {
            discarded += extent.cut(clip(position, range, extent_bytes).start);
        }
        self.note_discarded(discarded);
        Ok(discarded)
    }

    /// Forgets the gathered bytes of a range, whose bytes in the file are zeros now. The length stays, if the file itself has
    /// `file_bytes`: for that the last byte may stay as a zero. As a cut, it names flushes in flight.
    pub fn discard(&mut self, range: ByteRange, file_bytes: u64) -> Result<(), Vec<FlushId>> {
        let behind = self.behind(range);
        if !behind.is_empty() {
            return Err(behind);
        }
        let (extent_bytes, mut end) = (self.budget.limits().extent_bytes, range.end());
        let length = self.length(0);
        if length > file_bytes && range.offset() < length && length <= end {
            end = length - 1;
            if let Some(mut last) = self.open.last_entry() {
                // Within the extent, so it fits.
                last.get_mut().zero((end % extent_bytes as u64) as usize);
            }
        }
        let Some(range) = ByteRange::from_bounds(range.offset(), end) else { return Ok(()) };
        let (positions, fragments_max) = (self.positions(range), self.budget.limits().extent_fragments_max);
        let mut discarded = 0;
        for (&position, extent) in self.open.range_mut(positions) {
            let is_room = extent.about.fragments.len() < fragments_max;
            let room = if is_room { self.budget.reserve(0, 1).ok() } else { None };
            discarded += extent.discard(clip(position, range, extent_bytes), room);
        }
        self.note_discarded(discarded);
        Ok(())
    }
}

impl Gather {
    /// `true`: an extent is complete.
    fn try_write(&mut self, offset: u64, data: &[u8], now: Instant) -> Result<bool, Bypass> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let end = end.ok_or(Bypass::TooFar)?;
        self.admission.note_write(offset, end, self.budget.limits());
        if data.len() >= self.budget.limits().write_bytes_max {
            return Err(Bypass::Large);
        }
        let Some(range) = ByteRange::from_bounds(offset, end) else { return Ok(false) };
        let parts: Vec<Part> =
            self.positions(range).map(|position| Part { position, at: self.clip(position, range) }).collect();
        let opened = parts.iter().filter(|part| !self.open.contains_key(&part.position)).count();
        self.admit(data.len(), opened)?;
        let grown = self.grown_fragments(&parts)?;
        self.fill(&parts, data, (opened, grown), now)
    }

    fn admit(&self, bytes: usize, opened: usize) -> Result<(), Bypass> {
        if self.failure.is_some() {
            return Err(Bypass::Failed);
        }
        if self.budget.is_tight() {
            return Err(Bypass::Tight);
        }
        if opened == 0 {
            return Ok(());
        }
        if !self.admission.is_disordered() {
            return Err(Bypass::InOrder);
        }
        if bytes < self.budget.limits().opening_bytes_min {
            return Err(Bypass::Tiny);
        }
        let extents_max = self.admission.earned_extents().min(self.budget.limits().file_extents_max);
        if self.open.len() + opened > extents_max {
            return Err(Bypass::Unearned);
        }
        Ok(())
    }

    /// How many fragments the parts add, where they add any.
    fn grown_fragments(&mut self, parts: &[Part]) -> Result<usize, Bypass> {
        let mut grown = 0;
        for part in parts {
            let Some(extent) = self.open.get_mut(&part.position) else {
                grown += 1;
                continue;
            };
            let fragments = extent.about.fragments.len_with(&part.at);
            if fragments > self.budget.limits().extent_fragments_max {
                extent.is_crowded = true;
                return Err(Bypass::Fragmented);
            }
            grown += fragments.saturating_sub(extent.about.fragments.len());
        }
        Ok(grown)
    }

    fn fill(
        &mut self,
        parts: &[Part],
        mut data: &[u8],
        (opened, grown): (usize, usize),
        now: Instant,
    ) -> Result<bool, Bypass> {
        let mut reserved = self.budget.reserve(opened, grown)?;
        let number = self.sequence;
        self.sequence += 1;
        let mut completes = false;
        for part in parts {
            let extent = self.open.entry(part.position).or_insert_with(|| {
                let charge = reserved.open(self.file, now);
                OpenExtent::new(self.budget.memories().take(), charge, now, number)
            });
            let before = extent.about.fragments.len();
            let (here, rest) = data.split_at(part.at.len());
            extent.write(part.at.clone(), here);
            data = rest;
            let after = extent.about.fragments.len();
            if after > before {
                reserved.grow(&mut extent.about.charge, after - before);
            } else {
                extent.about.charge.shrink_to(after);
            }
            completes |= extent.is_complete();
        }
        Ok(completes)
    }

    /// `None` if an older flush of the extent is in flight.
    fn take_off(&mut self, position: u64, flushed: &mut Flushed) -> Option<Flush> {
        if self.in_flight.contains_key(&position) {
            return None;
        }
        let extent = self.open.remove(&position)?;
        let (writes, fragments) = (extent.about.writes, extent.about.fragments.len());
        if !extent.about.has_failed {
            flushed.extents += 1;
            flushed.writes += writes;
            flushed.fragments += fragments;
        }
        self.budget.counters().note_flushed(fragments, extent.is_complete());
        let id = FlushId { position, number: self.sequence };
        self.sequence += 1;
        let flight = extent.take_off(id);
        let pieces = flight.pieces(self.base(position), 0..self.budget.limits().extent_bytes).collect();
        self.in_flight.insert(position, flight);
        Some(Flush { id, pieces })
    }

    fn fail(&mut self, errno: Errno) {
        let is_passing = Failure::is_passing(errno);
        if self.failure.is_none_or(|earlier| earlier.is_passing) {
            self.failure = Some(Failure { errno, is_passing });
        }
    }

    fn forget_passed_failure(&mut self) {
        let open = self.open.values().map(|extent| &extent.about);
        let mut abouts = open.chain(self.in_flight.values().map(|flight| &flight.about));
        if self.failure.is_some_and(|failure| failure.is_passing) && !abouts.any(|about| about.has_failed) {
            self.failure = None;
        }
    }

    fn note_discarded(&mut self, bytes: u64) {
        self.open.retain(|_, extent| !extent.about.fragments.is_empty());
        self.forget_passed_failure();
        self.budget.counters().note_discarded(bytes);
    }

    fn extents_if(&self, is_wanted: impl Fn(u64, &About) -> bool) -> Vec<ByteRange> {
        let open = self.open.iter().map(|(position, extent)| (*position, &extent.about));
        let in_flight = self.in_flight.iter().map(|(position, flight)| (*position, &flight.about));
        let wanted = open.chain(in_flight).filter(|(position, about)| is_wanted(*position, about));
        let positions: BTreeSet<u64> = wanted.map(|(position, _)| position).collect();
        positions.into_iter().filter_map(|position| self.extent(position)).collect()
    }

    fn extent(&self, position: u64) -> Option<ByteRange> {
        ByteRange::new(self.base(position), self.budget.limits().extent_bytes as u64)
    }

    /// Offset of the first byte of an extent.
    fn base(&self, position: u64) -> u64 {
        position * self.budget.limits().extent_bytes as u64
    }

    fn positions(&self, range: ByteRange) -> Range<u64> {
        let extent_bytes = self.budget.limits().extent_bytes as u64;
        range.offset() / extent_bytes..range.end().div_ceil(extent_bytes)
    }

    fn clip(&self, position: u64, range: ByteRange) -> Range<usize> {
        clip(position, range, self.budget.limits().extent_bytes)
    }
}

/// The part of a range within an extent; empty if it lies elsewhere.
fn clip(position: u64, range: ByteRange, extent_bytes: usize) -> Range<usize> {
    let base = position * extent_bytes as u64;
    // At most the length of an extent, so it fits.
    let within = |offset: u64| offset.saturating_sub(base).min(extent_bytes as u64) as usize;
    within(range.offset())..within(range.end())
}

impl Overlay {
    /// The file has the bytes of the range.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts the gathered bytes over those of the file. `data` begins at `offset` of the file and is as long as the bytes
    /// that the reader gets: where the file is shorter, the caller has filled it with zeros up to [`Gather::length`].
    pub fn apply(&self, offset: u64, data: &mut [u8]) {
        let Some(read) = ByteRange::new(offset, data.len() as u64) else { return };
        for piece in &self.pieces {
            let start = piece.offset.max(read.offset());
            let end = (piece.offset + piece.data.len() as u64).min(read.end());
            if start < end {
                // Both lie within `data`, so they fit.
                let (to, from) = ((start - offset) as usize, (start - piece.offset) as usize);
                let bytes = (end - start) as usize;
                data[to..to + bytes].copy_from_slice(&piece.data[from..from + bytes]);
            }
        }
    }
}
