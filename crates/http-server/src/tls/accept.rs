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

/// Whether HTTP/2 was agreed on comes third. `None`: nothing came of it, and the connection is closed.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: &Tls,
    limits: &Limits,
    account: &Arc<Account>,
    offers_h2: bool,
) -> Option<(Box<TlsStream<TcpStream>>, TlsPeer, bool)> {
    let mut first = [0];
    let peeked = timeout(limits.handshake_time, stream.peek(&mut first)).await;
    if !matches!(peeked, Ok(Ok(1))) {
        return None;
    }
    if first[0].is_ascii_uppercase() {
        let mut wire = Box::new(Wire::new(Stream::Plain(stream), Arc::clone(account)));
        wire.out.copy(h1::bare_answer(StatusCode::BAD_REQUEST, NO_TLS).as_bytes());
        if wire.send(limits.write_time).await.is_ok() {
            wire.linger(limits.linger_time).await;
        }
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
    Some((Box::new(stream), TlsPeer { certificates }, is_h2))
}
