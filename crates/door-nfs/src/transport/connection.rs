//! One TCP connection: replies out in order of completion, and calls to the client over it (the back channel).
//!
//! Who has something to send queues it; if nobody is writing it becomes the writer and empties the queue, its own
//! and what others add meanwhile. So a reply costs no wake-up of another task, and many replies go out in one call.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use nfs4_state::ConnectionId;
use oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader, record_header};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use xdr::{Decoder, Encoder, Xdr};

use super::flight::Place;

/// Calls to the client under way on one connection.
const CALLS_MAX: usize = 64;
/// Segments handed to the kernel at once.
const SLICES_MAX: usize = 64;

pub(crate) struct Connection {
    id: ConnectionId,
    peer: SocketAddr,
    local: SocketAddr,
    patience: Duration,
    /// Leaf lock, never held while writing: the writer is taken out.
    outgoing: Mutex<Outgoing>,
    /// Calls to the client that wait for a reply, by xid. Leaf lock.
    waiting: Mutex<HashMap<u32, oneshot::Sender<Bytes>>>,
    next_xid: AtomicU32,
    closing: Notify,
}

struct Outgoing {
    queue: VecDeque<Message>,
    /// `None` while somebody writes, and for ever once closed.
    writer: Option<OwnedWriteHalf>,
    is_closed: bool,
}

struct Message {
    segments: Vec<Bytes>,
    /// Released when the message has gone to the socket.
    _place: Option<Place>,
}

/// Why a call to a client had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The connection is gone.
    Closed,
    TimedOut,
    /// Too many calls wait on this connection already.
    Busy,
    /// The client refused the call or answered garbage.
    Refused,
}

impl Connection {
    pub fn new(
        peer: SocketAddr,
        local: SocketAddr,
        writer: OwnedWriteHalf,
        patience: Duration,
    ) -> Arc<Connection> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Connection {
            id: ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed)),
            peer,
            local,
            patience,
            outgoing: Mutex::new(Outgoing { queue: VecDeque::new(), writer: Some(writer), is_closed: false }),
            waiting: Mutex::default(),
            next_xid: AtomicU32::new(1),
            closing: Notify::new(),
        })
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends a record made of these segments; `place` is freed when it has gone out.
    pub async fn send(&self, segments: Vec<Bytes>, place: Place) {
        self.enqueue(Message { segments, _place: Some(place) }).await;
    }

    /// Calls the client's program and waits for the results, at most until `deadline` has passed.
    pub async fn call(
        self: &Arc<Self>,
        program: u32,
        version: u32,
        procedure: u32,
        credential: Credential,
        arguments: Encoder,
        deadline: Duration,
    ) -> Result<Decoder, CallError> {
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        let mut encoder = Encoder::new();
        CallHeader { xid, program, version, procedure, credential, verifier: OpaqueAuth::NONE }
            .encode(&mut encoder);
        encoder.append(arguments);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= CALLS_MAX {
                return Err(CallError::Busy);
            }
            waiting.insert(xid, sender);
        }
        let exchanged = tokio::time::timeout(deadline, async {
            // In a task of its own: a writer that is dropped at the deadline would leave half a record behind.
            let (connection, message) =
                (Arc::clone(self), Message { segments: with_record_mark(encoder), _place: None });
            tokio::spawn(async move { connection.enqueue(message).await });
            tokio::select! {
                answer = answer => answer.map_err(|_| CallError::Closed),
                () = self.closed() => Err(CallError::Closed),
            }
        });
        let answer = exchanged.await.unwrap_or(Err(CallError::TimedOut));
        self.waiting.lock().remove(&xid);
        let mut decoder = Decoder::new(answer?);
        match ReplyHeader::decode(&mut decoder) {
            Ok(header) if header.is_success() => Ok(decoder),
            _ => Err(CallError::Refused),
        }
    }

    /// Hands a reply from the client to whoever waits for it; nobody does if it came too late.
    pub fn deliver(&self, xid: u32, record: Bytes) {
        if let Some(waiting) = self.waiting.lock().remove(&xid) {
            let _ = waiting.send(record);
        }
    }

    /// Returns when the connection is closed.
    pub async fn closed(&self) {
        let notified = self.closing.notified();
        tokio::pin!(notified);
        // Registered before looking, or a close in between would be missed.
        notified.as_mut().enable();
        if self.is_closed() {
            return;
        }
        notified.await;
    }

    pub fn is_closed(&self) -> bool {
        self.outgoing.lock().is_closed
    }

    pub fn close(&self) {
        let unsent = {
            let mut outgoing = self.outgoing.lock();
            outgoing.is_closed = true;
            (outgoing.writer.take(), std::mem::take(&mut outgoing.queue))
        };
        drop(unsent);
        self.waiting.lock().clear();
        self.closing.notify_waiters();
    }

    async fn enqueue(&self, message: Message) {
        let writer = {
            let mut outgoing = self.outgoing.lock();
            if outgoing.is_closed {
                return;
            }
            outgoing.queue.push_back(message);
            outgoing.writer.take()
        };
        if let Some(writer) = writer {
            self.write_queued(writer).await;
        }
    }

    async fn write_queued(&self, mut writer: OwnedWriteHalf) {
        loop {
            let batch = {
                let mut outgoing = self.outgoing.lock();
                if outgoing.is_closed {
                    return;
                }
                if outgoing.queue.is_empty() {
                    outgoing.writer = Some(writer);
                    return;
                }
                let mut segments = 0;
                let fits = |message: &&Message| {
                    segments += message.segments.len();
                    segments <= SLICES_MAX
                };
                let count = outgoing.queue.iter().take_while(fits).count().max(1);
                outgoing.queue.drain(..count).collect::<Vec<_>>()
            };
            let mut segments: VecDeque<Bytes> =
                batch.iter().flat_map(|message| message.segments.iter().cloned()).collect();
            if !write_all(&mut writer, &mut segments, self.patience).await {
                tracing::debug!(peer = %self.peer, "peer does not take its replies, cut the connection");
                self.close();
                return;
            }
        }
    }
}

async fn write_all(writer: &mut OwnedWriteHalf, segments: &mut VecDeque<Bytes>, patience: Duration) -> bool {
    while !segments.is_empty() {
        let slices: Vec<_> = segments.iter().take(SLICES_MAX).map(|segment| IoSlice::new(segment)).collect();
        let written = tokio::time::timeout(patience, writer.write_vectored(&slices)).await;
        let Ok(Ok(mut written)) = written else { return false };
        if written == 0 {
            return false;
        }
        while let Some(front) = segments.front_mut() {
            if written < front.len() {
                front.advance(written);
                break;
            }
            written -= front.len();
            segments.pop_front();
        }
    }
    true
}

/// One record in one fragment.
pub(super) fn with_record_mark(encoder: Encoder) -> Vec<Bytes> {
    let mut segments = vec![Bytes::copy_from_slice(&record_header(encoder.len()))];
    segments.extend(encoder.into_segments());
    segments
}
