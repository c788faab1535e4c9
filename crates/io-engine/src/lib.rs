//! The disk threads: bounded queues, reads that are ready at once, syncs; and the way of bytes to and from the disk.
//!
//! A pool's way to its disk. Nothing here knows what a replica is; callers hand in files (`file`) and jobs, and get
//! `api::IoHandle`s. The engine chooses the thread of each step. No blocking call is made on the caller's thread but a
//! read of resident pages. A request that the page cache does not serve at once is buffered, uncached or direct: `mode`
//! decides from facts, `data_path` collects the facts and runs the request. `calibration` measures from which sizes on a
//! mode costs less; `pressure` samples memory.
//!
//! `readahead` follows streams of buffered reads and has the kernel fetch what comes next. `gather` is the rule of delayed
//! allocation, which the owner of a file applies.

mod buffer;
pub mod calibration;
pub mod capabilities;
pub mod contention;
pub mod counters;
pub mod cpu;
mod data_path;
pub mod direct;
mod engine;
mod failure;
mod file;
mod file_io;
pub mod gather;
pub mod history;
pub mod latency;
pub mod mode;
pub mod pressure;
mod queue;
mod ran;
pub mod range;
pub mod range_lock;
mod read;
pub mod readahead;
pub mod reopen;
pub mod residency;
mod sync;
mod system_files;
pub mod uncached;
pub mod write;

pub use data_path::{DataPath, WriteFailure};
pub use engine::{Engine, EngineConfig, Work, default_threads};
pub use failure::pool_error;
pub use file::{Readable, Syncable, Writable};
pub use file_io::{FileIo, Recorded};
pub use queue::QueueLoad;
pub use ran::Ran;
pub use read::{READ_BYTES_MAX, read_all};
pub use sync::SyncGate;
pub use system_files::SystemFiles;
