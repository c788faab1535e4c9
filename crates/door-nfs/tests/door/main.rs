//! The NFS door on loopback, spoken to by clients that say what a test wants; one file per concern.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod another_door;
mod delegations;
mod exports;
mod ground;
mod lengths;
mod lock_notices;
mod offloads;
mod pools;
mod questions;
mod resizes;
mod security;
