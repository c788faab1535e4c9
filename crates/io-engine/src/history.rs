//! Pattern, reuse and reads soon after writes, learnt from the requests of one file.
//!
//! Invariants: the memory of a file is constant and below 2 KiB, whatever peers send; no verdict is given before there
//! is evidence for it. The time is an argument.
//!
//! `streams` follows up to eight interleaved streams of each kind, `coverage` counts the bytes of each part of the file.

mod coverage;
mod streams;

use std::time::Instant;

use parking_lot::Mutex;

use crate::mode::{Kind, Pattern, Reuse};
use coverage::Coverage;
use streams::Streams;

/// The history of one file since it was opened.
#[derive(Default)]
pub struct History(
    /// Held for the arithmetic of one request.
    Mutex<State>,
);

#[derive(Default)]
struct State {
    reads: Streams,
    writes: Streams,
    coverage: Coverage,
}

/// The verdicts of the history on a request, the request itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    pub pattern: Pattern,
    pub reuse: Reuse,
    pub is_read_after_write_expected: bool,
}

impl History {
    /// Takes note of a request as it is received, and tells what is known then. The length of a read ends with its
    /// file.
    pub fn record(&self, kind: Kind, offset: u64, length_bytes: u64, now: Instant) -> Observed {
        let end = offset.saturating_add(length_bytes);
        let mut state = self.0.lock();
        let State { reads, writes, coverage } = &mut *state;
        let streams = match kind {
            Kind::Read => reads,
            Kind::Write => writes,
        };
        let mut pattern = Pattern::Unknown;
        if offset < end {
            coverage.record(kind, offset, end, now);
            pattern = streams.record(offset, end);
        }
        Observed {
            pattern,
            reuse: coverage.reuse(),
            is_read_after_write_expected: coverage.is_read_after_write_expected(),
        }
    }
}

#[cfg(test)]
mod tests;
