//! TCP and ONC RPC under the doors: accepts connections, takes records off them, answers calls.
//!
//! Each call runs in a task of its own, so that a slow one holds up no other. Everything is bounded: connections in all
//! and of one address, calls under way per connection and the bytes of all of them (then nothing more is read), record
//! length, how long a peer may take to finish a record or to read its replies, and how long a
//! connection without a session may be silent.

mod connection;
mod flight;
mod gss;
mod intake;
mod long_record;
mod places;
mod program;
mod room;
mod rpc;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::exports::View;
use crate::limits::IO_BYTES_MAX;

pub(crate) use connection::{CallError, Connection};
pub(crate) use flight::CallPlace;
pub use flight::Flight;
pub(crate) use program::{Caller, GarbageArguments, Program};

use intake::Intake;
use places::{ConnectionPlace, Places};

#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportLimits {
    /// Per listener, and of one address no more than are free (see [`types::Shares`]); a connection beyond it is closed at once.
    pub connections_max: usize,
    /// Under way per connection; then its socket is not read.
    pub calls_max: usize,
    pub record_bytes_max: usize,
    /// A record that has begun, and a reply that is being written, must get on within this time.
    pub patience: Duration,
    /// A connection that no session uses may be silent for so long; one of a host that nothing is exported to, for
    /// [`UNSERVED_SILENCE`].
    pub silence: Duration,
}

impl Default for TransportLimits {
    fn default() -> TransportLimits {
        TransportLimits {
            connections_max: 4096,
            calls_max: 128,
            record_bytes_max: IO_BYTES_MAX as usize + (128 << 10),
            patience: Duration::from_secs(60),
            silence: Duration::from_secs(30),
        }
    }
}

impl TransportLimits {
    fn silence_of(&self, is_served: bool) -> Duration {
        if is_served { self.silence } else { self.silence.min(UNSERVED_SILENCE) }
    }
}

const UNSERVED_SILENCE: Duration = Duration::from_secs(5);
/// A connection that a session uses is looked at again after so many times the silence of others.
const USED_SILENCES: u32 = 10;
/// A client that vanished without a word is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// After an accept that failed (no descriptors left), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long calls under way may take to finish at a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves until told to stop, then finishes what is under way.
pub(crate) async fn serve<P: Program>(
    listener: TcpListener,
    program: Arc<P>,
    limits: TransportLimits,
    flight: Arc<Flight>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Places::new(limits.connections_max);
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
                let place = match places.admit(peer.ip(), program.is_served(peer.ip())) {
                    Ok(place) => place,
                    Err(full) => {
                        tracing::warn!(peer = %peer.ip(), max = limits.connections_max, "{}, closed one", full.says());
                        continue;
                    }
                };
                let (program, flight, stop) = (Arc::clone(&program), Arc::clone(&flight), stop.clone());
                connections.spawn(converse(stream, program, place, (limits, flight), stop));
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

async fn converse<P: Program>(
    stream: TcpStream,
    program: Arc<P>,
    admitted: ConnectionPlace,
    (limits, flight): (TransportLimits, Arc<Flight>),
    mut stop: watch::Receiver<bool>,
) {
    let Ok((connection, reader)) = open(stream, limits) else { return };
    // The address does not change while the connection lives; its exports seldom do.
    let mut exports_version = program.exports_version();
    let mut view = admit(&*program, &connection);
    let (address, calls) = (connection.peer().ip(), Arc::new(Semaphore::new(limits.calls_max)));
    let mut intake = Intake::new(reader, limits.record_bytes_max, flight.memory());
    let (mut began, mut reserved) = (None, None);
    'connection: while !*stop.borrow() {
        loop {
            let record = match intake.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(peer = %connection.peer(), %error, "cut a connection");
                    break 'connection;
                }
            };
            let bytes = intake.memory_of(record.len());
            let Some(call) = rpc::route(&connection, record) else { break 'connection };
            let Some(call) = call else {
                (began, reserved) = (None, None);
                continue;
            };
            // A call is answered or its connection is gone: the place is free again when the reply is written.
            let place =
                flight.place(address, bytes, &calls, is_over(intake.socket(), &connection, &stop)).await;
            let Some(place) = place else { break 'connection };
            (began, reserved) = (None, None);
            if program.exports_version() != exports_version {
                (exports_version, view) = (program.exports_version(), admit(&*program, &connection));
            }
            tokio::spawn(answer(Arc::clone(&program), Arc::clone(&connection), view.clone(), call, place));
        }
        // The connection's own time does not run while it waits for others.
        if reserved.is_none()
            && let Some(bytes) = intake.long_bytes()
        {
            reserved = flight.receive(address, bytes, is_over(intake.socket(), &connection, &stop)).await;
            if reserved.is_none() {
                break;
            }
            began = None;
        }
        let is_between = intake.is_between_records();
        admitted.serve_if(connection.is_vouched_for());
        let deadline = if is_between {
            Instant::now() + limits.silence_of(view.is_some() && admitted.is_served())
        } else {
            *began.get_or_insert_with(|| Instant::now() + limits.patience)
        };
        tokio::select! {
            is_read = intake.read(&connection) => if !is_read { break },
            () = connection.closed() => break,
            () = sleep_until(deadline), if !is_between => break,
            () = unused(&*program, &connection, &calls, limits, deadline), if is_between => break,
            _ = stop.changed() => {}
        }
    }
    // All places free again: every call was answered and its reply handed to the socket.
    let _ = tokio::time::timeout(DRAIN, calls.acquire_many(limits.calls_max as u32)).await;
    connection.close();
    program.disconnected(connection.id());
}

fn admit(program: &impl Program, connection: &Connection) -> Option<Arc<View>> {
    let view = program.admit(connection.peer().ip());
    if view.is_none() {
        tracing::debug!(peer = %connection.peer(), "nothing is exported to a client");
    }
    view
}

async fn answer<P: Program>(
    program: Arc<P>,
    connection: Arc<Connection>,
    view: Option<Arc<View>>,
    call: rpc::Call,
    mut place: CallPlace,
) {
    if let Some(reply) = rpc::answer(&*program, &connection, view, call, &mut place).await {
        place.answered(reply.iter().map(Bytes::len).sum());
        connection.send(reply, place).await;
    }
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

/// Ready when the connection is closed at either end, or all are to stop; for the time in which it is not read.
async fn is_over(reader: &OwnedReadHalf, connection: &Connection, stop: &watch::Receiver<bool>) {
    let mut stop = stop.clone();
    tokio::select! {
        // Of what there is to wait for but data, the peer's end alone happens.
        _ = reader.ready(Interest::PRIORITY) => {}
        () = connection.closed() => {}
        _ = stop.wait_for(|is_told| *is_told) => {}
    }
}

/// Ready when a connection has been silent until `deadline` or beyond and no session uses it.
async fn unused(
    program: &impl Program,
    connection: &Connection,
    calls: &Semaphore,
    limits: TransportLimits,
    mut deadline: Instant,
) {
    loop {
        sleep_until(deadline).await;
        let is_answering = calls.available_permits() < limits.calls_max;
        if !is_answering && !program.is_used(connection.id()) {
            tracing::debug!(peer = %connection.peer(), "cut a connection that is silent and has no session");
            return;
        }
        deadline = Instant::now() + limits.silence * if is_answering { 1 } else { USED_SILENCES };
    }
}

#[cfg(test)]
mod tests;
