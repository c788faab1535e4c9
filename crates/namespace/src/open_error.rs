//! Why a namespace is not opened, each with what to do about it.

use std::path::PathBuf;

use thiserror::Error;

use crate::timeline::Unfit;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("namespace in {0} is in use by another process; stop that one first")]
    InUse(PathBuf),
    #[error(
        "namespace in {dir} has schema version {found}, this program knows up to {known}; use the newer program that \
         wrote it, or restore a backup from before the update"
    )]
    NewerVersion { dir: PathBuf, found: u32, known: u32 },
    #[error("{0} is not a forebay namespace; choose another data directory or move the file away")]
    NotForebay(PathBuf),
    #[error(
        "cannot write the namespace in {dir}: {reason}; make it writable for this user or choose another directory"
    )]
    ReadOnly { dir: PathBuf, reason: String },
    #[error("no space left to open the namespace in {0}; free some and start again")]
    DiskFull(PathBuf),
    #[error("SQLite {found} is linked, 3.51.3 or newer is needed (older ones may corrupt a database)")]
    SqliteTooOld { found: &'static str },
    #[error("database URL is not understood: {0}; it looks like postgres://user:password@host:5432/database")]
    BadUrl(String),
    #[error("{database} runs PostgreSQL {found}, 15 or newer is needed")]
    PostgresTooOld { database: String, found: String },
    #[error("schema \"forebay\" in {0} is not a forebay namespace; choose another database")]
    ForeignSchema(String),
    #[error(
        "namespace in {database} has schema version {found}, this program knows up to {known}; use the newer program \
         that wrote it, or restore a backup from before the update"
    )]
    NewerDatabase { database: String, found: i32, known: i32 },
    #[error(
        "namespace in {0} is not whole: its rebuild was not finished; run `forebay namespace rebuild` again"
    )]
    Unfinished(String),
    #[error(
        "namespace in {database} {unfit}; bring the newer database back, or take this one as it is with `forebay namespace \
         restore --in-place --to PLACE` and lose what came after it"
    )]
    Unfit { database: String, unfit: Unfit },
    #[error("namespace in {0} belongs to another data directory; choose another database")]
    OtherInstance(String),
    #[error("{0} has no namespace although it had one: is it the right database? Restore it from a backup")]
    NamespaceGone(String),
    #[error("namespace in {0} is in use by another head; stop that one first")]
    DatabaseInUse(String),
    #[error("cannot open the namespace in {database}: {reason}")]
    Database { database: String, reason: String },
    #[error(
        "{database} is encoded in {found}, which has not every character of a property's name; make one with \
         ENCODING 'UTF8'"
    )]
    DatabaseEncoding { database: String, found: String },
    #[error(
        "user may not make the schema \"forebay\" in {0}: GRANT CREATE ON DATABASE ... TO the user, or CREATE SCHEMA \
         forebay AUTHORIZATION the user"
    )]
    NoRightToCreate(String),
    #[error(
        "{0} has too few connections left: forebay uses five; raise max_connections, or the CONNECTION LIMIT of user \
         or database"
    )]
    TooFewConnections(String),
    #[error("cannot count what users have in the namespace: {0}")]
    Accounts(String),
    #[error("cannot start a thread for the namespace: {0}")]
    NoThread(String),
    #[error("cannot open the namespace in {dir}: {reason}")]
    Failed { dir: PathBuf, reason: String },
}
