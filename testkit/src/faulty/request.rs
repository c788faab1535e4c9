//! Calls of a pool and of its open replicas, as a schedule counts and remembers them.

use api::{Birth, Ticket};
use types::{Epoch, FileId};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Open,
    Make,
    Truncate,
    Remove,
    SyncRemovals,
    Fence,
    Facts,
    List,
    Describe,
    Read,
    Write,
    Sync,
    /// Any of `ReplicaRanges`.
    Range,
}

/// A call with its arguments. Those of an open replica do not tell the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Open(Ticket),
    Make(FileId, Birth),
    Truncate(FileId, u64),
    Remove(FileId),
    SyncRemovals(Vec<FileId>),
    Fence(FileId, Epoch),
    Facts(FileId),
    List { after: FileId },
    Describe { after: FileId, through: FileId },
    Read { offset: u64, length: u64 },
    Write { offset: u64, length: u64 },
    Sync,
    Range,
}

impl Request {
    pub fn call(&self) -> Call {
        match self {
            Request::Open(_) => Call::Open,
            Request::Make(..) => Call::Make,
            Request::Truncate(..) => Call::Truncate,
            Request::Remove(_) => Call::Remove,
            Request::SyncRemovals(_) => Call::SyncRemovals,
            Request::Fence(..) => Call::Fence,
            Request::Facts(_) => Call::Facts,
            Request::List { .. } => Call::List,
            Request::Describe { .. } => Call::Describe,
            Request::Read { .. } => Call::Read,
            Request::Write { .. } => Call::Write,
            Request::Sync => Call::Sync,
            Request::Range => Call::Range,
        }
    }
}
