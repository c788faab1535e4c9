//! COPY and CLONE: data from the saved file to the current one, without passing the client (RFC 7862 §4, §15.2, §15.13).
//!
//! Within a pool its file system copies or shares; between pools the head reads and writes, a piece at a time. A COPY is
//! synchronous and bounded in time: what it did not come to the client asks for again, as it must be able to. It is
//! UNSTABLE, and COMMIT covers it; a CLONE has no COMMIT and is on disk when it is answered.
//!
//! Absent: asynchronous copies, and with them OFFLOAD_STATUS, OFFLOAD_CANCEL and CB_OFFLOAD; copies between servers
//! (COPY_NOTIFY), for which another server would have to be let in with this client's rights.

use std::time::Duration;

use access::{Changing, Located};
use api::{Content, OpenReplica, PoolError, Stability, Stretch, TicketMode, Written};
use bytes::Bytes;
use nfs4::{
    Clone4Args, Copy4Args, Copy4ResOk, CopyRequirements4, NfsStat4, StableHow4, StateId4, WriteResponse4,
};
use types::{Access, Attributes, ByteRange};

use super::{Head, data, io};
use crate::context::Compound;
use crate::{IO_BYTES_MAX, status};

/// After this long a COPY answers with what is done.
const COPY_TIME_MAX: Duration = Duration::from_millis(500);

/// What both operations name.
struct Request {
    source_stateid: StateId4,
    target_stateid: StateId4,
    from: u64,
    to: u64,
    /// 0: up to the end of the source.
    count: u64,
}

/// A request that may be done.
struct Judged {
    source: Attributes,
    target: Attributes,
    stretch: Stretch,
    /// Keeps delegations of the target away until the bytes are there.
    _changing: Option<Changing>,
}

impl Judged {
    fn target_end(&self) -> u64 {
        self.stretch.to + self.stretch.length
    }
}

/// Both ends, open.
struct Ends {
    /// `None`: it has no replica anywhere, and so only zeros.
    source: Option<Located>,
    target: Located,
}

pub(super) async fn copy(
    compound: &Compound<'_>,
    head: &Head,
    args: &Copy4Args,
) -> Result<Copy4ResOk, NfsStat4> {
    if !args.source_server.is_empty() {
        // The client falls back to reading and writing, and goes on asking for copies within this server.
        return Err(NfsStat4::OffloadDenied);
    }
    let request = Request {
        source_stateid: args.src_stateid,
        target_stateid: args.dst_stateid,
        from: args.src_offset,
        to: args.dst_offset,
        count: args.count,
    };
    let judged = judge(compound, head, &request).await?;
    let ends = open(head, &judged).await?;
    let count = copy_for_a_while(head, &judged, &ends).await?;
    Ok(Copy4ResOk {
        response: WriteResponse4 {
            callback_id: None,
            count,
            committed: StableHow4::Unstable,
            writeverf: io::verifier(&*ends.target.replica),
        },
        requirements: CopyRequirements4 { consecutive: true, synchronous: true },
    })
}

pub(super) async fn clone(compound: &Compound<'_>, head: &Head, args: &Clone4Args) -> Result<(), NfsStat4> {
    let request = Request {
        source_stateid: args.src_stateid,
        target_stateid: args.dst_stateid,
        from: args.src_offset,
        to: args.dst_offset,
        count: args.count,
    };
    // Linux asks no more where it is told so once.
    if granularity_max(head) == 0 {
        return Err(NfsStat4::NotSupp);
    }
    let judged = judge(compound, head, &request).await?;
    if judged.stretch.length == 0 {
        return Ok(());
    }
    let ends = open(head, &judged).await?;
    let Ends { source: Some(source), target } = &ends else { return Err(NfsStat4::XDev) };
    let granularity = head.pools.pool(target.pool).and_then(|pool| pool.clone_granularity());
    let (Some(granularity), true) = (granularity, source.pool == target.pool) else {
        return Err(NfsStat4::XDev);
    };
    let block = u64::from(granularity.max(1));
    let Stretch { from, to, length } = judged.stretch;
    let is_whole = length.is_multiple_of(block) || from + length == judged.source.size;
    if !from.is_multiple_of(block) || !to.is_multiple_of(block) || !is_whole {
        return Err(NfsStat4::Inval);
    }
    let ranges = target.replica.ranges().ok_or(NfsStat4::XDev)?;
    // Without a file there are no blocks to share.
    let file = source.replica.descriptor().ok_or(NfsStat4::XDev)?;
    head.access.before_write(judged.target.file).await.map_err(status::of_access)?;
    if !ranges.share_from(file, judged.stretch).await.map_err(status::of_pool)? {
        return Err(NfsStat4::Inval);
    }
    data::settle(head, &judged.target, &*target.replica, judged.target_end()).await
}

/// What clients of any pool must align clones to; 0: no pool can clone.
pub(super) fn granularity_max(head: &Head) -> u32 {
    let of_pool = |id| head.pools.pool(id).and_then(|pool| pool.clone_granularity());
    head.pools.pools().iter().filter_map(|status| of_pool(status.id)).max().unwrap_or(0)
}

async fn judge(compound: &Compound<'_>, head: &Head, request: &Request) -> Result<Judged, NfsStat4> {
    // The stateid that was current with the saved file was saved with it (RFC 8881 §16.2.3.1.2).
    let source_stateid = match (request.source_stateid, compound.saved_stateid) {
        (StateId4::CURRENT, None) => return Err(NfsStat4::BadStateId),
        // The newest of it, as `Compound::resolve` has it.
        (StateId4::CURRENT, Some(saved)) if !saved.is_special() => StateId4 { seqid: 0, ..saved },
        (StateId4::CURRENT, Some(saved)) => saved,
        (stateid, _) => stateid,
    };
    let target_stateid = compound.resolve(request.target_stateid)?;
    let (source, target) = (compound.saved_file()?, compound.file()?);
    // Each file is judged for whom its own export takes the caller.
    let reader = compound.view.identity(compound.saved_place, &compound.claimed);
    let (source, _) =
        data::authorize(compound, head, &reader, (source, source_stateid), Access::READ).await?;
    let writer = &compound.identity;
    let (target, changing) =
        data::authorize(compound, head, writer, (target, target_stateid), Access::WRITE).await?;
    let left = source.size.checked_sub(request.from).ok_or(NfsStat4::Inval)?;
    let length = if request.count == 0 { left } else { request.count };
    if length > left {
        return Err(NfsStat4::Inval);
    }
    let end = request.to.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
    let end = end.ok_or(NfsStat4::FBig)?;
    let stretch = Stretch { from: request.from, to: request.to, length };
    if source.file == target.file
        && let Some(read) = ByteRange::from_bounds(stretch.from, stretch.from + length)
        && ByteRange::from_bounds(stretch.to, end).is_some_and(|written| written.overlaps(read))
    {
        return Err(NfsStat4::Inval);
    }
    if end > target.size {
        let grown = head.access.require_room(&compound.identity, target.file, end - target.size, 0);
        grown.await.map_err(status::of_access)?;
    }
    Ok(Judged { source, target, stretch, _changing: changing })
}

async fn open(head: &Head, judged: &Judged) -> Result<Ends, NfsStat4> {
    let source = head.access.open_located(&judged.source, TicketMode::Read).await;
    let target = head.access.open_located_for_writing(&judged.target).await;
    Ok(Ends { source: source.map_err(status::of_access)?, target: target.map_err(status::of_access)? })
}

/// The bytes that were copied; at least one, unless none was asked for or nothing could be done.
async fn copy_for_a_while(head: &Head, judged: &Judged, ends: &Ends) -> Result<u64, NfsStat4> {
    let Judged { target, stretch, .. } = judged;
    if stretch.length == 0 {
        return Ok(0);
    }
    head.access.before_write(target.file).await.map_err(status::of_access)?;
    let deadline = head.clock.monotonic() + COPY_TIME_MAX;
    let is_late = || head.clock.monotonic() >= deadline;
    let done = copy_in_pieces(ends, *stretch, is_late).await.map_err(status::of_pool)?;
    let written = Written {
        size_at_least: Some(stretch.to + done),
        mtime: None,
        space_used: None,
        stability: Stability::Unstable,
    };
    head.namespace.commit(target.file, &written).await.map_err(status::of_namespace)?;
    Ok(done)
}

async fn copy_in_pieces(ends: &Ends, stretch: Stretch, is_late: impl Fn() -> bool) -> Result<u64, PoolError> {
    let mut done = 0;
    while done < stretch.length {
        match copy_piece(ends, stretch.behind(done)).await {
            Ok(copied) => done += copied,
            Err(error) if done == 0 => return Err(error),
            // Whoever asks for the rest is told why there is none.
            Err(_) => break,
        }
        if is_late() {
            break;
        }
    }
    Ok(done)
}

/// The beginning of the stretch, at least a byte of it.
async fn copy_piece(ends: &Ends, stretch: Stretch) -> Result<u64, PoolError> {
    let target = &*ends.target.replica;
    let Some(source) = &ends.source else { return clear(target, stretch).await };
    if source.pool == ends.target.pool
        && let Some(ranges) = target.ranges()
        && let Some(file) = source.replica.descriptor()
    {
        return ranges.copy_from(file, stretch).await;
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
            cleared => return cleared.map(|()| stretch.length),
        }
    }
    let length = stretch.length.min(IO_BYTES_MAX.into());
    let zeros = Bytes::from(vec![0; length as usize]);
    target.write_at(stretch.to, zeros, Stability::Unstable).await?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{IoHandle, ReadData, Verifier};
    use parking_lot::Mutex;
    use types::PoolId;

    use super::*;

    const PIECE: u64 = IO_BYTES_MAX as u64;
    const WHOLE: Stretch = Stretch { from: 5, to: 7, length: 4 * PIECE };

    /// A replica elsewhere, which can be read and written and nothing more.
    #[derive(Default)]
    struct Plain {
        written: Mutex<Vec<(u64, usize)>>,
        has_others_than_zeros: Mutex<bool>,
        room: Option<usize>,
    }

    impl OpenReplica for Plain {
        fn read_at(&self, _: u64, length: u32) -> IoHandle<ReadData> {
            let data = Bytes::from(vec![7; length as usize]);
            IoHandle::ready(Ok(ReadData { data, end_of_file: false }))
        }

        fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
            let mut written = self.written.lock();
            if self.room.is_some_and(|room| written.len() >= room) {
                return IoHandle::ready(Err(PoolError::NoSpace(PoolId(2))));
            }
            *self.has_others_than_zeros.lock() |= data.iter().any(|byte| *byte != 0);
            written.push((offset, data.len()));
            IoHandle::ready(Ok(stability))
        }

        fn sync(&self) -> IoHandle<Verifier> {
            IoHandle::ready(Ok(self.verifier()))
        }

        fn verifier(&self) -> Verifier {
            Verifier([0; 8])
        }
    }

    fn between_pools(room: Option<usize>) -> (Arc<Plain>, Ends) {
        let target = Arc::new(Plain { room, ..Plain::default() });
        let source = Located { pool: PoolId(1), replica: Arc::new(Plain::default()) };
        let ends =
            Ends { source: Some(source), target: Located { pool: PoolId(2), replica: target.clone() } };
        (target, ends)
    }

    #[tokio::test]
    async fn a_copy_that_takes_long_answers_with_what_is_done_and_never_with_nothing() {
        let (target, ends) = between_pools(None);
        assert_eq!(copy_in_pieces(&ends, WHOLE, || true).await.unwrap(), PIECE);
        assert_eq!(*target.written.lock(), [(7, PIECE as usize)]);
        assert_eq!(copy_in_pieces(&ends, WHOLE, || false).await.unwrap(), WHOLE.length);
        assert_eq!(target.written.lock().len(), 5);
    }

    #[tokio::test]
    async fn a_copy_that_fails_half_way_tells_what_is_done_and_then_why() {
        let (_, ends) = between_pools(Some(2));
        let done = copy_in_pieces(&ends, WHOLE, || false).await.unwrap();
        assert_eq!(done, 2 * PIECE);
        let rest = copy_in_pieces(&ends, WHOLE.behind(done), || false).await;
        assert!(matches!(rest, Err(PoolError::NoSpace(_))));
    }

    #[tokio::test]
    async fn a_pool_that_cannot_free_space_is_given_zeros() {
        let (target, mut ends) = between_pools(None);
        ends.source = None;
        assert_eq!(copy_in_pieces(&ends, WHOLE, || false).await.unwrap(), WHOLE.length);
        assert_eq!(target.written.lock().iter().map(|(_, length)| *length as u64).sum::<u64>(), WHOLE.length);
        assert!(!*target.has_others_than_zeros.lock());
    }
}
