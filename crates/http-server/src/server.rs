//! Accepts connections, keeps them within bounds, and ends them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use crate::admission::{Admission, ConnectionPlace};
use crate::listener_state::ListenerState;
use crate::message::Peer;
use crate::stream::Stream;
use crate::tasks::{stopped, tell_of_panic};
use crate::tls::{self, Accepted, refuse};
use crate::transport::Transport;
use crate::wire::Wire;
use crate::{Limits, Memory, Service, h1};

/// After an accept that failed (no descriptors left), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the files of a certificate are looked at.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(5);
/// A client that vanished without a word while it waits is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// A handler waits so long for memory to make an answer in.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);

const FULL: &str = "this server has no place for another connection from your address";
const NO_PLAIN: &str =
    "plain HTTP is served to the networks in http.plain_networks only; your address is in none of them";

/// Serves until told to stop, then lets what is under way finish for a while.
pub async fn serve(
    listener: TcpListener,
    transport: Transport,
    service: Arc<dyn Service>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let shared = ListenerState::new(service, limits);
    let admission = Admission::new(limits.connections_max);
    let mut tasks = JoinSet::new();
    let mut look = interval_at(Instant::now() + CERTIFICATE_LOOK, CERTIFICATE_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => match admission.admit(canonical(from).ip()) {
                    Some(place) => {
                        let (transport, shared, stop) = (transport.clone(), Arc::clone(&shared), stop.clone());
                        tasks.spawn(connection(stream, canonical(from), place, transport, shared, stop));
                    }
                    None => turn_away(&stream, from.ip(), transport.tls.is_some()),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            // Joined as they end, or the set would only grow.
            Some(ended) = tasks.join_next() => tell_of_panic(ended),
            _ = look.tick(), if transport.tls.is_some() => {
                if let Some(tls) = transport.tls.clone() {
                    tasks.spawn_blocking(move || tls.reload_if_changed());
                }
            }
        }
    }
    drop(listener);
    let finished = async {
        while let Some(ended) = tasks.join_next().await {
            tell_of_panic(ended);
        }
    };
    if timeout(limits.stop_time, finished).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests did not finish in time and are dropped");
    }
    tasks.shutdown().await;
}

/// An IPv4 client of a listener for both is an IPv4 client.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn turn_away(stream: &TcpStream, address: IpAddr, is_tls: bool) {
    tracing::debug!(%address, "too many connections");
    if !is_tls {
        // As far as a fresh socket takes it at once.
        let _ = stream.try_write(h1::bare_answer(StatusCode::SERVICE_UNAVAILABLE, FULL).as_bytes());
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    _place: ConnectionPlace,
    transport: Transport,
    shared: Arc<ListenerState>,
    stop: watch::Receiver<bool>,
) {
    let Ok(local) = prepare(&stream, &shared.limits) else { return };
    let account = shared.budget.account(address.ip());
    let memory = Memory::of(shared.documents.account(address.ip()), MEMORY_PATIENCE);
    let takes_plain = transport.plain.include(address.ip());
    // A client that finds no place is offered HTTP/1.1 alone, which costs less.
    let h2_place = transport.tls.as_ref().and_then(|_| shared.h2_connections.admit(address.ip()));
    let mut stopping = stop.clone();
    let accepting = async {
        match &transport.tls {
            Some(tls) => {
                tls::accept(stream, tls, &shared.limits, &account, h2_place.is_some(), takes_plain).await
            }
            None if takes_plain => Some(Accepted::Plain(stream)),
            None => {
                refuse(stream, &account, StatusCode::FORBIDDEN, NO_PLAIN, &shared.limits).await;
                None
            }
        }
    };
    let accepted = tokio::select! {
        accepted = accepting => accepted,
        () = stopped(&mut stopping) => return,
    };
    let peer = |tls| Arc::new(Peer { address, local, tls, memory });
    let (stream, peer) = match accepted {
        Some(Accepted::Plain(stream)) => (Stream::Plain(stream), peer(None)),
        Some(Accepted::Tls { stream, client, is_h2: false }) => (Stream::Tls(stream), peer(Some(client))),
        Some(Accepted::Tls { stream, client, is_h2: true }) => {
            return crate::h2::serve(stream, peer(Some(client)), account, shared, stop).await;
        }
        None => return,
    };
    drop(h2_place);
    h1::serve(Box::new(Wire::new(stream, account)), peer, shared, stop).await;
}

fn prepare(stream: &TcpStream, limits: &Limits) -> std::io::Result<SocketAddr> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    // Bytes that are never acknowledged are no progress either.
    let unacknowledged_ms = u32::try_from(limits.write_time.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, unacknowledged_ms)?;
    stream.local_addr().map(canonical)
}
