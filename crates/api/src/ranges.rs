//! Operations on ranges of a replica beside reading and writing them: reserve, free, find, copy.
//!
//! A change of bytes or blocks here is as stable as an UNSTABLE write: `OpenReplica::sync` covers it.

use types::{ByteRange, FileId, PoolId};

use crate::{IoHandle, Ticket};

pub trait ReplicaRanges: Send + Sync {
    /// Reserves space for every byte of the range, and makes the replica at least that long. Bytes that are there stay.
    fn allocate(&self, range: ByteRange) -> IoHandle<()>;

    /// The range reads as zeros and its space is free; the length stays.
    fn deallocate(&self, range: ByteRange) -> IoHandle<()>;

    /// The replica is at least that long; what is added is a hole.
    fn extend(&self, length: u64) -> IoHandle<()>;

    /// Where the next kind begins, from `offset` on. Behind the end all is a hole. `None`: no more data.
    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>>;

    /// Copies the beginning of a stretch of another replica, or of another place of this one, and answers how much: at
    /// least a byte, at most a piece that takes a thread for a moment, or a hole of any length. Behind the end of the
    /// source there are zeros. Holes stay holes. `Unsupported`: the pool does not reach the source, so that the caller
    /// reads and writes.
    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64>;

    /// As `copy_from`, but all of it, and both have the same blocks until one is written. `false`: not these ranges, for
    /// their ends are not where blocks end. `Unsupported` where `Pool::clone_granularity` is `None`.
    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool>;

    /// Announces that a range is going to be read, or not again. The pool may ignore it.
    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    Data,
    Hole,
}

/// The replica that bytes are copied from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A replica that the target's pool reaches as its own. The caller has it open to read, so that its ticket was
    /// judged.
    Local(PoolId, FileId),
    /// The replica that the ticket leads to, which is judged as in `Pool::open`.
    Ticket(Ticket),
}

/// Bytes to copy: `from` in the source, `to` in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: u64,
    pub to: u64,
    pub length: u64,
}

impl Stretch {
    /// The rest of it behind the first `done` bytes.
    pub fn behind(self, done: u64) -> Stretch {
        Stretch { from: self.from + done, to: self.to + done, length: self.length - done }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    WillNeed,
    DontNeed,
}
