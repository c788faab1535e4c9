//! The body of a request on a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::RecvStream;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::body_error::BodyError;
use crate::budget::Account;
use crate::buffers::{Buffer, SIZES};
use crate::intake::Intake;

/// Frames have 16 KiB as a rule; handlers are better served with more at a time.
const GATHERED: usize = 1;

pub(crate) struct Frames {
    /// Gone when this is dropped, never before.
    incoming: Option<RecvStream>,
    leftover: Leftover,
    pub intake: Arc<Intake>,
    pub account: Arc<Account>,
    filling: Option<Buffer>,
    /// Bytes of the body that were handed on.
    position: u64,
    overflow: Option<Bytes>,
    failed: bool,
}

/// The unread part of a body, once its handler has dropped the body. Dropping this part resets the stream, and some
/// clients (curl 7.88) then lose the answer that was on its way.
#[derive(Clone, Default)]
pub(crate) struct Leftover(Arc<Mutex<Option<RecvStream>>>);

impl Leftover {
    pub fn take(&self) -> Option<RecvStream> {
        self.0.lock().take()
    }
}

/// Reads and forgets up to `bytes_max`, for as long as `patience`.
pub(crate) async fn drain(mut unread: RecvStream, bytes_max: u64, patience: Duration) {
    let mut left = bytes_max;
    let draining = async {
        while let Some(Ok(data)) = poll_fn(|context| poll_data(&mut unread, context)).await {
            left = left.saturating_sub(data.len() as u64);
            if left == 0 {
                return;
            }
        }
    };
    // The answer is out, so a timeout does not matter.
    let _ = timeout(patience, draining).await;
}

enum Frame {
    Data(Bytes),
    NotYet,
    End,
}

impl Drop for Frames {
    fn drop(&mut self) {
        *self.leftover.0.lock() = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
    }
}

impl Frames {
    pub fn new(
        incoming: RecvStream,
        leftover: Leftover,
        intake: Arc<Intake>,
        account: Arc<Account>,
    ) -> Frames {
        Frames {
            incoming: Some(incoming),
            leftover,
            intake,
            account,
            filling: None,
            position: 0,
            overflow: None,
            failed: false,
        }
    }

    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.failed {
            return Err(BodyError::Gone);
        }
        let part = self.gather().await;
        self.failed = part.is_err();
        self.position += part.iter().flatten().map(|part| part.len() as u64).sum::<u64>();
        part
    }

    /// Data that has arrived, up to a buffer; waits only while there is none.
    async fn gather(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let frame = match self.overflow.take() {
                Some(data) => Frame::Data(data),
                None => self.frame().await?,
            };
            let data = match frame {
                Frame::NotYet | Frame::End => return Ok(self.filling.take().map(Buffer::freeze)),
                Frame::Data(data) if data.len() >= SIZES[GATHERED] && self.filling.is_none() => {
                    return Ok(Some(data));
                }
                Frame::Data(data) => data,
            };
            if let Some(full) = self.copy(data) {
                return Ok(Some(full));
            }
        }
    }

    async fn frame(&mut self) -> Result<Frame, BodyError> {
        let has_some = self.filling.is_some();
        let incoming = self.incoming.as_mut().expect("it is taken by drop alone");
        let framing = poll_fn(|context| match poll_data(incoming, context) {
            Poll::Pending if has_some => Poll::Ready(Ok(Frame::NotYet)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Ok(Frame::End)),
            Poll::Ready(Some(Ok(data))) => Poll::Ready(Ok(Frame::Data(data))),
            Poll::Ready(Some(Err(_))) => Poll::Ready(Err(BodyError::Gone)),
        });
        timeout(self.intake.limits.body_time, framing).await.map_err(|_| BodyError::Slow)?
    }

    fn copy(&mut self, mut data: Bytes) -> Option<Bytes> {
        let (intake, account, position) = (&self.intake, &self.account, self.position);
        let buffer = self.filling.get_or_insert_with(|| intake.buffers.take(GATHERED, account, position));
        data.advance(buffer.append(&data));
        self.overflow = Some(data).filter(|data| !data.is_empty());
        if buffer.room() > 0 { None } else { self.filling.take().map(Buffer::freeze) }
    }
}

/// Trailers are nobody's business here.
fn poll_data(incoming: &mut RecvStream, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
    loop {
        match incoming.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => {
                // The client may send as much again.
                if let Err(error) = incoming.flow_control().release_capacity(data.len()) {
                    return Poll::Ready(Some(Err(error)));
                }
                if !data.is_empty() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            other => return other,
        }
    }
}
