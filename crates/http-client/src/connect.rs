//! From a URL to an HTTP/1.1 connection, each step within its deadline.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::upload::Body;
use crate::{AbsoluteUrl, ClientConfig, ClientError, own};

/// One connection for one request; dropping it ends it.
pub(crate) struct Connection {
    pub sender: SendRequest<Body>,
    pub peer: SocketAddr,
    pub driver: Driver,
}

/// The task that moves a connection's bytes; it does not outlive whoever holds this.
pub(crate) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Addresses tried at once, each this much later than the one before (as RFC 8305 §5 wants it, simplified).
const STAGGER: Duration = Duration::from_millis(250);
const ADDRESSES_MAX: usize = 8;
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
const READ_BUFFER_BYTES: usize = 512 << 10;

pub(crate) async fn connect(
    config: &ClientConfig,
    tls: &Arc<rustls::ClientConfig>,
    url: &AbsoluteUrl,
) -> Result<Connection, ClientError> {
    let addresses = resolve(config, url).await?;
    let tcp = within(config, url, "does not take a connection", dial(&addresses))
        .await?
        .map_err(|error| failed(url, &error))?;
    let peer = tcp.peer_addr().map_err(|error| failed(url, &error))?;
    // A request is one write, and the last segment of a body must not wait for an acknowledgement.
    tcp.set_nodelay(true).map_err(|error| failed(url, &error))?;
    if !url.is_encrypted() {
        return shake_hands(config, url, peer, tcp).await;
    }
    let tls_error = |reason| ClientError::Tls { authority: url.authority(), reason };
    let name = ServerName::try_from(url.host().to_owned()).map_err(|error| tls_error(error.to_string()))?;
    let secured = TlsConnector::from(Arc::clone(tls)).connect(name, tcp);
    let secured = within(config, url, "does not finish the TLS handshake", secured)
        .await?
        .map_err(|error| tls_error(error.to_string()))?;
    shake_hands(config, url, peer, secured).await
}

/// Every address must be one we may reach: a name that also points inside is not a way inside.
async fn resolve(config: &ClientConfig, url: &AbsoluteUrl) -> Result<Vec<SocketAddr>, ClientError> {
    let unresolved = |reason| ClientError::Resolve { host: url.host().to_owned(), reason };
    let found = within(config, url, "is not resolved", tokio::net::lookup_host((url.host(), url.port())))
        .await?
        .map_err(|error| unresolved(error.to_string()))?;
    let addresses: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
    let own =
        if config.own_forbidden { own::networks().map_err(ClientError::OwnAddresses)? } else { Vec::new() };
    if let Some(refused) = addresses.iter().find(|address| !config.may_reach(address.ip(), &own)) {
        return Err(ClientError::AddressForbidden { host: url.host().to_owned(), address: refused.ip() });
    }
    if addresses.is_empty() {
        return Err(unresolved("it has no address".to_owned()));
    }
    Ok(addresses)
}

async fn dial(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut attempts: FuturesUnordered<_> = (0u32..)
        .zip(addresses)
        .map(|(turn, address)| async move {
            tokio::time::sleep(STAGGER * turn).await;
            TcpStream::connect(address).await
        })
        .collect();
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn shake_hands(
    config: &ClientConfig,
    url: &AbsoluteUrl,
    peer: SocketAddr,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, ClientError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER_BYTES).max_header_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    // Names have no case, but XRootD 5 knows Want-Digest and Range in this spelling only, and ignores others.
    builder.title_case_headers(true);
    let shaken = within(config, url, "is not ready", builder.handshake(TokioIo::new(stream))).await?;
    let (sender, connection) = shaken.map_err(|error| ClientError::of_hyper(&url.authority(), &error))?;
    let driver = Driver(tokio::spawn(async move {
        // How it ended is also told to whoever waits for the answer or reads the body.
        let _ = connection.await;
    }));
    Ok(Connection { sender, peer, driver })
}

async fn within<T>(
    config: &ClientConfig,
    url: &AbsoluteUrl,
    what: &'static str,
    step: impl Future<Output = T>,
) -> Result<T, ClientError> {
    let after = config.connect_timeout;
    tokio::time::timeout(after, step).await.map_err(|_| ClientError::Timeout {
        authority: url.authority(),
        what,
        after,
    })
}

fn failed(url: &AbsoluteUrl, error: &std::io::Error) -> ClientError {
    ClientError::Connect { authority: url.authority(), reason: error.to_string() }
}
