//! Whole namespaces at once: written by an import, copied between engines, saved, restored, migrated.
//!
//! Rows move table by table in the order of their keys (`tables`), past the committer. An unfinished namespace lies
//! beside its place (another file name, another schema), without indexes, and takes its place in one step at the end:
//! no head ever opens half of one. Until then writing can be resumed behind the last row that is on disk. All of this
//! blocks; do not call it from a thread that drives futures.

mod backup;
mod copy;
mod file;
mod in_place;
mod migrate;
mod postgres;
mod restore;
mod seal;
mod sqlite;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

pub use backup::{Saved, backup, discard_unfinished_backup};
pub use copy::{Copied, Order, Phase, Progress, copy};
pub use in_place::{Retaken, retake};
pub use migrate::{Plan, Step, migrate, plan};
pub use postgres::discard_unfinished;
pub use restore::restore;
pub use writer::{Bulk, End};

use crate::check::Problem;
use crate::open_error::OpenError;
use crate::starts::Notes;
use tables::{Table, Value};

/// Where a namespace is, or is to be.
#[derive(Clone, PartialEq, Eq)]
pub enum NamespaceLocation {
    /// In this directory, under its lock.
    Sqlite(PathBuf),
    /// One file, as a backup is.
    File(PathBuf),
    /// The URL of a database.
    Postgres(String),
}

/// For people; without the password of a URL.
impl fmt::Display for NamespaceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamespaceLocation::Sqlite(path) | NamespaceLocation::File(path) => path.display().fmt(f),
            NamespaceLocation::Postgres(url) => match crate::postgres::database_name(url) {
                Ok(name) => f.write_str(&name),
                Err(_) => f.write_str("the given URL"),
            },
        }
    }
}

impl fmt::Debug for NamespaceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Error)]
pub enum BulkError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "namespace in {0} is in use by a running head; stop it first, or save it while it runs with \
         `forebay namespace backup`"
    )]
    Running(String),
    #[error("there is no namespace in {0}")]
    Nothing(String),
    #[error("{place} is not empty ({what}); choose another place, or move that away first")]
    NotEmpty { place: String, what: String },
    #[error(
        "{place} has a copy that was not finished, of another namespace or of an earlier state of this one; give \
         --start-over to remove it and begin anew"
    )]
    SourceChanged { place: String },
    #[error(
        "namespace in {place} has schema version {found}, not {known}; run `forebay namespace migrate` on it first"
    )]
    OldVersion { place: String, found: u32, known: u32 },
    #[error(
        "namespace in {place} belongs to another instance; its files would be looked for in the wrong pools"
    )]
    OtherInstance { place: String },
    #[error("{place} does not have what {from} has: {what}; nothing was put in place")]
    Different { place: String, from: String, what: String },
    #[error("{place} is damaged: {what}")]
    Damaged { place: String, what: String },
    #[error("{place}: {reason}")]
    Failed { place: String, reason: String },
}

impl BulkError {
    fn failed(place: impl fmt::Display, reason: impl fmt::Display) -> BulkError {
        BulkError::Failed { place: place.to_string(), reason: reason.to_string() }
    }
}

pub type BulkResult<T> = Result<T, BulkError>;

/// Tables that can be read. Rows lie one behind the other, each as wide as its table.
trait Tables: Send {
    fn count(&mut self, table: &Table) -> BulkResult<u64>;
    /// So many rows behind a key, in the order of the keys.
    fn page(
        &mut self,
        table: &'static Table,
        after: Option<&[Value]>,
        limit: usize,
    ) -> BulkResult<Vec<Value>>;
}

/// One state of a namespace, which does not change while it is read.
trait Source: Send {
    fn marks(&self) -> &Marks;
    fn tables(&mut self) -> &mut dyn Tables;
}

/// A namespace in the making.
trait Sink: Send {
    /// All of them or none. In the order of their keys, if it is to be gone on with later.
    fn write(&mut self, table: &'static Table, rows: &[Value]) -> BulkResult<()>;
    /// Of the last row that is there from an earlier attempt.
    fn last_key(&mut self, table: &'static Table) -> BulkResult<Option<Vec<Value>>>;
    /// SQL that both engines understand.
    fn execute(&mut self, sql: &str) -> BulkResult<()>;
    /// Makes the indexes. Afterwards rows are written slowly.
    fn index(&mut self) -> BulkResult<()>;
    /// Durably puts it in place. Nothing is written afterwards, but the place stays locked while this lives.
    fn publish(&mut self, marks: &Marks) -> BulkResult<()>;
    /// The namespace's own check, once it is in place.
    fn check(&mut self) -> BulkResult<Vec<Problem>>;
    fn tables(&mut self) -> &mut dyn Tables;
}

/// Whether to resume an unfinished namespace that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Go on, if it was begun from the same.
    Resume,
    Afresh,
}

/// Values that are kept beside the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Marks {
    meta: BTreeMap<String, i64>,
    groups: i64,
    files: i64,
    bytes: i64,
}

const INSTANCE_HIGH: &str = "instance_high";
const INSTANCE_LOW: &str = "instance_low";

impl Marks {
    /// Which state of which namespace this is.
    fn state(&self) -> String {
        let meta: Vec<String> = self.meta.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("groups={} files={} bytes={} {}", self.groups, self.files, self.bytes, meta.join(" "))
    }

    fn number(&self, key: &str) -> i64 {
        self.meta.get(key).copied().unwrap_or_default()
    }

    fn notes(&self) -> Notes {
        let mut notes = Notes::default();
        for key in Notes::KEYS {
            notes.set(key, self.number(key));
        }
        notes
    }

    fn set_notes(&mut self, notes: &Notes) {
        self.meta.extend(Notes::KEYS.iter().map(|key| ((*key).to_owned(), notes.get(key))));
    }

    /// The instance that owns the namespace, if one is noted.
    fn instance(&self) -> Option<[u8; 16]> {
        let half = |key| Some(u128::from(self.meta.get(key)?.cast_unsigned()));
        Some((half(INSTANCE_HIGH)? << 64 | half(INSTANCE_LOW)?).to_be_bytes())
    }

    /// Notes the instance as owner; an error if another instance is noted.
    fn claim(&mut self, instance: Option<[u8; 16]>, place: impl fmt::Display) -> BulkResult<()> {
        let Some(instance) = instance else { return Ok(()) };
        if self.instance().is_some_and(|noted| noted != instance) {
            return Err(BulkError::OtherInstance { place: place.to_string() });
        }
        let id = u128::from_be_bytes(instance);
        for (key, half) in [(INSTANCE_HIGH, (id >> 64) as u64), (INSTANCE_LOW, id as u64)] {
            self.meta.insert(key.to_owned(), half.cast_signed());
        }
        Ok(())
    }
}

fn open_source(place: &NamespaceLocation) -> BulkResult<Box<dyn Source>> {
    Ok(match place {
        NamespaceLocation::Sqlite(dir) => Box::new(sqlite::SqliteSource::stopped(dir)?),
        NamespaceLocation::File(file) => Box::new(sqlite::SqliteSource::file(file)?),
        NamespaceLocation::Postgres(url) => Box::new(postgres::PostgresSource::stopped(url)?),
    })
}

/// `state`: of what it is made from.
fn open_sink(place: &NamespaceLocation, state: &str, begin: Begin) -> BulkResult<Box<dyn Sink>> {
    // A program that knows other tables begins anew.
    let state = &format!("schema={} {state}", crate::sqlite::schema::known_version());
    Ok(match place {
        NamespaceLocation::Sqlite(dir) => Box::new(sqlite::SqliteSink::in_directory(dir, state, begin)?),
        NamespaceLocation::File(file) => Box::new(sqlite::SqliteSink::in_file(file, state, begin)?),
        NamespaceLocation::Postgres(url) => Box::new(postgres::PostgresSink::begin(url, state, begin)?),
    })
}
