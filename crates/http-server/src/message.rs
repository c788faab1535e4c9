//! A request and its response, as handlers see them: the same over HTTP/1.1 and HTTP/2, plain and TLS.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use api::OpenReplica;
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};

use crate::budget::Charge;
use crate::{ExchangeLog, Memory, RequestBody};

/// A body as short is not worth a charge.
const FREE_BYTES: usize = 4 << 10;
const BUSY: &str = "the server has no memory for this answer now; try again";

/// Answers requests. One call per request; a call may run for as long as the copy it makes.
///
/// It is dropped in the middle when the client goes away, also while it waits: what must not stay half done needs a
/// guard of its own.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    async fn serve(&self, request: Request) -> Response;

    /// Is told of every exchange; asked for once for a listener.
    fn exchange_log(&self) -> Option<Arc<dyn ExchangeLog>> {
        None
    }
}

pub struct Request {
    pub method: Method,
    /// As it came: origin form or absolute form. Nothing is decoded or normalised yet.
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub peer: Arc<Peer>,
    pub body: RequestBody,
}

impl Request {
    /// The server that the client addressed: from an absolute target (in HTTP/2 it always is), else from `Host`.
    pub fn authority(&self) -> Option<Authority> {
        let host = || self.headers.get(http::header::HOST)?.to_str().ok()?.parse().ok();
        self.uri.authority().cloned().or_else(host)
    }
}

/// The other end of the connection.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The address the client connected to.
    pub local: SocketAddr,
    pub tls: Option<TlsPeer>,
    /// For answers that are made in memory.
    pub memory: Memory,
}

#[derive(Debug)]
pub struct TlsPeer {
    /// DER, leaf first. That the client has the leaf's private key is proven; that anybody trusts the chain is *not*:
    /// proxies and VOMS are judged where identities are made.
    pub certificates: Vec<Bytes>,
}

pub struct Response {
    pub status: StatusCode,
    /// Without Content-Length, Transfer-Encoding, Connection and Date, which the connection writes.
    pub headers: HeaderMap,
    pub body: ResponseBody,
    /// A number of the login or link that it is for: however many connections that has, it leaves memory to others. `None`
    /// where those who ask have nothing in common.
    pub payer: Option<u64>,
    /// The name of the user that it was made for, for an [`ExchangeLog`].
    pub user: Option<Arc<str>>,
}

pub enum ResponseBody {
    /// Content-Length: 0, or none where the status has no body.
    Empty,
    Full(Bytes),
    /// The answer to HEAD: this length and no byte.
    Absent {
        length: Option<u64>,
    },
    /// Pieces that make up `length` bytes. Fewer or more bytes end the connection.
    Pieces {
        length: u64,
        pieces: Pieces,
    },
    /// Of unknown length: chunked, or HTTP/2 frames. An error ends the connection before the end of the body.
    Stream(Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>),
}

/// Made one by one while the response is sent, so that ten thousand ranges need no list of ten thousand headers.
pub type Pieces = Box<dyn Iterator<Item = Piece> + Send>;

pub enum Piece {
    Bytes(Bytes),
    /// A part of a replica. Where the replica ends early the response is broken off.
    Replica {
        replica: Arc<dyn OpenReplica>,
        offset: u64,
        length: u64,
    },
}

impl Piece {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Replica { length, .. } => *length,
        }
    }
}

/// A replica whose parts go into responses.
#[derive(Clone)]
pub struct Source(Arc<dyn OpenReplica>);

impl Source {
    pub fn new(replica: Arc<dyn OpenReplica>) -> Source {
        Source(replica)
    }

    pub fn piece(&self, offset: u64, length: u64) -> Piece {
        Piece::Replica { replica: Arc::clone(&self.0), offset, length }
    }
}

impl Response {
    pub fn new(status: StatusCode) -> Response {
        Response { status, headers: HeaderMap::new(), body: ResponseBody::Empty, payer: None, user: None }
    }

    /// A line for people; it ends with a newline.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Response {
        let mut text: String = text.into();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Response::full(status, "text/plain; charset=utf-8", text)
    }

    pub fn full(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
        Response::new(status)
            .with(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type))
            .with_body(ResponseBody::Full(body.into()))
    }

    /// The response, charged for what of it is in memory from the beginning, or that there is no memory for it.
    pub(crate) fn charged(self, memory: &Memory) -> (Response, Option<Charge>) {
        let ResponseBody::Full(bytes) = &self.body else { return (self, None) };
        if bytes.len() <= FREE_BYTES {
            return (self, None);
        }
        match memory.take_now(self.payer, bytes.len()) {
            Some(charge) => (self, charge),
            None => (Response::busy(BUSY), None),
        }
    }

    /// 503 for want of memory.
    pub(crate) fn busy(why: &str) -> Response {
        Response::text(StatusCode::SERVICE_UNAVAILABLE, why)
            .with(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.headers.insert(name, value);
        self
    }

    #[must_use]
    pub fn with_body(mut self, body: ResponseBody) -> Response {
        self.body = body;
        self
    }
}
