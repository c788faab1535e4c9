//! The disk threads: bounded queues, reads that are ready at once, syncs.
//!
//! A pool's way to its disk. Nothing here knows what a replica is; callers hand in files (`file`) and jobs, and get
//! `api::IoHandle`s. The engine chooses the thread of each step. No blocking call is made on the caller's thread but a
//! read of resident pages.
//!
//! Deliberately absent for now: uncached and direct I/O. Every read and write goes through the page cache; a choice
//! belongs in `Engine::read` and `Engine::write`, and needs thresholds that are calibrated per pool.

pub mod aligned;
mod buffer;
pub mod contention;
pub mod counters;
pub mod capabilities;
mod engine;
mod failure;
mod file;
pub mod history;
pub mod mode;
mod queue;
mod ran;
pub mod range;
pub mod range_lock;
mod read;
pub mod reopen;
pub mod residency;
mod sync;
pub mod uncached;
pub mod write;

pub use engine::{Engine, EngineConfig, Work, default_threads};
pub use failure::pool_error;
pub use file::{Readable, Syncable, Writable};
pub use ran::Ran;
pub use sync::SyncGate;
