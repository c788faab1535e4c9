//! HTTP/2 (RFC 9113), by a library: its streams made into requests, responses made into its frames.
//!
//! The library is asked for a stream's window before anything is read for that stream: a response costs memory only as
//! far as its client takes it.

mod activity;
mod frames;
mod response;
mod window;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::uri::Scheme;
use http_wire::head::parsed;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::budget::{Account, Charge};
use crate::exchange::OpenExchange;
use crate::listener_state::ListenerState;
use crate::message::{Peer, Request, Response};
use crate::tasks::{stopped, tell_of_panic};
use crate::{Limits, RequestBody};

use activity::{Activity, Running};
use frames::drain;
pub(crate) use frames::{Frames, Leftover};
use window::Window;

type Io = Box<TlsStream<TcpStream>>;

/// Bytes that a client may send on a stream before a handler reads them, as far as the connection's window goes.
const STREAM_WINDOW: u32 = 1 << 20;
/// Of one stream, on its way out.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Streams that a client opened and reset before they were accepted, and those that were reset because of its errors:
/// beyond it the connection ends.
const RESETS_MAX: usize = 64;
/// Of a body that nobody wanted; a client that goes on sending after so much does not look at answers.
const DRAINED_BYTES_MAX: u64 = 16 << 20;
/// Approximate memory of a stream with its request, without its head. If there is not so much memory, the stream is
/// refused, and the client may repeat the request (RFC 9113 §8.7).
const STREAM_BYTES: usize = 8 << 10;
/// Memory of a header field beside its text: the library's map has two references to bytes and some links for it.
const FIELD_BYTES: usize = 128;
/// Of a header list, with 32 bytes for each field as RFC 9113 §6.5.2 counts. One that lacks its end is charged to nobody.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Encrypted, and not taken by the client yet: the library's own bound is twice as high, and not counted anywhere.
const TLS_BYTES_MAX: usize = 32 << 10;

/// State that the streams of a connection share.
struct Streams {
    peer: Arc<Peer>,
    shared: Arc<ListenerState>,
    activity: Arc<Activity>,
    /// For the data of their responses.
    account: Arc<Account>,
    /// For the bodies of their requests.
    requests: Arc<Account>,
}

pub(crate) async fn serve(
    mut stream: Io,
    peer: Arc<Peer>,
    account: Arc<Account>,
    shared: Arc<ListenerState>,
    mut stop: watch::Receiver<bool>,
) {
    let limits = shared.limits;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BYTES_MAX));
    let handshake = timeout(limits.handshake_time, builder(&limits).handshake(stream));
    let mut connection: Connection<Io, Bytes> = match handshake.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(peer = %peer.address, %error, "HTTP/2 did not begin"),
        Err(_) => return,
    };
    let pings = connection.ping_pong().expect("it is asked for once");
    let activity = Activity::new();
    let of_streams = shared.streams.account(peer.address.ip());
    let requests = shared.requests.account(peer.address.ip());
    let mut window = Window::new(shared.windows.account(peer.address.ip()));
    let streams = Arc::new(Streams {
        peer: Arc::clone(&peer),
        shared,
        activity: Arc::clone(&activity),
        account,
        requests,
    });
    // Dropped with the connection, and its streams with it.
    let mut tasks = JoinSet::new();
    let mut is_closing = false;
    let mut silent = pin!(silent(pings, limits));
    let mut stalled = pin!(activity.stalled(limits.write_time));
    let mut over = pin!(async {
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = activity.idle(limits.idle_time) => {}
        }
    });
    // A client that stays so long without a request has not heard the goodbye.
    let mut deaf = pin!(async {
        sleep(limits.linger_time).await;
        activity.idle(limits.linger_time).await;
    });
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    make_room(&request, tasks.len(), &mut window, &mut connection);
                    accept(request, respond, &of_streams, &streams, &mut tasks);
                }
                Some(Err(error)) => {
                    return tracing::debug!(peer = %peer.address, %error, "HTTP/2 connection failed");
                }
                None => return,
            },
            Some(ended) = tasks.join_next() => tell_of_panic(ended),
            () = over.as_mut(), if !is_closing => {
                connection.graceful_shutdown();
                is_closing = true;
            }
            () = deaf.as_mut(), if is_closing => return,
            () = stalled.as_mut() => {
                return tracing::debug!(peer = %peer.address, "client does not take its responses");
            }
            () = silent.as_mut() => return,
        }
    }
}

fn builder(limits: &Limits) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.head.head_bytes_max.min(HEAD_BYTES_MAX) as u32)
        .initial_window_size(STREAM_WINDOW)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(Some(RESETS_MAX));
    builder
}

/// Ready when the client does not answer a ping.
async fn silent(mut pings: PingPong, limits: Limits) {
    loop {
        sleep(limits.idle_time / 4).await;
        match timeout(limits.head_time, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// For the body of a request, if it has one, as if the others under way had bodies too.
fn make_room(
    request: &http::Request<RecvStream>,
    others: usize,
    window: &mut Window,
    connection: &mut Connection<Io, Bytes>,
) {
    if !request.body().is_end_stream()
        && let Some(bytes) = window.grow((others + 1) * STREAM_WINDOW as usize)
    {
        connection.set_target_window_size(bytes);
    }
}

fn accept(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    account: &Arc<Account>,
    streams: &Arc<Streams>,
    tasks: &mut JoinSet<()>,
) {
    match account.take_whole(None, STREAM_BYTES + head_bytes(&request)) {
        Some(charge) => _ = tasks.spawn(exchange(request, respond, Arc::clone(streams), charge)),
        None => respond.send_reset(Reason::REFUSED_STREAM),
    }
}

/// Memory of a head: its text, and room for each field in the map.
fn head_bytes(request: &http::Request<RecvStream>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| FIELD_BYTES + name.as_str().len() + value.len()).sum::<usize>();
    let uri = request.uri();
    fields + uri.path().len() + uri.query().map_or(0, str::len)
}

async fn exchange(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    streams: Arc<Streams>,
    _charge: Charge,
) {
    let leftover = Leftover::default();
    let running = Running::new(Arc::clone(&streams.activity));
    let is_head = request.method() == http::Method::HEAD;
    let exchange = OpenExchange::begin(
        streams.shared.exchange_log.as_ref(),
        streams.peer.address,
        (request.method(), request.uri(), request.version()),
        request.headers(),
    );
    let received = exchange.as_deref().map(OpenExchange::received);
    let response = tokio::select! {
        biased;
        response = answer(request, leftover.clone(), received, &streams) => response,
        // The request goes with its stream.
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    let sending = response::send(respond, response, (is_head, exchange), running, &streams);
    match leftover.take() {
        // While the answer is on its way.
        Some(unread) => {
            tokio::join!(sending, drain(unread, DRAINED_BYTES_MAX, streams.shared.limits.linger_time));
        }
        None => sending.await,
    }
}

async fn answer(
    request: http::Request<RecvStream>,
    leftover: Leftover,
    received: Option<Arc<AtomicU64>>,
    streams: &Streams,
) -> Response {
    let (head, body) = request.into_parts();
    let announced = || head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let length = if body.is_end_stream() { Some(0) } else { announced() };
    let frames =
        Frames::new(body, leftover, Arc::clone(&streams.shared.intake), Arc::clone(&streams.requests));
    let body = RequestBody::h2(frames, length).counted(received);
    // HTTP/2 is spoken behind TLS only.
    if let Err(error) = parsed::check(&head.method, &head.uri, &head.headers, &Scheme::HTTPS) {
        tracing::debug!(peer = %streams.peer.address, %error, "request refused");
        return Response::text(error.status(), error.to_string());
    }
    let request = Request {
        method: head.method,
        uri: head.uri,
        version: head.version,
        headers: head.headers,
        peer: Arc::clone(&streams.peer),
        body,
    };
    streams.shared.service.serve(request).await
}
