//! A server on loopback with a closure for a handler, a client that sends the bytes it is told to, replicas.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{IoHandle, OpenReplica, PoolError, ReadData, Stability, Verifier};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use forebay_http_server::{Limits, Request, Response, Service, Tls, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use types::PoolId;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(serve(listener, tls, service, limits, stopped));
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

/// Bytes in memory, or in a file that can be sent as such.
#[derive(Default)]
pub struct Replica {
    pub data: Bytes,
    pub descriptor: Option<Arc<OwnedFd>>,
    pub sent: AtomicU64,
    /// Two of three reads find their bytes in memory.
    pub is_resident: bool,
    pub found: AtomicU64,
    /// The first reads of it say that the pool is busy.
    pub busy: AtomicU64,
    pub fails_behind: Option<u64>,
    /// Calls of `read_at` and `read_resident`.
    pub reads: AtomicU64,
}

impl Replica {
    pub fn of(data: impl Into<Bytes>) -> Replica {
        Replica { data: data.into(), ..Replica::default() }
    }

    pub fn in_file(data: impl Into<Bytes>) -> Replica {
        use std::io::Write;
        let data = data.into();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        Replica { descriptor: Some(Arc::new(file.into())), ..Replica::of(data) }
    }
}

impl OpenReplica for Replica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return IoHandle::ready(Err(PoolError::Busy(PoolId(1))));
        }
        if self.fails_behind.is_some_and(|limit| offset >= limit) {
            return IoHandle::ready(Err(PoolError::Fenced));
        }
        let start = (offset as usize).min(self.data.len());
        let end = (start + length as usize).min(self.data.len());
        let data = self.data.slice(start..end);
        IoHandle::ready(Ok(ReadData { data, end_of_file: end == self.data.len() }))
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.data.get(offset as usize..offset as usize + length as usize);
        let Some(found) = found.filter(|_| self.is_resident && !offset.is_multiple_of(3)) else {
            return false;
        };
        into.extend_from_slice(found);
        self.found.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn write_at(&self, _offset: u64, _data: Bytes, _stability: Stability) -> IoHandle<Stability> {
        IoHandle::ready(Err(PoolError::ReadOnlyTicket))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(Ok(self.verifier()))
    }

    fn verifier(&self) -> Verifier {
        Verifier([0; 8])
    }

    fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.clone()
    }

    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8))
        .flat_map(|word| (word as u64).wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(len)
        .collect()
}
