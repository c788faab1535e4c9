//! Settings of a namespace, and where its database is.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use types::Clock;

/// [`Config::group_len_max`] of an instance that sets nothing.
pub const GROUP_LEN_MAX: u32 = 512;

pub struct Config {
    pub database: Database,
    pub clock: Arc<dyn Clock>,
    /// Owner (uid, gid) of the root directory of a new namespace.
    pub root_owner: (u32, u32),
    pub sync: Sync,
    /// For inodes, names, locations and targets in memory. Unstable writes that wait come besides, bounded by number.
    pub cache_bytes: u64,
    /// Operations that may wait for the committer, and reads for a reader; beyond it they are answered `Busy`.
    pub queue_len_max: usize,
    /// Operations in one transaction.
    pub group_len_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// In this directory, which also holds its lock; made if missing.
    Sqlite(PathBuf),
    Postgres(Server),
}

/// A database on a PostgreSQL server.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Or a connection string as libpq has it.
    pub url: String,
    /// The owner of the namespace. A database of another instance is refused, for its files are in other pools.
    pub instance: [u8; 16],
    /// There may be no namespace in it yet.
    pub may_be_new: bool,
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("may_be_new", &self.may_be_new).finish_non_exhaustive()
    }
}

/// Failures that an answered change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// A power cut.
    Always,
    /// A power cut; it may undo changes of mode, owner and times that were answered within this time before it, but none
    /// that a change which is there came behind.
    Names(Duration),
    /// A crash of the process; a power cut may undo changes answered within this time before it.
    Interval(Duration),
}

/// As the configuration names them.
impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sync::Always => "always",
            Sync::Names(_) => "names",
            Sync::Interval(_) => "interval",
        })
    }
}
