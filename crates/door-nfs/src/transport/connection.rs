//! One TCP connection: replies out in order of completion, and calls to the client over it (the back channel).
//!
//! A task queues the record it sends. If no task is writing, it becomes the writer and empties the queue, including
//! records that others add meanwhile. So a reply costs no wake-up of another task, and many replies go out in one call.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use nfs4_state::ConnectionId;
use oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader, record_header};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use splice::Load;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use tokio::task::coop::consume_budget;
use xdr::{Decoder, Encoder, Xdr};

use super::flight::CallPlace;
use super::program::Results;

/// Calls to the client under way on one connection.
const CALLS_MAX: usize = 64;
/// So often within its patience a connection that takes nothing is looked at.
const LOOKS: u32 = 3;
/// Segments handed to the kernel at once.
const SLICES_MAX: usize = 64;
const RECORD_MARK_BYTES: usize = 4;

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
}

struct Outgoing {
    queue: VecDeque<Message>,
    /// `None` while somebody writes, and for ever once closed.
    writer: Option<OwnedWriteHalf>,
    is_closed: bool,
}

struct Message {
    record: Results,
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
        })
    }

    /// Its client has shown something that only those are given that something is exported to.
    pub fn vouch_for(&self) {
        self.is_vouched_for.store(true, Ordering::Relaxed);
    }

    pub fn is_vouched_for(&self) -> bool {
        self.is_vouched_for.load(Ordering::Relaxed)
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

    /// Sends a record; `place` is freed when it has gone out.
    pub async fn send(&self, record: Results, place: CallPlace) {
        self.enqueue(Message { record, place: Some(place) }).await;
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
                (Arc::clone(self), Message { record: with_record_mark(encoder).into(), place: None });
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

    async fn write_queued(&self, writer: OwnedWriteHalf) {
        loop {
            // A fast client keeps the queue filled, and other tasks wait for this thread.
            consume_budget().await;
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
                    segments += message.record.segments.len();
                    segments <= SLICES_MAX
                };
                let count = outgoing.queue.iter().take_while(fits).count().max(1);
                outgoing.queue.drain(..count).collect::<Vec<_>>()
            };
            let (mut parts, mut places) = (VecDeque::new(), Vec::new());
            for Message { record, place } in batch {
                put_parts(record, &mut parts);
                places.extend(place);
            }
            let is_in_the_way = || places.iter().any(CallPlace::is_in_the_way);
            if !write_all(writer.as_ref(), parts, self.patience, &is_in_the_way).await {
                tracing::debug!(peer = %self.peer, "peer does not take its replies, cut the connection");
                self.close();
                return;
            }
        }
    }
}

/// The parts of records, as they go to the socket in turn.
enum OutgoingPart {
    Bytes(Bytes),
    /// A pipe with bytes of a file.
    File(Load),
}

fn put_parts(record: Results, parts: &mut VecDeque<OutgoingPart>) {
    let Results { segments, file } = record;
    let mut segments: VecDeque<_> = segments.into();
    if let Some((mut before, load)) = file {
        while before > 0
            && let Some(mut segment) = segments.pop_front()
        {
            let here = segment.split_to(before.min(segment.len()));
            before -= here.len();
            parts.push_back(OutgoingPart::Bytes(here));
            if !segment.is_empty() {
                segments.push_front(segment);
            }
        }
        parts.push_back(OutgoingPart::File(load));
    }
    parts.extend(segments.into_iter().map(OutgoingPart::Bytes));
}

async fn write_all(
    socket: &TcpStream,
    mut parts: VecDeque<OutgoingPart>,
    patience: Duration,
    is_in_the_way: &(dyn Fn() -> bool + Sync),
) -> bool {
    while let Some(front) = parts.front_mut() {
        if let OutgoingPart::File(load) = front {
            if load.bytes() == 0 {
                parts.pop_front();
            } else if write_some(socket, &mut || load.send(socket), patience, is_in_the_way).await.is_none() {
                return false;
            }
            continue;
        }
        let slices: Vec<_> = parts.iter().map_while(as_slice).take(SLICES_MAX).collect();
        // A head of few bytes goes with the file behind it, and not in a packet of its own.
        let flags = if slices.len() < parts.len() { SendFlags::MORE } else { SendFlags::empty() };
        let mut send =
            || sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags | SendFlags::NOSIGNAL);
        let Some(written) = write_some(socket, &mut send, patience, is_in_the_way).await else {
            return false;
        };
        advance(&mut parts, written);
    }
    true
}

fn as_slice(part: &OutgoingPart) -> Option<IoSlice<'_>> {
    match part {
        OutgoingPart::Bytes(bytes) => Some(IoSlice::new(bytes)),
        OutgoingPart::File(_) => None,
    }
}

fn advance(parts: &mut VecDeque<OutgoingPart>, mut written: usize) {
    while let Some(OutgoingPart::Bytes(front)) = parts.front_mut() {
        if written < front.len() {
            front.advance(written);
            return;
        }
        written -= front.len();
        parts.pop_front();
    }
}

/// `None`: the peer takes nothing. It has less patience where its replies are in the way of others.
async fn write_some(
    socket: &TcpStream,
    send: &mut (dyn FnMut() -> Result<usize, Errno> + Send),
    patience: Duration,
    is_in_the_way: &(dyn Fn() -> bool + Sync),
) -> Option<usize> {
    let writing = async {
        loop {
            socket.writable().await?;
            match socket.try_io(Interest::WRITABLE, || send().map_err(io::Error::from)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
    };
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

/// The record of a reply, with bytes of a file where it has some.
pub(super) fn results_record(header: &ReplyHeader, results: Results) -> Results {
    let Some((at, load)) = results.file else { return reply_record(header, results.segments).into() };
    let mut encoder = Encoder::new();
    header.encode(&mut encoder);
    let at = RECORD_MARK_BYTES + encoder.len() + at;
    encoder.put_raw_segments(results.segments);
    let mark = record_header(encoder.len() + load.bytes());
    Results { segments: marked(&mark, encoder), file: Some((at, load)) }
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
    marked(&record_header(encoder.len()), encoder)
}

fn marked(mark: &[u8; RECORD_MARK_BYTES], encoder: Encoder) -> Vec<Bytes> {
    let mut segments = vec![Bytes::copy_from_slice(mark)];
    segments.extend(encoder.into_segments());
    segments
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// How long a peer that takes nothing is borne with.
    async fn borne(is_in_the_way: bool) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (writer, _) = listener.accept().await.unwrap();
        let data = vec![0; 1 << 20];
        loop {
            let begun = Instant::now();
            let mut send = || rustix::net::send(&writer, &data, SendFlags::NOSIGNAL);
            if write_some(&writer, &mut send, PATIENCE, &|| is_in_the_way).await.is_none() {
                return begun.elapsed();
            }
        }
    }

    #[tokio::test]
    async fn bytes_of_a_file_stand_at_their_place_in_the_record() {
        let content: Vec<u8> = (0..70_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &content).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (ours, _) = listener.accept().await.unwrap();
        let pipes = splice::Pipes::new(1);
        for length in 65_536..65_540 {
            let mut load = pipes.take().unwrap();
            assert_eq!(load.fill(file.as_fd(), 1, length), Ok(length));
            let segments = vec![Bytes::from_static(b"before"), Bytes::from_static(b" it, behind it")];
            let results = Results { segments, file: Some((9, load)) };
            let bytes = results.len();
            let record = results_record(&ReplyHeader::success(7), results);
            assert_eq!(record.len(), 4 + 24 + bytes);
            let mut parts = VecDeque::new();
            put_parts(record, &mut parts);
            let reading = async {
                let mut got = vec![0; 4 + 24 + bytes];
                peer.read_exact(&mut got).await.unwrap();
                got
            };
            let (is_written, got) = tokio::join!(write_all(&ours, parts, PATIENCE, &|| false), reading);
            assert!(is_written);
            assert_eq!(got[..4], (0x8000_0000_u32 | (24 + bytes) as u32).to_be_bytes());
            let (body, end) = got[28..].split_at(9 + length);
            assert!(&body[..9] == b"before it" && body[9..] == content[1..=length] && end == b", behind it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_cut_sooner_if_it_is_in_the_way_of_others() {
        let (alone, in_the_way) = (borne(false).await, borne(true).await);
        assert!(alone >= PATIENCE && in_the_way < PATIENCE / 2, "{alone:?} and {in_the_way:?}");
    }
}
