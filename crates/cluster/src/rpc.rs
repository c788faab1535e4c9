//! A connection between two hosts of a cluster: ONC RPC with calls in both directions.
//!
//! Calls are sent in the order in which they are begun, and the other side begins to answer them in that order. Answers come
//! when they are ready. Everything has a bound: the length of a record, calls and bytes under way in each direction, and the
//! time for which the other side may take nothing or stop within a record. A connection that breaks a bound is closed, and
//! calls under way end with [`CallError::Closed`]: the other side may have done them.
//!
//! Deliberately absent: who the other side is (`trust`), and whether it is alive (`session`).

mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use oncrpc::{CallHeader, Credential, OpaqueAuth, ReplyHeader};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use xdr::{Decoder, Encoder, Xdr};

use crate::tasks;
use outgoing::{Message, Outgoing};

pub const PROGRAM: u32 = 0x20_46_42_59;
pub const VERSION: u32 = 1;

/// Bytes of one read or write at most.
pub const IO_BYTES_MAX: usize = 4 << 20;
/// Of one message, with its headers.
pub const RECORD_BYTES_MAX: usize = IO_BYTES_MAX + (128 << 10);
/// Calls under way in one direction. A call beyond is refused here (`Busy`), and not read from the other side.
pub const CALLS_MAX: usize = 1024;
/// Bytes of calls that wait to be sent. They belong to their callers, and are not copied.
const CALL_BYTES_MAX: usize = 256 << 20;
/// Bytes of answers that wait to be sent, and of calls that are being answered; beyond, no call is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The other side may take no bytes, or send none of a record that has begun, for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A TCP connection on which nothing comes and nothing is acknowledged for so long is lost: a firewall may have forgotten it.
const SILENCE_MS: u32 = 20_000;

/// Sets a TCP connection up for calls: no delay, and signs of life while nobody calls.
pub(crate) fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(8))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(4))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_tcp_user_timeout(stream, SILENCE_MS)?)
}

/// Answers the calls of the other side.
#[async_trait]
pub trait Answerer: Send + Sync + 'static {
    /// The results of one call. Polled for the first time in the order in which calls came in: what happens before the first
    /// wait happens in that order.
    async fn answer(&self, procedure: u32, arguments: Decoder) -> Result<Encoder, Refused>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NoProcedure,
    /// The arguments cannot be understood.
    Garbage,
}

/// Why a call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    #[error("the connection is closed")]
    Closed,
    #[error("no answer came in time")]
    TimedOut,
    /// It was not sent.
    #[error("too many calls wait for an answer")]
    Busy,
    /// The other side refused the call, or its answer cannot be understood.
    #[error("the call was refused")]
    Refused,
}

/// Gets the results of a call. Called once, by the task that reads or by the one that closes the connection.
pub(crate) type Done = Box<dyn FnOnce(Result<Decoder, CallError>) + Send>;

pub struct Connection {
    outgoing: Mutex<Outgoing>,
    /// Calls that wait for an answer, by xid. Leaf lock, taken behind `outgoing`.
    waiting: Mutex<BTreeMap<u32, Done>>,
    next_xid: AtomicU32,
    /// Something is to be sent. One task waits for it.
    queued: Notify,
    /// Something was sent. One task waits for it.
    sent: Notify,
    /// It is closed, or has ended.
    closing: Notify,
}

impl Connection {
    /// Called in a runtime, which runs both tasks of the connection until it is closed.
    pub fn start<S>(stream: S, answerer: Arc<dyn Answerer>) -> Arc<Connection>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Connection::start_for(stream, answerer, RECORD_BYTES_MAX)
    }

    /// As `start`, with a peer that may send no longer records.
    pub(crate) fn start_for<S>(
        stream: S,
        answerer: Arc<dyn Answerer>,
        record_bytes_max: usize,
    ) -> Arc<Connection>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Arc::new(Connection {
            outgoing: Mutex::default(),
            waiting: Mutex::default(),
            next_xid: AtomicU32::new(1),
            queued: Notify::new(),
            sent: Notify::new(),
            closing: Notify::new(),
        });
        let (reader, writer) = tokio::io::split(stream);
        tasks::spawn(incoming::serve(Arc::clone(&connection), reader, answerer, record_bytes_max));
        tasks::spawn(outgoing::send(Arc::clone(&connection), writer));
        connection
    }

    /// Calls the other side and waits for the results, at most `within`.
    pub async fn call<A: Xdr, R: Xdr>(
        &self,
        procedure: u32,
        arguments: &A,
        within: Duration,
    ) -> Result<R, CallError> {
        let (sender, answer) = oneshot::channel();
        let mut encoder = Encoder::new();
        arguments.encode(&mut encoder);
        let done = Box::new(move |answer| drop(sender.send(answer)));
        let begun = self.begin(procedure, encoder.into_segments(), done);
        let xid = begun.map_err(|(error, _)| error)?;
        let _forgotten = Forgotten { connection: self, xid };
        let answer = tokio::time::timeout(within, answer).await.map_err(|_| CallError::TimedOut)?;
        let mut results = answer.map_err(|_| CallError::Closed)??;
        R::decode(&mut results).map_err(|_| CallError::Refused)
    }

    /// Sends a call after all that were begun before it. An error gives back `done`, which was not called.
    pub(crate) fn begin(
        &self,
        procedure: u32,
        arguments: Vec<Bytes>,
        done: Done,
    ) -> Result<u32, (CallError, Done)> {
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        let (credential, verifier) = (Credential::None, OpaqueAuth::NONE);
        let header = CallHeader { xid, program: PROGRAM, version: VERSION, procedure, credential, verifier };
        let message = Message::of(|encoder| header.encode(encoder), arguments);
        assert!(message.bytes() <= RECORD_BYTES_MAX, "calls are bounded by those who make them");
        let mut outgoing = self.outgoing.lock();
        if outgoing.is_closed {
            return Err((CallError::Closed, done));
        }
        {
            // Under the other lock: a call that is queued waits for its answer already, and closing ends it.
            let mut waiting = self.waiting.lock();
            let is_full = waiting.len() >= CALLS_MAX || outgoing.call_bytes > CALL_BYTES_MAX;
            if is_full || waiting.contains_key(&xid) {
                return Err((CallError::Busy, done));
            }
            waiting.insert(xid, done);
        }
        outgoing.push_call(message);
        drop(outgoing);
        self.queued.notify_one();
        Ok(xid)
    }

    /// Returns when the connection is closed.
    pub async fn closed(&self) {
        self.until(&self.closing, |outgoing| outgoing.is_closed).await;
    }

    pub fn is_closed(&self) -> bool {
        self.outgoing.lock().is_closed
    }

    /// Ends its tasks. Messages that were not sent are dropped.
    pub fn close(&self) {
        let unsent = {
            let mut outgoing = self.outgoing.lock();
            outgoing.close()
        };
        drop(unsent);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.queued.notify_one();
        self.closing.notify_waiters();
        // Without a lock: a caller may begin the call elsewhere.
        waiting.into_values().for_each(|done| done(Err(CallError::Closed)));
    }

    /// Whether it is closed and no call of the other side is being answered any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.outgoing.lock().has_ended
    }

    /// Returns when the connection is closed and no call of the other side is being answered any more. A host that has dialled
    /// waits for this before it dials again, or a write of the former connection might come after one of the next.
    pub async fn ended(&self) {
        self.until(&self.closing, |outgoing| outgoing.has_ended).await;
    }

    async fn until(&self, change: &Notify, is_so: impl Fn(&Outgoing) -> bool) {
        loop {
            let notified = change.notified();
            tokio::pin!(notified);
            // Registered before looking, or a change in between would be missed.
            notified.as_mut().enable();
            if is_so(&self.outgoing.lock()) {
                return;
            }
            notified.await;
        }
    }

    fn reply(&self, xid: u32, results: Result<Encoder, Refused>) {
        let (header, results) = match results {
            Ok(results) if results.len() > IO_BYTES_MAX + (64 << 10) => {
                tracing::error!(bytes = results.len(), "results of a call are too long, the call failed");
                (ReplyHeader::system_err(xid), Vec::new())
            }
            Ok(results) => (ReplyHeader::success(xid), results.into_segments()),
            Err(Refused::NoProcedure) => (ReplyHeader::proc_unavail(xid), Vec::new()),
            Err(Refused::Garbage) => (ReplyHeader::garbage_args(xid), Vec::new()),
        };
        self.send_reply(&header, results);
    }

    fn send_reply(&self, header: &ReplyHeader, results: Vec<Bytes>) {
        let message = Message::of(|encoder| header.encode(encoder), results);
        self.outgoing.lock().push_answer(message);
        self.queued.notify_one();
    }

    /// Hands the answer to the call that waits for it. One that nobody waits for came too late.
    fn deliver(&self, xid: u32, mut answer: Decoder) {
        let waiting = self.waiting.lock().remove(&xid);
        let Some(done) = waiting else { return };
        let header = ReplyHeader::decode(&mut answer);
        done(match header {
            Ok(header) if header.is_success() => Ok(answer),
            _ => Err(CallError::Refused),
        });
    }
}

/// A call that is not waited for any longer when this is dropped.
struct Forgotten<'a> {
    connection: &'a Connection,
    xid: u32,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        let done = self.connection.waiting.lock().remove(&self.xid);
        drop(done);
    }
}

/// Closes the connection when one of its tasks ends, whatever the reason.
struct ClosedAtEnd<'a>(&'a Connection);

impl Drop for ClosedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
