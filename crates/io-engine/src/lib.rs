//! The disk threads: bounded queues, reads that are ready at once, syncs.
//!
//! A pool's way to its disk. Nothing here knows what a replica is; callers hand in files (`file`) and jobs, and get
//! `api::IoHandle`s. The engine chooses the thread of each step. No blocking call is made on the caller's thread but a
//! read of resident pages.
//!
//! The ways of a request to the disk other than the page cache (`direct`, `uncached`), and the locks between them
//! (`range_lock`), block: they are for jobs. Deliberately absent for now: a choice. `Engine::read` and `Engine::write` go
//! through the page cache.

pub mod aligned;
mod buffer;
pub mod contention;
pub mod counters;
pub mod capabilities;
pub mod direct;
pub mod calibration;
mod engine;
mod failure;
mod file;
pub mod history;
pub mod mode;
pub mod pressure;
pub mod gather;
mod queue;
mod ran;
pub mod range;
pub mod range_lock;
mod read;
pub mod reopen;
pub mod residency;
pub mod readahead;
mod sync;
pub mod uncached;
mod system_files;
pub mod write;

pub use engine::{Engine, EngineConfig, Work, default_threads};
pub use failure::pool_error;
pub use file::{Readable, Syncable, Writable};
pub use ran::Ran;
pub use sync::SyncGate;
pub use system_files::SystemFiles;
