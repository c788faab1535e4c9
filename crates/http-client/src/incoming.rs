//! An answer: its head, and a body that is pulled.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use http_wire::list;

use crate::connect::Driver;
use crate::{AbsoluteUrl, ClientError};

/// Dropping it ends the connection, also in the middle of the body.
pub struct Incoming {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `Content-Length`; also of an answer to HEAD, which has no body.
    pub length: Option<u64>,
    /// The server that answered.
    pub peer: SocketAddr,
    /// The URL of the last request, after redirects.
    pub url: AbsoluteUrl,
    /// The end of the body can be told from a broken connection: it has a length, or is chunked.
    pub is_delimited: bool,
    body: hyper::body::Incoming,
    idle_timeout: Duration,
    _driver: Driver,
}

impl Incoming {
    pub(crate) fn new(
        answer: http::Response<hyper::body::Incoming>,
        method: &Method,
        url: AbsoluteUrl,
        peer: SocketAddr,
        idle_timeout: Duration,
        driver: Driver,
    ) -> Result<Incoming, ClientError> {
        let (head, body) = answer.into_parts();
        let is_chunked = is_chunked(&head.headers).map_err(|reason| ClientError::Protocol {
            authority: url.authority(),
            reason: reason.to_owned(),
        })?;
        // hyper has refused lengths that contradict each other.
        let length =
            head.headers.get(header::CONTENT_LENGTH).and_then(|value| list::decimal(value.as_bytes()));
        let has_body = *method != Method::HEAD && !matches!(head.status.as_u16(), 204 | 304);
        Ok(Incoming {
            status: head.status,
            headers: head.headers,
            length,
            peer,
            url,
            is_delimited: !has_body || length.is_some() || is_chunked,
            body,
            idle_timeout,
            _driver: driver,
        })
    }

    /// The next bytes, `None` at the end. A body that ends before its length is an error, never an end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(self.idle_timeout, self.body.frame()).await.map_err(|_| {
                ClientError::Timeout {
                    authority: self.url.authority(),
                    what: "sends nothing more",
                    after: self.idle_timeout,
                }
            })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::of_hyper(&self.url.authority(), &error)),
                // Trailers are not asked for; an empty piece says nothing.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Ok(Some(data)),
                    _ => {}
                },
            }
        }
    }

    /// All of a small body.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Bytes, ClientError> {
        let too_long = |authority| ClientError::TooLong { authority, bytes_max };
        if self.length.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_long(self.url.authority()));
        }
        let mut whole = BytesMut::new();
        while let Some(part) = self.next().await? {
            if whole.len() + part.len() > bytes_max {
                return Err(too_long(self.url.authority()));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }

    /// The beginning of what a refusal says, for people; never an error.
    pub async fn explanation(&mut self, bytes_max: usize) -> String {
        let mut text = Vec::new();
        while text.len() < bytes_max {
            match self.next().await {
                Ok(Some(part)) => text.extend_from_slice(&part[..part.len().min(bytes_max - text.len())]),
                Ok(None) | Err(_) => break,
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Demands one framing that every server and proxy on the way reads alike (RFC 9112 §6.3). hyper takes any other coding
/// for a body that lasts until the connection closes: a broken connection would then be the end of the body.
fn is_chunked(headers: &HeaderMap) -> Result<bool, &'static str> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(_), _) if headers.contains_key(header::CONTENT_LENGTH) => {
            Err("Content-Length and Transfer-Encoding stand together")
        }
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err("Transfer-Encoding is not `chunked`"),
    }
}
