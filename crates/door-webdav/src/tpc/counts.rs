//! Counts of third-party copies since the start, by direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::Failure;
use super::request::Direction;

/// Of all third-party copies of a front.
#[derive(Debug, Default)]
pub struct CopyCounts {
    pulls: Arc<Counters>,
    pushes: Arc<Counters>,
}

/// Of the copies of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyFigures {
    pub running: u64,
    pub started: u64,
    pub done: u64,
    pub failed: u64,
    /// Ended by the client, or by a stop of the server.
    pub aborted: u64,
    /// Bytes that were received or read to be sent; those that a retry repeats count again.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    started: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    aborted: AtomicU64,
    bytes: AtomicU64,
}

/// A copy that runs. It has failed if this is dropped before its end.
pub(super) struct Counted {
    counters: Arc<Counters>,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Done,
    Failed,
    Aborted,
}

impl CopyCounts {
    pub fn figures(&self, direction: Direction) -> CopyFigures {
        self.of(direction).figures()
    }

    pub(super) fn begin(&self, direction: Direction) -> Counted {
        let counters = Arc::clone(self.of(direction));
        counters.started.fetch_add(1, Ordering::AcqRel);
        Counted { counters, end: End::Failed }
    }

    fn of(&self, direction: Direction) -> &Arc<Counters> {
        match direction {
            Direction::Pull => &self.pulls,
            Direction::Push => &self.pushes,
        }
    }
}

impl Counters {
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn figures(&self) -> CopyFigures {
        // Ends first: of a copy whose end is seen, the start is seen too.
        let [done, failed, aborted] =
            [&self.done, &self.failed, &self.aborted].map(|ends| ends.load(Ordering::Acquire));
        let started = self.started.load(Ordering::Acquire);
        let running = started - done - failed - aborted;
        CopyFigures { running, started, done, failed, aborted, bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Counted {
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub fn end(mut self, outcome: &Result<(), Failure>) {
        self.end = match outcome {
            Ok(()) => End::Done,
            Err(failure) if failure.is_abort() => End::Aborted,
            Err(_) => End::Failed,
        };
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let ends = match self.end {
            End::Done => &self.counters.done,
            End::Failed => &self.counters.failed,
            End::Aborted => &self.counters.aborted,
        };
        ends.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_runs_until_its_end_and_fails_if_it_has_none() {
        let counts = CopyCounts::default();
        let [first, second] = [(); 2].map(|()| counts.begin(Direction::Push));
        first.counters().moved(5);
        first.end(&Ok(()));
        let figures = CopyFigures { running: 1, started: 2, done: 1, bytes: 5, ..CopyFigures::default() };
        assert_eq!(counts.figures(Direction::Push), figures);
        drop(second);
        let figures = CopyFigures { running: 0, failed: 1, ..figures };
        assert_eq!(counts.figures(Direction::Push), figures);
        assert_eq!(counts.figures(Direction::Pull), CopyFigures::default());
    }
}
