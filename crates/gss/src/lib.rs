//! Kerberos 5 for the acceptor's side of GSS-API (RFC 4120, RFC 4121), without I/O.
//!
//! A client's first token goes into [`Acceptor::accept`] and comes out as a [`Context`], which makes and checks the
//! per-message tokens that RPCSEC_GSS carries. The caller reads the keytab, and brings time and randomness.
//!
//! Invariants: nothing that a peer sends is believed before it has been decrypted or its checksum verified; every length
//! is checked against what is there; no key is ever printed.
//!
//! Deliberately absent: getting tickets (that is the client's side), SPNEGO (Linux does not send it for NFS), DES,
//! triple DES and RC4, user-to-user, delegated credentials (they are skipped unread), channel bindings.

#![forbid(unsafe_code)]

mod acceptor;
mod context;
mod crypto;
mod keytab;
mod messages;
#[cfg(any(test, feature = "peer"))]
pub mod peer;
mod principal;
mod replay;

pub use acceptor::{AcceptError, Accepted, Acceptor, Entropy, KRB5_OID, NoServiceKey};
pub use context::{Context, TokenError, Unwrapped};
pub use crypto::{CONFOUNDER_LEN, Enctype, Key, KeyError};
pub use keytab::{Keytab, KeytabEntry, KeytabError};
pub use principal::Principal;

/// Seconds since 1970, as Kerberos counts them.
pub type UnixSeconds = i64;
