//! The seam to a disk: numbered segments of a fixed length, written and synced one by one.
//!
//! A write may reach the disk before its sync, in parts, in any order, or not at all. A sector of
//! [`SECTOR_BYTES`] is old or new, never a mixture. After a successful sync, all earlier writes to that segment are on
//! disk. After a failed one nothing is known.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::JournalError;

/// The unit that a power failure does not tear.
pub const SECTOR_BYTES: usize = 512;

/// All calls block. A panic in a write or a sync of an open journal is a failure like an error.
pub trait Storage: Send + Sync {
    /// The numbers of the segments, in any order.
    fn segments(&self) -> io::Result<Vec<u32>>;

    /// Makes a segment of zeros. It is on disk with its name when this returns; a crash before leaves no segment.
    fn make(&self, segment: u32, segment_bytes: u64) -> io::Result<()>;

    /// Removes a segment. It is gone for good when this returns.
    fn remove(&self, segment: u32) -> io::Result<()>;

    fn segment_bytes(&self, segment: u32) -> io::Result<u64>;

    /// Fills `into`; an error if the segment ends before.
    fn read_at(&self, segment: u32, offset: u64, into: &mut [u8]) -> io::Result<()>;

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()>;

    fn sync(&self, segment: u32) -> io::Result<()>;
}

/// Nobody may unwind past those who wait for the outcome.
pub(crate) fn attempt(
    operation: &'static str,
    call: impl FnOnce() -> io::Result<()>,
) -> Result<(), JournalError> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the storage panicked")));
    outcome.map_err(|error| JournalError::failed(operation, error))
}
