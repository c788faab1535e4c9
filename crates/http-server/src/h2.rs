//! HTTP/2 (RFC 9113), by a library: its streams made into requests, responses made into its frames.

mod activity;
mod frames;
mod response;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;

use crate::RequestBody;
use crate::message::{Peer, Request};
use crate::server::stopped;
use crate::shared::Shared;

use activity::{Activity, Running};
use frames::drain;
pub(crate) use frames::{Frames, Leftover};
use response::ResponseFrames;

/// What a client may send before a handler reads it: per stream, and of all streams together.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Of one stream, on its way out.
const SEND_BYTES_MAX: usize = 1 << 20;
/// Streams that a client opened and reset before they were accepted, and those that were reset because of its errors:
/// beyond it the connection ends.
const RESETS_MAX: usize = 64;
/// Of a body that nobody wanted; a client that goes on sending after so much does not look at answers.
const DRAINED_BYTES_MAX: u64 = 16 << 20;

/// The tasks of a connection's streams: they end with it.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<JoinSet<()>>>);

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut streams = self.0.lock();
        while let Some(ended) = streams.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                tracing::error!("the task of a stream panicked");
            }
        }
        streams.spawn(stream);
    }
}

pub(crate) async fn serve(
    stream: Box<TlsStream<TcpStream>>,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let activity = Activity::new();
    let limits = shared.limits;
    let builder = builder(&shared);
    let service = {
        let (activity, peer) = (Arc::clone(&activity), Arc::clone(&peer));
        // Ended with the connection.
        let drains = Arc::new(Mutex::new(JoinSet::new()));
        service_fn(move |request| {
            answer(
                request,
                Arc::clone(&peer),
                Arc::clone(&shared),
                Arc::clone(&activity),
                Arc::clone(&drains),
            )
        })
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stopped(&mut stop) => None,
        () = activity.idle(limits.idle_time) => None,
        () = activity.stalled(limits.write_time) => {
            tracing::debug!(peer = %peer.address, "client does not take its responses");
            return;
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = activity.stalled(limits.write_time) => return,
                // Whoever stays so long without a request has not heard the goodbye.
                () = async {
                    sleep(limits.linger_time).await;
                    activity.idle(limits.linger_time).await;
                } => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.address, %error, "HTTP/2 connection failed");
    }
}

fn builder(shared: &Shared) -> http2::Builder<Streams> {
    let limits = &shared.limits;
    let mut builder = http2::Builder::new(Streams::default());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.head.head_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(limits.idle_time / 4)
        .keep_alive_timeout(limits.head_time);
    builder
}

async fn answer(
    request: http::Request<Incoming>,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    activity: Arc<Activity>,
    drains: Arc<Mutex<JoinSet<()>>>,
) -> Result<http::Response<ResponseFrames>, Infallible> {
    let (head, body) = request.into_parts();
    let running = Running::new(activity);
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let is_head = head.method == http::Method::HEAD;
    let leftover = Leftover::default();
    let request = Request {
        method: head.method,
        uri: head.uri,
        version: head.version,
        headers: head.headers,
        peer,
        body: RequestBody::h2(Frames::new(body, leftover.clone(), Arc::clone(&shared)), length),
    };
    let response = shared.service.serve(request).await;
    if let Some(unread) = leftover.take() {
        // While the answer is on its way: no more of these than there are streams, for each ends with its own.
        let mut drains = drains.lock();
        while drains.try_join_next().is_some() {}
        drains.spawn(drain(unread, DRAINED_BYTES_MAX, shared.limits.linger_time));
    }
    Ok(response::of(response, is_head, running))
}
