//! The bytes of a replica, copied through the head in pieces and compared.
//!
//! A stretch is read and written, synced at the new pool, read back there past its memory, and compared by CRC-32C with what
//! was read first. So at most a stretch of pieces is remembered, however long the file is. Holes stay holes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{ANSWER_TIME, Grant, OpenReplica, PoolError, RangeKind, Stability, Ticket, TicketMode, Verifier};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::FuturesUnordered};
use types::{Attributes, Checksum, ChecksumKind, Clock, IoMode, PoolId};

use super::{Begun, CopyPace, MoveError};
use crate::Sums;
use crate::replicas::lost;

const PIECE_BYTES: u64 = 1 << 20;
/// Of one stretch. Fragments may be much smaller.
const PIECES_MAX: usize = 64;
/// Reads and writes under way: their bytes are in memory.
const AT_ONCE: usize = 4;

pub(super) struct Copying<'a> {
    begun: &'a Begun,
    clock: &'a dyn Clock,
    pace: &'a dyn CopyPace,
    is_unwanted: AtomicBool,
}

#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    length: u32,
}

impl<'a> Copying<'a> {
    pub fn new(begun: &'a Begun, clock: &'a dyn Clock, pace: &'a dyn CopyPace) -> Copying<'a> {
        Copying { begun, clock, pace, is_unwanted: AtomicBool::new(false) }
    }

    /// All of it, on disk and compared when this returns. `false`: nobody wants it any more.
    pub async fn run(&self) -> Result<bool, MoveError> {
        let Begun { file, from, length, .. } = self.begun;
        let ticket = ticket_to_read(file, from.id());
        let source = from.open(&ticket).await.map_err(MoveError::Source)?;
        let (mut at, mut verifier) = (0, None);
        while at < *length {
            let (pieces, next) = self.next_stretch(&*source, at).await.map_err(MoveError::Source)?;
            let copied = self.copy(&*source, pieces, &mut verifier).await?;
            self.compare(&copied).await?;
            if self.is_unwanted.load(Ordering::Relaxed) {
                return Ok(false);
            }
            at = next;
        }
        self.extend().await.map_err(MoveError::Target)?;
        Ok(true)
    }

    /// Some pieces with data from `at` on, and where the next ones begin.
    async fn next_stretch(
        &self,
        source: &dyn OpenReplica,
        mut at: u64,
    ) -> Result<(Vec<Piece>, u64), PoolError> {
        let (mut pieces, length) = (Vec::new(), self.begun.length);
        while at < length && pieces.len() < PIECES_MAX {
            let mut end = length;
            if let Some(ranges) = source.ranges() {
                at = ranges.seek(at, RangeKind::Data).await?.unwrap_or(length).clamp(at, length);
                end = ranges.seek(at, RangeKind::Hole).await?.unwrap_or(length).clamp(at, length);
            }
            while at < end && pieces.len() < PIECES_MAX {
                let piece = (end - at).min(PIECE_BYTES);
                // At most a MiB, so it fits.
                pieces.push(Piece { offset: at, length: piece as u32 });
                at += piece;
            }
        }
        Ok((pieces, at))
    }

    /// The pieces that were written, with the sums of the bytes that were read. The verifier is that of the first stretch: with another one the pool
    /// has started anew, and may have lost bytes.
    async fn copy(
        &self,
        source: &dyn OpenReplica,
        pieces: Vec<Piece>,
        verifier: &mut Option<Verifier>,
    ) -> Result<Vec<(Piece, Checksum)>, MoveError> {
        let to = &self.begun.to;
        // Anew: the look at the stretch before has set the mode of I/O.
        let target = to.open(&self.begun.ticket_to_write()).await.map_err(MoveError::Target)?;
        let first = *verifier.get_or_insert(target.verifier());
        let (mut copied, mut running) = (Vec::with_capacity(pieces.len()), FuturesUnordered::new());
        // Also where one fails, the others are waited for: none is to come after the copy is given up.
        let (mut failed, mut pieces) = (None, pieces.into_iter());
        loop {
            while running.len() < AT_ONCE
                && failed.is_none()
                && let Some(piece) = pieces.next()
            {
                running.push(self.copy_piece(source, &*target, piece));
            }
            match running.next().await {
                Some(Ok(done)) => copied.extend(done),
                Some(Err(error)) => failed = failed.or(Some(error)),
                None => break,
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        match target.sync().await.map_err(MoveError::Target)? == first {
            true => Ok(copied),
            false => Err(MoveError::Target(PoolError::Unknown(to.id()))),
        }
    }

    /// `None`: it is a hole, which the pool could not tell, or nobody wants it any more.
    async fn copy_piece(
        &self,
        source: &dyn OpenReplica,
        target: &dyn OpenReplica,
        piece: Piece,
    ) -> Result<Option<(Piece, Checksum)>, MoveError> {
        if self.is_unwanted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let began = self.clock.monotonic();
        let data = read(source, self.begun.from.id(), piece).await.map_err(MoveError::Source)?;
        let copied = if data.iter().all(|byte| *byte == 0) {
            None
        } else {
            let sum = sum_of(&data);
            let written = target.write_at(piece.offset, data, Stability::Unstable).await;
            written.map_err(MoveError::Target)?;
            Some((piece, sum))
        };
        self.rest(began).await;
        Ok(copied)
    }

    /// Reads back what was written, from the disk.
    async fn compare(&self, copied: &[(Piece, Checksum)]) -> Result<(), MoveError> {
        let Begun { file, to, .. } = self.begun;
        let ticket = Ticket { io: IoMode::Direct, ..ticket_to_read(file, to.id()) };
        let target = to.open(&ticket).await.map_err(MoveError::Target)?;
        let mut running = FuturesUnordered::new();
        for (piece, sum) in copied {
            running.push(self.compare_piece(&*target, *piece, *sum));
            if running.len() == AT_ONCE
                && let Some(done) = running.next().await
            {
                done?;
            }
        }
        while let Some(done) = running.next().await {
            done?;
        }
        Ok(())
    }

    async fn compare_piece(
        &self,
        target: &dyn OpenReplica,
        piece: Piece,
        sum: Checksum,
    ) -> Result<(), MoveError> {
        let (began, pool) = (self.clock.monotonic(), self.begun.to.id());
        let data = read(target, pool, piece).await.map_err(MoveError::Target)?;
        if sum_of(&data) != sum {
            return Err(MoveError::Differs { pool, offset: piece.offset });
        }
        self.rest(began).await;
        Ok(())
    }

    async fn rest(&self, began: Duration) {
        let worked = self.clock.monotonic().saturating_sub(began);
        if !self.pace.rest(worked).await {
            self.is_unwanted.store(true, Ordering::Relaxed);
        }
    }

    /// A hole at the end has no piece.
    async fn extend(&self) -> Result<(), PoolError> {
        let Begun { file, to, length, .. } = self.begun;
        let facts = to.facts(&[file.file], ANSWER_TIME).await.sole()?;
        if facts.is_none_or(|facts| facts.size < *length) {
            to.truncate(&[(file.file, *length)], ANSWER_TIME).await.sole()?;
        }
        Ok(())
    }
}

fn ticket_to_read(file: &Attributes, pool: PoolId) -> Ticket {
    Grant { pool }.own_ticket(file, TicketMode::Read)
}

async fn read(replica: &dyn OpenReplica, pool: PoolId, piece: Piece) -> Result<Bytes, PoolError> {
    let mut data = replica.read_at(piece.offset, piece.length).await?.data;
    while data.len() < piece.length as usize {
        let done = data.len() as u32;
        let more = replica.read_at(piece.offset + u64::from(done), piece.length - done).await?.data;
        if more.is_empty() {
            return Err(lost(pool, "ends before the length of the file"));
        }
        let mut both = BytesMut::with_capacity(piece.length as usize);
        both.extend_from_slice(&data);
        both.extend_from_slice(&more);
        data = both.freeze();
    }
    Ok(data)
}

fn sum_of(data: &[u8]) -> Checksum {
    let mut sums = Sums::new([ChecksumKind::Crc32c]);
    sums.update(data);
    sums.finish().pop().expect("one sum was asked for")
}
