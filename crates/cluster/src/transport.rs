//! Streams of bytes between pool hosts and the head, and the identity of the host at the other end.
//!
//! In the product they are TCP with TLS. The simulator has a network of its own.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::rpc::prepare;
use crate::trust::{Dialling, Fingerprint, Member, peer};

/// A connection between two hosts, whose bytes keep their order.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The pool host's way to the head.
#[async_trait]
pub trait Dialer: Send + Sync {
    /// A connection to the head of the cluster at that address: no other host can be there.
    async fn dial(&self, address: &str, dialling: &Dialling) -> io::Result<Box<dyn ByteStream>>;
}

/// The head's port for pool hosts.
#[async_trait]
pub trait Port: Send + Sync {
    async fn accept(&self) -> io::Result<Caller>;
}

/// A host that has connected and has not shown what it is.
pub struct Caller {
    pub from: SocketAddr,
    pub handshake: Pin<Box<dyn Future<Output = io::Result<Identified>> + Send>>,
}

/// A host that has shown its certificate, or has none.
pub struct Identified {
    pub stream: Box<dyn ByteStream>,
    pub member: Option<(Member, Fingerprint)>,
}

/// Dials by TCP, with TLS.
pub struct TlsDialer;

#[async_trait]
impl Dialer for TlsDialer {
    async fn dial(&self, address: &str, dialling: &Dialling) -> io::Result<Box<dyn ByteStream>> {
        let Dialling { tls, name } = dialling.clone();
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        Ok(Box::new(TlsConnector::from(tls).connect(name, stream).await?))
    }
}

pub(crate) struct TlsPort {
    listener: TcpListener,
    /// It may change: it counts for connections from then on.
    tls: watch::Receiver<Arc<ServerConfig>>,
}

impl TlsPort {
    pub fn new(listener: TcpListener, tls: watch::Receiver<Arc<ServerConfig>>) -> TlsPort {
        TlsPort { listener, tls }
    }
}

#[async_trait]
impl Port for TlsPort {
    async fn accept(&self) -> io::Result<Caller> {
        let (stream, from) = self.listener.accept().await?;
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls.borrow()));
        let handshake = Box::pin(async move {
            prepare(&stream)?;
            let stream = acceptor.accept(stream).await?;
            let member = stream.get_ref().1.peer_certificates().and_then(peer);
            Ok(Identified { stream: Box::new(stream), member })
        });
        Ok(Caller { from, handshake })
    }
}
