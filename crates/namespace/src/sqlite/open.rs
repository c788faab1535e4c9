//! Opening: the lock, the checks that give a person a clear sentence, migrations, and a new start counted.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::reader::{Reader, SqliteReads};
use super::reserve::{Reserve, classify};
use super::rows::{Durability, insert_inode, open_writer};
use super::schema::{found_version, known_version, meta, migrate, set_meta};
use super::store::SqliteStore;
use super::wal_length;
use super::wal_sync::WalSync;
use crate::config::{Config, Sync};
use crate::consistency::FOLD_ALL;
use crate::engine::{Background, Opened, Past, State};
use crate::ids::FIRST;
use crate::inode::{ChangeFloor, Instance};
use crate::open_error::OpenError;
use crate::starts::{Notes, new_root};
use crate::store::{NumberEnds, StoreError, Totals};
use crate::thread::spawn;
use crate::timeline::{self, Mark, Timeline, Unfit};

pub const DATABASE: &str = "namespace.db";
const LOCK: &str = "namespace.lock";
/// 3.7.0 to 3.51.2 may corrupt a database when the WAL is reset while another connection reads.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
const READERS: usize = 2;
/// One that is ending lets go of its lock soon; so does a process that it has forked and that has not come to its exec yet.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The threads beside the committer, and the lock.
struct Beside {
    readers: Vec<JoinHandle<()>>,
    wal_sync: Option<WalSync>,
    /// Closed behind all connections: to close any file of an index gives up SQLite's locks on it.
    _wal_index: File,
    /// Held until the end: one process at a time.
    _lock: File,
}

impl Background for Beside {
    fn stop(&mut self) {
        for reader in self.readers.drain(..) {
            // If it panicked, the panic hook has reported it.
            let _ = reader.join();
        }
        if let Some(wal_sync) = self.wal_sync.take() {
            wal_sync.stop();
        }
    }
}

pub fn open(dir: &Path, config: &Config, past: &Past) -> Result<Opened, OpenError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenError::SqliteTooOld { found: rusqlite::version() });
    }
    fs::create_dir_all(dir).map_err(|error| from_io(dir, &error))?;
    let lock = lock(dir)?;
    let path = dir.join(DATABASE);
    let begun = match begin(&path, config, past) {
        Err(error) if error.is_of_room(dir) && Reserve::find(dir).give_up() => begin(&path, config, past),
        begun => begun,
    };
    let Begun { mut store, state, wal_index } = begun.map_err(|error| explain(dir, error))?;

    let failed = |error: io::Error| from_io(dir, &error);
    let reads = Arc::new(SqliteReads::new(config.queue_len_max, &path));
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let reader = Reader::open(&reads, store.floor).map_err(|error| explain(dir, error.into()))?;
        readers.push(spawn("namespace-read", move || reader.run()).map_err(failed)?);
    }
    let wal = path.with_extension("db-wal");
    if let Err(error) = wal_length::lengthen(&wal) {
        // Commits are slower for a while; on a full disk they will say so themselves.
        tracing::warn!(%error, "namespace cannot lengthen its log");
    }
    store.hold_reserve();
    let wal_sync = match config.sync {
        Sync::Always => None,
        Sync::Names(interval) | Sync::Interval(interval) => {
            Some(WalSync::start(&wal, interval, Arc::clone(&store.commits)).map_err(failed)?)
        }
    };
    let log = wal_sync.as_ref().map(|wal_sync| Arc::clone(wal_sync.log()));
    store.log = log.clone();
    let background = Box::new(Beside { readers, wal_sync, _wal_index: wal_index, _lock: lock });
    Ok(Opened { store: Box::new(store), reads, background, log, presence: None, state })
}

/// Why a database does not open.
enum BeginError {
    Newer {
        found: u32,
    },
    Foreign,
    Unfit(Unfit),
    /// The index of its log.
    Index(io::Error),
    Sqlite(rusqlite::Error),
}

impl BeginError {
    fn is_of_room(&self, dir: &Path) -> bool {
        match self {
            BeginError::Index(error) => matches!(from_io(dir, error), OpenError::DiskFull(_)),
            BeginError::Sqlite(error) => matches!(classify(error, dir), StoreError::NoSpace(_)),
            _ => false,
        }
    }
}

impl From<rusqlite::Error> for BeginError {
    fn from(error: rusqlite::Error) -> BeginError {
        BeginError::Sqlite(error)
    }
}

struct Begun {
    store: SqliteStore,
    state: State,
    wal_index: File,
}

fn begin(path: &Path, config: &Config, past: &Past) -> Result<Begun, BeginError> {
    refuse_foreign(path)?;
    let wal_index = wal_length::hold_index(path).map_err(BeginError::Index)?;
    let mut connection = open_writer(path, Durability::EachCommit)?;
    let found = found_version(&connection)?.ok_or(BeginError::Foreign)?;
    if found > known_version() {
        return Err(BeginError::Newer { found });
    }
    // Of it, or of there being none yet, SQLite has the index now.
    wal_length::let_index_go(&wal_index);
    refuse_unfit(&connection, found, past)?;
    migrate(&mut connection, found)?;
    let (instance, floor, timeline) = count_start(&connection, config, past)?;
    let ends = number_ends(&connection)?;
    let (sequence, totals) =
        connection.query_row("SELECT groups, files, bytes FROM progress WHERE id = 1", [], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), Totals { files: row.get(1)?, bytes: row.get(2)? }))
        })?;
    let (place, drawn) = timeline.last();
    let mark = Mark { starts: instance.start.into(), place, drawn, files: ends.files, groups: sequence };
    past.keeper.begin(mark);
    let dir = path.parent().unwrap_or(path);
    let store = SqliteStore::new(connection, floor, dir)?;
    Ok(Begun { store, state: State { instance, ends, sequence, totals }, wal_index })
}

fn number_ends(connection: &Connection) -> rusqlite::Result<NumberEnds> {
    let end = |key| Ok::<_, rusqlite::Error>(meta(connection, key)?.map_or(FIRST, i64::cast_unsigned));
    Ok(NumberEnds { files: end("next_file")?, cookies: end("next_cookie")? })
}

/// Before anything is written to it: switching a stranger's database to WAL would already be a change.
fn refuse_foreign(path: &Path) -> Result<(), BeginError> {
    if !path.metadata().is_ok_and(|facts| facts.len() > 0) || has_wal(path) {
        return Ok(());
    }
    let found = found_version(&Connection::open(path)?)?.ok_or(BeginError::Foreign)?;
    if found > known_version() { Err(BeginError::Newer { found }) } else { Ok(()) }
}

/// Whether a database says so (file format §1.3.3). Only a process that has its index may look into its log.
fn has_wal(path: &Path) -> bool {
    let mut header = [0; 20];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut header, 0));
    read.is_ok() && header[18..] == [2, 2]
}

/// An error if it is not the one that was here last. Before it is migrated: the program that it belongs to may be an older one.
fn refuse_unfit(connection: &Connection, found: u32, past: &Past) -> Result<(), BeginError> {
    let (mut groups, mut timeline) = (0, Timeline::default());
    if found > 0 {
        (_, groups, timeline) = read_past(connection)?;
    }
    timeline.admit(groups, &past.noted).map_err(BeginError::Unfit)
}

/// Durably notes that a new instance began, with all that follows from how the last one ended.
fn count_start(
    connection: &Connection,
    config: &Config,
    past: &Past,
) -> Result<(Instance, ChangeFloor, Timeline), BeginError> {
    let transaction = connection.unchecked_transaction()?;
    let (mut before, groups, mut timeline) = read_past(&transaction)?;
    before.have_started(timeline::starts(&past.noted));
    let begun = before.next_start(config.sync != Sync::Always);
    let Some((instance, floor, after)) = begun else {
        return Err(rusqlite::Error::IntegralValueOutOfRange(0, i64::from(u32::MAX)).into());
    };
    for key in Notes::KEYS {
        set_meta(&transaction, key, after.get(key))?;
    }
    for (key, value) in timeline.begin(&past.noted, timeline::draw()) {
        set_meta(&transaction, &key, value)?;
    }
    // Into the database, for repairs: they give numbers without a look at the marks beside it.
    let ends = timeline::above(number_ends(&transaction)?, &past.noted);
    set_meta(&transaction, "next_file", ends.files.cast_signed())?;
    set_meta(&transaction, "next_cookie", ends.cookies.cast_signed())?;
    transaction.execute(FOLD_ALL, [])?;
    transaction.execute("DELETE FROM dir_deltas", [])?;
    let noted_groups = timeline::groups(&past.noted);
    if noted_groups > groups {
        transaction.execute("UPDATE progress SET groups = ?1 WHERE id = 1", [noted_groups.cast_signed()])?;
    }
    let is_empty = !transaction.prepare("SELECT 1 FROM inodes LIMIT 1")?.exists([])?;
    if is_empty {
        insert_inode(&transaction, &new_root(&*config.clock, config.root_owner, instance))?;
        transaction.execute("UPDATE progress SET files = 1", [])?;
    }
    transaction.commit()?;
    Ok((instance, floor, timeline))
}

fn read_past(connection: &Connection) -> rusqlite::Result<(Notes, u64, Timeline)> {
    let mut before = Notes::default();
    let mut statement = connection.prepare("SELECT key, value FROM meta")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let meta = rows.collect::<rusqlite::Result<Vec<(String, i64)>>>()?;
    for (key, value) in &meta {
        before.set(key, *value);
    }
    let groups =
        connection.query_row("SELECT groups FROM progress WHERE id = 1", [], |row| row.get::<_, i64>(0))?;
    Ok((before, groups.cast_unsigned(), Timeline::of(meta.iter().map(|(key, value)| (key.as_str(), *value)))))
}

pub fn lock(dir: &Path) -> Result<File, OpenError> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(dir.join(LOCK))
        .map_err(|error| from_io(dir, &error))?;
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(from_io(dir, &error)),
        }
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
        BeginError::Unfit(unfit) => OpenError::Unfit { database: dir.display().to_string(), unfit },
        BeginError::Index(error) => from_io(&dir, &error),
        BeginError::Sqlite(error) => {
            let code = error.sqlite_error_code();
            match (code, classify(&error, &dir)) {
                (Some(ErrorCode::NotADatabase), _) => OpenError::NotForebay(dir.join(DATABASE)),
                (_, StoreError::NoSpace(_)) => OpenError::DiskFull(dir),
                (_, StoreError::Busy(_)) => OpenError::InUse(dir),
                (_, StoreError::ReadOnly(reason))
                | (Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied), StoreError::Failed(reason)) => {
                    OpenError::ReadOnly { dir, reason }
                }
                (_, StoreError::Failed(reason) | StoreError::NeedsRestart(reason)) => {
                    OpenError::Failed { dir, reason }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{config, name, open};
    use crate::service::SqlNamespace;
    use api::{Acls, Namespace, Properties, Property, PropertyChange, SetAttributes, SetXattr, Xattrs};
    use types::{Access, Ace, AceWho, Acl, Checksum, ChecksumKind, FileId, Identity, XattrName};

    /// A test that forked beside another one made its namespace "in use" now and then.
    #[test]
    fn a_lock_that_is_let_go_in_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let taken = thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(dir.path()));
            thread::sleep(3 * LOCK_PAUSE);
            drop(held);
            waiting.join().unwrap().unwrap()
        });
        assert!(matches!(lock(dir.path()), Err(OpenError::InUse(_))));
        drop(taken);
    }

    fn refused(dir: &tempfile::TempDir) -> String {
        match SqlNamespace::open(config(dir)) {
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
    async fn a_namespace_of_the_first_version_opens_and_takes_all_that_hangs_on_files() {
        let dir = tempfile::tempdir().unwrap();
        super::super::schema::make_first_version(&dir.path().join(DATABASE));
        let namespace = open(&dir);
        let (root, file) = (Identity::root(), FileId(7));
        let found = namespace.lookup(&root, FileId::ROOT, &name("old")).await.unwrap().entry;
        assert_eq!((found.file, found.size, found.mode), (file, 5, 0o640));
        assert!(namespace.properties(file).await.unwrap().is_empty());
        assert!(namespace.checksums(file).await.unwrap().is_empty());
        let property = Property { name: "{DAV:}colour".to_owned(), value: "red".into() };
        let set = [PropertyChange::Set(property.clone())];
        let change = namespace.set_properties(&root, file, &set).await.unwrap().change;
        let sum = Checksum::new(ChecksumKind::Adler32, &[1, 2, 3, 4]).unwrap();
        assert!(namespace.record_checksums(file, change, &[sum]).await.unwrap());
        let xattr = XattrName::new(b"colour").unwrap();
        namespace.set_xattr(&root, file, &xattr, &"blue".into(), SetXattr::Create).await.unwrap();
        let acl = Acl::new(vec![Ace::deny(AceWho::User(5), Access::READ)]).unwrap();
        let given = SetAttributes { acl: Some(acl.clone()), ..SetAttributes::default() };
        namespace.set_attributes(&root, file, &given).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        // Nor is it migrated twice.
        let again = open(&dir);
        assert_eq!(again.properties(file).await.unwrap(), [property]);
        assert_eq!(again.checksums(file).await.unwrap(), [sum]);
        assert_eq!(again.xattr(&root, file, &xattr).await.unwrap(), "blue");
        assert_eq!(again.acl(&again.attributes(file).await.unwrap()).await.unwrap(), Some(acl));
    }

    #[test]
    fn a_file_that_is_not_a_namespace_is_left_alone() {
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

    /// The program that it was made with could not open it any more.
    #[test]
    fn a_database_that_is_behind_is_refused_before_it_is_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE);
        super::super::schema::make_first_version(&path);
        let mark = Mark { groups: 2, ..Mark::default() };
        let noted = vec![timeline::Noted { by: "pool-0".to_owned(), mark }];
        let refused = SqlNamespace::open_after(config(&dir), noted).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Unfit { .. }), "{refused}");
        assert_eq!(found_version(&Connection::open(&path).unwrap()).unwrap(), Some(1));
    }

    #[test]
    fn each_start_counts_and_an_unclean_end_raises_the_floor() {
        let dir = tempfile::tempdir().unwrap();
        let starts = |path: &Path| {
            let (connection, config) = (open_writer(path, Durability::EachCommit).unwrap(), config(&dir));
            let begun = count_start(&connection, &config, &Past::default());
            begun.map(|(instance, floor, _)| (instance, floor)).map_err(|error| explain(path, error)).unwrap()
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
        drop(SqlNamespace::open(Config { root_owner: (10, 100), ..config(&dir) }).unwrap());
        // A later start by somebody else does not take it over.
        let _again = SqlNamespace::open(Config { root_owner: (20, 200), ..config(&dir) }).unwrap();
        let root = super::super::store::read_inode(
            &super::super::rows::open_reader(&dir.path().join(DATABASE)).unwrap(),
            FileId::ROOT,
            ChangeFloor::default(),
        );
        let root = root.unwrap().unwrap().attributes;
        assert_eq!((root.uid, root.gid, root.mode, root.nlink), (10, 100, 0o755, 2));
    }
}
