//! HTTP/2 behind TLS, with a library's client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_http_server::{Limits, Piece, Request, Response, ResponseBody, Service};
use futures_util::stream;
use http::{Method, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::version::TLS13;
use testkit::fixed_replica::FixedReplica;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::support::{PATIENCE, Server, pattern, service};
use super::tls::{Files, connect};

/// All that a client does, so that it can vanish.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().spawn(async {
            task.await;
        });
    }
}

pub(super) struct Client {
    tasks: Tasks,
    pub(super) sender: SendRequest<Full<Bytes>>,
    running: JoinHandle<hyper::Result<()>>,
}

async fn started(service: Arc<dyn Service>, limits: Limits) -> (Server, Client) {
    let files = Files::new();
    let server = Server::with(service, limits, Some(files.load())).await;
    let client = client(&server, None).await;
    (server, client)
}

/// `window`: of each stream, if not the usual one.
pub(super) async fn client(server: &Server, window: Option<u32>) -> Client {
    let stream = connect(server, &TLS13, None, &[b"h2"]).await.unwrap();
    let tasks = Tasks::default();
    let mut builder = http2::Builder::new(tasks.clone());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    Client { tasks, sender, running: tokio::spawn(connection) }
}

/// Answers every request with so many bytes.
fn serving(replica: &Arc<FixedReplica>, length: usize) -> Arc<dyn Service> {
    let (replica, length) = (Arc::clone(replica), length as u64);
    service(move |_| {
        let piece = Piece::Replica { replica: replica.clone(), offset: 0, length };
        let body = ResponseBody::Pieces { length, pieces: Box::new(std::iter::once(piece)) };
        async { Response::new(StatusCode::OK).with_body(body) }
    })
}

pub(super) fn request(method: Method, body: impl Into<Bytes>) -> http::Request<Full<Bytes>> {
    http::Request::builder().method(method).uri("https://host:1/x").body(Full::new(body.into())).unwrap()
}

impl Client {
    async fn fetch(&mut self, method: Method, body: impl Into<Bytes>) -> (http::response::Parts, Bytes) {
        let answer = timeout(PATIENCE, self.sender.send_request(request(method, body)));
        let (head, body) = answer.await.unwrap().unwrap().into_parts();
        (head, timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes())
    }

    /// Without a word.
    pub(super) fn vanish(&self) {
        self.running.abort();
        self.tasks.0.lock().abort_all();
    }
}

#[tokio::test]
async fn requests_and_responses_are_the_same_over_http_2() {
    let service = service(|mut request: Request| async move {
        assert_eq!(request.version, Version::HTTP_2);
        assert_eq!(request.authority().unwrap(), "host:1");
        let announced = request.body.length();
        let body = request.body.collect(8 << 20).await.unwrap();
        assert_eq!(announced, Some(body.len() as u64));
        Response::full(StatusCode::OK, "application/octet-stream", body)
            .with(http::header::CONNECTION, http::HeaderValue::from_static("close"))
    });
    let (_server, mut client) = started(service, Limits::default()).await;
    for len in [0, 1, 16384, 3 << 20] {
        let data = pattern(len);
        let (head, body) = client.fetch(Method::PUT, data.clone()).await;
        assert_eq!(head.headers["content-length"], len.to_string());
        assert!(head.headers.contains_key("date") && !head.headers.contains_key("connection"));
        assert_eq!(head.headers["strict-transport-security"], "max-age=604800");
        assert!(body == data);
    }
    let (head, body) = client.fetch(Method::HEAD, "").await;
    assert_eq!((head.status, body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn a_request_whose_host_or_target_can_be_read_in_two_ways_gets_no_handler() {
    let service = service(|request: Request| async move {
        let authority = request.authority().map(|authority| authority.to_string());
        Response::text(StatusCode::OK, format!("{} {authority:?}", request.uri.path()))
    });
    let (_server, mut client) = started(service, Limits::default()).await;
    for (method, uri, hosts, status) in [
        ("GET", "https://host:1/x", &["HOST:1"][..], 200),
        ("OPTIONS", "https://host:1", &[], 200),
        ("GET", "https://host:1/x", &["other:1"], 400),
        ("GET", "https://host:1/x", &["host:1", "host:1"], 400),
        ("GET", "https://host:1/x", &["user@host:1"], 400),
        ("GET", "https://user@host:1/x", &[], 400),
        ("GET", "http://host:1/x", &[], 400),
        ("DELETE", "https://host:1/x", &["other"], 400),
    ] {
        let mut asked = request(method.parse().unwrap(), "");
        *asked.uri_mut() = uri.parse().unwrap();
        for host in hosts {
            asked.headers_mut().append(http::header::HOST, host.parse().unwrap());
        }
        let answer = timeout(PATIENCE, client.sender.send_request(asked)).await.unwrap().unwrap();
        assert_eq!(answer.status(), status, "{method} {uri} {hosts:?}");
    }
}

#[tokio::test]
async fn the_server_as_a_whole_is_asked_for_its_options_and_nothing_else_over_http_2() {
    let service = service(|_| async { Response::text(StatusCode::OK, "ok") });
    let (_server, mut client) = started(service, Limits::default()).await;
    for (method, status) in [(Method::OPTIONS, 200), (Method::DELETE, 400), (Method::PUT, 400)] {
        let mut asked = request(method, "");
        let mut parts = asked.uri().clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("*"));
        *asked.uri_mut() = http::Uri::from_parts(parts).unwrap();
        let answer = timeout(PATIENCE, client.sender.send_request(asked)).await.unwrap().unwrap();
        assert_eq!(answer.status(), status);
    }
}

#[tokio::test]
async fn pieces_and_streams_arrive_whole_over_http_2() {
    let data = pattern(3 << 20);
    let replica = Arc::new(FixedReplica::in_file(&data));
    let service = service(move |request: Request| {
        let replica = Arc::clone(&replica);
        async move {
            let body = match request.method {
                Method::GET => {
                    let (offset, length) = (1000, (3 << 20) - 1000);
                    let piece = Piece::Replica { replica, offset, length };
                    ResponseBody::Pieces { length, pieces: Box::new(std::iter::once(piece)) }
                }
                _ => ResponseBody::Stream(Box::pin(stream::iter(
                    (0..100).map(|n| Ok(format!("{n}\n").into())),
                ))),
            };
            Response::new(StatusCode::OK).with_body(body)
        }
    });
    let (_server, mut client) = started(service, Limits::default()).await;
    let (_, body) = client.fetch(Method::GET, "").await;
    assert!(body == data[1000..]);
    let (head, body) = client.fetch(Method::POST, "").await;
    assert_eq!((head.headers.get("content-length"), body.len()), (None, 290));
}

#[tokio::test]
async fn nothing_is_read_for_a_stream_that_has_no_window() {
    let data = pattern(1 << 20);
    let replica = Arc::new(FixedReplica::of(data.clone()));
    let (server, mut other) = started(serving(&replica, data.len()), Limits::default()).await;
    let mut client = client(&server, Some(0)).await;
    let mut answers = Vec::new();
    for _ in 0..100 {
        let answer = timeout(PATIENCE, client.sender.send_request(request(Method::GET, "")));
        answers.push(answer.await.unwrap().unwrap());
    }
    assert_eq!(replica.reads(), 0);
    assert!(other.fetch(Method::GET, "").await.1 == data, "another client is served");
    drop(answers);
}

#[tokio::test]
async fn streams_beyond_the_memory_are_refused_and_their_connection_goes_on() {
    let (began, mut begins) = mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Notify::new());
    let waiting = Arc::clone(&go);
    let service = service(move |_| {
        began.send(()).unwrap();
        let go = Arc::clone(&waiting);
        async move {
            go.notified().await;
            Response::text(StatusCode::OK, "ok")
        }
    });
    let limits = Limits { memory_bytes_max: 0, ..Limits::default() };
    let (_server, mut client) = started(service, limits).await;
    let first = tokio::spawn(client.sender.send_request(request(Method::GET, "")));
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
    let refused = timeout(PATIENCE, client.sender.send_request(request(Method::GET, ""))).await.unwrap();
    assert!(format!("{:?}", refused.unwrap_err()).contains("REFUSED_STREAM"));
    go.notify_one();
    assert_eq!(timeout(PATIENCE, first).await.unwrap().unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_stream_is_charged_for_its_head() {
    let (began, mut begins) = mpsc::unbounded_channel();
    let service = service(move |_| {
        began.send(()).unwrap();
        std::future::pending()
    });
    // A quarter of it is for streams, and one address has half of that: four with small heads.
    let limits = Limits { memory_bytes_max: 512 << 10, ..Limits::default() };
    let (_server, mut client) = started(service, limits).await;
    let with_head = |bytes: usize| {
        let mut asked = request(Method::GET, "");
        asked.headers_mut().insert("x-filler", "f".repeat(bytes).parse().unwrap());
        asked
    };
    let _small = tokio::spawn(client.sender.send_request(with_head(10)));
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
    let _large = tokio::spawn(client.sender.send_request(with_head(28 << 10)));
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
    let refused = timeout(PATIENCE, client.sender.send_request(with_head(28 << 10))).await.unwrap();
    assert!(format!("{:?}", refused.unwrap_err()).contains("REFUSED_STREAM"));
    let _small = tokio::spawn(client.sender.send_request(with_head(10)));
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_beyond_the_places_of_http_2_is_offered_http_1_1_and_served() {
    let ok = service(|_| async { Response::text(StatusCode::OK, "ok") });
    // One address has a half of them.
    let limits = Limits { h2_connections_max: 2, ..Limits::default() };
    let (server, mut client) = started(ok, limits).await;
    assert_eq!(client.fetch(Method::GET, "").await.1, "ok\n");
    let offered: &[&[u8]] = &[b"h2", b"http/1.1"];
    let mut other = connect(&server, &TLS13, None, offered).await.unwrap();
    assert_eq!(other.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, other.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    // A connection that ends gives its place back.
    drop(client);
    let is_free = async {
        loop {
            let stream = connect(&server, &TLS13, None, offered).await.unwrap();
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                return;
            }
        }
    };
    timeout(PATIENCE, is_free).await.expect("the place is not given back");
}

/// Bytes that a client may send of four bodies that no handler reads.
async fn unread_bytes_max(server: &Server, begins: &mut mpsc::UnboundedReceiver<()>) -> (usize, Tasks) {
    const WANTED: usize = 8 << 20;
    let stream = connect(server, &TLS13, None, &[b"h2"]).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.max_send_buffer_size(WANTED);
    let (mut sender, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let tasks = Tasks::default();
    tasks.execute(async { _ = connection.await });
    let mut bodies = Vec::new();
    for _ in 0..4 {
        let head = http::Request::put("https://host:1/x").body(()).unwrap();
        let (answer, body) = sender.send_request(head, false).unwrap();
        timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
        tasks.execute(async { _ = answer.await });
        bodies.push(body);
    }
    // Before it answers the second ping, the server has handled the requests and sent their window updates.
    for _ in 0..2 {
        timeout(PATIENCE, pings.ping(h2::Ping::opaque())).await.unwrap().unwrap();
    }
    let of_body = |body: &mut h2::SendStream<Bytes>| {
        body.reserve_capacity(WANTED);
        body.capacity()
    };
    let bytes = bodies.iter_mut().map(of_body).sum();
    tasks.execute(async move {
        let _bodies = bodies;
        std::future::pending::<()>().await
    });
    (bytes, tasks)
}

#[tokio::test]
async fn uploads_one_after_the_other_share_one_window() {
    let (began, mut begins) = mpsc::unbounded_channel();
    let service = service(move |mut request: Request| {
        began.send(()).unwrap();
        async move {
            let body = request.body.collect(1 << 20).await.unwrap();
            Response::full(StatusCode::OK, "application/octet-stream", body)
        }
    });
    let limits = Limits { memory_bytes_max: 16 << 20, ..Limits::default() };
    let server = Server::with(service, limits, Some(Files::new().load())).await;
    let mut client = client(&server, None).await;
    for _ in 0..8 {
        assert_eq!(client.fetch(Method::PUT, vec![1; 100]).await.1.len(), 100);
        begins.recv().await.unwrap();
    }
    let (bytes, _others) = unread_bytes_max(&server, &mut begins).await;
    assert!(bytes > 2 << 20, "it leaves {bytes} bytes to another connection");
}

#[tokio::test]
async fn bodies_that_no_handler_reads_take_no_more_memory_than_is_charged() {
    let (began, mut begins) = mpsc::unbounded_channel();
    let service = service(move |request: Request| {
        began.send(()).unwrap();
        async move {
            let _request = request;
            std::future::pending().await
        }
    });
    // A half of it is for such bodies, and one address has a half of that.
    let limits = Limits { memory_bytes_max: 16 << 20, ..Limits::default() };
    let server = Server::with(service, limits, Some(Files::new().load())).await;
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(unread_bytes_max(&server, &mut begins).await);
    }
    let bytes: Vec<usize> = connections.iter().map(|(bytes, _)| *bytes).collect();
    assert!(bytes[0] > 2 << 20, "there is room for the first: {bytes:?}");
    // 64 KiB each in any case, and 16 KiB of one that has nothing.
    assert!(bytes.iter().sum::<usize>() < (4 << 20) + 8 * (80 << 10), "{bytes:?}");
}

#[tokio::test]
async fn a_response_gets_on_without_any_memory_left() {
    let data = pattern(3 << 20);
    let replica = Arc::new(FixedReplica::of(data.clone()));
    let limits = Limits { memory_bytes_max: 0, ..Limits::default() };
    let (_server, mut client) = started(serving(&replica, data.len()), limits).await;
    assert!(client.fetch(Method::GET, "").await.1 == data);
}

#[tokio::test]
async fn a_broken_promise_resets_the_stream_only() {
    let service = service(|request: Request| async move {
        let length = if request.method == Method::GET { 4 } else { 3 };
        let pieces = Box::new(std::iter::once(Piece::Bytes("abc".into())));
        Response::new(StatusCode::OK).with_body(ResponseBody::Pieces { length, pieces })
    });
    let (_server, mut client) = started(service, Limits::default()).await;
    // It may come with or behind the head.
    let is_reset = match client.sender.send_request(request(Method::GET, "")).await {
        Ok(answer) => answer.into_body().collect().await.is_err(),
        Err(_) => true,
    };
    assert!(is_reset);
    assert_eq!(client.fetch(Method::POST, "").await.1, "abc");
}

struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_takes_its_request_along() {
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let (started_one, mut starts) = mpsc::unbounded_channel();
    let service = service(move |_| {
        let guard = Guard(dropped.clone());
        started_one.send(()).unwrap();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let (_server, mut client) = started(service, Limits::default()).await;
    let waiting = tokio::spawn(client.sender.send_request(request(Method::GET, "")));
    timeout(PATIENCE, starts.recv()).await.unwrap().unwrap();
    waiting.abort();
    timeout(PATIENCE, drops.recv()).await.expect("the handler still runs").unwrap();
    // And so does the end of the connection.
    let _waiting = tokio::spawn(client.sender.send_request(request(Method::GET, "")));
    timeout(PATIENCE, starts.recv()).await.unwrap().unwrap();
    client.vanish();
    timeout(PATIENCE, drops.recv()).await.expect("the handler still runs").unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_so_is_one_that_takes_nothing() {
    let time = Duration::from_millis(300);
    let limits = Limits { idle_time: time, linger_time: time, ..Limits::default() };
    let ok = service(|_| async { Response::text(StatusCode::OK, "ok") });
    let (_server, mut client) = started(ok, limits).await;
    client.fetch(Method::GET, "").await;
    timeout(PATIENCE, client.running).await.expect("still there").unwrap().unwrap();

    let (dropped, mut drops) = mpsc::unbounded_channel();
    let endless = service(move |_| {
        let guard = Guard(dropped.clone());
        let items = stream::unfold(guard, |guard| async { Some((Ok(vec![0; 1 << 20].into()), guard)) });
        async { Response::new(StatusCode::OK).with_body(ResponseBody::Stream(Box::pin(items))) }
    });
    let limits = Limits { write_time: time, ..Limits::default() };
    let (_server, mut client) = started(endless, limits).await;
    let _answer = client.sender.send_request(request(Method::GET, "")).await.unwrap();
    timeout(PATIENCE, drops.recv()).await.expect("still there").unwrap();
}

#[tokio::test]
async fn a_stop_lets_streams_finish() {
    let (started_one, mut starts) = mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Notify::new());
    let waiting = Arc::clone(&go);
    let service = service(move |_| {
        started_one.send(()).unwrap();
        let go = Arc::clone(&waiting);
        async move {
            go.notified().await;
            Response::text(StatusCode::OK, "ok")
        }
    });
    let (server, mut client) = started(service, Limits::default()).await;
    let answer = tokio::spawn(client.sender.send_request(request(Method::GET, "")));
    starts.recv().await.unwrap();
    server.stop.send(true).unwrap();
    go.notify_one();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().unwrap().status(), 200);
    timeout(PATIENCE, server.running).await.unwrap().unwrap();
}
