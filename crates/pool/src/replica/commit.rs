//! COMMIT of a few small writes: their bytes go from the page cache into the journal, and the file follows later.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use api::PoolError;
use rustix::io::Errno;
use types::ByteRange;

use super::{Recorded, Replica};
use crate::journal::Waiter;
use crate::parts::PoolParts;
use crate::store::{look_at, read_up_to};

/// Of a COMMIT for another one of the same file.
const PATIENCE: Duration = Duration::from_millis(2);

impl Replica {
    /// Whether a COMMIT by records is worth the try: of a file that has become longer, or has never been synced. The sync of
    /// any other is one flush of the disk as well (decision 0024).
    pub fn is_to_record(&self, shared: &PoolParts) -> bool {
        let Some(bytes) = self.unsynced.few_bytes() else { return false };
        let takes = usize::try_from(bytes).is_ok_and(|bytes| shared.journal.takes(bytes));
        // Without bytes, all is in records that are on their way.
        takes && !self.has_gathered() && (bytes == 0 || self.has_grown())
    }

    /// Since the last sync or record.
    fn has_grown(&self) -> bool {
        let size = self.file.open().and_then(|file| look_at(file).ok()).map_or(0, |extent| extent.size);
        let record = self.file.record();
        !record.is_known_to(size) && record.promised_length() < size
    }

    /// Appends records of all that is not stable, if that is little. `waiter` is told the number of changes past the journal
    /// that are stable with them.
    pub fn commit_recorded(
        &self,
        shared: &PoolParts,
        waiter: impl FnOnce(u64) -> Waiter,
    ) -> Result<Recorded, PoolError> {
        let unrecorded = Ok(Recorded { is_recorded: false, turn: None });
        let _ordering = self.ordering.read();
        self.file.check_unbroken(shared)?;
        let Some(file) = self.file.open() else { return unrecorded };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        self.file.check_linked(shared, extent)?;
        // A write that is recorded behind this is behind it in the journal too. COMMITs behind one that waits for the disk meet in
        // the sync of the file, which takes one thread for all of them.
        let Some(mut has_creation) = self.recording.try_lock_for(PATIENCE) else { return unrecorded };
        if self.has_gathered() {
            return unrecorded;
        }
        let Some(mut few) = self.unsynced.take_few() else { return unrecorded };
        let read: Result<Vec<_>, _> =
            few.ranges.iter().map(|range| self.read_back(shared, file, *range)).collect();
        let Ok(bytes) = read else { return unrecorded };
        // After the look at the bytes: pages that were not written may be dropped, and read as they were before.
        if !self.unsynced.check_write_back(shared, &self.file, file, &few.ranges)? {
            return unrecorded;
        }
        let mut pieces: Vec<(u64, &[u8])> =
            few.ranges.iter().zip(&bytes).map(|(range, bytes)| (range.offset(), &bytes[..])).collect();
        if pieces.is_empty() {
            // All is in records that are on their way: one behind them, without bytes.
            pieces.push((0, &[]));
        }
        let recorded = self.record(shared, &mut has_creation, &pieces, waiter(few.past));
        few.are_recorded = recorded.is_recorded;
        Ok(recorded)
    }

    fn read_back(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        range: ByteRange,
    ) -> Result<Vec<u8>, PoolError> {
        let _range = self.lock(shared, range.offset(), range.length())?;
        // At most what a record takes, so it fits.
        let length = range.length() as usize;
        let failed = |errno| shared.failure("read data", errno);
        let bytes = read_up_to(file, range.offset(), length).map_err(failed)?;
        // Otherwise the file is shorter than what was written to it.
        if bytes.len() == length { Ok(bytes) } else { Err(failed(Errno::IO)) }
    }
}
