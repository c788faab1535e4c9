//! Names, attributes, locations, usage and quotas in SQLite or PostgreSQL, with a group committer and an authoritative cache.
//!
//! One thread at a time writes (`committer`: its own, or that of a caller that finds it idle). It takes all waiting
//! operations, applies them (`ops`) to working copies over one state of the database (`group`), hands all changes to an
//! engine (`store`) and answers all. All other threads read: warm from `cache` without SQL or a thread hop, cold by one
//! question to an engine (`reads`). Writes of data that need not be on disk yet wait in memory (`unsettled`),
//! directories may follow their entries (`consistency`), counts are kept beside (`accounts`).
//!
//! Beside a running head stand the tools for a namespace that nobody has open: `bulk` (copies, backups), `import`, `check`,
//! `repair`.
//!
//! Invariants: while it is open only the committer changes anything; a group is published in the cache after its COMMIT
//! and before its answers; the change attribute of an inode never repeats a value, also not over a crash (`inode`); ids
//! are never given twice (`ids`), also not by a database that was set back (`timeline`). Absent: protocols, file data,
//! and opinions on who may open a file.

mod accounts;
mod acls;
pub mod bulk;
mod cache;
mod check;
mod committer;
mod config;
mod consistency;
mod counts;
mod describe;
mod directories;
mod engine;
mod group;
mod ids;
pub mod import;
mod inode;
mod keeper;
mod lineage;
mod locality;
mod lookups;
mod migration;
mod open;
mod open_error;
mod ops;
mod paths;
mod postgres;
mod queue;
mod quotas;
mod reads;
mod repair;
mod residents;
#[cfg(test)]
mod scratch;
mod service;
mod session;
mod sqlite;
mod starts;
mod store;
mod thread;
mod timeline;
mod trouble;
mod unsettled;
mod uploads;
mod written;
mod xattrs;

pub use check::{Kind as ProblemKind, PROBLEMS_MAX, Problem};
pub use config::{Config, Database, GROUP_LEN_MAX, Server, Sync};
pub use counts::{CacheFigures, Figures, QuestionFigures};
pub use describe::{DescribedPage, Describer};
pub use keeper::{Reach, Witness};
pub use open_error::OpenError;
pub use postgres::database_name;
pub use repair::{FileFacts, Load, RepairError, RepairLog, Repairs, Stray};
pub use residents::Residents;
pub use service::SqlNamespace;
pub use timeline::{Mark, Noted, Unfit};
pub use trouble::{Trouble, TroubleKind};
