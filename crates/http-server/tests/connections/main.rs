//! Connections as clients meet them: bytes in, bytes out.

#![allow(clippy::unwrap_used)]

mod bodies;
mod bounds;
mod exchanges;
mod files;
mod h2;
mod messages;
mod plain;
mod responses;
mod support;
mod tls;
