//! Exchanges for a log of accesses: a request with the outcome of its response, told when that was sent or broken off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};

use crate::message::Response;

/// Is told of each exchange once, on the task of its connection: it must not wait for anything.
pub trait ExchangeLog: Send + Sync + 'static {
    fn ended(&self, exchange: &Exchange, took: Duration);
}

/// A request with the outcome of its response.
#[derive(Debug)]
pub struct Exchange {
    pub peer: SocketAddr,
    pub method: Method,
    /// As it came; a query may have a credential in it.
    pub uri: Uri,
    pub version: Version,
    pub referer: Option<HeaderValue>,
    pub user_agent: Option<HeaderValue>,
    /// As [`Response::user`].
    pub user: Option<Arc<str>>,
    /// `None`: the client went away before it was answered.
    pub status: Option<StatusCode>,
    /// Of the response's body, as far as the connection has taken them.
    pub body_bytes: u64,
    /// Of the request's body, as far as its handler has read them.
    pub received_bytes: u64,
}

/// An exchange under way. It is told of when it is dropped, however that comes about.
pub(crate) struct OpenExchange {
    log: Arc<dyn ExchangeLog>,
    exchange: Exchange,
    received: Arc<AtomicU64>,
    since: Instant,
}

impl OpenExchange {
    /// `None`: nobody wants to know.
    pub fn begin(
        log: Option<&Arc<dyn ExchangeLog>>,
        peer: SocketAddr,
        (method, uri, version): (&Method, &Uri, Version),
        headers: &HeaderMap,
    ) -> Option<Box<OpenExchange>> {
        let log = Arc::clone(log?);
        let exchange = Exchange {
            peer,
            method: method.clone(),
            uri: uri.clone(),
            version,
            referer: headers.get(REFERER).cloned(),
            user_agent: headers.get(USER_AGENT).cloned(),
            user: None,
            status: None,
            body_bytes: 0,
            received_bytes: 0,
        };
        let (received, since) = (Arc::default(), Instant::now());
        Some(Box::new(OpenExchange { log, exchange, received, since }))
    }

    /// For the request's body, which counts in it.
    pub fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    pub fn answered(&mut self, response: &Response) {
        self.exchange.status = Some(response.status);
        self.exchange.user.clone_from(&response.user);
    }

    pub fn sent(&mut self, body_bytes: u64) {
        self.exchange.body_bytes += body_bytes;
    }
}

impl Drop for OpenExchange {
    fn drop(&mut self) {
        self.exchange.received_bytes = self.received.load(Ordering::Relaxed);
        self.log.ended(&self.exchange, self.since.elapsed());
    }
}
