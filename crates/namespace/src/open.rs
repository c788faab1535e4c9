//! Opening: the lock, the checks that give a person a clear sentence, migrations, and a new start counted.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};
use thiserror::Error;
use types::{Clock, FileId, FileKind};

use crate::cache::Cache;
use crate::committer::{Committer, Shared};
use crate::ids::{FIRST, Ids};
use crate::inode::{Instance, new_inode};
use crate::queue::Queue;
use crate::reader::{Reader, Reads};
use crate::schema::{found_version, known_version, meta, migrate, set_meta};
use crate::service::SqliteNamespace;
use crate::sqlite::{
    ChangeFloor, Durability, SqliteStore, insert_inode, open_reader, open_writer, set_durability,
};
use crate::store::{NumberEnds, Totals};
use crate::wal_length;
use crate::wal_sync::WalSync;

const DATABASE: &str = "namespace.db";
const LOCK: &str = "namespace.lock";
/// 3.7.0 to 3.51.2 may corrupt a database when the WAL is reset while another connection reads.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
const READERS: usize = 2;

pub struct Config {
    /// Holds the database and its lock; made if missing.
    pub dir: PathBuf,
    pub clock: Arc<dyn Clock>,
    /// Owner (uid, gid) of the root directory of a new namespace.
    pub root_owner: (u32, u32),
    pub sync: Sync,
    /// Inodes, and as many names, in memory.
    pub cache_entries: usize,
    /// Operations that may wait for the committer, and reads for a reader; beyond it they are answered `Busy`.
    pub queue_len_max: usize,
    /// Operations in one transaction.
    pub group_len_max: usize,
}

/// What an answered change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// A power cut.
    Always,
    /// A crash of the process; a power cut may take what this long before it was answered.
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
    #[error("cannot open the namespace in {dir}: {reason}")]
    Failed { dir: PathBuf, reason: String },
}

impl SqliteNamespace {
    /// Blocks on the disk; call it before serving.
    pub fn open(config: Config) -> Result<SqliteNamespace, OpenError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(OpenError::SqliteTooOld { found: rusqlite::version() });
        }
        fs::create_dir_all(&config.dir).map_err(|error| from_io(&config.dir, &error))?;
        let lock = lock(&config.dir)?;
        let path = config.dir.join(DATABASE);
        let begun = begin(&path, &config).map_err(|error| explain(&config.dir, error))?;
        start(config, lock, &path, begun)
    }
}

/// Why a database does not open.
enum BeginError {
    Newer { found: u32 },
    Foreign,
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for BeginError {
    fn from(error: rusqlite::Error) -> BeginError {
        BeginError::Sqlite(error)
    }
}

struct Begun {
    connection: Connection,
    durability: Durability,
    instance: Instance,
    floor: ChangeFloor,
    ids: Ids,
    sequence: u64,
    totals: Totals,
}

fn begin(path: &Path, config: &Config) -> Result<Begun, BeginError> {
    refuse_foreign(path)?;
    let mut connection = open_writer(path, Durability::EachCommit)?;
    let found = found_version(&connection)?.ok_or(BeginError::Foreign)?;
    if found > known_version() {
        return Err(BeginError::Newer { found });
    }
    migrate(&mut connection, found)?;
    let (instance, floor) = count_start(&connection, config)?;
    let durability = match config.sync {
        Sync::Always => Durability::EachCommit,
        Sync::Interval(_) => Durability::Deferred,
    };
    set_durability(&connection, durability)?;
    let ids = Ids::new(number_ends(&connection)?);
    let (sequence, totals) =
        connection.query_row("SELECT groups, files, bytes FROM progress WHERE id = 1", [], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), Totals { files: row.get(1)?, bytes: row.get(2)? }))
        })?;
    Ok(Begun { connection, durability, instance, floor, ids, sequence, totals })
}

fn number_ends(connection: &Connection) -> rusqlite::Result<NumberEnds> {
    let end = |key| Ok::<_, rusqlite::Error>(meta(connection, key)?.map_or(FIRST, i64::cast_unsigned));
    Ok(NumberEnds { files: end("next_file")?, cookies: end("next_cookie")? })
}

/// Before anything is written to it: switching a stranger's database to WAL would already be a change.
fn refuse_foreign(path: &Path) -> Result<(), BeginError> {
    if !path.metadata().is_ok_and(|facts| facts.len() > 0) {
        return Ok(());
    }
    let found = found_version(&Connection::open(path)?)?.ok_or(BeginError::Foreign)?;
    if found > known_version() { Err(BeginError::Newer { found }) } else { Ok(()) }
}

/// Durably notes that a new instance began, with all that follows from how the last one ended.
fn count_start(connection: &Connection, config: &Config) -> rusqlite::Result<(Instance, ChangeFloor)> {
    let transaction = connection.unchecked_transaction()?;
    let number = |key| meta(&transaction, key).map(|value| value.unwrap_or(0));
    let start = number("starts")? + 1;
    let instance = Instance {
        start: u32::try_from(start).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, start))?,
    };
    let was_unclean = start > 1 && number("clean_end")? == 0;
    let was_deferred = number("deferred")? == 1;
    let mut floor = ChangeFloor {
        regular: number("change_floor_regular")?.cast_unsigned(),
        any: number("change_floor_any")?.cast_unsigned(),
    };
    if was_unclean {
        floor.regular = instance.first_change();
        if was_deferred {
            floor.any = instance.first_change();
        }
    }
    set_meta(&transaction, "starts", start)?;
    set_meta(&transaction, "clean_end", 0)?;
    set_meta(&transaction, "deferred", i64::from(config.sync != Sync::Always))?;
    set_meta(&transaction, "change_floor_regular", floor.regular.cast_signed())?;
    set_meta(&transaction, "change_floor_any", floor.any.cast_signed())?;
    let is_empty = !transaction.prepare("SELECT 1 FROM inodes LIMIT 1")?.exists([])?;
    if is_empty {
        let mut root = new_inode(FileId::ROOT, FileKind::Directory, config.clock.now(), instance);
        root.attributes.mode = 0o755;
        (root.attributes.uid, root.attributes.gid) = config.root_owner;
        insert_inode(&transaction, &root)?;
        transaction.execute("UPDATE progress SET files = 1", [])?;
    }
    transaction.commit()?;
    Ok((instance, floor))
}

fn start(config: Config, lock: File, path: &Path, begun: Begun) -> Result<SqliteNamespace, OpenError> {
    let shared = Arc::new(Shared {
        cache: Cache::new(config.cache_entries, begun.sequence),
        clock: Arc::clone(&config.clock),
        instance: begun.instance,
        floor: begun.floor,
        writes: Queue::new(config.queue_len_max),
        cookies_end: AtomicU64::new(begun.ids.cookies.end()),
        totals: Mutex::new(begun.totals),
        commits: AtomicU64::new(0),
        failure: parking_lot::Mutex::default(),
    });
    let failed = |error: io::Error| from_io(&config.dir, &error);
    let reads = Arc::new(Reads::new(config.queue_len_max));
    let mut namespace = SqliteNamespace {
        shared: Arc::clone(&shared),
        reads: Arc::clone(&reads),
        path: path.to_owned(),
        committer: Mutex::new(None),
        readers: Mutex::new(Vec::new()),
        wal_sync: Mutex::new(None),
        _lock: lock,
    };
    for _ in 0..READERS {
        let connection = open_reader(path).map_err(|error| explain(&config.dir, error.into()))?;
        let reader = Reader { connection, shared: Arc::clone(&shared), reads: Arc::clone(&reads) };
        namespace.readers.get_mut().push(spawn("namespace-read", move || reader.run()).map_err(failed)?);
    }
    let wal = path.with_extension("db-wal");
    if let Err(error) = wal_length::lengthen(&wal) {
        // Commits are slower for a while; on a full disk they will say so themselves.
        tracing::warn!(%error, "namespace cannot lengthen its log");
    }
    if let Sync::Interval(interval) = config.sync {
        let sync = WalSync::start(&wal, interval, Arc::clone(&shared)).map_err(failed)?;
        *namespace.wal_sync.get_mut() = Some(sync);
    }
    let committer = Committer {
        store: Box::new(SqliteStore {
            connection: begun.connection,
            durability: begun.durability,
            floor: begun.floor,
        }),
        shared,
        ids: begun.ids,
        group_len_max: config.group_len_max.max(1),
        sequence: begun.sequence,
        is_failing: false,
    };
    *namespace.committer.get_mut() = Some(spawn("namespace-write", move || committer.run()).map_err(failed)?);
    Ok(namespace)
}

pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(dir.join(LOCK))
        .map_err(|error| from_io(dir, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(from_io(dir, &error)),
    }
}

fn from_io(dir: &Path, error: &io::Error) -> OpenError {
    let dir = dir.to_owned();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::ReadOnly { dir, reason: error.to_string() }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::DiskFull(dir),
        _ => OpenError::Failed { dir, reason: error.to_string() },
    }
}

fn explain(dir: &Path, error: BeginError) -> OpenError {
    let dir = dir.to_owned();
    match error {
        BeginError::Newer { found } => OpenError::NewerVersion { dir, found, known: known_version() },
        BeginError::Foreign => OpenError::NotForebay(dir.join(DATABASE)),
        BeginError::Sqlite(error) => match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => OpenError::NotForebay(dir.join(DATABASE)),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                OpenError::ReadOnly { dir, reason: error.to_string() }
            }
            Some(ErrorCode::DiskFull) => OpenError::DiskFull(dir),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::InUse(dir),
            _ => OpenError::Failed { dir, reason: error.to_string() },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{config, name, open};
    use api::{Namespace, Properties, Property, PropertyChange};
    use types::{Checksum, ChecksumKind, Identity};

    fn refused(dir: &tempfile::TempDir) -> String {
        match SqliteNamespace::open(config(dir)) {
            Ok(_) => panic!("it opened"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir);
        assert!(refused(&dir).contains("in use by another process"));
        drop(first);
        open(&dir);
    }

    #[test]
    fn a_newer_schema_is_refused_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(&dir));
        let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
        connection.execute("INSERT INTO schema_version VALUES (99, '')", []).unwrap();
        drop(connection);
        let message = refused(&dir);
        let known = format!("up to {}", known_version());
        assert!(message.contains("version 99") && message.contains(&known), "{message}");
    }

    /// The database is as the first version made it, to the last byte of its schema.
    #[tokio::test]
    async fn a_namespace_of_the_first_version_opens_and_takes_properties_and_checksums() {
        let dir = tempfile::tempdir().unwrap();
        crate::schema::make_first_version(&dir.path().join(DATABASE));
        let namespace = open(&dir);
        let (root, file) = (Identity::root(), FileId(7));
        let found = namespace.lookup(&root, FileId::ROOT, &name("old")).await.unwrap();
        assert_eq!((found.file, found.size, found.mode), (file, 5, 0o640));
        assert!(namespace.properties(file).await.unwrap().is_empty());
        assert!(namespace.checksums(file).await.unwrap().is_empty());
        let property = Property { name: "{DAV:}colour".to_owned(), value: "red".into() };
        let set = [PropertyChange::Set(property.clone())];
        let change = namespace.set_properties(&root, file, &set).await.unwrap().change;
        let sum = Checksum::new(ChecksumKind::Adler32, &[1, 2, 3, 4]).unwrap();
        assert!(namespace.record_checksums(file, change, &[sum]).await.unwrap());
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        // Nor is it migrated twice.
        let again = open(&dir);
        assert_eq!(again.properties(file).await.unwrap(), [property]);
        assert_eq!(again.checksums(file).await.unwrap(), [sum]);
    }

    #[test]
    fn what_is_not_a_namespace_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE);
        fs::write(
            &path,
            "not a database at all, but long enough to have a header of one hundred bytes, ".repeat(9),
        )
        .unwrap();
        assert!(refused(&dir).contains("not a forebay namespace"));
        fs::remove_file(&path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE theirs (a); PRAGMA user_version = 7").unwrap();
        drop(connection);
        let before = fs::read(&path).unwrap();
        assert!(refused(&dir).contains("not a forebay namespace"));
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn errors_of_the_disk_say_what_to_do() {
        let dir = Path::new("data");
        let message = |kind| from_io(dir, &io::Error::from(kind)).to_string();
        assert!(message(io::ErrorKind::ReadOnlyFilesystem).contains("make it writable"));
        assert!(message(io::ErrorKind::StorageFull).contains("no space left"));
    }

    #[test]
    fn each_start_counts_and_an_unclean_end_raises_the_floor() {
        let dir = tempfile::tempdir().unwrap();
        let starts = |path: &Path| {
            let (connection, config) = (open_writer(path, Durability::EachCommit).unwrap(), config(&dir));
            count_start(&connection, &config).unwrap()
        };
        drop(open(&dir));
        let path = dir.path().join(DATABASE);
        let (second, after_clean) = starts(&path);
        assert_eq!((second.start, after_clean), (2, ChangeFloor::default()));
        let (third, after_unclean) = starts(&path);
        assert_eq!(third.start, 3);
        assert_eq!((after_unclean.regular, after_unclean.any), (third.first_change(), third.first_change()));
    }

    #[test]
    fn the_root_belongs_to_whoever_made_the_namespace() {
        let dir = tempfile::tempdir().unwrap();
        drop(SqliteNamespace::open(Config { root_owner: (10, 100), ..config(&dir) }).unwrap());
        // A later start by somebody else does not take it over.
        let again = SqliteNamespace::open(Config { root_owner: (20, 200), ..config(&dir) }).unwrap();
        let root = crate::sqlite::read_inode(
            &open_reader(&again.path).unwrap(),
            FileId::ROOT,
            ChangeFloor::default(),
        );
        let root = root.unwrap().unwrap().attributes;
        assert_eq!((root.uid, root.gid, root.mode, root.nlink), (10, 100, 0o755, 2));
    }
}
