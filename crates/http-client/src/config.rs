//! Addresses that a client may reach, authorities that it trusts, and how long it waits.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use types::Network;

use crate::reach::{self, LOOPBACK, NEVER_STORAGE};

#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Trust what the operating system trusts.
    pub system_roots: bool,
    /// Further authorities: PEM files, or directories of them (as in `/etc/grid-security/certificates`).
    pub ca_paths: Vec<PathBuf>,
    pub client_certificate: Option<ClientCertificate>,
    /// Whether `http` URLs may be used at all.
    pub allow_plain: bool,
    /// Addresses that are refused, after the name was resolved.
    pub forbidden: Vec<Network>,
    /// Whether all addresses of this host are refused, as the kernel has them when it is asked for a connection.
    pub own_forbidden: bool,
    /// Exceptions from both.
    pub allowed: Vec<Network>,
    /// For the name, for TCP and for TLS, each.
    pub connect_timeout: Duration,
    /// How long no byte may come, or be taken, in the middle of a body.
    pub idle_timeout: Duration,
    /// How long the first byte of an answer may take once the request is sent; some servers compute a checksum first.
    pub answer_timeout: Duration,
    /// How long to wait for `100 Continue` before the body is sent without it (RFC 9110 §10.1.1: not for ever).
    pub continue_timeout: Duration,
    pub redirects_max: usize,
    pub user_agent: String,
}

/// PEM, read once at the start.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            system_roots: true,
            ca_paths: Vec::new(),
            client_certificate: None,
            allow_plain: false,
            forbidden: [&NEVER_STORAGE[..], &LOOPBACK[..]].concat(),
            own_forbidden: true,
            allowed: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(60),
            continue_timeout: Duration::from_secs(3),
            redirects_max: 5,
            user_agent: concat!("Forebay/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl ClientConfig {
    /// For a trial on one host, and for tests: this host, with and without TLS.
    #[must_use]
    pub fn reaching_loopback(mut self) -> ClientConfig {
        self.allowed.extend(LOOPBACK);
        self.own_forbidden = false;
        self.allow_plain = true;
        self
    }

    /// `own`: this host's, where they are forbidden.
    pub(crate) fn may_reach(&self, address: IpAddr, own: &[Network]) -> bool {
        let behind = reach::behind_nat64(address);
        let is_in = |networks: &[Network]| {
            let is_in = |address| networks.iter().any(|network| network.contains(address));
            is_in(address) || behind.is_some_and(is_in)
        };
        !(is_in(&self.forbidden) || is_in(own)) || is_in(&self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_metadata_are_refused_unless_allowed() {
        let config = ClientConfig::default();
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let metadata: IpAddr = "169.254.169.254".parse().unwrap();
        assert!(!config.may_reach(loopback, &[]) && !config.may_reach(metadata, &[]));
        assert!(config.may_reach("192.0.2.1".parse().unwrap(), &[]));
        let own = ["192.0.2.1/32".parse().unwrap()];
        for own_or_metadata in
            ["192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "64:ff9b::169.254.169.254"]
        {
            assert!(!config.may_reach(own_or_metadata.parse().unwrap(), &own), "{own_or_metadata}");
        }
        assert!(config.may_reach("64:ff9b::192.0.2.2".parse().unwrap(), &own));
        let config = config.reaching_loopback();
        assert!(config.may_reach(loopback, &[]) && !config.may_reach(metadata, &[]));
    }
}
