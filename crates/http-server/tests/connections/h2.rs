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
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::support::{PATIENCE, Replica, Server, pattern, service};
use super::tls::{Files, connect};

/// All that a client does, so that it can vanish.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().spawn(async {
            task.await;
        });
    }
}

struct Client {
    tasks: Tasks,
    sender: SendRequest<Full<Bytes>>,
    running: JoinHandle<hyper::Result<()>>,
}

async fn started(service: Arc<dyn Service>, limits: Limits) -> (Server, Client) {
    let files = Files::new();
    let server = Server::with(service, limits, Some(files.load())).await;
    let stream = connect(&server, &TLS13, None, b"h2").await.unwrap();
    let tasks = Tasks::default();
    let (sender, connection) = http2::handshake(tasks.clone(), TokioIo::new(stream)).await.unwrap();
    (server, Client { tasks, sender, running: tokio::spawn(connection) })
}

fn request(method: Method, body: impl Into<Bytes>) -> http::Request<Full<Bytes>> {
    http::Request::builder().method(method).uri("https://host:1/x").body(Full::new(body.into())).unwrap()
}

impl Client {
    async fn fetch(&mut self, method: Method, body: impl Into<Bytes>) -> (http::response::Parts, Bytes) {
        let answer = timeout(PATIENCE, self.sender.send_request(request(method, body)));
        let (head, body) = answer.await.unwrap().unwrap().into_parts();
        (head, timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes())
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
        assert!(body == data);
    }
    let (head, body) = client.fetch(Method::HEAD, "").await;
    assert_eq!((head.status, body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn pieces_and_streams_arrive_whole_over_http_2() {
    let replica = Arc::new(Replica::in_file(pattern(3 << 20)));
    let served = Arc::clone(&replica);
    let service = service(move |request: Request| {
        let replica = Arc::clone(&served);
        async move {
            let body = match request.method {
                Method::GET => {
                    let (offset, length) = (1000, 4 << 20);
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
    let mut expected = replica.data[1000..].to_vec();
    expected.resize(4 << 20, 0);
    assert!(body == expected);
    let (head, body) = client.fetch(Method::POST, "").await;
    assert_eq!((head.headers.get("content-length"), body.len()), (None, 290));
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
    client.running.abort();
    client.tasks.0.lock().abort_all();
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
