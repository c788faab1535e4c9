//! Exchanges as a log is told of them: once for each request, with the bytes that went either way.

use std::sync::Arc;
use std::time::Duration;

use api::OpenReplica;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_http_server::{Exchange, ExchangeLog, Limits, Piece, Request, Response, ResponseBody, Service};
use futures_util::stream;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use testkit::fixed_replica::FixedReplica;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::h2::{client, request};
use super::support::{PATIENCE, Server, pattern};
use super::tls::Files;

const LENGTH: u64 = 1 << 20;

/// Answers by the path, and tells the test of its exchanges.
struct Logged {
    replica: Arc<FixedReplica>,
    told: mpsc::UnboundedSender<Told>,
    /// A request that is never answered has come.
    has_come: Notify,
}

#[derive(Debug, PartialEq)]
struct Told {
    line: String,
    user: Option<String>,
    status: Option<u16>,
    sent: u64,
    received: u64,
}

struct Log(mpsc::UnboundedSender<Told>);

impl ExchangeLog for Log {
    fn ended(&self, exchange: &Exchange, took: Duration) {
        assert!(took < PATIENCE);
        let told = Told {
            line: format!("{} {}", exchange.method, exchange.uri.path()),
            user: exchange.user.as_deref().map(str::to_owned),
            status: exchange.status.map(|status| status.as_u16()),
            sent: exchange.body_bytes,
            received: exchange.received_bytes,
        };
        self.0.send(told).unwrap();
    }
}

#[async_trait]
impl Service for Logged {
    async fn serve(&self, mut request: Request) -> Response {
        let mut response = Response::new(StatusCode::OK);
        response.user = Some("ann".into());
        let replica: Arc<dyn OpenReplica> = self.replica.clone();
        let length = match request.uri.path() {
            "/whole" => LENGTH,
            // The replica has no more.
            "/torn" => 2 * LENGTH,
            "/stream" => {
                let items = stream::iter([Ok(Bytes::from_static(b"four"))]);
                return response.with_body(ResponseBody::Stream(Box::pin(items)));
            }
            "/never" => {
                self.has_come.notify_one();
                return std::future::pending().await;
            }
            _ => {
                request.body.collect(1 << 20).await.unwrap();
                return Response::text(StatusCode::CREATED, "made");
            }
        };
        let piece = Piece::Replica { replica, offset: 0, length };
        response.with_body(ResponseBody::Pieces { length, pieces: Box::new(std::iter::once(piece)) })
    }

    fn exchange_log(&self) -> Option<Arc<dyn ExchangeLog>> {
        Some(Arc::new(Log(self.told.clone())))
    }
}

fn logged() -> (Arc<Logged>, mpsc::UnboundedReceiver<Told>) {
    let (told, exchanges) = mpsc::unbounded_channel();
    let replica = Arc::new(FixedReplica::in_file(&pattern(LENGTH as usize)));
    (Arc::new(Logged { replica, told, has_come: Notify::new() }), exchanges)
}

async fn next(exchanges: &mut mpsc::UnboundedReceiver<Told>) -> Told {
    timeout(PATIENCE, exchanges.recv()).await.unwrap().unwrap()
}

fn told(line: &str, user: Option<&str>, status: Option<u16>, (sent, received): (u64, u64)) -> Told {
    Told { line: line.to_owned(), user: user.map(str::to_owned), status, sent, received }
}

#[tokio::test]
async fn an_exchange_is_told_with_its_bytes_whether_a_file_is_sent_or_memory() {
    let (service, mut exchanges) = logged();
    let server = Server::start(service).await;
    let mut client = server.client().await;
    client.send("GET /whole HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await;
    client.exactly(LENGTH as usize).await;
    assert_eq!(next(&mut exchanges).await, told("GET /whole", Some("ann"), Some(200), (LENGTH, 0)));
    client.send("PUT /new HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789").await;
    client.response().await;
    assert_eq!(next(&mut exchanges).await, told("PUT /new", None, Some(201), (5, 10)));
    client.send("HEAD /whole HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await;
    assert_eq!(next(&mut exchanges).await, told("HEAD /whole", Some("ann"), Some(200), (0, 0)));
    client.send("GET /stream HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(client.rest_text().await.ends_with("four"));
    assert_eq!(next(&mut exchanges).await, told("GET /stream", Some("ann"), Some(200), (4, 0)));
}

#[tokio::test]
async fn an_exchange_that_breaks_off_is_told_as_far_as_it_went() {
    let (service, mut exchanges) = logged();
    let limits = Limits { half_closed_time: Duration::from_millis(10), ..Limits::default() };
    let server = Server::with(service.clone(), limits, None).await;
    let mut client = server.client().await;
    client.send("GET /torn HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.until_reset().await;
    let torn = next(&mut exchanges).await;
    assert_eq!((torn.status, torn.received), (Some(200), 0));
    assert!(torn.sent <= LENGTH, "{torn:?}");
    let mut client = server.client().await;
    client.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
    service.has_come.notified().await;
    drop(client);
    assert_eq!(next(&mut exchanges).await, told("GET /never", None, None, (0, 0)));
}

#[tokio::test]
async fn exchanges_over_http_2_are_told_alike() {
    let (service, mut exchanges) = logged();
    let server = Server::with(service.clone(), Limits::default(), Some(Files::new().load())).await;
    let mut client = client(&server, None).await;
    for (method, path, body, bytes, expected) in [
        (Method::GET, "/whole", "", LENGTH, told("GET /whole", Some("ann"), Some(200), (LENGTH, 0))),
        (Method::PUT, "/new", "0123456789", 5, told("PUT /new", None, Some(201), (5, 10))),
        (Method::GET, "/stream", "", 4, told("GET /stream", Some("ann"), Some(200), (4, 0))),
    ] {
        let answer = timeout(PATIENCE, client.sender.send_request(at(path, method, body))).await.unwrap();
        let body = timeout(PATIENCE, answer.unwrap().into_body().collect()).await.unwrap().unwrap();
        assert_eq!(body.to_bytes().len() as u64, bytes);
        assert_eq!(next(&mut exchanges).await, expected);
    }
    let waiting = tokio::spawn(client.sender.send_request(at("/never", Method::GET, "")));
    timeout(PATIENCE, service.has_come.notified()).await.unwrap();
    client.vanish();
    assert_eq!(next(&mut exchanges).await, told("GET /never", None, None, (0, 0)));
    assert!(waiting.await.unwrap().is_err());
}

fn at(path: &str, method: Method, body: &'static str) -> http::Request<Full<Bytes>> {
    let mut asked = request(method, body);
    *asked.uri_mut() = format!("https://host:1{path}").parse().unwrap();
    asked
}
