//! HTTP connections: one request in, one response out, whatever the version and whether there is TLS below.
//!
//! Shell. Knows no path, no identity and no file; the handler is a [`Service`]. Everything that a client can make grow
//! or last has a bound in [`Limits`].
//!
//! HTTP/1 is written here (`h1`), HTTP/2 is a library's (`h2`); both meet the same handler. Responses made of parts of
//! replicas leave by splice(2) or `sendfile(2)` where there is neither TLS nor HTTP/2 in between.
//!
//! Deliberately absent: compression, upgrades, HTTP/2 without TLS, trailers.

mod admission;
mod assembly;
mod body;
mod body_error;
mod budget;
mod buffers;
mod clock;
mod exchange;
mod h1;
mod h2;
mod intake;
mod limits;
mod listener_state;
mod memory;
mod message;
mod segments;
mod server;
mod stream;
mod tasks;
pub mod tls;
mod transport;
mod wire;

pub use body::RequestBody;
pub use body_error::BodyError;
pub use exchange::{Exchange, ExchangeLog};
pub use limits::Limits;
pub use memory::{Held, Memory};
pub use message::{Peer, Piece, Pieces, Request, Response, ResponseBody, Service, Source, TlsPeer};
pub use server::serve;
pub use tls::{Tls, TlsFiles};
pub use transport::{PlainClients, Transport};
