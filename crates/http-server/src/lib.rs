//! HTTP connections: one request in, one response out, whatever the version and whether there is TLS below.
//!
//! Shell. Knows no path, no identity and no file; the handler is a [`Service`]. Everything that a client can make grow
//! or last has a bound in [`Limits`].

mod body;
mod message;

pub use body::{BodyError, RequestBody};
pub use message::{Peer, Piece, Pieces, Request, Response, ResponseBody, Service, TlsPeer};
