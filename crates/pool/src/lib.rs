//! A pool: replicas as plain files, their identity, index and space.
//!
//! ```text
//! <dir>/pool.json            identity: version, instance, pool
//! <dir>/lock                 held while a process has the pool
//! <dir>/timeline.json        how far the namespace has come; written and read by the head alone
//! <dir>/calibration.json     costs of the modes of I/O on this disk; measured anew when it is missing or void
//! <dir>/index.db             which replicas there are; rebuilt from the files when it is missing or not clean
//! <dir>/index.clean          there while the pool is closed and its index is as the files
//! <dir>/descriptions.db      what files were called and whose they were when the pool was last told; nowhere else but
//!                            in the namespace, and read only when that is lost
//! <dir>/journal/             small stable writes that their files do not have yet; elsewhere by `pools.journal`
//! <dir>/journal.place        where it lies then
//! <dir>/data/ab/cd/<file>    the replicas; file id, instance and fencing epoch in `user.forebay.id`
//! <dir>/sums/ab/cd/<file>    the block sums of a replica, made and compared by scrubs
//! <dir>/scrub.json           the position of a scrub, its last result, and the generation of the sums
//! ```
//!
//! Invariants: what a sync answered is on disk under its name; a failed write-back is told to every later sync; a
//! removed replica does not come back; an older epoch never writes. The files are the truth, the index follows them.

mod adopt;
mod calibrating;
mod contended;
mod counters;
mod database;
mod descriptions;
mod disk_error;
mod error;
mod ext4_journal;
mod gathering;
mod handle;
mod identity;
mod index;
mod io;
mod journal;
mod label;
mod layout;
mod local;
mod parts;
mod pressure;
mod removed;
mod replica;
mod replicas;
mod scan;
mod scrub;
mod space;
mod store;
mod table;
mod writability;

pub use adopt::{AdoptError, Adoption};
pub use descriptions::{KeptDescriptions, fences};
pub use error::OpenError;
pub use gathering::{GatherPolicy, GatherReport};
pub use identity::Identity;
pub use io::{DecisionCount, FileCount, FileCounts, FileIoReport, IoReport, IoSizes, Latency, RequestCpu};
pub use io_engine::calibration::{Cancel, Stopped};
pub use io_engine::counters::ResidencyBytes;
pub use io_engine::gather::{BudgetUse, Bypass, GatherCounts};
pub use io_engine::latency::{Times as IoTimes, coarse_ends};
/// The rule of modes, to decide recorded inputs again.
pub use io_engine::mode;
pub use io_engine::mode::{ContentionThresholds, Crossover, Kind as IoKind, Policy as IoPolicy};
pub use io_engine::readahead::ReadAheadCounts;
pub use io_engine::{QueueLoad, Recorded as RecordedDecision};
pub use journal::{JournalPlace, JournalReport};
pub use local::{Config, LocalPool, apply_journal};
pub use scan::{Found, FoundReplica, Problem, ProblemKind, Scan, accept_length, expect_length, look, scan};
pub use scrub::{
    BadReplica, CompleteScrub, ScrubFinding, ScrubFindingKind, ScrubReport, ScrubRequest, ScrubStopped,
    ScrubTotals, ScrubWatch,
};
