//! The records that go to the disk together, and the callers that wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use types::FileId;

use crate::error::JournalError;
use crate::storage::{Storage, attempt};

/// Told once, on the thread that led the batch and without a lock. If it panics, that is logged and all others are told.
pub type Waiter = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

#[derive(Default)]
pub(crate) struct Batch {
    /// Of one segment each; the order of the records. The thread that writes them has taken them out.
    pub pieces: Vec<Piece>,
    pub bytes: usize,
    /// Sequence and `replay_from` of the last record.
    pub last: Option<(u64, u64)>,
    pub notes: Vec<(FileId, u64)>,
    pub waiters: Vec<Waiter>,
    /// Wait for notes.
    pub barriers: Vec<Waiter>,
}

pub(crate) struct Piece {
    pub segment: u32,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.waiters.is_empty() && self.barriers.is_empty()
    }

    pub fn waiting(&self) -> usize {
        self.waiters.len() + self.barriers.len()
    }

    pub fn take_waiters(&mut self) -> Vec<Waiter> {
        let mut waiters = std::mem::take(&mut self.waiters);
        waiters.append(&mut self.barriers);
        waiters
    }
}

/// Writes all pieces, then syncs each segment once. Blocks.
pub(crate) fn write(pieces: &[Piece], storage: &dyn Storage) -> Result<(), JournalError> {
    for piece in pieces {
        attempt("write records", || storage.write_at(piece.segment, piece.offset, &piece.bytes))?;
    }
    let mut synced = None;
    for piece in pieces {
        if synced.replace(piece.segment) != Some(piece.segment) {
            attempt("sync records", || storage.sync(piece.segment))?;
        }
    }
    Ok(())
}

/// Waiters with the outcome to tell them.
#[must_use]
#[derive(Default)]
pub(crate) struct Answers(Vec<(Vec<Waiter>, Result<(), JournalError>)>);

impl Answers {
    pub fn add(&mut self, waiters: Vec<Waiter>, outcome: Result<(), JournalError>) {
        self.0.push((waiters, outcome));
    }

    pub fn tell(self) {
        for (waiters, outcome) in self.0 {
            for waiter in waiters {
                let outcome = outcome.clone();
                if catch_unwind(AssertUnwindSafe(|| waiter(outcome))).is_err() {
                    tracing::error!("waiter of the write journal panicked");
                }
            }
        }
    }
}
