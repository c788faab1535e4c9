//! Bytes of a replica that lie in a file of this host, to be moved to a socket within the kernel.
//!
//! An optional capability of an open replica. A pool on another host has none, and its replicas are read.

use std::os::fd::BorrowedFd;

/// The file stays open as long as this is held. It may become shorter meanwhile, as it may between two reads.
pub trait LocalRange: Send + Sync {
    /// For reading only, with offsets given. Reading blocks where the page cache has not the bytes.
    fn file(&self) -> BorrowedFd<'_>;

    /// Where the range begins in the file.
    fn offset(&self) -> u64;

    /// Counts one read of so many bytes, which were moved from it.
    fn sent(&self, bytes: u64);
}
