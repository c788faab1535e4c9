//! A journal of small stable writes: one sequential sync for everybody who waits.
//!
//! The pool writes bytes to the page cache of a replica and appends them here. All records that wait go to the disk with
//! one write and one sync. Write-back of the replicas settles records later; a restart replays the rest.
//!
//! Invariants: a record whose waiter was told `Ok` is replayed until it is settled; nothing is told `Ok` after a failed
//! sync; a record that a note on disk settles is never replayed; a full journal refuses and loses nothing. The rules that
//! the pool keeps are at [`Journal`].
//!
//! The journal has no thread: a caller that gets a [`Turn`] leads. Absent: knowledge of replicas, and reads of records
//! that are not yet settled, for the page cache has them.

#![forbid(unsafe_code)]

mod batch;
mod chain;
mod config;
mod directory;
mod error;
mod journal;
mod ledger;
mod record;
mod replay;
mod segment;
mod state;
mod storage;

pub use batch::Waiter;
pub use config::Config;
pub use directory::Directory;
pub use error::{JournalError, OpenError};
pub use journal::{Appended, Journal, Refused, Turn, Usage};
pub use ledger::Unsettled;
pub use record::Record;
pub use replay::{Dropped, Entry, Replay, Summary};
pub use storage::{SECTOR_BYTES, Storage};
