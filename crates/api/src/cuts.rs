//! Notes of cuts at pools on other hosts: what a start needs to finish one that the end of the head interrupted.
//!
//! A cut reaches the replica before the namespace. The start compares the head's own pools with the namespace; a pool on another
//! host may come later, or may have been put back from a copy, which the head cannot tell. So each cut there is noted on disk
//! first.

use async_trait::async_trait;
use types::{FileId, PoolId};

use crate::PoolError;

/// The replica of a file becomes that short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: FileId,
    pub pool: PoolId,
    pub size: u64,
}

/// The number of a note, which no other one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutNumber(pub u64);

#[async_trait]
pub trait CutNotes: Send + Sync {
    /// Before the pool is asked: the note is on disk when this returns. `None`: cuts at this pool need none.
    async fn begin(&self, cut: Cut) -> Result<Option<CutNumber>, PoolError>;

    /// Nothing is left to do: the namespace has the length, or the file is gone.
    fn end(&self, number: CutNumber);

    /// It is not known how far the cut came. From now on [`CutNotes::left`] has it.
    fn leave(&self, number: CutNumber);

    /// The replica is as long as the file. The note ends, unless the pool may yet do what it was asked.
    fn find_uncut(&self, number: CutNumber);

    /// One of the cuts of the file that were left, by this start or one before.
    fn left(&self, file: FileId) -> Option<(CutNumber, Cut)>;
}
