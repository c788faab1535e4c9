//! The body of a request as it comes off the connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_wire::chunked::{Chunked, ChunkedDecoder};
use http_wire::head::BodyFraming;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::body_error::BodyError;
use crate::budget::Account;
use crate::buffers::{Buffer, SIZES};
use crate::intake::Intake;
use crate::wire::Wire;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// A client that fills a buffer within this gets a larger one next, and one that does not the smallest.
const FAST: Duration = Duration::from_millis(50);
/// Received at once of a body in chunks as long as it is slow.
const SLOW_BYTES: usize = 16 << 10;
/// Chunk data of this length are handed on as they lie in the buffer; shorter ones are copied together.
const UNCOPIED_BYTES_MIN: usize = 32 << 10;

/// A connection while a request is answered.
pub(crate) struct Incoming {
    pub wire: Box<Wire>,
    rest: Rest,
    /// Bytes of `100 Continue` still to be written before the body can be expected.
    owed: &'static [u8],
    filling: Option<Buffer>,
    /// Bytes of the body that were handed on.
    position: u64,
    /// Chunk data that did not fit into `filling`.
    overflow: Option<Bytes>,
    /// When `filling` was begun.
    begun: Instant,
    /// Index of the next buffer's size, if there is memory for it.
    size: usize,
    account: Arc<Account>,
    /// Told by the next call: what had come before it was handed on first.
    ending: Option<BodyError>,
}

enum Rest {
    Nothing,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    /// Where the next request would begin is not known.
    Broken,
}

/// How the connection treats a body that its handler did not read to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Nothing,
    /// Read and thrown away, then the connection is of use again.
    Drain(u64),
    Close,
}

impl Incoming {
    pub fn new(
        wire: Box<Wire>,
        framing: BodyFraming,
        expects_continue: bool,
        account: Arc<Account>,
    ) -> Incoming {
        let rest = match framing {
            BodyFraming::None | BodyFraming::Length(0) => Rest::Nothing,
            BodyFraming::Length(length) => Rest::Length(length),
            BodyFraming::Chunked => Rest::Chunked(Box::default()),
        };
        let owed = if expects_continue { CONTINUE } else { &[] };
        Incoming {
            wire,
            rest,
            owed,
            filling: None,
            position: 0,
            begun: Instant::now(),
            overflow: None,
            size: 0,
            account,
            ending: None,
        }
    }

    /// Everything was handed to the handler.
    pub fn has_ended(&self) -> bool {
        matches!(self.rest, Rest::Nothing) && self.filling.is_none() && self.overflow.is_none()
    }

    /// A client that was never told to go on may or may not send the body, so that connection ends.
    pub fn leftover(&self, drained_bytes_max: u64) -> Leftover {
        match self.rest {
            Rest::Nothing => Leftover::Nothing,
            Rest::Length(length) if self.owed.is_empty() && length <= drained_bytes_max => {
                Leftover::Drain(length)
            }
            _ => Leftover::Close,
        }
    }

    pub async fn next(&mut self, intake: &Intake) -> Result<Option<Bytes>, BodyError> {
        let error = match self.ending.take() {
            Some(error) => error,
            None => match self.next_part(intake).await {
                Ok(part) => {
                    self.position += part.as_ref().map_or(0, Bytes::len) as u64;
                    return Ok(part);
                }
                Err(error) => error,
            },
        };
        self.rest = Rest::Broken;
        self.overflow = None;
        // A client that resumes a broken upload goes on behind these bytes.
        match self.filling.take().filter(|buffer| buffer.len() > 0) {
            Some(buffer) => {
                self.ending = Some(error);
                Ok(Some(buffer.freeze()))
            }
            None => Err(error),
        }
    }

    async fn next_part(&mut self, intake: &Intake) -> Result<Option<Bytes>, BodyError> {
        self.say_continue(intake).await?;
        match self.rest {
            Rest::Broken => Err(BodyError::Gone),
            Rest::Length(_) => self.next_of_length(intake).await.map(Some),
            Rest::Nothing | Rest::Chunked(_) => self.next_of_chunks(intake).await,
        }
    }

    async fn say_continue(&mut self, intake: &Intake) -> Result<(), BodyError> {
        if self.owed.is_empty() || matches!(self.rest, Rest::Broken) {
            return Ok(());
        }
        // RFC 9110 §10.1.1: it may be left out when some of the body is there already.
        if !self.wire.received.is_empty() {
            self.owed = &[];
            return Ok(());
        }
        self.wire.out.copy(self.owed);
        self.owed = &[];
        self.wire.send(intake.limits.write_time).await.map_err(|_| BodyError::Gone)
    }

    async fn next_of_length(&mut self, intake: &Intake) -> Result<Bytes, BodyError> {
        let Rest::Length(left) = self.rest else { unreachable!("only called for a body with a length") };
        let received = self.wire.received.len();
        if self.filling.is_none() && received > 0 {
            let part = left.min(received as u64);
            let bytes = self.wire.received.split_to(part as usize).freeze();
            self.took(left, part);
            return Ok(bytes);
        }
        let buffer = self.filling.take().unwrap_or_else(|| self.begin(intake));
        let goal = (buffer.len() as u64 + buffer.room() as u64).min(left) as usize;
        // Kept in `self` while this waits, so that dropping it loses nothing.
        let slot = self.filling.insert(buffer);
        let stream = &mut self.wire.stream;
        // Filled to the end: the fewer hand-overs the less each byte costs, and who publishes a file waits for all of it.
        while slot.len() < goal {
            let filling = poll_fn(|context| poll_fill(stream, slot, goal, context));
            // The time begins anew with every byte.
            match timeout(intake.limits.body_time, filling).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(BodyError::Gone),
                Err(_) => return Err(BodyError::Slow),
            }
        }
        let part = goal as u64;
        let bytes = self.hand_on().expect("it was put there above");
        self.took(left, part);
        Ok(bytes)
    }

    fn begin(&mut self, intake: &Intake) -> Buffer {
        self.begun = Instant::now();
        intake.buffers.take(self.size, &self.account, self.position)
    }

    /// The buffer that is being filled, as far as it is full.
    fn hand_on(&mut self) -> Option<Bytes> {
        let buffer = self.filling.take()?;
        if buffer.room() == 0 {
            self.size = if self.begun.elapsed() < FAST { (self.size + 1).min(SIZES.len() - 1) } else { 0 };
        }
        Some(buffer.freeze())
    }

    fn took(&mut self, left: u64, part: u64) {
        self.rest = if left == part { Rest::Nothing } else { Rest::Length(left - part) };
    }

    /// Also hands out the last of a chunked body.
    async fn next_of_chunks(&mut self, intake: &Intake) -> Result<Option<Bytes>, BodyError> {
        loop {
            if let Some(data) = self.overflow.take() {
                if self.filling.is_none() && data.len() >= UNCOPIED_BYTES_MIN {
                    return Ok(Some(data));
                }
                if let Some(full) = self.gather(data, intake) {
                    return Ok(Some(full));
                }
            }
            let Rest::Chunked(decoder) = &mut self.rest else {
                return Ok(self.hand_on());
            };
            match decoder.decode(&mut self.wire.received) {
                Ok(Chunked::Data(data)) => self.overflow = Some(data),
                Ok(Chunked::End) => self.rest = Rest::Nothing,
                Ok(Chunked::NeedMore) => {
                    let room = self.filling.as_ref().map_or(SLOW_BYTES, Buffer::size_charged).max(SLOW_BYTES);
                    let receiving = self.wire.receive(room);
                    match timeout(intake.limits.body_time, receiving).await {
                        Ok(Ok(received)) if received > 0 => {}
                        Ok(_) => return Err(BodyError::Gone),
                        Err(_) => return Err(BodyError::Slow),
                    }
                }
                Err(_) => return Err(BodyError::Malformed("a chunk is wrong")),
            }
        }
    }

    /// Copies into the buffer that is being filled; gives it back when it is full.
    fn gather(&mut self, mut data: Bytes, intake: &Intake) -> Option<Bytes> {
        if self.filling.is_none() {
            self.filling = Some(self.begin(intake));
        }
        let buffer = self.filling.as_mut()?;
        data.advance(buffer.append(&data));
        self.overflow = Some(data).filter(|data| !data.is_empty());
        if buffer.room() > 0 { None } else { self.hand_on() }
    }

    /// Throws away what is left, if it comes in time.
    pub async fn drain(&mut self, intake: &Intake) -> bool {
        while let Rest::Length(_) = self.rest {
            if self.next(intake).await.is_err() {
                return false;
            }
        }
        // Of a body that breaks off the last bytes come before the error.
        matches!(self.rest, Rest::Nothing)
    }
}

/// Ready when `goal` bytes are in the buffer, or some came and no more are there at once.
fn poll_fill(
    stream: &mut crate::stream::Stream,
    buffer: &mut Buffer,
    goal: usize,
    context: &mut Context<'_>,
) -> Poll<std::io::Result<()>> {
    let start = buffer.len();
    loop {
        let len = buffer.len();
        if len == goal {
            return Poll::Ready(Ok(()));
        }
        let room = &mut buffer.unfilled()[..goal - len];
        let reading = pin!(stream.read(room)).poll(context);
        match reading {
            Poll::Pending if len > start => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(count)) => buffer.advance(count),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
    }
}
