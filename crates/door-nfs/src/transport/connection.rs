//! One TCP connection: replies out in order of completion, and calls to the client over it (the back channel).
//!
//! A task queues the record it sends. If no task is writing, it becomes the writer and empties the queue, including
//! records that others add meanwhile. So a reply costs no wake-up of another task, and many replies go out in one call.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use nfs4_state::ConnectionId;
use oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader, record_header};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use xdr::{Decoder, Encoder, Xdr};

use super::flight::CallPlace;
use super::long_record::PayloadPlace;

/// Calls to the client under way on one connection.
const CALLS_MAX: usize = 64;
/// So often within its patience a connection that takes nothing is looked at.
const LOOKS: u32 = 3;
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
    is_vouched_for: AtomicBool,
    payload_place: PayloadPlace,
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
    place: Option<CallPlace>,
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
            is_vouched_for: AtomicBool::new(false),
            payload_place: PayloadPlace::default(),
        })
    }

    /// Its client has shown something that only those are given that something is exported to.
    pub fn vouch_for(&self) {
        self.is_vouched_for.store(true, Ordering::Relaxed);
    }

    pub fn is_vouched_for(&self) -> bool {
        self.is_vouched_for.load(Ordering::Relaxed)
    }

    pub(super) fn payload_place(&self) -> &PayloadPlace {
        &self.payload_place
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
    pub async fn send(&self, segments: Vec<Bytes>, place: CallPlace) {
        self.enqueue(Message { segments, place: Some(place) }).await;
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
                (Arc::clone(self), Message { segments: with_record_mark(encoder), place: None });
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

    /// Hands a reply from the client to the call that waits for it; a reply that came too late is dropped.
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
            let is_in_the_way =
                || batch.iter().filter_map(|message| message.place.as_ref()).any(CallPlace::is_in_the_way);
            if !write_all(&mut writer, &mut segments, self.patience, &is_in_the_way).await {
                tracing::debug!(peer = %self.peer, "peer does not take its replies, cut the connection");
                self.close();
                return;
            }
        }
    }
}

async fn write_all(
    writer: &mut OwnedWriteHalf,
    segments: &mut VecDeque<Bytes>,
    patience: Duration,
    is_in_the_way: &(dyn Fn() -> bool + Sync),
) -> bool {
    while !segments.is_empty() {
        let slices: Vec<_> = segments.iter().take(SLICES_MAX).map(|segment| IoSlice::new(segment)).collect();
        let Some(mut written) = write_some(writer, &slices, patience, is_in_the_way).await else {
            return false;
        };
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

/// `None`: the peer takes nothing. It has less patience where its replies are in the way of others.
async fn write_some(
    writer: &mut OwnedWriteHalf,
    slices: &[IoSlice<'_>],
    patience: Duration,
    is_in_the_way: &(dyn Fn() -> bool + Sync),
) -> Option<usize> {
    let writing = writer.write_vectored(slices);
    tokio::pin!(writing);
    for _ in 0..LOOKS {
        if let Ok(written) = tokio::time::timeout(patience / LOOKS, &mut writing).await {
            return written.ok().filter(|written| *written > 0);
        }
        if is_in_the_way() {
            return None;
        }
    }
    None
}

/// The record of a reply.
pub(super) fn reply_record(header: &ReplyHeader, results: Vec<Bytes>) -> Vec<Bytes> {
    let mut encoder = Encoder::new();
    header.encode(&mut encoder);
    encoder.put_raw_segments(results);
    with_record_mark(encoder)
}

/// One record in one fragment.
fn with_record_mark(encoder: Encoder) -> Vec<Bytes> {
    let mut segments = vec![Bytes::copy_from_slice(&record_header(encoder.len()))];
    segments.extend(encoder.into_segments());
    segments
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// How long a peer that takes nothing is borne with.
    async fn borne(is_in_the_way: bool) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_reader, mut writer) = listener.accept().await.unwrap().0.into_split();
        let data = vec![0; 1 << 20];
        loop {
            let begun = Instant::now();
            let slices = [IoSlice::new(&data)];
            if write_some(&mut writer, &slices, PATIENCE, &|| is_in_the_way).await.is_none() {
                return begun.elapsed();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_cut_sooner_if_it_is_in_the_way_of_others() {
        let (alone, in_the_way) = (borne(false).await, borne(true).await);
        assert!(alone >= PATIENCE && in_the_way < PATIENCE / 2, "{alone:?} and {in_the_way:?}");
    }
}
