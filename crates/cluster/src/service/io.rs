//! Operations on an open replica: decoded, begun, and answered.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{Advice, IoHandle, OpenReplica, PoolError, RangeKind, ReplicaRanges};
use types::PoolId;
use xdr::{Decoder, Encoder, Opaque, Xdr};

use super::{decoded, failed, results};
use crate::rpc::{IO_BYTES_MAX, Refused};
use crate::wire::{self, On, Range, Reply, Stability, Ticket, procedure};

/// Bytes of reads under way. A head that asks for more is told that the pool is busy.
const READING_BYTES_MAX: usize = 256 << 20;

/// An operation that has begun; gives its results.
pub(super) type Begun = Pin<Box<dyn Future<Output = Encoder> + Send>>;

pub(super) enum Operation {
    Read(wire::Read),
    Write(wire::Write),
    Sync,
    Ranges(RangesOperation),
}

pub(super) enum RangesOperation {
    Allocate(Range),
    Deallocate(Range),
    Extend(u64),
    Seek(wire::Seek),
    Copy(wire::Copy),
    Share(wire::Copy),
    Advise(wire::Advise),
}

impl Operation {
    /// `None`: the procedure is none on a replica.
    pub fn of(procedure: u32, d: &mut Decoder) -> Result<Option<(api::Ticket, Operation)>, Refused> {
        let of_ranges = Operation::Ranges;
        Ok(Some(match procedure {
            procedure::READ => {
                let (ticket, read) = on::<wire::Read>(d)?;
                if read.length as usize > IO_BYTES_MAX {
                    return Err(Refused::Garbage);
                }
                (ticket, Operation::Read(read))
            }
            procedure::WRITE => with(on(d)?, Operation::Write),
            procedure::SYNC => with(on(d)?, |()| Operation::Sync),
            procedure::ALLOCATE => with(on(d)?, |range| of_ranges(RangesOperation::Allocate(range))),
            procedure::DEALLOCATE => with(on(d)?, |range| of_ranges(RangesOperation::Deallocate(range))),
            procedure::EXTEND => with(on(d)?, |length| of_ranges(RangesOperation::Extend(length))),
            procedure::SEEK => with(on(d)?, |seek| of_ranges(RangesOperation::Seek(seek))),
            procedure::COPY => with(on(d)?, |copy| of_ranges(RangesOperation::Copy(copy))),
            procedure::SHARE => with(on(d)?, |copy| of_ranges(RangesOperation::Share(copy))),
            procedure::ADVISE => with(on(d)?, |advise| of_ranges(RangesOperation::Advise(advise))),
            _ => return Ok(None),
        }))
    }
}

fn on<T: Xdr>(d: &mut Decoder) -> Result<(api::Ticket, T), Refused> {
    let On { ticket: Ticket(ticket), what } = decoded(d)?;
    Ok((ticket, what))
}

fn with<T>((ticket, what): (api::Ticket, T), of: impl FnOnce(T) -> Operation) -> (api::Ticket, Operation) {
    (ticket, of(what))
}

pub(super) fn begin(
    replica: &dyn OpenReplica,
    operation: Operation,
    pool: PoolId,
    reading: &Arc<AtomicUsize>,
) -> Begun {
    match operation {
        Operation::Read(wire::Read { offset, length }) => {
            let Some(room) = Room::take(reading, length as usize) else {
                return fail(PoolError::Busy(pool));
            };
            let read = replica.read_at(offset, length);
            Box::pin(async move {
                let _room = room;
                let of_data = |read: api::ReadData| wire::Bytes {
                    data: Opaque(read.data),
                    end_of_file: read.end_of_file,
                };
                results(&Reply::of(read.await.map(of_data)))
            })
        }
        Operation::Write(wire::Write { offset, stability, data }) => {
            finish(replica.write_at(offset, data.into_bytes(), stability.0), Stability)
        }
        Operation::Sync => finish(replica.sync(), |verifier| verifier.0),
        Operation::Ranges(operation) => match replica.ranges() {
            Some(ranges) => begin_on_ranges(ranges, operation),
            None => fail(PoolError::Unsupported(pool)),
        },
    }
}

fn begin_on_ranges(ranges: &dyn ReplicaRanges, operation: RangesOperation) -> Begun {
    match operation {
        RangesOperation::Allocate(range) => finish(ranges.allocate(range.0), |()| ()),
        RangesOperation::Deallocate(range) => finish(ranges.deallocate(range.0), |()| ()),
        RangesOperation::Extend(length) => finish(ranges.extend(length), |()| ()),
        RangesOperation::Seek(wire::Seek { offset, is_data }) => {
            let kind = if is_data { RangeKind::Data } else { RangeKind::Hole };
            finish(ranges.seek(offset, kind), |found| found)
        }
        RangesOperation::Copy(wire::Copy { source, stretch }) => {
            finish(ranges.copy_from(source.0, stretch.0), |copied| copied)
        }
        RangesOperation::Share(wire::Copy { source, stretch }) => {
            finish(ranges.share_from(source.0, stretch.0), |is_shared| is_shared)
        }
        RangesOperation::Advise(wire::Advise { range, is_needed }) => {
            let advice = if is_needed { Advice::WillNeed } else { Advice::DontNeed };
            finish(ranges.advise(range.0, advice), |()| ())
        }
    }
}

fn finish<T, W>(io: IoHandle<T>, say: impl FnOnce(T) -> W + Send + 'static) -> Begun
where
    T: Send + Unpin + 'static,
    W: Xdr,
{
    Box::pin(async move { results(&Reply::of(io.await.map(say))) })
}

fn fail(error: PoolError) -> Begun {
    Box::pin(async move { failed(error) })
}

/// Memory of a read under way.
struct Room {
    reading: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    fn take(reading: &Arc<AtomicUsize>, bytes: usize) -> Option<Room> {
        let before = reading.fetch_add(bytes, Ordering::AcqRel);
        let room = Room { reading: Arc::clone(reading), bytes };
        (before < READING_BYTES_MAX).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.reading.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
