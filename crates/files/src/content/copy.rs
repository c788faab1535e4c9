//! Bytes from one file to another: within a pool its file system copies, between pools the head reads and writes, a piece
//! at a time. Holes stay holes.

use std::sync::Arc;

use api::{OpenReplica, PoolError, RangeKind, Source, Stability, Stretch, Written};
use bytes::Bytes;
use types::ByteRange;

use super::{Content, require_end};
use crate::lengths::Steady;
use crate::{Files, FilesError};

/// Read and written at once, where the head copies.
const PIECE_BYTES: u64 = 1 << 20;

impl Files {
    /// Copies the beginning of the stretch and makes it visible, as an UNSTABLE write: at least a byte, and on until
    /// `is_over` says so of the bytes that are done. The caller has asked quotas.
    pub async fn copy(
        &self,
        from: &Content,
        to: &Content,
        stretch: Stretch,
        is_over: impl Fn(u64) -> bool,
    ) -> Result<u64, FilesError> {
        if stretch.length == 0 {
            return Ok(0);
        }
        require_end(stretch.to, stretch.length)?;
        // Behind the end of its replica a source would be one hole.
        from.require_bytes(require_end(stretch.from, stretch.length)?).await?;
        let target = to.file.file;
        self.before_write(target).await?;
        let steady = Some(self.steady(target).await);
        let (from, to) = (from.clone(), Box::pin(to.at_present_place()).await?);
        let mut copying = Copying { from, to, stretch, done: 0, is_done_by_pool: true, steady };
        while copying.done < stretch.length {
            let step = async move { (copying.copy_piece().await, copying) };
            let (copied, back) = self.tasks.carry_on(step).await;
            copying = back;
            match copied {
                Ok(()) => {}
                Err(error) if copying.done == 0 => return Err(error),
                // A request for the rest gets the error.
                Err(_) => break,
            }
            if is_over(copying.done) {
                break;
            }
        }
        if let Some(told) = copying.telling() {
            self.tasks.carry_on(told).await?;
        }
        Ok(copying.done)
    }
}

/// A copy under way. The namespace is told what is done also when its caller is dropped.
struct Copying {
    from: Content,
    to: Content,
    stretch: Stretch,
    done: u64,
    is_done_by_pool: bool,
    /// `None` when the namespace is told, or is about to be.
    steady: Option<Steady>,
}

impl Copying {
    async fn copy_piece(&mut self) -> Result<(), FilesError> {
        let rest = self.stretch.behind(self.done);
        self.done += copy_piece(&self.from, &self.to, rest, &mut self.is_done_by_pool).await?;
        Ok(())
    }

    /// Makes visible what is done. `None`: there is nothing to tell any more.
    fn telling(&mut self) -> Option<impl Future<Output = Result<(), FilesError>> + Send + use<>> {
        let steady = self.steady.take().filter(|_| self.done > 0)?;
        let to = self.to.clone();
        let written = Written {
            size_at_least: Some(self.stretch.to + self.done),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        Some(async move {
            // All of the target: its guard keeps delegations off until then.
            let (to, _steady) = (to, steady);
            to.files.services.namespace.record_write(to.file.file, &written).await?;
            Ok(())
        })
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if let Some(told) = self.telling() {
            let tasks = Arc::clone(&self.to.files.tasks);
            // Nobody is left to hear of an error.
            tasks.follow_up(async move { drop(told.await) });
        }
    }
}

impl Content {
    /// The size of the blocks that this file may share with the other; `None`: it may not share any.
    pub fn shared_block(&self, from: &Content) -> Option<u32> {
        let (source, target) = (from.located.as_ref()?, self.located.as_ref()?);
        let pool = target.ticket.pool;
        let granularity = self.files.services.pools.pool(pool)?.clone_granularity()?;
        (source.ticket.pool == pool && target.replica.ranges().is_some()).then_some(granularity.max(1))
    }

    /// Takes over the blocks of a stretch of another file; on disk when it is answered. `false`: not these ranges, for
    /// their ends are not where blocks end.
    pub async fn share_from(&self, from: &Content, stretch: Stretch) -> Result<bool, FilesError> {
        let end = require_end(stretch.to, stretch.length)?;
        from.require_bytes(require_end(stretch.from, stretch.length)?).await?;
        self.ranges()?;
        let (source, from) = (source_for(self, from)?, from.clone());
        self.change(move |content| async move {
            // Open until the blocks are taken over.
            let _from = from;
            let verifier = content.verifier()?;
            if !content.ranges()?.share_from(source, stretch).await? {
                return Ok(false);
            }
            content.settle(verifier, end).await.map(|()| true)
        })
        .await
    }
}

/// The source, as the target's pool is told of it.
fn source_for(to: &Content, from: &Content) -> Result<Source, FilesError> {
    let ticket = from.open()?.ticket;
    if ticket.pool == to.open()?.ticket.pool {
        Ok(Source::Local(ticket.pool, ticket.file))
    } else {
        Ok(Source::Ticket(ticket))
    }
}

/// Copies all of it, for a caller that tells the namespace itself.
pub(crate) async fn copy_whole(from: &Content, to: &Content, stretch: Stretch) -> Result<(), FilesError> {
    let mut done = 0;
    let mut is_done_by_pool = true;
    while done < stretch.length {
        done += copy_piece(from, to, stretch.behind(done), &mut is_done_by_pool).await?;
    }
    Ok(())
}

/// The beginning of the stretch, at least a byte of it. A pool that does not reach the source is asked once.
async fn copy_piece(
    from: &Content,
    to: &Content,
    stretch: Stretch,
    is_done_by_pool: &mut bool,
) -> Result<u64, FilesError> {
    let (source, target) = (&*from.open()?.replica, &*to.open()?.replica);
    if let Some(ranges) = target.ranges().filter(|_| *is_done_by_pool) {
        match ranges.copy_from(source_for(to, from)?, stretch).await {
            Err(PoolError::Unsupported(_)) => *is_done_by_pool = false,
            copied => return Ok(copied?),
        }
    }
    let mut length = stretch.length.min(PIECE_BYTES);
    if let Some(ranges) = source.ranges() {
        let data_at = ranges.seek(stretch.from, RangeKind::Data).await?;
        let hole = data_at.map_or(stretch.length, |at| (at - stretch.from).min(stretch.length));
        if hole > 0 {
            return clear(target, Stretch { length: hole, ..stretch }).await;
        }
        let hole_at = ranges.seek(stretch.from, RangeKind::Hole).await?.unwrap_or(u64::MAX);
        length = length.min(hole_at.saturating_sub(stretch.from).max(1));
    }
    // At most `PIECE_BYTES`, so it fits.
    let data = source.read_at(stretch.from, length as u32).await?.data;
    if data.is_empty() {
        // It was as long when the copy began.
        return Err(FilesError::Shortened);
    }
    let length = data.len() as u64;
    target.write_at(stretch.to, data, Stability::Unstable).await?;
    Ok(length)
}

/// Zeros in the place of the beginning of the stretch.
async fn clear(target: &dyn OpenReplica, stretch: Stretch) -> Result<u64, FilesError> {
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
    let length = stretch.length.min(PIECE_BYTES);
    let zeros = Bytes::from(vec![0; length as usize]);
    target.write_at(stretch.to, zeros, Stability::Unstable).await?;
    Ok(length)
}
