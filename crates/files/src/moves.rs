//! Whether the directories on a path may have moved since it was walked. A path that was walked once need not be walked
//! again while nothing was renamed.
//!
//! A rename is noted after it was made. A change by path that looks before that overlaps with the rename and counts as the
//! first of the two: what it puts into a directory moves with the directory.
//!
//! A door tells of a rename as of any other change: by the guard of [`Files::before_change`], or by [`Files::call_back`].

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Files;

#[derive(Default)]
pub(crate) struct Moves(AtomicU64);

/// The number of renames at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovesSeen(u64);

impl Moves {
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Files {
    /// To be noted before a path is walked.
    pub fn moves(&self) -> MovesSeen {
        MovesSeen(self.moves.0.load(Ordering::Acquire))
    }
}
