//! One stream of reads: where it is, where it goes, and how far ahead of it the file is read.
//!
//! The window starts at four reads. It doubles each time at least half of the bytes that were asked for last were read
//! since, and halves when at least as many of them were wasted as were read.

use std::time::Instant;

use types::ByteRange;

use super::advised::Advised;
use super::budget::{ReadAheadBudget, ReadAheadLimits};

const WINDOW_READS_FIRST: u64 = 4;
/// A stream whose pages were in memory each time is tried again after so many misses at the latest.
const QUIET_MISSES_MAX: u32 = 64;
/// A stream that had a read out of order is in order again after so many reads in order.
const ORDERED_READS_MIN: u32 = 16;
/// Also of a stream that has gone astray.
const STEPS_MIN: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Each read begins where the one before it ended.
    Forward,
    /// Each read ends where the one before it began.
    Backward,
    /// Each read begins this far behind the beginning of the one before it, or before it.
    Strided(i64),
}

pub struct Stream {
    pub id: u64,
    direction: Direction,
    /// The foremost read.
    last: ByteRange,
    /// Reads that came exactly where the stream goes, since it was found or has last gone astray.
    steps: u32,
    window_bytes: u64,
    advised: Advised,
    /// The foremost read or advised range.
    front: ByteRange,
    tally: Tally,
    /// The number of the file's read that was its last.
    pub last_read: u64,
    /// Reads in order since the last one that was not.
    ordered_reads: u32,
    /// The page cache had all of the last advice. Nothing is fetched until so many more reads have missed.
    quiet_misses: u32,
    /// `quiet_misses` after the next advice that the page cache has.
    quiet_misses_next: u32,
}

/// Bytes since the window was sized.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    issued: u64,
    used: u64,
    wasted: u64,
}

impl Stream {
    /// Of `steps` reads, the last of which is `last`.
    pub fn new(id: u64, direction: Direction, last: ByteRange, steps: u32, window_bytes_max: u64) -> Stream {
        let window_bytes = WINDOW_READS_FIRST.saturating_mul(last.length()).min(window_bytes_max);
        Stream {
            id,
            direction,
            last,
            steps,
            window_bytes,
            advised: Advised::default(),
            front: last,
            tally: Tally::default(),
            last_read: 0,
            ordered_reads: ORDERED_READS_MIN,
            quiet_misses: 0,
            quiet_misses_next: 1,
        }
    }

    pub fn expects(&self, read: ByteRange) -> bool {
        match self.direction {
            Direction::Forward => read.offset() == self.last.end(),
            Direction::Backward => read.end() == self.last.offset(),
            Direction::Strided(stride) => {
                self.last.offset().checked_add_signed(stride) == Some(read.offset())
                    && read.length() <= self.last.length()
            }
        }
    }

    pub fn is_at(&self, direction: Direction, read: ByteRange) -> bool {
        self.direction == direction && self.last == read
    }

    pub fn advised_bytes(&self) -> u64 {
        self.advised.bytes()
    }

    pub fn has_advised(&self, read: ByteRange) -> bool {
        self.advised.overlaps(read)
    }

    /// The bytes of a read are no longer outstanding, whichever stream it belongs to. Returns how many were.
    pub fn note_read(&mut self, read: ByteRange) -> u64 {
        let used = self.advised.take(read);
        self.tally.used += used;
        used
    }

    /// A read that belongs to the stream; one that was behind the foremost does not move it. Returns the advised bytes
    /// that the stream has passed over.
    pub fn advance(&mut self, read: ByteRange, is_expected: bool) -> u64 {
        let is_ahead = match self.goes_up() {
            true => read.end() > self.last.end(),
            false => read.offset() < self.last.offset(),
        };
        if is_expected {
            self.steps = self.steps.saturating_add(1);
            self.ordered_reads = self.ordered_reads.saturating_add(1);
        } else {
            self.ordered_reads = 0;
        }
        if is_expected || is_ahead {
            self.last = read;
        }
        // Reads of one client arrive out of order; those that are a window behind do not come any more.
        let (last, window, goes_up) = (self.last, self.window_bytes, self.goes_up());
        let wasted = self.advised.drop_if(|range| match goes_up {
            true => range.end() <= last.offset().saturating_sub(window),
            false => range.offset() >= last.end().saturating_add(window),
        });
        self.note_wasted(wasted)
    }

    /// Returns the bytes that were advised too long ago.
    pub fn expire(&mut self, now: Instant, limits: &ReadAheadLimits) -> u64 {
        let wasted = self.advised.drop_old(now, limits.age_max);
        self.note_wasted(wasted)
    }

    /// The stream has ended. Returns the bytes that were not read.
    pub fn give_up(&mut self) -> u64 {
        self.advised.clear()
    }

    /// Notes that ranges of an advice are not fetched. Returns how many of their bytes were outstanding.
    pub fn take_back(&mut self, ranges: &[ByteRange]) -> u64 {
        let bytes = ranges.iter().map(|range| self.advised.take(*range)).sum();
        self.tally = Tally::default();
        bytes
    }

    /// These ranges may be asked for again, unless the stream has asked for others since. It does not come back then.
    pub fn go_back(&mut self, ranges: &[ByteRange], front_before: ByteRange) {
        if ranges.last() == Some(&self.front) {
            self.front = front_before;
        }
    }

    pub fn note_miss(&mut self) {
        self.quiet_misses = self.quiet_misses.saturating_sub(1);
    }

    /// The page cache has what was to be fetched: the kernel follows the stream by itself, or the file is in memory.
    pub fn note_resident(&mut self) {
        self.quiet_misses = self.quiet_misses_next;
        self.quiet_misses_next = (2 * self.quiet_misses_next).min(QUIET_MISSES_MAX);
    }

    pub fn note_fetched(&mut self) {
        self.quiet_misses_next = 1;
    }

    pub fn is_forward_in_order(&self) -> bool {
        self.direction == Direction::Forward && self.ordered_reads >= ORDERED_READS_MIN
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet_misses > 0
    }

    pub fn front(&self) -> ByteRange {
        self.front
    }

    fn note_wasted(&mut self, bytes: u64) -> u64 {
        self.tally.wasted += bytes;
        if bytes > 0 && self.tally.wasted >= self.tally.used {
            self.window_bytes = (self.window_bytes / 2).max(self.last.length());
            self.tally = Tally::default();
            self.steps = 0;
        }
        bytes
    }

    /// The ranges to read ahead now, in a window of at most `bound_bytes`.
    pub fn advise(
        &mut self,
        bound_bytes: u64,
        file_bytes: u64,
        budget: &ReadAheadBudget,
        now: Instant,
    ) -> Vec<ByteRange> {
        let mut fetches = Vec::new();
        if self.is_quiet() || budget.is_busy() {
            return fetches;
        }
        if budget.is_tight() {
            self.window_bytes = (self.window_bytes / 2).max(self.last.length());
            return fetches;
        }
        let window_bytes = self.grown_window(budget.limits()).min(bound_bytes);
        if self.steps < STEPS_MIN || !self.is_short_of(window_bytes) {
            return fetches;
        }
        if self.ahead_bytes() == 0 {
            // The reader may have overtaken the advice.
            self.front = self.last;
        }
        while fetches.len() < budget.limits().fetches_max
            && self.advised.len() < Advised::SPANS_MAX
            && let Some(range) = self.next_range(window_bytes, file_bytes)
            && budget.take(range.length())
        {
            self.advised.push(range, now);
            self.tally.issued += range.length();
            self.front = range;
            fetches.push(range);
        }
        fetches
    }

    /// A part of what the stream has read without interruption, in whole reads.
    pub fn part_of_run(&self, divisor: u32) -> u64 {
        u64::from(self.steps / divisor).saturating_mul(self.last.length())
    }

    /// Doubles the window when it is time for new advice and the last one was used.
    fn grown_window(&mut self, limits: &ReadAheadLimits) -> u64 {
        let Tally { issued, used, .. } = self.tally;
        if issued > 0 && 2 * used >= issued && self.is_short_of(self.window_bytes) {
            self.window_bytes = (2 * self.window_bytes).min(limits.window_bytes_max);
            self.tally = Tally::default();
        }
        self.window_bytes
    }

    /// The reader has read more than half of the window.
    fn is_short_of(&self, window_bytes: u64) -> bool {
        self.ahead_bytes() < window_bytes / 2
    }

    fn ahead_bytes(&self) -> u64 {
        match self.direction {
            Direction::Forward => self.front.end().saturating_sub(self.last.end()),
            Direction::Backward => self.last.offset().saturating_sub(self.front.offset()),
            Direction::Strided(stride) => {
                let distance = self.front.offset().abs_diff(self.last.offset());
                let is_ahead = (self.front.offset() > self.last.offset()) == (stride > 0);
                let reads = if is_ahead { distance / stride.unsigned_abs() } else { 0 };
                reads.saturating_mul(self.last.length())
            }
        }
    }

    /// The range behind the front, within the window and the file.
    fn next_range(&self, window_bytes: u64, file_bytes: u64) -> Option<ByteRange> {
        match self.direction {
            Direction::Forward => {
                let end = self.last.end().saturating_add(window_bytes).min(file_bytes);
                ByteRange::from_bounds(self.front.end(), end)
            }
            Direction::Backward => {
                let offset = self.last.offset().saturating_sub(window_bytes);
                // The front is before a read, and so within the file.
                ByteRange::from_bounds(offset, self.front.offset())
            }
            Direction::Strided(stride) => {
                let is_room = self.ahead_bytes().saturating_add(self.last.length()) <= window_bytes;
                let offset = self.front.offset().checked_add_signed(stride).filter(|_| is_room)?;
                let end = offset.saturating_add(self.last.length()).min(file_bytes);
                ByteRange::from_bounds(offset, end)
            }
        }
    }

    fn goes_up(&self) -> bool {
        match self.direction {
            Direction::Forward => true,
            Direction::Backward => false,
            Direction::Strided(stride) => stride > 0,
        }
    }
}
