//! TCP and ONC RPC under the doors: accepts connections, takes records off them, answers calls.
//!
//! Each call runs in a task of its own, so that a slow one holds up no other. Everything is bounded: connections,
//! calls under way per connection and the bytes of all of them (then nothing more is read), record length, and how long a peer may take to
//! finish a record or to read its replies.

mod connection;
mod flight;
mod gss;
mod rpc;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use oncrpc::RecordReader;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::IO_BYTES_MAX;
use crate::compound::Face;

pub(crate) use connection::{CallError, Connection};
pub(crate) use flight::Flight;

#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportLimits {
    /// Per listener; a connection beyond it is closed at once.
    pub connections_max: usize,
    /// Under way per connection; then its socket is not read.
    pub calls_max: usize,
    pub record_bytes_max: usize,
    /// A record that has begun, and a reply that is being written, must get on within this time.
    pub patience: Duration,
}

impl Default for TransportLimits {
    fn default() -> TransportLimits {
        TransportLimits {
            connections_max: 4096,
            calls_max: 128,
            record_bytes_max: IO_BYTES_MAX as usize + (128 << 10),
            patience: Duration::from_secs(60),
        }
    }
}

/// Linux sends every request in one fragment; others may cut them.
const FRAGMENTS_MAX: u32 = 1024;
const READ_BYTES: usize = 64 << 10;
/// A client that vanished without a word is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// After an accept that failed (no descriptors left), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long calls under way may take to finish at a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves until told to stop, then finishes what is under way.
pub(crate) async fn serve(
    listener: TcpListener,
    face: Arc<dyn Face>,
    limits: TransportLimits,
    flight: Arc<Flight>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    while !*stop.borrow() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Joined as they end, or the set would only grow.
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    tracing::warn!(%peer, max = limits.connections_max, "too many connections, closed one");
                    continue;
                };
                let (face, flight, stop) = (Arc::clone(&face), Arc::clone(&flight), stop.clone());
                connections.spawn(async move {
                    converse(stream, face, (limits, flight), stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn converse(
    stream: TcpStream,
    face: Arc<dyn Face>,
    (limits, flight): (TransportLimits, Arc<Flight>),
    mut stop: watch::Receiver<bool>,
) {
    let Ok((connection, mut reader)) = open(stream, limits) else { return };
    // The address does not change while the connection lives; what is exported to it seldom does.
    let mut exports_version = face.exports_version();
    let mut view = face.admit(connection.peer().ip());
    if view.is_none() {
        tracing::debug!(peer = %connection.peer(), "nothing is exported to a client");
    }
    let calls = Arc::new(Semaphore::new(limits.calls_max));
    let mut records = RecordReader::new(limits.record_bytes_max, FRAGMENTS_MAX);
    let mut buffer = BytesMut::new();
    'connection: while !*stop.borrow() {
        loop {
            let record = match records.feed(&mut buffer) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(peer = %connection.peer(), %error, "cut a connection");
                    break 'connection;
                }
            };
            let bytes = record.len();
            let Some(call) = rpc::route(&connection, record) else { break 'connection };
            let Some(call) = call else { continue };
            // A call is answered or its connection is gone: the place is free again when the reply is written.
            let place = flight.place(bytes, &calls, limits.calls_max, &connection).await;
            let Some(mut place) = place else { break 'connection };
            if face.exports_version() != exports_version {
                exports_version = face.exports_version();
                view = face.admit(connection.peer().ip());
            }
            let (face, connection, view) = (Arc::clone(&face), Arc::clone(&connection), view.clone());
            tokio::spawn(async move {
                if let Some(reply) = rpc::answer(&*face, &connection, view, call).await {
                    place.answered(reply.iter().map(Bytes::len).sum());
                    connection.send(reply, place).await;
                }
            });
        }
        let is_between = records.is_between_records() && buffer.is_empty();
        buffer.reserve(records.wanted().max(READ_BYTES));
        tokio::select! {
            read = receive(&mut reader, &mut buffer, is_between, limits.patience) => if !read { break },
            () = connection.closed() => break,
            _ = stop.changed() => {}
        }
    }
    // All places free again: every call was answered and its reply handed to the socket.
    let _ = tokio::time::timeout(DRAIN, calls.acquire_many(limits.calls_max as u32)).await;
    connection.close();
    face.sessions().disconnected(connection.id());
}

fn open(stream: TcpStream, limits: TransportLimits) -> std::io::Result<(Arc<Connection>, OwnedReadHalf)> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let (reader, writer) = stream.into_split();
    Ok((Connection::new(peer, local, writer, limits.patience), reader))
}

/// Reads what there is. False: the connection is over, or the peer stopped in the middle of a record.
async fn receive(
    reader: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    is_between: bool,
    patience: Duration,
) -> bool {
    let read = reader.read_buf(buffer);
    let read = if is_between { Ok(read.await) } else { tokio::time::timeout(patience, read).await };
    matches!(read, Ok(Ok(count)) if count > 0)
}

#[cfg(test)]
mod tests;
