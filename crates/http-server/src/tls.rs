//! TLS: certificates from files that may be replaced while the server runs, and client certificates for those who have
//! one.
//!
//! What a client's chain is worth is not decided here (see [`crate::TlsPeer`]); the handshake proves only that the
//! client has the key.

mod accept;
mod files;
mod possession;

pub(crate) use accept::accept;
pub use files::{ClientCertificates, Tls, TlsError, TlsFiles};
