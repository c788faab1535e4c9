//! The HTTP door of the binary as clients meet it: each test starts a server of its own on loopback and speaks bytes.
//!
//! The client writes exactly what a test wants, which no library does; real clients are elsewhere (`tests/run`). One file
//! per concern, one test per promise. No root, no fixed ports, no order.

#![allow(clippy::unwrap_used, reason = "everything here is a test or a step of one")]

mod server;
mod wire;

mod access;
mod acl;
mod adopt;
mod conflict;
mod dav;
mod get;
mod hostile;
mod locks;
mod namespace;
mod plain;
mod put;
mod quota;
mod rebuild;
mod redirect;
mod repair;
mod restart;
mod scrub;
mod service;
mod set_back;
mod set_io;
mod takeover;
