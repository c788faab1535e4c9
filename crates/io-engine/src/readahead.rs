//! Read-ahead of buffered reads: for each read of a file, the ranges that the kernel is to fetch next.
//!
//! [`ReadAhead`] is a pure rule; `file` and `pool` feed it and advise the kernel (`POSIX_FADV_WILLNEED`). Up to eight
//! streams of a file are followed at once, forward, backward or strided; a read that belongs to none asks for nothing.
//! Later reads of an advised range are the measure of use, for the kernel does not tell.
//!
//! Invariants: a read asks for few ranges, all within the file. A stream is never more than its window ahead, and the
//! outstanding bytes of all files stay within the [`ReadAheadBudget`] of the pool. While much of a file's advice is
//! wasted, a stream is read ahead by a part of its own length only. A lone forward stream is left to the kernel.

mod advised;
mod budget;
mod file;
mod pool;
mod stream;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use types::ByteRange;

use stream::{Direction, Stream};

pub use budget::{ReadAheadBudget, ReadAheadCounts, ReadAheadLimits};
pub(crate) use file::{Advising, FileReadAhead};
pub(crate) use pool::PoolReadAhead;

const STREAMS_MAX: usize = 8;
/// Reads that belong to no stream, among which new streams are looked for.
const STRAYS_MAX: usize = 16;
/// A stream that was not read in so many reads of the file has ended.
const IDLE_READS_MAX: u64 = 64;
/// Reads that make a stream: two that adjoin, or four at equal distances.
const ADJOINING_READS: u32 = 2;
const STRIDED_READS: u32 = 4;
/// Advice of a file is in doubt while fewer bytes of it are used for each wasted one.
const USED_PER_WASTED_MIN: u64 = 8;
/// In doubt, a stream is read ahead by this part of what it has read itself. So it wastes no more when it ends.
const RUN_PER_WINDOW: u32 = 8;
/// Advice is forgotten by half each time it comes to so many windows.
const LEDGER_WINDOWS_MAX: u64 = 32;

/// The streams of one file. Its owner holds a lock around each call.
pub struct ReadAhead {
    budget: Arc<ReadAheadBudget>,
    streams: Vec<Stream>,
    strays: VecDeque<ByteRange>,
    reads: u64,
    /// The id of the next stream.
    next_id: u64,
    ledger: Ledger,
}

/// The ranges that one stream is to have fetched next, the nearest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Advice {
    stream: u64,
    pub ranges: Vec<ByteRange>,
    front_before: ByteRange,
}

/// Whether a read found all its pages in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Hit,
    Miss,
}

/// The end of an advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fetched,
    /// All of it was in memory.
    Resident,
    /// The queue of the disk threads was full.
    Refused,
}

/// Advised bytes of the file that were used lately, and wasted.
#[derive(Clone, Copy, Debug, Default)]
struct Ledger {
    used: u64,
    wasted: u64,
}

impl Ledger {
    fn is_doubtful(self) -> bool {
        self.wasted > self.used / USED_PER_WASTED_MIN
    }

    fn note(&mut self, used: u64, wasted: u64, limits: &ReadAheadLimits) {
        self.used += used;
        self.wasted += wasted;
        if self.used + self.wasted > LEDGER_WINDOWS_MAX * limits.window_bytes_max {
            self.used /= 2;
            self.wasted /= 2;
        }
    }
}

impl ReadAhead {
    pub fn new(budget: Arc<ReadAheadBudget>) -> ReadAhead {
        ReadAhead {
            budget,
            streams: Vec::new(),
            strays: VecDeque::new(),
            reads: 0,
            next_id: 0,
            ledger: Ledger::default(),
        }
    }

    /// Notes a read of a file that is `file_bytes` long, and returns what to fetch next.
    pub fn read(&mut self, read: ByteRange, found: Found, file_bytes: u64, now: Instant) -> Option<Advice> {
        let read = ByteRange::from_bounds(read.offset(), read.end().min(file_bytes))?;
        let at = self.stream_of(read, now)?;
        let stream = &mut self.streams[at];
        stream.last_read = self.reads;
        if found == Found::Miss {
            stream.note_miss();
        }
        if self.is_left_to_kernel(at) {
            return None;
        }
        let stream = &mut self.streams[at];
        let front_before = stream.front();
        let bound_bytes =
            if self.ledger.is_doubtful() { stream.part_of_run(RUN_PER_WINDOW) } else { u64::MAX };
        let ranges = stream.advise(bound_bytes, file_bytes, &self.budget, now);
        (!ranges.is_empty()).then_some(Advice { stream: stream.id, ranges, front_before })
    }

    fn is_left_to_kernel(&self, at: usize) -> bool {
        let is_alone = self.streams.len() == 1 && self.streams[at].is_forward_in_order();
        is_alone && self.budget.limits().is_kernel_trusted
    }

    /// Bytes that were not fetched are no longer outstanding.
    pub fn end_advice(&mut self, advice: &Advice, outcome: Outcome) {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == advice.stream) else { return };
        match outcome {
            Outcome::Fetched => return stream.note_fetched(),
            Outcome::Resident => stream.note_resident(),
            Outcome::Refused => stream.go_back(&advice.ranges, advice.front_before),
        }
        self.budget.note_dropped(stream.take_back(&advice.ranges));
    }

    /// Whether reads that hit the page cache matter, beside those that miss.
    pub fn follows_hits(&self) -> bool {
        self.streams.iter().any(|stream| !stream.is_quiet() || stream.advised_bytes() > 0)
    }

    pub fn has_outstanding(&self) -> bool {
        self.streams.iter().any(|stream| stream.advised_bytes() > 0)
    }

    /// Notes the read in all streams, and finds or begins the one that it belongs to.
    fn stream_of(&mut self, read: ByteRange, now: Instant) -> Option<usize> {
        self.reads += 1;
        self.end_idle_streams();
        self.expire(now);
        let expected = self.streams.iter().position(|stream| stream.expects(read));
        let found = expected.or_else(|| self.streams.iter().position(|stream| stream.has_advised(read)));
        let used = self.streams.iter_mut().map(|stream| stream.note_read(read)).sum();
        self.note_used(used);
        let Some(at) = found else { return self.find_new_stream(read) };
        let wasted = self.streams[at].advance(read, expected.is_some());
        self.note_wasted(wasted);
        Some(at)
    }

    /// Counts what was advised long ago as wasted, also if the file is not read any more.
    pub fn expire(&mut self, now: Instant) {
        let limits = self.budget.limits();
        let wasted = self.streams.iter_mut().map(|stream| stream.expire(now, limits)).sum();
        self.note_wasted(wasted);
    }

    fn note_used(&mut self, bytes: u64) {
        if bytes > 0 {
            self.budget.note_used(bytes);
            self.ledger.note(bytes, 0, self.budget.limits());
        }
    }

    fn note_wasted(&mut self, bytes: u64) {
        if bytes > 0 {
            self.budget.note_wasted(bytes);
            self.ledger.note(0, bytes, self.budget.limits());
        }
    }

    fn end_idle_streams(&mut self) {
        let is_idle = |stream: &Stream, reads: u64| reads - stream.last_read > IDLE_READS_MAX;
        while let Some(at) = self.streams.iter().position(|stream| is_idle(stream, self.reads)) {
            self.end_stream(at);
        }
    }

    fn end_stream(&mut self, at: usize) {
        let wasted = self.streams.swap_remove(at).give_up();
        self.note_wasted(wasted);
    }

    /// The new stream that a read makes together with strays.
    fn find_new_stream(&mut self, read: ByteRange) -> Option<usize> {
        let Some((direction, reads)) = self.direction_to(read) else {
            self.note_stray(read);
            return None;
        };
        match direction {
            Direction::Forward => self.strays.retain(|stray| stray.end() != read.offset()),
            Direction::Backward => self.strays.retain(|stray| stray.offset() != read.end()),
            // Readers that take turns at equal distances look strided once: each stray may begin a stream of its own.
            Direction::Strided(_) => {}
        }
        if self.streams.iter().any(|stream| stream.is_at(direction, read)) {
            // The same few bytes are read again and again: the stream stays where it is.
            return None;
        }
        if self.streams.len() == STREAMS_MAX {
            let oldest = (0..STREAMS_MAX).min_by_key(|at| self.streams[*at].last_read)?;
            self.end_stream(oldest);
        }
        let window_bytes_max = self.budget.limits().window_bytes_max;
        self.streams.push(Stream::new(self.next_id, direction, read, reads, window_bytes_max));
        self.next_id += 1;
        Some(self.streams.len() - 1)
    }

    fn note_stray(&mut self, read: ByteRange) {
        if self.strays.len() == STRAYS_MAX {
            self.strays.pop_front();
        }
        self.strays.push_back(read);
    }

    /// The direction in which strays lead to `read`, and the number of reads that show it.
    fn direction_to(&self, read: ByteRange) -> Option<(Direction, u32)> {
        if self.strays.iter().any(|stray| stray.end() == read.offset()) {
            return Some((Direction::Forward, ADJOINING_READS));
        }
        if self.strays.iter().any(|stray| stray.offset() == read.end()) {
            return Some((Direction::Backward, ADJOINING_READS));
        }
        let at = |offset: Option<u64>| {
            let offset = offset?;
            self.strays.iter().find(|stray| stray.offset() == offset && stray.length() == read.length())
        };
        self.strays.iter().rev().find_map(|stray| {
            let stride = read.offset().checked_signed_diff(stray.offset())?;
            if stride.unsigned_abs() <= read.length() || stray.length() != read.length() {
                return None;
            }
            let before = at(stray.offset().checked_add_signed(stride.checked_neg()?))?;
            at(before.offset().checked_add_signed(-stride))?;
            Some((Direction::Strided(stride), STRIDED_READS))
        })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        for stream in &mut self.streams {
            self.budget.note_wasted(stream.give_up());
        }
    }
}
