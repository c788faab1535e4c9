//! Outgoing HTTP/1.1, for third-party copies and for asking token issuers.
//!
//! Shell. Where it connects is often said by a user, so the bounds matter as much as the bytes: every wait has a
//! deadline, heads and redirects are bounded, addresses that no user may reach through us are refused after the name
//! was resolved, and secrets are not sent on to another origin. One connection per request and no pool: the transfers
//! are long, and a connection that is not shared can be dropped at any time. HTTP/2 is absent on purpose: several
//! streams of one copy want several connections.

mod client;
mod config;
mod connect;
mod error;
mod incoming;
mod own;
mod reach;
mod tls;
mod upload;

pub use client::{Client, Outgoing};
pub use config::{ClientCertificate, ClientConfig};
pub use error::{ClientError, SetupError};
pub use http_wire::target::{AbsoluteUrl, Scheme, UrlError};
pub use incoming::Incoming;
pub use upload::{Upload, UploadStream};
