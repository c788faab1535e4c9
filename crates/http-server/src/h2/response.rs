//! A response as HTTP/2 frames.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_core::Stream as Items;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY, TRANSFER_ENCODING,
};

use super::Streams;
use super::activity::Running;
use crate::assembly::{Assembly, Broken, Part, Purse, Shape};
use crate::budget::charged;
use crate::exchange::OpenExchange;
use crate::message::{Pieces, Response, ResponseBody};
use crate::tls::STRICT;

/// Read and handed over at once, where the client's window is as large.
const BATCH_BYTES: usize = 256 << 10;
/// The library has what was read until it is sent, and more is read meanwhile.
const SHAPE: Shape = Shape { batch_bytes: BATCH_BYTES, sends_files: false, reads_ahead: false };
/// Those that do not exist in HTTP/2 (RFC 9113 §8.2.2), and those that are written here.
const OWN: [HeaderName; 4] = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, DATE];

/// Why a response ends early.
enum Ended {
    /// The client's doing, or the connection is gone.
    Gone,
    Broken(Broken),
    Stream(std::io::Error),
}

impl From<h2::Error> for Ended {
    fn from(_: h2::Error) -> Ended {
        Ended::Gone
    }
}

impl From<Broken> for Ended {
    fn from(error: Broken) -> Ended {
        Ended::Broken(error)
    }
}

struct Sender {
    frames: SendStream<Bytes>,
    running: Running,
    exchange: Option<Box<OpenExchange>>,
}

pub(super) async fn send(
    mut respond: SendResponse<Bytes>,
    response: Response,
    (is_head, mut exchange): (bool, Option<Box<OpenExchange>>),
    running: Running,
    streams: &Streams,
) {
    let (response, charge) = response.charged(&streams.peer.memory);
    if let Some(exchange) = &mut exchange {
        exchange.answered(&response);
    }
    let (status, body) = (response.status, response.body);
    let length = length_of(&body, is_head);
    let has_no_body = crate::h1::has_no_body(status);
    let mut head = http::Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = response.headers;
    for name in OWN {
        head.headers_mut().remove(name);
    }
    if let Ok(date) = HeaderValue::from_bytes(&streams.shared.clock.now()) {
        head.headers_mut().insert(DATE, date);
    }
    head.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(STRICT));
    if let Some(length) = length.filter(|_| !has_no_body) {
        head.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let is_end = is_head || has_no_body || length == Some(0);
    let Ok(frames) = respond.send_response(head, is_end) else { return };
    if is_end {
        return;
    }
    let purse = Purse { account: Arc::clone(&streams.account), payer: response.payer };
    let mut sender = Sender { frames, running, exchange };
    let sent = match body {
        ResponseBody::Empty | ResponseBody::Absent { .. } => Ok(()),
        // The library has some of them until they are sent.
        ResponseBody::Full(bytes) => match charge {
            Some(charge) => {
                let bytes = charged(vec![bytes], charge).next().unwrap_or_default();
                sender.bytes(bytes).await
            }
            None => sender.bytes(bytes).await,
        },
        ResponseBody::Pieces { length, pieces } => sender.pieces(pieces, length, purse).await,
        ResponseBody::Stream(items) => sender.items(items, purse).await,
    };
    let ended = sent.and_then(|()| Ok(sender.frames.send_data(Bytes::new(), true)?));
    let error: &dyn std::fmt::Display = match &ended {
        Ok(()) | Err(Ended::Gone) => return,
        Err(Ended::Broken(error)) => error,
        Err(Ended::Stream(error)) => error,
    };
    tracing::warn!(%error, "stream reset, response ends early");
    sender.frames.send_reset(Reason::INTERNAL_ERROR);
}

fn length_of(body: &ResponseBody, is_head: bool) -> Option<u64> {
    match body {
        ResponseBody::Empty => Some(0),
        ResponseBody::Full(bytes) => Some(bytes.len() as u64),
        ResponseBody::Absent { length } => {
            if is_head {
                *length
            } else {
                Some(0)
            }
        }
        ResponseBody::Pieces { length, .. } => Some(*length),
        ResponseBody::Stream(_) => None,
    }
}

impl Sender {
    async fn pieces(&mut self, pieces: Pieces, length: u64, purse: Purse) -> Result<(), Ended> {
        let mut assembly = Assembly::new(pieces, length, SHAPE, purse);
        loop {
            let wanted = usize::try_from(assembly.left()).unwrap_or(usize::MAX).clamp(1, BATCH_BYTES);
            // At the end nothing is sent, but what follows the promised length would be a fault.
            let window = if assembly.left() == 0 { 1 } else { self.window(wanted).await? };
            match assembly.next_up_to(window).await? {
                None => return Ok(()),
                Some(Part::Bytes(parts, charge)) => {
                    for bytes in charged(parts, charge) {
                        self.data(bytes)?;
                    }
                }
                // Not asked for; it could only be read.
                Some(Part::File(stretch)) => assembly.put_back(stretch),
            }
        }
    }

    async fn bytes(&mut self, mut bytes: Bytes) -> Result<(), Ended> {
        while !bytes.is_empty() {
            let window = self.window(bytes.len()).await?;
            self.data(bytes.split_to(window.min(bytes.len())))?;
        }
        Ok(())
    }

    /// The bytes are charged while the library holds them.
    async fn item(&mut self, mut bytes: Bytes, purse: &Purse) -> Result<(), Ended> {
        while !bytes.is_empty() {
            let window = self.window(bytes.len()).await?;
            let charge = purse.account.take(purse.payer, window).await;
            let part = bytes.split_to(charge.bytes());
            for bytes in charged(vec![part], charge) {
                self.data(bytes)?;
            }
        }
        Ok(())
    }

    async fn items(
        &mut self,
        mut items: Pin<Box<dyn Items<Item = std::io::Result<Bytes>> + Send>>,
        purse: Purse,
    ) -> Result<(), Ended> {
        loop {
            self.window(1).await?;
            // Not kept while the handler takes its time: other streams may need all of the connection's window.
            self.frames.reserve_capacity(0);
            let item = poll_fn(|context| match self.frames.poll_reset(context) {
                Poll::Ready(_) => Poll::Ready(Err(Ended::Gone)),
                Poll::Pending => items.as_mut().poll_next(context).map(Ok),
            });
            match item.await? {
                None => return Ok(()),
                Some(Err(error)) => return Err(Ended::Stream(error)),
                Some(Ok(bytes)) => self.item(bytes, &purse).await?,
            }
        }
    }

    fn data(&mut self, bytes: Bytes) -> Result<(), h2::Error> {
        if let Some(exchange) = &mut self.exchange {
            exchange.sent(bytes.len() as u64);
        }
        self.frames.send_data(bytes, false)
    }

    /// Waits until the client takes some more, and says how much of `wanted`: at least a byte.
    async fn window(&mut self, wanted: usize) -> Result<usize, Ended> {
        self.running.waits_for_client(true);
        self.frames.reserve_capacity(wanted);
        let frames = &mut self.frames;
        let window = poll_fn(|context| {
            if frames.poll_reset(context).is_ready() {
                return Poll::Ready(Err(Ended::Gone));
            }
            loop {
                if frames.capacity() > 0 {
                    return Poll::Ready(Ok(frames.capacity()));
                }
                match frames.poll_capacity(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Ended::Gone)),
                }
            }
        });
        let window = window.await?.min(wanted);
        self.running.waits_for_client(false);
        Ok(window)
    }
}
