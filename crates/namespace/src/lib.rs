//! Names, attributes, locations, usage and quotas in SQLite or PostgreSQL, with a group committer and an authoritative cache.
//!
//! One at a time writes (`committer`: its thread, or a caller who finds it idle). It takes whatever waits, applies it (`ops`)
//! to working copies over one state of the database (`group`), hands an engine all that changed (`store`) and answers all.
//! Everybody else reads: warm from `cache` without SQL or a thread hop, cold by one question to an engine (`reads`). Writes
//! of data that need not be on disk yet wait in memory (`unsettled`), directories may follow their entries (`consistency`),
//! counts are kept beside (`accounts`).
//!
//! Beside a running head stand the tools for a namespace that nobody has open: `bulk` (copies, backups), `import`, `check`,
//! `repair`.
//!
//! Invariants: while it is open only the committer changes anything; the cache is told of a group after its COMMIT and before
//! its answers; the change attribute of an inode never repeats a value, also not over a crash (`inode`); ids are never
//! given twice (`ids`). Absent: protocols, file data, and opinions on who may open a file.

mod accounts;
mod acls;
pub mod bulk;
mod cache;
mod check;
mod committer;
mod consistency;
mod counts;
mod describe;
mod group;
mod ids;
pub mod import;
mod inode;
mod lineage;
mod migration;
mod open;
mod ops;
mod paths;
mod postgres;
mod queue;
mod quotas;
mod reads;
mod repair;
#[cfg(test)]
mod scratch;
mod service;
mod session;
mod sqlite;
mod starts;
mod store;
mod unsettled;
mod uploads;
mod written;
mod xattrs;

pub use check::{Kind as ProblemKind, Problem};
pub use counts::{CacheFigures, Figures, QuestionFigures};
pub use describe::{DescribedPage, Describer};
pub use open::{Config, Database, OpenError, Server, Sync};
pub use postgres::database_name;
pub use repair::{Known, Load, RepairError, RepairLog, Repairs, Stray};
pub use service::SqlNamespace;
