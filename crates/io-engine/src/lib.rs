//! The disk threads: bounded queues, reads that are ready at once, syncs.
//!
//! A pool's way to its disk. Nothing here knows what a replica is; callers hand in open files and jobs, and get
//! `api::IoHandle`s. No blocking call is made on the caller's thread but a read of resident pages.
//!
//! Deliberately absent for now: uncached and direct I/O. Their place is `mode`, which decides for every request.

pub mod buffer;
mod engine;
pub mod failure;
pub mod mode;
mod queue;
pub mod range;
pub mod read;
pub mod sync;
pub mod write;

pub use buffer::Buffers;
pub use engine::{Engine, EngineConfig, Lane, default_threads};
pub use failure::pool_error;
pub use sync::{Asked, SyncGate, Waiter};
