//! The seam to an engine: what the committer asks of a database, and what it hands it.
//!
//! Semantics live above it (`ops` over `group`), once for all engines. Below it a batch is written as a whole or not at
//! all. Only the committer writes, so what it reads stays true until it commits.

use std::collections::{BTreeMap, BTreeSet};

use api::{Account, Counted, NamespaceError, Property, Quota, ReplicaRef};
use bytes::Bytes;
use thiserror::Error;
use types::{Acl, Checksum, ChecksumKind, FileId, Name, PoolId, SymlinkTarget, Timestamp, XattrName};

use crate::inode::Inode;

pub trait Store: Questions {
    /// Before the first question of a group. All answers from here to `commit` or `abandon` are of one state. `is_awaited`:
    /// the commit returns when the group is on disk, with all groups before it.
    fn begin(&mut self, is_awaited: bool) -> StoreResult<()>;

    fn habits(&self) -> Habits;

    /// Whether changes that need more room are taken.
    fn has_room(&self) -> bool {
        true
    }

    /// Between groups there is something to do that may take a while.
    fn wants_upkeep(&self) -> bool {
        false
    }

    /// Does it, if there is. Not within a group.
    fn upkeep(&mut self) {}

    /// Rows that will be asked for and are not in the cache, for a remote engine, which reads all of them at once.
    fn prefetch(&mut self, _wanted: &dyn Fn() -> Vec<Wanted>) -> StoreResult<()> {
        Ok(())
    }

    /// All of it or nothing.
    fn commit(&mut self, batch: &Batch) -> StoreResult<()>;
    /// Ends what `begin` began, without a trace.
    fn abandon(&mut self);

    /// Durably, however groups are committed: numbers of these kinds below these are given from now on. Not within a
    /// group.
    fn reserve(&mut self, ends: NumberEnds) -> StoreResult<()>;
    /// Nothing comes after this.
    fn end_cleanly(&mut self) -> StoreResult<()>;

    /// Past everything that is known above.
    #[cfg(test)]
    fn execute(&mut self, sql: &str) -> StoreResult<()>;
}

/// Queries of a group, between `begin` and its end.
pub trait Questions: Send {
    fn inode(&mut self, file: FileId) -> StoreResult<Option<Inode>>;
    fn child(&mut self, dir: FileId, name: &Name) -> StoreResult<Option<FileId>>;
    /// So many names of a directory, whichever.
    fn some_names(&mut self, dir: FileId, limit: usize) -> StoreResult<Vec<Name>>;
    /// So many names of the file, whichever.
    fn names_of(&mut self, file: FileId, limit: usize) -> StoreResult<Vec<(FileId, Name)>>;
    /// In the order of their pools.
    fn locations(&mut self, file: FileId) -> StoreResult<Vec<ReplicaRef>>;
    fn properties(&mut self, file: FileId) -> StoreResult<Vec<Property>>;
    /// Extended attributes without their values.
    fn xattrs(&mut self, file: FileId) -> StoreResult<Vec<(XattrName, XattrEntry)>>;
    fn xattr(&mut self, file: FileId, name: &XattrName) -> StoreResult<Option<Bytes>>;
    fn acl(&mut self, file: FileId) -> StoreResult<Option<Acl>>;
    /// Nothing, where nothing is noted.
    fn usage(&mut self, account: Account) -> StoreResult<Counted>;
}

/// Row that an operation begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Inode(FileId),
    /// And the inode that has the name.
    Name(FileId, Name),
}

/// How an engine commits.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// It wants to know what operations begin with.
    pub prefetches: bool,
    /// A commit takes the time of a message to another process, also if it does not wait for the disk.
    pub is_remote: bool,
    /// A group that was answered before it is on disk is there once the log is synced.
    pub is_synced_by_log: bool,
}

pub type StoreResult<T> = Result<T, StoreError>;

/// Why a database failed a request. Each of them fails a whole group.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    #[error("no space left for the database: {0}")]
    NoSpace(String),
    #[error("database cannot be written: {0}")]
    ReadOnly(String),
    #[error("database is in use: {0}")]
    Busy(String),
    #[error("{0}")]
    Failed(String),
    /// Nothing is written any more.
    #[error("{0}")]
    NeedsRestart(String),
}

impl From<&StoreError> for NamespaceError {
    fn from(error: &StoreError) -> NamespaceError {
        match error {
            StoreError::NoSpace(_) => NamespaceError::NoSpace,
            StoreError::ReadOnly(reason) => NamespaceError::ReadOnly(reason.clone()),
            StoreError::Busy(_) => NamespaceError::Busy,
            StoreError::Failed(reason) | StoreError::NeedsRestart(reason) => {
                NamespaceError::Database(reason.clone())
            }
        }
    }
}

/// Of file ids and of cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberEnds {
    pub files: u64,
    pub cookies: u64,
}

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub files: i64,
    pub bytes: i64,
}

/// Changes of a group, each row once and in the order of its table.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of the group, one more than that of the last.
    pub sequence: u64,
    /// It is answered when it is on disk, and all before it. SQLite knows that from `Store::begin`; what a group finds out
    /// later has to sync the log besides.
    pub is_durable: bool,
    /// As they are with it.
    pub totals: Totals,
    pub inodes: BTreeMap<FileId, InodeChange>,
    pub names: BTreeMap<(FileId, Name), NameChange>,
    pub locations: Attached<PoolId, ReplicaRef>,
    pub properties: Attached<String, Bytes>,
    pub xattrs: Attached<XattrName, XattrRow>,
    pub acls: BTreeMap<FileId, Option<Acl>>,
    pub checksums: Attached<ChecksumKind, Checksum>,
    pub targets: BTreeMap<FileId, Option<SymlinkTarget>>,
    /// NFS clients by their owner, with whether they have reclaimed everything.
    pub clients: BTreeMap<Vec<u8>, Option<bool>>,
    /// Of directories whose own rows are left as they are.
    pub dir_deltas: BTreeMap<FileId, DirDelta>,
    /// Directories that lose all deltas of earlier groups: their rows hold them now, or are gone.
    pub folded: BTreeSet<FileId>,
    /// Accounts that lose what is noted of them, before any of `usage` and `quotas` is written.
    pub closed_accounts: BTreeSet<Account>,
    /// To be added to what is noted.
    pub usage: BTreeMap<Account, Counted>,
    /// A row of the journal: what this group changed and `usage` has not yet (see `accounts`).
    pub journal: Option<Vec<u8>>,
    /// All earlier rows of the journal go: `usage` has them now.
    pub ends_journal: bool,
    pub quotas: BTreeMap<Account, Option<Quota>>,
}

/// Changes of a directory's entries in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirDelta {
    /// By how much the link count changed.
    pub nlink: i64,
    /// The change attribute after it.
    pub change: u64,
    /// The least that mtime and ctime are after it.
    pub time: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeChange {
    Insert(Inode),
    Update(Inode),
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A new entry, or one in the place of an entry that went in the same group.
    Put {
        cookie: u64,
        child: FileId,
    },
    /// It keeps its place in listings.
    Repoint {
        child: FileId,
    },
    Remove,
}

/// An extended attribute as a listing, or a bound, needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry {
    pub cookie: u64,
    pub value_bytes: usize,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrRow {
    /// Its place in listings of the file.
    pub cookie: u64,
    pub value: Bytes,
}

impl XattrRow {
    pub fn entry(&self) -> XattrEntry {
        XattrEntry { cookie: self.cookie, value_bytes: self.value.len() }
    }
}

/// Changes of a table whose rows hang on a file.
#[derive(Debug)]
pub struct Attached<K, V> {
    /// Files that lose all rows, before any of `rows` is written.
    pub cleared: BTreeSet<FileId>,
    pub rows: BTreeMap<FileId, BTreeMap<K, Option<V>>>,
}

impl<K, V> Default for Attached<K, V> {
    fn default() -> Attached<K, V> {
        Attached { cleared: BTreeSet::new(), rows: BTreeMap::new() }
    }
}

impl<K: Ord, V> Attached<K, V> {
    pub fn put(&mut self, file: FileId, key: K, value: V) {
        self.rows.entry(file).or_default().insert(key, Some(value));
    }

    pub fn remove(&mut self, file: FileId, key: K) {
        self.rows.entry(file).or_default().insert(key, None);
    }

    pub fn rows(&self) -> impl Iterator<Item = (FileId, &K, Option<&V>)> {
        self.rows.iter().flat_map(|(file, rows)| rows.iter().map(|(key, row)| (*file, key, row.as_ref())))
    }

    pub fn clear(&mut self, file: FileId) {
        self.rows.remove(&file);
        self.cleared.insert(file);
    }
}
