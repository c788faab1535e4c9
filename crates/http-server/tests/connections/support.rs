//! A server on loopback with a closure for a handler, and a client that sends the bytes it is told to.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_http_server::{Limits, Request, Response, Service, Tls, Transport, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing here takes long; what does hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

struct Handler<F>(F);

#[async_trait]
impl<F> Service for Handler<F>
where
    F: Fn(Request) -> Answer + Send + Sync + 'static,
{
    async fn serve(&self, request: Request) -> Response {
        (self.0)(request).await
    }
}

pub fn service<F, A>(handler: F) -> Arc<dyn Service>
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    Arc::new(Handler(move |request| Box::pin(handler(request)) as Answer))
}

pub struct Server {
    pub address: SocketAddr,
    pub stop: watch::Sender<bool>,
    pub running: JoinHandle<()>,
}

impl Server {
    pub async fn start(service: Arc<dyn Service>) -> Server {
        Server::with(service, Limits::default(), None).await
    }

    pub async fn with(service: Arc<dyn Service>, limits: Limits, tls: Option<Arc<Tls>>) -> Server {
        Server::over(tls.map_or_else(Transport::plain, Transport::tls), service, limits).await
    }

    pub async fn over(transport: Transport, service: Arc<dyn Service>, limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(serve(listener, transport, service, limits, stopped));
        Server { address, stop, running }
    }

    pub async fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }
}

pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(PATIENCE, self.stream.write_all(bytes.as_ref())).await.unwrap().unwrap();
    }

    async fn more(&mut self) -> usize {
        timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await.expect("no answer").unwrap()
    }

    /// Status line and headers, with the empty line.
    pub async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.unread.drain(..end + 4).collect();
                return String::from_utf8(head).unwrap();
            }
            let read = self.more().await;
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    pub async fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.unread.len() < len {
            assert!(self.more().await > 0, "closed after {} of {len} bytes", self.unread.len());
        }
        self.unread.drain(..len).collect()
    }

    /// A response with a length, as text.
    pub async fn response(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = header(&head, "content-length").expect("has a length").parse().unwrap();
        let body = self.exactly(length).await;
        (head, String::from_utf8(body).unwrap())
    }

    /// Everything up to a clean end.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await > 0 {}
        std::mem::take(&mut self.unread)
    }

    pub async fn rest_text(&mut self) -> String {
        String::from_utf8(self.rest().await).unwrap()
    }

    /// All that came before the connection was reset.
    pub async fn until_reset(&mut self) -> Vec<u8> {
        assert!(self.is_reset().await, "a clean end");
        std::mem::take(&mut self.unread)
    }

    /// The connection ends by a reset: what came is not all.
    pub async fn is_reset(&mut self) -> bool {
        loop {
            match timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await.expect("no end") {
                Ok(0) => return false,
                Ok(_) => {}
                Err(_) => return true,
            }
        }
    }
}

pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(one, _)| one.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8))
        .flat_map(|word| (word as u64).wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(len)
        .collect()
}
