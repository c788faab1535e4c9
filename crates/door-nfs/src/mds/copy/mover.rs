//! Moving bytes from one file to another: within a pool its file system copies, between pools the head reads and writes,
//! a piece at a time. Holes stay holes.

use std::sync::Arc;

use api::{Content, Namespace, OpenReplica, PoolError, Source, Stability, Stretch, TicketMode, Written};
use bytes::Bytes;
use files::{FileChangeGuard, Files, Located};
use nfs4::{NfsStat4, Verifier4};
use types::{Attributes, ByteRange, Clock};

use super::super::file_system::FileSystem;
use crate::limits::IO_BYTES_MAX;
use crate::stability::verifier;
use crate::status;

/// Copies files, also after the request that began the copy is answered.
pub(crate) struct Mover {
    pub files: Arc<Files>,
    pub namespace: Arc<dyn Namespace>,
    pub clock: Arc<dyn Clock>,
}

/// A request that may be done.
pub(super) struct Judged {
    pub source: Attributes,
    pub target: Attributes,
    pub stretch: Stretch,
    /// Keeps delegations of the target away until the bytes are there.
    pub changing: Option<FileChangeGuard>,
}

impl Judged {
    pub fn target_end(&self) -> u64 {
        self.stretch.to + self.stretch.length
    }
}

/// Both ends, open.
pub(super) struct Ends {
    pub source: Located,
    pub target: Located,
}

impl Ends {
    /// The source, as the target's pool is told of it.
    pub fn source_of_pool(&self) -> Source {
        let ticket = self.source.ticket;
        if ticket.pool == self.target.ticket.pool {
            Source::Local(ticket.pool, ticket.file)
        } else {
            Source::Ticket(ticket)
        }
    }
}

/// The bytes copied in one go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub count: u64,
    /// As it was before the first byte: COMMIT detects bytes lost since.
    pub verifier: Verifier4,
}

impl Mover {
    pub fn of(fs: &FileSystem) -> Mover {
        Mover {
            files: Arc::clone(&fs.files),
            namespace: Arc::clone(&fs.namespace),
            clock: Arc::clone(&fs.clock),
        }
    }

    /// To copy at least a byte.
    pub async fn open(&self, source: &Attributes, target: &Attributes) -> Result<Ends, NfsStat4> {
        let source = self.files.open_located(source, TicketMode::Read).await.map_err(status::of_files)?;
        let target = self.files.open_located_for_writing(target).await.map_err(status::of_files)?;
        // There are bytes to be copied.
        Ok(Ends { source: source.ok_or(NfsStat4::Io)?, target })
    }

    /// Copies the beginning of the stretch, until `is_over` says so of the bytes that are done, and makes it visible, as
    /// an UNSTABLE write.
    pub async fn copy(
        &self,
        (source, target): (&Attributes, &Attributes),
        stretch: Stretch,
        is_over: impl Fn(u64) -> bool,
    ) -> Result<Moved, NfsStat4> {
        if stretch.length == 0 {
            let target = self.files.open_for_writing(target).await.map_err(status::of_files)?;
            return Ok(Moved { count: 0, verifier: verifier(&*target) });
        }
        let ends = self.open(source, target).await?;
        let as_it_was = verifier(&*ends.target.replica);
        self.files.before_write(target.file).await.map_err(status::of_files)?;
        let _steady = self.files.steady(target.file).await;
        let count = copy_in_pieces(&ends, stretch, is_over).await.map_err(status::of_pool)?;
        let written = Written {
            size_at_least: Some(stretch.to + count),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        self.namespace.record_write(target.file, &written).await.map_err(status::of_namespace)?;
        Ok(Moved { count, verifier: as_it_was })
    }
}

/// The bytes that were copied; at least one, unless none was asked for. `is_over` is told how many there are.
async fn copy_in_pieces(
    ends: &Ends,
    stretch: Stretch,
    is_over: impl Fn(u64) -> bool,
) -> Result<u64, PoolError> {
    let mut done = 0;
    let mut is_done_by_pool = true;
    while done < stretch.length {
        match copy_piece(ends, stretch.behind(done), &mut is_done_by_pool).await {
            Ok(copied) => done += copied,
            Err(error) if done == 0 => return Err(error),
            // A request for the rest gets the error.
            Err(_) => break,
        }
        if is_over(done) {
            break;
        }
    }
    Ok(done)
}

/// The beginning of the stretch, at least a byte of it. A pool that does not reach the source is asked once.
async fn copy_piece(ends: &Ends, stretch: Stretch, is_done_by_pool: &mut bool) -> Result<u64, PoolError> {
    let target = &*ends.target.replica;
    let source = &ends.source;
    if let Some(ranges) = target.ranges().filter(|_| *is_done_by_pool) {
        match ranges.copy_from(ends.source_of_pool(), stretch).await {
            Err(PoolError::Unsupported(_)) => *is_done_by_pool = false,
            copied => return copied,
        }
    }
    let mut length = stretch.length.min(IO_BYTES_MAX.into());
    if let Some(ranges) = source.replica.ranges() {
        let data_at = ranges.seek(stretch.from, Content::Data).await?;
        let hole = data_at.map_or(stretch.length, |at| (at - stretch.from).min(stretch.length));
        if hole > 0 {
            return clear(target, Stretch { length: hole, ..stretch }).await;
        }
        let hole_at = ranges.seek(stretch.from, Content::Hole).await?.unwrap_or(u64::MAX);
        length = length.min(hole_at.saturating_sub(stretch.from).max(1));
    }
    // At most IO_BYTES_MAX, so it fits.
    let read = source.replica.read_at(stretch.from, length as u32).await?;
    if read.data.is_empty() {
        return clear(target, stretch).await;
    }
    let length = read.data.len() as u64;
    target.write_at(stretch.to, read.data, Stability::Unstable).await?;
    Ok(length)
}

/// Zeros in the place of the beginning of the stretch.
async fn clear(target: &dyn OpenReplica, stretch: Stretch) -> Result<u64, PoolError> {
    let range = ByteRange::from_bounds(stretch.to, stretch.to + stretch.length);
    if let (Some(ranges), Some(range)) = (target.ranges(), range) {
        match ranges.deallocate(range).await {
            Err(PoolError::Unsupported(_)) => {}
            // The replica is never shorter than the namespace will say.
            cleared => {
                cleared?;
                ranges.extend(range.end()).await?;
                return Ok(stretch.length);
            }
        }
    }
    let length = stretch.length.min(IO_BYTES_MAX.into());
    let zeros = Bytes::from(vec![0; length as usize]);
    target.write_at(stretch.to, zeros, Stability::Unstable).await?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use api::{Birth, Presence, Ticket};
    use testkit::faulty::{Call, Fault, FaultyReplica, Request, Schedule};
    use testkit::fixed_replica::FixedReplica;
    use testkit::memory_pool::MemoryPool;
    use types::{Epoch, FileId, PoolId};

    use super::*;

    const PIECE: u64 = IO_BYTES_MAX as u64;
    const WHOLE: Stretch = Stretch { from: 5, to: 7, length: 4 * PIECE };

    /// From a replica without a hole to one elsewhere, which can be read and written and nothing more.
    fn between_pools() -> (Schedule, Ends) {
        let (schedule, there) = (Schedule::default(), MemoryPool::without_ranges(PoolId(2)));
        let source = FixedReplica::of(vec![7; (WHOLE.from + WHOLE.length) as usize]);
        let target = FaultyReplica::new(there.writer(FileId(7)), &schedule);
        let source = Located { ticket: ticket(1), replica: Arc::new(source) };
        (schedule, Ends { source, target: Located { ticket: ticket(2), replica: Arc::new(target) } })
    }

    fn ticket(pool: u32) -> Ticket {
        let (birth, pool) = (Birth::UNKNOWN, PoolId(pool));
        let (mode, presence) = (TicketMode::ReadWrite, Presence::Written);
        Ticket { file: FileId(7), birth, pool, mode, epoch: Epoch(0), presence }
    }

    async fn content(ends: &Ends) -> Bytes {
        ends.target.replica.read_at(WHOLE.to, WHOLE.length as u32).await.unwrap().data
    }

    #[tokio::test]
    async fn a_copy_that_takes_long_answers_with_the_bytes_done_and_at_least_one_piece() {
        let (schedule, ends) = between_pools();
        assert_eq!(copy_in_pieces(&ends, WHOLE, |_| true).await.unwrap(), PIECE);
        assert_eq!(schedule.passed(), [Request::Write { offset: 7, length: PIECE }]);
        assert_eq!(copy_in_pieces(&ends, WHOLE, |_| false).await.unwrap(), WHOLE.length);
        assert_eq!(schedule.count(Call::Write), 5);
        assert!(content(&ends).await == vec![7; WHOLE.length as usize]);
    }

    #[tokio::test]
    async fn a_copy_that_fails_half_way_answers_with_the_bytes_done_and_then_with_the_error() {
        let (schedule, ends) = between_pools();
        schedule.on(Call::Write, 2.., Fault::Fail(PoolError::NoSpace(PoolId(2))));
        let done = copy_in_pieces(&ends, WHOLE, |_| false).await.unwrap();
        assert_eq!(done, 2 * PIECE);
        let rest = copy_in_pieces(&ends, WHOLE.behind(done), |_| false).await;
        assert!(matches!(rest, Err(PoolError::NoSpace(_))));
    }

    #[tokio::test]
    async fn a_pool_that_cannot_free_space_is_given_zeros() {
        let (schedule, mut ends) = between_pools();
        assert_eq!(copy_in_pieces(&ends, WHOLE, |_| false).await.unwrap(), WHOLE.length);
        ends.source.replica = Arc::new(FixedReplica::of(Bytes::new()));
        assert_eq!(copy_in_pieces(&ends, WHOLE, |_| false).await.unwrap(), WHOLE.length);
        assert_eq!(schedule.count(Call::Write), 8);
        assert!(content(&ends).await == vec![0; WHOLE.length as usize]);
    }
}
