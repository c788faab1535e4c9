//! The binary as clients meet it: each test starts a server of its own on loopback, speaks to it and ends it.
//!
//! The client says exactly what a test wants, which no kernel does; the kernel's own client is elsewhere
//! (`tests/run`). One file per concern, one test per requirement. No root, no fixed ports, no order.

#![allow(clippy::unwrap_used, reason = "everything here is a test or a step of one")]

mod acl;
mod attributes;
mod bounds;
mod channel;
mod cli;
mod cluster;
mod copy;
mod courtesy;
mod create_directory;
mod data;
mod delegation;
mod directory;
mod directory_attributes;
mod drain;
mod emptied;
mod exports;
mod held;
mod keys;
mod layout;
mod load;
mod lock;
mod open;
mod operate;
mod quota;
mod recall;
mod recovery;
mod rpc;
mod server;
mod session;
mod state_memory;
mod statistics;
mod trunking;
mod why;
mod write_delegation;
mod xattr;
