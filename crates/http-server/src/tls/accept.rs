//! The handshake, and an answer to those who forgot the `s` in `https`.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Tls;
use crate::budget::Account;
use crate::message::TlsPeer;
use crate::stream::Stream;
use crate::wire::Wire;
use crate::{Limits, h1};

const NO_TLS: &str = "this port speaks TLS: the URL begins with https://";

/// A connection whose requests are served.
pub(crate) enum Accepted {
    Plain(TcpStream),
    Tls { stream: Box<TlsStream<TcpStream>>, client: TlsPeer, is_h2: bool },
}

/// `takes_plain`: the client need not use TLS. `None`: no request is served, and the connection is closed.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: &Tls,
    limits: &Limits,
    account: &Arc<Account>,
    offers_h2: bool,
    takes_plain: bool,
) -> Option<Accepted> {
    let mut first = [0];
    let peeked = timeout(limits.handshake_time, stream.peek(&mut first)).await;
    if !matches!(peeked, Ok(Ok(1))) {
        return None;
    }
    if first[0].is_ascii_uppercase() {
        if takes_plain {
            return Some(Accepted::Plain(stream));
        }
        refuse(stream, account, StatusCode::BAD_REQUEST, NO_TLS, limits).await;
        return None;
    }
    let handshake = TlsAcceptor::from(tls.config(offers_h2)).accept(stream);
    let stream = match timeout(limits.handshake_time, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return None;
        }
        Err(_) => return None,
    };
    let connection = stream.get_ref().1;
    let certificates = connection.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect();
    let is_h2 = connection.alpn_protocol() == Some(b"h2");
    Some(Accepted::Tls { stream: Box::new(stream), client: TlsPeer { certificates }, is_h2 })
}

/// Answers a plain connection whose requests are not served, and ends it.
pub(crate) async fn refuse(
    stream: TcpStream,
    account: &Arc<Account>,
    status: StatusCode,
    why: &str,
    limits: &Limits,
) {
    let mut wire = Box::new(Wire::new(Stream::Plain(stream), Arc::clone(account)));
    wire.out.copy(h1::bare_answer(status, why).as_bytes());
    if wire.send(limits.write_time).await.is_ok() {
        wire.linger(limits.linger_time).await;
    }
}
