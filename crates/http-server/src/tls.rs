//! TLS: certificates from files that may be replaced while the server runs, and client certificates for those who have
//! one.
//!
//! The handshake proves only that a client has the key of its certificate. Nothing here verifies the chain (see
//! [`crate::TlsPeer`]).

mod accept;
mod files;
mod possession;

pub(crate) use accept::{Accepted, accept, refuse};
pub use files::{ClientCertificates, Tls, TlsError, TlsFiles};

/// `Strict-Transport-Security` of every response behind TLS (RFC 6797): for a week a browser asks this host name by TLS only.
///
/// It binds all ports of the name, also those of other servers; a week protects people who come back each week, and a name
/// that is needed without TLS again is free soon. Without `includeSubDomains`: those are not ours. Browsers ignore the header
/// where they warn of the certificate, so a trial with a self-signed one binds nobody who only clicked the warning away.
pub(crate) const STRICT: &str = "max-age=604800";
