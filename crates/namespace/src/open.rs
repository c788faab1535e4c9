//! Opening: an engine finds or makes its database, a new start is counted, and the threads begin.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use types::Clock;

use crate::accounts::Accounts;
use crate::cache::Cache;
use crate::committer::{Committer, CommitterState};
use crate::ids::Ids;
use crate::inode::Instance;
use crate::keeper::{Keeper, Witness};
use crate::postgres::presence::Presence;
use crate::queue::FairQueue;
use crate::reads::Reads;
use crate::service::SqlNamespace;
use crate::session::Purpose;
use crate::sqlite::wal_sync::Log;
use crate::store::{NumberEnds, Store, Totals};
use crate::thread::spawn;
use crate::timeline::{Noted, Unfit};
use crate::trouble::Trouble;
use crate::{postgres, sqlite};

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
    /// A crash of the process; a power cut may undo changes answered within this time before it.
    Interval(Duration),
}

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

/// An engine with its database open, and where the last group left it.
pub struct Opened {
    pub store: Box<dyn Store>,
    pub reads: Arc<dyn Reads>,
    pub background: Box<dyn Background>,
    /// The log to sync where groups are answered before they are on disk.
    pub log: Option<Arc<Log>>,
    /// By which it is known whether another head has taken over, where that can be.
    pub presence: Option<Arc<Presence>>,
    pub state: State,
}

/// Marks of a database from before it is opened, and the keeper of later ones.
#[derive(Clone, Default)]
pub struct Past {
    pub noted: Vec<Noted>,
    pub keeper: Arc<Keeper>,
}

/// Threads and locks of an engine beside the committer.
pub trait Background: Send {
    /// Ends it, after the committer has ended. Idempotent; blocks. The lock against other heads is held until the drop.
    fn stop(&mut self);
    /// Why the database takes no changes, where that is known apart from any change.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

#[derive(Clone, Copy, Debug)]
pub struct State {
    pub instance: Instance,
    pub ends: NumberEnds,
    /// The last group in the database.
    pub sequence: u64,
    pub totals: Totals,
}

impl SqlNamespace {
    /// Blocks on the database; call it before serving.
    pub fn open(config: Config) -> Result<SqlNamespace, OpenError> {
        SqlNamespace::open_after(config, Vec::new())
    }

    /// Refuses a database that is not the one of which something was noted before.
    pub fn open_after(config: Config, noted: Vec<Noted>) -> Result<SqlNamespace, OpenError> {
        let past = Past { noted, keeper: Arc::default() };
        let opened = match &config.database {
            Database::Sqlite(dir) => sqlite::open(dir, &config, &past)?,
            Database::Postgres(server) => postgres::open(server, &config, &past)?,
        };
        start(config, opened, past.keeper)
    }

    /// Has noted from now on how far it comes. To be called before any file is made.
    pub fn keep_marks(&self, witness: Arc<dyn Witness>) -> io::Result<()> {
        self.shared.keeper.keep(witness, self.log.clone())?;
        if !self.shared.keeper.is_covering() {
            // It is tried again, and told.
            self.shared.writes.nudge();
        }
        Ok(())
    }
}

fn start(config: Config, opened: Opened, keeper: Arc<Keeper>) -> Result<SqlNamespace, OpenError> {
    let state = opened.state;
    let ids = Ids::new(state.ends);
    let cookies_end = AtomicU64::new(ids.cookies.end());
    let habits = opened.store.habits();
    let shared = Arc::new(CommitterState {
        cache: Cache::new(config.cache_bytes, state.sequence),
        accounts: Accounts::default(),
        clock: Arc::clone(&config.clock),
        instance: state.instance,
        writes: FairQueue::new(config.queue_len_max),
        committer: Mutex::default(),
        habits,
        is_looked_after: AtomicBool::new(false),
        cookies_end,
        totals: Mutex::new(state.totals),
        troubles: Mutex::default(),
        presence: opened.presence,
        keeper,
    });
    let mut committer = Committer::new(opened.store, ids, config.group_len_max, state.sequence);
    let (tell, told) = mpsc::channel();
    let (reads, of_thread) = (Arc::clone(&opened.reads), Arc::clone(&shared));
    let thread = spawn("namespace-write", move || {
        let loaded = reads.session(Purpose::Look).and_then(|mut session| {
            committer.load_accounts(&of_thread, &mut *session).map_err(|error| (&error).into())
        });
        if loaded.is_ok() {
            *of_thread.committer.lock() = Some(committer);
        }
        let _ = tell.send(loaded);
        of_thread.commit_all();
    });
    let thread = thread.map_err(|error| OpenError::NoThread(error.to_string()))?;
    let loaded = told.recv().map_err(|_| OpenError::NoThread("it ended".to_owned()))?;
    loaded.map_err(|error| OpenError::Accounts(error.to_string()))?;
    let namespace = SqlNamespace {
        shared,
        reads: opened.reads,
        committer: Mutex::new(Some(thread)),
        background: Arc::new(Mutex::new(opened.background)),
        log: opened.log,
        lengths_in_doubt: AtomicBool::new(false),
    };
    Ok(namespace)
}
