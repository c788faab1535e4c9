//! Findings of the walks over the files of a pool.

use crate::pools::drain::{DrainState, FailedMove};

/// Files that cannot be moved, as many as are told.
const FAILURES_MAX: usize = 20;

#[derive(Default)]
pub struct Tally {
    state: DrainState,
    /// Of the walk under way.
    found: Found,
    /// The last walk has found nothing.
    has_found_nothing: bool,
    /// The last walk has found nothing that it could move, or that may be moved by the next.
    is_stuck: bool,
}

#[derive(Default)]
struct Found {
    files: u64,
    bytes: u64,
    waiting: u64,
    failed: u64,
    failures: Vec<FailedMove>,
    is_any_moved: bool,
}

pub enum Outcome {
    Moved,
    /// Somebody else has removed it.
    Gone,
    Waits,
    Failed(FailedMove),
}

impl Tally {
    pub fn state(&self) -> DrainState {
        self.state.clone()
    }

    pub fn is_counted(&self) -> bool {
        self.state.files_left.is_some()
    }

    pub fn has_found_nothing(&self) -> bool {
        self.has_found_nothing
    }

    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Somebody has asked for it: what the last walks have found says nothing of the next.
    pub fn look_again(&mut self) {
        (self.is_stuck, self.has_found_nothing, self.state.is_empty) = (false, false, false);
    }

    pub fn set_counted(&mut self, files: u64, bytes: u64) {
        (self.state.files_left, self.state.bytes_left) = (Some(files), Some(bytes));
    }

    /// A file of that length was found at the pool, and tried.
    pub fn note(&mut self, bytes: u64, outcome: Outcome) {
        let left = |left: &mut Option<u64>, less: u64| *left = left.map(|left| left.saturating_sub(less));
        match outcome {
            Outcome::Moved | Outcome::Gone => {
                left(&mut self.state.files_left, 1);
                left(&mut self.state.bytes_left, bytes);
                if let Outcome::Moved = outcome {
                    self.state.files_moved += 1;
                    self.state.bytes_moved += bytes;
                    self.found.is_any_moved = true;
                }
                return;
            }
            Outcome::Waits => self.found.waiting += 1,
            Outcome::Failed(failure) => {
                self.found.failed += 1;
                if self.found.failures.len() < FAILURES_MAX {
                    self.found.failures.push(failure);
                }
            }
        }
        self.found.files += 1;
        self.found.bytes += bytes;
    }

    pub fn end_walk(&mut self) {
        let Found { files, bytes, waiting, failed, failures, is_any_moved } = std::mem::take(&mut self.found);
        let has_found_nothing = files == 0 && !is_any_moved;
        self.state.is_empty = has_found_nothing && self.has_found_nothing;
        self.has_found_nothing = has_found_nothing;
        self.is_stuck = failed > 0 && waiting == 0 && !is_any_moved;
        (self.state.files_left, self.state.bytes_left) = (Some(files), Some(bytes));
        (self.state.files_waiting, self.state.files_failed) = (waiting, failed);
        self.state.failures = failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Outcome {
        Outcome::Failed(FailedMove { file: "7".to_owned(), path: None, why: "EIO".to_owned() })
    }

    #[test]
    fn a_pool_is_empty_when_two_walks_have_found_nothing() {
        let mut tally = Tally::default();
        assert!(!tally.is_counted());
        tally.set_counted(2, 30);
        tally.note(10, Outcome::Moved);
        assert_eq!((tally.state().files_left, tally.state().bytes_left), (Some(1), Some(20)));
        tally.note(20, Outcome::Waits);
        tally.end_walk();
        assert_eq!((tally.state().files_left, tally.state().files_waiting), (Some(1), 1));
        tally.note(20, Outcome::Moved);
        for (is_empty, nothing) in [(false, false), (false, true), (true, true)] {
            tally.end_walk();
            assert_eq!((tally.state().is_empty, tally.has_found_nothing()), (is_empty, nothing));
        }
        assert_eq!((tally.state().files_moved, tally.state().bytes_moved), (2, 30));
        assert_eq!((tally.state().files_left, tally.state().bytes_left), (Some(0), Some(0)));
    }

    #[test]
    fn a_walk_that_could_move_nothing_of_what_it_found_is_stuck() {
        let mut tally = Tally::default();
        tally.note(1, failed());
        tally.note(1, Outcome::Moved);
        tally.end_walk();
        assert!(!tally.is_stuck());
        tally.note(1, failed());
        tally.note(1, Outcome::Waits);
        tally.end_walk();
        assert!(!tally.is_stuck() && tally.state().files_failed == 1);
        for _ in 0..2 * FAILURES_MAX {
            tally.note(1, failed());
        }
        tally.end_walk();
        assert!(tally.is_stuck() && tally.state().failures.len() == FAILURES_MAX);
        assert_eq!(tally.state().files_failed, 2 * FAILURES_MAX as u64);
    }
}
