//! Which connections of a listener are TLS, and which clients are answered without it.

use std::net::IpAddr;
use std::sync::Arc;

use types::Network;

use crate::tls::Tls;

#[derive(Clone)]
pub struct Transport {
    /// `None`: the listener has no certificate, and all its connections are plain.
    pub tls: Option<Arc<Tls>>,
    pub plain: PlainClients,
}

/// Clients whose plain connections are served. Others get an error that says why.
#[derive(Clone, Debug)]
pub enum PlainClients {
    All,
    Of(Arc<[Network]>),
}

impl Transport {
    /// No TLS: every client is served.
    pub fn plain() -> Transport {
        Transport { tls: None, plain: PlainClients::All }
    }

    /// TLS only.
    pub fn tls(tls: Arc<Tls>) -> Transport {
        Transport { tls: Some(tls), plain: PlainClients::Of([].into()) }
    }
}

impl PlainClients {
    pub fn include(&self, address: IpAddr) -> bool {
        match self {
            PlainClients::All => true,
            PlainClients::Of(networks) => networks.iter().any(|network| network.contains(address)),
        }
    }
}
