//! A response on its way to the client.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_core::Stream as Items;
use http_wire::chunked::{CHUNK_END, ChunkHead, LAST_CHUNK};
use tokio::time::sleep;

use super::head::{self, Asked, Framing};
use super::send_error::SendError;
use super::sendfile::{self, Sent};
use crate::Memory;
use crate::assembly::{Assembly, Broken, Part, Purse, Shape, Stretch};
use crate::exchange::OpenExchange;
use crate::listener_state::ListenerState;
use crate::message::{Pieces, Response, ResponseBody};
use crate::wire::Wire;

/// Gathered for one write where large parts of files are sent as such.
const BATCH_BYTES: usize = 256 << 10;
/// With TLS everything goes through memory.
const TLS_BATCH_BYTES: usize = 1 << 20;
/// Of a stream, what is ready at once is written together up to this.
const STREAM_BYTES: usize = 64 << 10;

/// After an error the connection is to be reset.
pub(crate) async fn respond(
    (wire, exchange): (&mut Wire, Option<&mut OpenExchange>),
    response: Response,
    asked: &Asked,
    shared: &ListenerState,
    memory: &Memory,
) -> Result<(), SendError> {
    let (response, _charge) = response.charged(memory);
    if let Some(exchange) = exchange {
        exchange.answered(&response);
    }
    let framing = Framing::of(response.status, &response.body, asked);
    head::write(&mut wire.out, response.status, &response.headers, framing, asked, &shared.clock.now());
    wire.begin_body();
    if asked.is_head || head::has_no_body(response.status) {
        return Ok(wire.send(shared.limits.write_time).await?);
    }
    match response.body {
        ResponseBody::Empty | ResponseBody::Absent { .. } => {}
        ResponseBody::Full(bytes) => wire.out.push(bytes),
        ResponseBody::Pieces { length, pieces } => {
            return send_pieces(wire, pieces, length, response.payer, shared).await;
        }
        ResponseBody::Stream(items) => {
            return send_stream(wire, items, framing == Framing::Chunked, shared).await;
        }
    }
    Ok(wire.send(shared.limits.write_time).await?)
}

async fn send_pieces(
    wire: &mut Wire,
    pieces: Pieces,
    length: u64,
    payer: Option<u64>,
    shared: &ListenerState,
) -> Result<(), SendError> {
    let sends_files = wire.stream.plain().is_some();
    let batch_bytes = if sends_files { BATCH_BYTES } else { TLS_BATCH_BYTES };
    let shape = Shape { batch_bytes, sends_files, reads_ahead: true };
    let purse = Purse { account: Arc::clone(&wire.account), payer };
    let mut assembly = Assembly::new(pieces, length, shape, purse);
    while let Some(part) = assembly.next().await? {
        match part {
            Part::Bytes(parts, _charge) => {
                parts.into_iter().for_each(|bytes| wire.out.push(bytes));
                wire.send(shared.limits.write_time).await?;
            }
            Part::File(stretch) => send_file(wire, stretch, &mut assembly, shared).await?,
        }
    }
    // A response without a byte is still a head.
    Ok(wire.send(shared.limits.write_time).await?)
}

async fn send_file(
    wire: &mut Wire,
    mut stretch: Stretch,
    assembly: &mut Assembly,
    shared: &ListenerState,
) -> Result<(), SendError> {
    wire.send(shared.limits.write_time).await?;
    let Some(stream) = wire.stream.plain() else {
        assembly.put_back(stretch);
        return Ok(());
    };
    let length = stretch.length;
    let sent = sendfile::send(stream, &mut stretch, shared).await;
    wire.sent += length - stretch.length;
    match sent? {
        Sent::All => {}
        Sent::Unsendable => assembly.put_back(stretch),
        Sent::EndOfFile => return Err(Broken::Lost(stretch.length).into()),
    }
    Ok(())
}

async fn send_stream(
    wire: &mut Wire,
    mut items: Pin<Box<dyn Items<Item = io::Result<Bytes>> + Send>>,
    is_chunked: bool,
    shared: &ListenerState,
) -> Result<(), SendError> {
    loop {
        let at_once = poll_fn(|context| match items.as_mut().poll_next(context) {
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(item) => Poll::Ready(Some(item)),
        });
        let item = match at_once.await {
            Some(item) => item,
            None => {
                wire.send(shared.limits.write_time).await?;
                next_or_gone(wire, &mut items, shared).await?
            }
        };
        let bytes = match item {
            None => break,
            Some(Err(error)) => return Err(SendError::Stream(error)),
            Some(Ok(bytes)) => bytes,
        };
        match ChunkHead::new(bytes.len()) {
            None => continue,
            Some(head) if is_chunked => {
                wire.out.copy(head.as_bytes());
                wire.out.push(bytes);
                wire.out.copy(CHUNK_END);
            }
            Some(_) => wire.out.push(bytes),
        }
        if wire.out.bytes() >= STREAM_BYTES {
            wire.send(shared.limits.write_time).await?;
        }
    }
    if is_chunked {
        wire.out.copy(LAST_CHUNK);
    }
    Ok(wire.send(shared.limits.write_time).await?)
}

/// A copy that nobody waits for any more ends here, with its stream.
async fn next_or_gone(
    wire: &mut Wire,
    items: &mut Pin<Box<dyn Items<Item = io::Result<Bytes>> + Send>>,
    shared: &ListenerState,
) -> Result<Option<io::Result<Bytes>>, SendError> {
    let gone = async {
        sleep(shared.limits.half_closed_time).await;
        wire.gone().await;
    };
    tokio::select! {
        biased;
        item = poll_fn(|context| items.as_mut().poll_next(context)) => Ok(item),
        () = gone => Err(SendError::Gone(io::ErrorKind::ConnectionAborted.into())),
    }
}
