//! Identifiers. All are plain numbers that are never reused within an instance.

use std::fmt;

/// A file (of any kind) in the namespace. 64 bits, allocated in blocks, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// The root directory of the namespace.
    pub const ROOT: FileId = FileId(1);
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A pool (data server) of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool-{}", self.0)
    }
}

/// The fencing epoch of a file: raised when a layout or delegation is revoked, so that a pool refuses older tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// In tickets that the head has for itself: it knows of every fence, and its requests are no client's.
    pub const OF_HEAD: Epoch = Epoch(u32::MAX);

    pub fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1))
    }
}
