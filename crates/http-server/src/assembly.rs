//! Pieces of a response made into bytes, some ahead, or handed on as stretches of a file where the connection can send
//! files itself.
//!
//! An error here breaks the length that the head promised, so the connection can only be closed.

use std::sync::Arc;
use std::time::Duration;

use api::{IoHandle, LocalRange, OpenReplica, PoolError, ReadData};
use bytes::{Bytes, BytesMut};
use thiserror::Error;
use types::ByteRange;

use crate::budget::{Account, Charge};
use crate::message::{Piece, Pieces};

/// Shorter parts of a file are cheaper to read into a buffer, many of them into one write.
const FILE_BYTES_MIN: u64 = 64 << 10;
const READ_BYTES_MAX: usize = 1 << 20;
/// Short stretches that can be read without waiting are copied together into buffers of this size: ten thousand ranges
/// then cost a system call each and hardly anything else.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Pieces in memory are copied up to this length; longer ones are handed on.
const COPIED_BYTES_MAX: usize = 2 << 10;
/// Reads that wait for a disk at once.
const WAITING_MAX: usize = 16;
const PARTS_MAX: usize = 512;
/// A pool that is busy is asked again this often, for two seconds in all.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const BUSY_TRIES_MAX: u32 = 100;

#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error("pieces are longer than promised")]
    TooLong,
    #[error("pieces end {0} bytes early")]
    TooShort(u64),
    #[error("replica ends {0} bytes early")]
    Lost(u64),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Bytes of a replica that are still to be sent.
pub(crate) struct Stretch {
    pub replica: Arc<dyn OpenReplica>,
    pub offset: u64,
    pub length: u64,
    /// Its file, if it has one here, is of no use.
    pub is_read: bool,
}

impl Stretch {
    /// As bytes of a file of this host, if it is one.
    pub fn local_range(&self) -> Option<Arc<dyn LocalRange>> {
        self.replica.local_range(ByteRange::new(self.offset, self.length)?)
    }

    pub fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        self.length -= bytes;
    }
}

pub(crate) enum Part {
    /// The charge is for as long as any of them is in memory.
    Bytes(Vec<Bytes>, Charge),
    File(Stretch),
}

#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Gathered for one write, where there is memory for so much.
    pub batch_bytes: usize,
    pub sends_files: bool,
    /// The disk works on the next batch while one is written.
    pub reads_ahead: bool,
}

/// Account and payer to which the memory of a response is charged.
#[derive(Clone)]
pub(crate) struct Purse {
    pub account: Arc<Account>,
    pub payer: Option<u64>,
}

pub(crate) struct Assembly {
    pieces: Pieces,
    /// Promised and not planned yet.
    left: u64,
    rest: Option<Stretch>,
    ahead: Option<Plan>,
    /// The end of the batch that is being planned, as long as it may grow.
    gathered: BytesMut,
    /// No more than the batch was granted.
    gathered_bytes_max: usize,
    shape: Shape,
    purse: Purse,
}

enum Plan {
    Batch(Vec<Pending>, Charge),
    File(Stretch),
}

enum Pending {
    Bytes(Bytes),
    Read { stretch: Stretch, answer: IoHandle<ReadData> },
}

impl Assembly {
    pub fn new(pieces: Pieces, length: u64, shape: Shape, purse: Purse) -> Assembly {
        Assembly {
            pieces,
            left: length,
            rest: None,
            ahead: None,
            gathered: BytesMut::new(),
            gathered_bytes_max: GATHERED_BYTES_MAX,
            shape,
            purse,
        }
    }

    /// Not planned yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// As [`Assembly::next`], about so many bytes: only pieces of text are never cut.
    pub async fn next_up_to(&mut self, bytes: usize) -> Result<Option<Part>, Broken> {
        self.shape.batch_bytes = bytes;
        self.next().await
    }

    /// `None`: the promise is kept.
    pub async fn next(&mut self) -> Result<Option<Part>, Broken> {
        let plan = match self.ahead.take() {
            Some(plan) => plan,
            None if self.left == 0 => return self.ended().map(|()| None),
            None => {
                let charge = self.purse.account.take(self.purse.payer, self.wanted()).await;
                self.plan(charge)?
            }
        };
        let (batch, charge) = match plan {
            Plan::File(stretch) => return Ok(Some(Part::File(stretch))),
            Plan::Batch(batch, _) if batch.is_empty() => return self.ended().map(|()| None),
            Plan::Batch(batch, charge) => (batch, charge),
        };
        // Where memory is short nothing is read ahead.
        if self.shape.reads_ahead
            && self.left > 0
            && let Some(charge) = self.purse.account.take_now(self.purse.payer, self.wanted())
        {
            self.ahead = Some(self.plan(charge)?);
        }
        let mut parts = Vec::with_capacity(batch.len());
        for pending in batch {
            match pending {
                Pending::Bytes(bytes) => parts.push(bytes),
                Pending::Read { stretch, answer } => finish(stretch, answer, &mut parts).await?,
            }
        }
        Ok(Some(Part::Bytes(parts, charge)))
    }

    fn wanted(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX).clamp(1, self.shape.batch_bytes.max(1))
    }

    /// Takes back the part of a file that could not be sent as such; it comes next, by `read_at`.
    pub fn put_back(&mut self, mut stretch: Stretch) {
        stretch.is_read = true;
        self.left += stretch.length;
        debug_assert!(self.rest.is_none() && self.ahead.is_none(), "nothing is planned behind a file");
        self.rest = Some(stretch);
    }

    /// Pieces behind what was promised are looked for here, and take no memory.
    fn ended(&mut self) -> Result<(), Broken> {
        if self.left > 0 {
            return Err(Broken::TooShort(self.left));
        }
        let is_more = self.rest.is_some() || self.pieces.any(|piece| piece.length() > 0);
        if is_more { Err(Broken::TooLong) } else { Ok(()) }
    }

    fn plan(&mut self, mut charge: Charge) -> Result<Plan, Broken> {
        let batch_bytes = charge.bytes();
        self.gathered_bytes_max = batch_bytes.min(GATHERED_BYTES_MAX);
        let (mut batch, mut bytes, mut waiting) = (Vec::new(), 0, 0);
        while bytes < batch_bytes && batch.len() < PARTS_MAX && waiting < WAITING_MAX {
            let mut stretch = match self.rest.take() {
                Some(stretch) => stretch,
                None => match self.pieces.next() {
                    None => break,
                    Some(Piece::Bytes(piece)) => {
                        self.take(piece.len() as u64)?;
                        bytes += piece.len();
                        self.put(piece, &mut batch);
                        continue;
                    }
                    Some(Piece::Replica { replica, offset, length }) => {
                        Stretch { replica, offset, length, is_read: false }
                    }
                },
            };
            if self.is_sent_as_file(&stretch) {
                self.seal(&mut batch);
                if !batch.is_empty() {
                    self.rest = Some(stretch);
                    break;
                }
                self.take(stretch.length)?;
                return Ok(Plan::File(stretch));
            }
            let length = stretch.length.min((batch_bytes - bytes).min(READ_BYTES_MAX) as u64);
            self.take(length)?;
            bytes += length as usize;
            if !self.gather(&stretch, length as usize, &mut batch) {
                self.seal(&mut batch);
                let read = Stretch { length, replica: Arc::clone(&stretch.replica), ..stretch };
                let answer = read.replica.read_at(read.offset, length as u32);
                waiting += usize::from(matches!(answer, IoHandle::Waiting { .. }));
                batch.push(Pending::Read { stretch: read, answer });
            }
            stretch.advance(length);
            self.rest = Some(stretch).filter(|stretch| stretch.length > 0);
        }
        self.seal(&mut batch);
        charge.shrink(bytes);
        Ok(Plan::Batch(batch, charge))
    }

    fn put(&mut self, piece: Bytes, batch: &mut Vec<Pending>) {
        if piece.len() > COPIED_BYTES_MAX {
            self.seal(batch);
            batch.push(Pending::Bytes(piece));
        } else {
            self.make_room(piece.len(), batch);
            self.gathered.extend_from_slice(&piece);
        }
    }

    /// Whether the first `length` bytes of the stretch are short and in memory, and so in the batch now.
    fn gather(&mut self, stretch: &Stretch, length: usize, batch: &mut Vec<Pending>) -> bool {
        if length > GATHERED_BYTES_MAX {
            return false;
        }
        self.make_room(length, batch);
        stretch.replica.read_resident(stretch.offset, length as u32, &mut self.gathered)
    }

    /// A buffer is as large as what is left may need, so that a small file has a small one.
    fn make_room(&mut self, length: usize, batch: &mut Vec<Pending>) {
        if self.gathered.capacity() - self.gathered.len() < length {
            self.seal(batch);
            let most = self.gathered_bytes_max.max(length) as u64;
            let wanted = self.left.saturating_add(length as u64).min(most) as usize;
            self.gathered = BytesMut::with_capacity(wanted);
        }
    }

    fn seal(&mut self, batch: &mut Vec<Pending>) {
        if !self.gathered.is_empty() {
            batch.push(Pending::Bytes(self.gathered.split().freeze()));
        }
    }

    fn is_sent_as_file(&self, stretch: &Stretch) -> bool {
        self.shape.sends_files
            && !stretch.is_read
            && stretch.length >= FILE_BYTES_MIN
            && stretch.local_range().is_some()
    }

    fn take(&mut self, bytes: u64) -> Result<(), Broken> {
        self.left = self.left.checked_sub(bytes).ok_or(Broken::TooLong)?;
        Ok(())
    }
}

/// Waits for a read, and reads again what it fell short of.
async fn finish(
    mut stretch: Stretch,
    mut answer: IoHandle<ReadData>,
    parts: &mut Vec<Bytes>,
) -> Result<(), Broken> {
    let mut tries = 0;
    loop {
        match answer.await {
            Ok(mut read) => {
                read.data.truncate(stretch.length as usize);
                stretch.advance(read.data.len() as u64);
                let is_end = read.end_of_file || read.data.is_empty();
                if is_end && stretch.length > 0 {
                    return Err(Broken::Lost(stretch.length));
                }
                if !read.data.is_empty() {
                    parts.push(read.data);
                }
            }
            Err(error) if error.is_retryable() && tries < BUSY_TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
        if stretch.length == 0 {
            return Ok(());
        }
        answer = stretch.replica.read_at(stretch.offset, stretch.length as u32);
    }
}
