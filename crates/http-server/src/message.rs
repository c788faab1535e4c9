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

use crate::RequestBody;

/// What answers requests. One call per request; a call may run for as long as the copy it makes.
///
/// It is dropped in the middle when the client goes away, also while it waits: what must not stay half done needs a
/// guard of its own.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    async fn serve(&self, request: Request) -> Response;
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
    /// Whom the client meant: from the target if it is absolute (as it always is in HTTP/2), else from `Host`.
    pub fn authority(&self) -> Option<Authority> {
        let host = || self.headers.get(http::header::HOST)?.to_str().ok()?.parse().ok();
        self.uri.authority().cloned().or_else(host)
    }
}

/// Who is at the other end of the connection.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The address the client connected to.
    pub local: SocketAddr,
    pub tls: Option<TlsPeer>,
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
}

pub enum ResponseBody {
    /// Content-Length: 0, or none where the status has no body.
    Empty,
    Full(Bytes),
    /// The answer to HEAD: this length and no byte.
    Absent {
        length: Option<u64>,
    },
    /// Pieces that make up `length` bytes. What does not keep the promise ends the connection.
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
    /// A part of a replica. Where the replica ends early the rest is zeros: the namespace has said how long the file is.
    Replica {
        replica: Arc<dyn OpenReplica>,
        offset: u64,
        length: u64,
    },
}

impl Response {
    pub fn new(status: StatusCode) -> Response {
        Response { status, headers: HeaderMap::new(), body: ResponseBody::Empty }
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
