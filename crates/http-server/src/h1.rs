//! HTTP/1.1 and HTTP/1.0 (RFC 9112): requests one after the other on a connection, each answered before the next is
//! looked at.
//!
//! Written here and not taken from a library because of a framing that is strict wherever a proxy could read it in
//! another way, and of bounds on everything. Connections without TLS send pieces of replicas by splice(2) or `sendfile(2)` besides.

mod connection;
mod head;
mod incoming;
mod respond;
mod send_error;
mod sendfile;
mod slot;

pub(crate) use connection::serve;
pub(crate) use head::{bare_answer, has_no_body};
pub(crate) use slot::Slot;
