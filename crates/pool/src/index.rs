//! `index.db`: which replicas there are, in order of file id, and the fences of files that have no replica yet.
//!
//! The replica rows follow the files: what changed is noted in memory and looked at again in batches. They are worth
//! something only if the pool was closed properly (`clean`); otherwise they are made anew from the files. That it was is
//! also marked by a file, since a file can be removed where there is no room to write. The fences are the one thing that is
//! nowhere else, and durable at once.
//!
//! Where the disk does not take it the index is in memory, as the pool is to start all the same; it goes to the disk once
//! that can be. Fences that come meanwhile are refused.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use api::{Birth, ReplicaFacts};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, params};
use rustix::fs::statvfs;
use types::{Epoch, FileId};

use crate::database::{self, durably, found_version};
use crate::error::OpenError;
use crate::store::Store;

pub const FILE_NAME: &str = "index.db";
/// There while the pool is closed and its rows are as the files.
const CLEAN_FILE_NAME: &str = "index.clean";
const VERSION: i64 = 1;
/// Beyond this many changes that could not be written the index is given up until the next start.
const CHANGED_MAX: usize = 1 << 20;
/// Looks at a disk, of which there is one a second, that are passed over at most.
const PAUSE_MAX: u32 = 60;

const SCHEMA: &str = "
    CREATE TABLE state (clean INTEGER NOT NULL);
    INSERT INTO state VALUES (0);
    CREATE TABLE replicas (file INTEGER PRIMARY KEY, size INTEGER NOT NULL, space_used INTEGER NOT NULL);
    CREATE TABLE fences (file INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
    PRAGMA user_version = 1;
";

pub struct Index {
    path: PathBuf,
    /// Held for a batch or a page of a listing; taken before `changed`.
    database: Mutex<Connection>,
    /// Why the database is in memory, if it is. Changed with `database` held; a leaf lock.
    refusal: Mutex<Option<Refusal>>,
    /// Locked to note or to take changes.
    changed: Mutex<Changed>,
    /// Locked to look up, and while a new fence is written.
    fences: Mutex<HashMap<FileId, Epoch>>,
}

#[derive(Clone, Debug, Default)]
struct Refusal {
    why: String,
    /// Looks at the disk that are passed over after the rows could not be copied, each time twice as many.
    pause: u32,
    left: u32,
}

#[derive(Default)]
struct Changed {
    files: HashSet<FileId>,
    /// Changes were dropped: the index must not call itself clean.
    lost: bool,
}

impl Index {
    /// Opens the index and whether its replica rows can be believed.
    pub fn open(dir: &Path) -> Result<(Index, bool), OpenError> {
        let path = dir.join(FILE_NAME);
        let database = match connect(&path) {
            Err(error) if is_damaged(&error) => {
                tracing::warn!(path = %path.display(), %error, "pool index is damaged and will be rebuilt");
                set_aside(&path)?;
                connect(&path)
            }
            connected => connected,
        };
        let marked = remove_mark(&path);
        let load = |database: Connection| {
            let is_marked = marked.map_err(|error| cannot_open(&error))?;
            let clean = database.query_row("SELECT clean FROM state", [], |row| row.get::<_, bool>(0))?;
            let clean = clean && is_marked;
            let fences = read_fences(&database)?;
            // From here on the rows lag behind the files.
            durably(&database, |database| database.execute("UPDATE state SET clean = 0", []))?;
            Ok((database, clean, fences))
        };
        let failed = |error| OpenError::Index { path: path.clone(), error };
        let loaded = database.and_then(load);
        let refusal = loaded.as_ref().err().filter(|error| is_of_disk(error)).map(ToString::to_string);
        let (database, clean, fences) = match (loaded, &refusal) {
            (Err(_), Some(refusal)) => {
                tell_refused(&path, refusal);
                (in_memory().map_err(failed)?, false, left_fences(&path).map_err(failed)?)
            }
            (loaded, _) => loaded.map_err(failed)?,
        };
        let index = Index {
            path,
            database: Mutex::new(database),
            refusal: Mutex::new(refusal.map(|why| Refusal { why, ..Refusal::default() })),
            changed: Mutex::default(),
            fences: Mutex::new(fences),
        };
        Ok((index, clean))
    }

    /// Why it is not on disk, if it is not.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().as_ref().map(|refusal| format!("its index cannot be written: {}", refusal.why))
    }

    /// Goes on, without rows, where the disk did not take what was to be written; else the error is given back.
    pub fn leave_disk(&self, error: OpenError) -> Result<(), OpenError> {
        let OpenError::Index { path, error: refused } = error else { return Err(error) };
        let mut database = self.database.lock();
        if self.refusal.lock().is_some() || !is_of_disk(&refused) {
            return Err(OpenError::Index { path, error: refused });
        }
        tell_refused(&path, &refused.to_string());
        *database = in_memory().map_err(|error| OpenError::Index { path, error })?;
        *self.refusal.lock() = Some(Refusal { why: refused.to_string(), ..Refusal::default() });
        Ok(())
    }

    /// To the disk, if the index is not there and that can be.
    fn return_to_disk(&self, database: &mut Connection) -> Result<(), String> {
        let pause = match &mut *self.refusal.lock() {
            None => return Ok(()),
            Some(Refusal { why, left, .. }) if *left > 0 => {
                *left -= 1;
                return Err(why.clone());
            }
            Some(refusal) => refusal.pause,
        };
        let fences = self.fences.lock().clone();
        let refusal = match begin_on_disk(database, &self.path) {
            Err(why) => Refusal { why, pause, left: 0 },
            Ok(mut on_disk) => match copy_rows(database, &mut on_disk, &fences) {
                Ok(()) => {
                    *database = on_disk;
                    *self.refusal.lock() = None;
                    tracing::info!(path = %self.path.display(), "pool index is written again");
                    return Ok(());
                }
                Err(error) => {
                    let pause = (2 * pause).clamp(1, PAUSE_MAX);
                    Refusal { why: error.to_string(), pause, left: pause }
                }
            },
        };
        let why = refusal.why.clone();
        *self.refusal.lock() = Some(refusal);
        Err(why)
    }

    /// Notes that a replica changed, came or went.
    pub fn note(&self, file: FileId) {
        let mut changed = self.changed.lock();
        if changed.files.len() < CHANGED_MAX {
            changed.files.insert(file);
        } else {
            changed.lost = true;
        }
    }

    /// Looks at all that changed and writes it down.
    pub fn flush(&self, store: &Store) -> Result<(), String> {
        let mut database = self.database.lock();
        // Whether it can or not, the rows are to follow the files.
        let _ = self.return_to_disk(&mut database);
        let files = std::mem::take(&mut self.changed.lock().files);
        if files.is_empty() {
            return Ok(());
        }
        let written = write_changes(&mut database, store, &files);
        let left = written.as_ref().map_or_else(|_| files.iter().copied().collect(), Vec::clone);
        left.into_iter().for_each(|file| self.note(file));
        written.map(drop)
    }

    /// Replicas that came or went and could not be written down are among them, for the caller to look at.
    pub fn list(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, String> {
        let database = self.database.lock();
        let list = || {
            let mut query = database.prepare_cached(
                "SELECT file, size, space_used FROM replicas WHERE file > ?1 ORDER BY file LIMIT ?2",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let after = i64::try_from(after.0).unwrap_or(i64::MAX);
            let rows = query.query_map(params![after, limit], facts)?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        let mut listed = list().map_err(|error: rusqlite::Error| error.to_string())?;
        let written: HashSet<_> = listed.iter().map(|facts| facts.file).collect();
        let unwritten = |file: &FileId| *file > after && !written.contains(file);
        listed.extend(self.changed.lock().files.iter().copied().filter(unwritten).map(unknown));
        listed.sort_unstable_by_key(|facts| facts.file);
        listed.truncate(limit);
        Ok(listed)
    }

    #[cfg(test)]
    pub fn refuse_writes(&self) {
        self.database.lock().pragma_update(None, "query_only", true).expect("it is open");
    }

    pub fn count(&self) -> Result<u64, OpenError> {
        let database = self.database.lock();
        database
            .query_row("SELECT count(*) FROM replicas", [], |row| row.get::<_, i64>(0))
            .map(i64::cast_unsigned)
            .map_err(|error| OpenError::Index { path: self.path.clone(), error })
    }

    /// Replaces all replica rows.
    pub fn rebuild(&self, replicas: impl Iterator<Item = ReplicaFacts>) -> Result<(), OpenError> {
        let mut database = self.database.lock();
        let rebuild = |database: &mut Connection| {
            let transaction = database.transaction()?;
            transaction.execute("DELETE FROM replicas", [])?;
            for replica in replicas {
                put(&transaction, &replica)?;
            }
            transaction.commit()
        };
        rebuild(&mut database).map_err(|error| OpenError::Index { path: self.path.clone(), error })
    }

    /// The epoch below which tickets are refused, as far as the replica's own label does not say so.
    pub fn fence_of(&self, file: FileId) -> Option<Epoch> {
        self.fences.lock().get(&file).copied()
    }

    /// Durable when it returns.
    pub fn fence(&self, file: FileId, epoch: Epoch) -> Result<(), String> {
        let mut database = self.database.lock();
        self.return_to_disk(&mut database)?;
        durably(&database, |database| put_fence(database, file, epoch)).map_err(|error| error.to_string())?;
        self.fences.lock().insert(file, epoch);
        Ok(())
    }

    /// The replica is gone for ever, and with it the need for a fence.
    pub fn forget(&self, file: FileId) {
        self.fences.lock().remove(&file);
        self.note(file);
    }

    /// The next start makes it anew.
    pub fn doubt(&self) {
        self.changed.lock().lost = true;
    }

    /// Writes down what is left and declares the index clean, if it is.
    pub fn close(&self, store: &Store) -> Result<(), String> {
        self.flush(store)?;
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let changed = self.changed.lock();
        if changed.lost || !changed.files.is_empty() {
            return Err("not all changes could be written".to_owned());
        }
        drop(changed);
        let database = self.database.lock();
        durably(&database, |database| database.execute("UPDATE state SET clean = 1", []))
            .map_err(|error| error.to_string())?;
        make_mark(&self.path).map_err(|error| error.to_string())
    }

    /// Closes the database, which another process may open then.
    pub fn let_go(&self) {
        if let Ok(none) = Connection::open_in_memory() {
            *self.database.lock() = none;
        }
    }
}

/// Durably. Whether it was there.
fn remove_mark(index: &Path) -> std::io::Result<bool> {
    let mark = index.with_file_name(CLEAN_FILE_NAME);
    // A file system that is read-only says so also of one that is not there.
    if !mark.try_exists()? {
        return Ok(false);
    }
    std::fs::remove_file(&mark)?;
    durable::sync_directory_of(&mark)?;
    Ok(true)
}

fn make_mark(index: &Path) -> std::io::Result<()> {
    let mark = index.with_file_name(CLEAN_FILE_NAME);
    File::create(&mark)?;
    durable::sync_directory_of(&mark)
}

/// A file beside the database could not be changed, as SQLite says it.
fn cannot_open(error: &std::io::Error) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(format!("cannot remove {CLEAN_FILE_NAME}: {error}")))
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    database::connect(path, VERSION, SCHEMA)
}

/// Of the same layout.
fn in_memory() -> Result<Connection, rusqlite::Error> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(SCHEMA)?;
    Ok(database)
}

/// Whether the disk takes anything, and all rows have room there, before they are copied.
fn begin_on_disk(from: &Connection, path: &Path) -> Result<Connection, String> {
    remove_mark(path).map_err(|error| error.to_string())?;
    let sql = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    let bytes = from.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| error.to_string())?;
    let about = statvfs(path.parent().unwrap_or(path)).map_err(|errno| errno.to_string())?;
    // In the log and in the database.
    if about.f_bavail.saturating_mul(about.f_frsize) < bytes.cast_unsigned().saturating_mul(2) {
        return Err(format!("its disk has no room for twice its {bytes} bytes"));
    }
    let begin = || {
        let database = connect(path)?;
        durably(&database, |database| database.execute("UPDATE state SET clean = 0", []))?;
        Ok(database)
    };
    begin().map_err(|error: rusqlite::Error| error.to_string())
}

/// All of them, and nothing of what was there before.
fn copy_rows(
    from: &Connection,
    database: &mut Connection,
    fences: &HashMap<FileId, Epoch>,
) -> Result<(), rusqlite::Error> {
    database.pragma_update(None, "synchronous", "FULL")?;
    let transaction = database.transaction()?;
    transaction.execute_batch("DELETE FROM replicas; DELETE FROM fences")?;
    let mut query = from.prepare("SELECT file, size, space_used FROM replicas")?;
    for replica in query.query_map([], facts)? {
        put(&transaction, &replica?)?;
    }
    for (file, epoch) in fences {
        put_fence(&transaction, *file, *epoch)?;
    }
    transaction.commit()?;
    database.pragma_update(None, "synchronous", "NORMAL")
}

/// From a database that cannot be written.
fn left_fences(path: &Path) -> Result<HashMap<FileId, Epoch>, rusqlite::Error> {
    if !path.metadata().is_ok_and(|facts| facts.len() > 0) {
        return Ok(HashMap::new());
    }
    let database = database::look(path)?;
    if found_version(&database)? == VERSION { read_fences(&database) } else { Ok(HashMap::new()) }
}

fn tell_refused(path: &Path, reason: &str) {
    tracing::error!(path = %path.display(), reason, "pool index cannot be written and is kept in memory");
}

/// The disk does not take it: it is full, read-only, or fails.
fn is_of_disk(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen)
    )
}

/// No database at all, or one of another layout. A full disk and the like are not damage.
fn is_damaged(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::InvalidQuery => true,
        error => matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown)
        ),
    }
}

fn set_aside(path: &Path) -> Result<(), OpenError> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    std::fs::rename(path, beside(".damaged")).map_err(|error| OpenError::io("rename", path, error))?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::remove_file(beside(suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(OpenError::io("remove", &beside(suffix), error));
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn read_fences(database: &Connection) -> Result<HashMap<FileId, Epoch>, rusqlite::Error> {
    let mut query = database.prepare("SELECT file, epoch FROM fences")?;
    let rows = query.query_map([], |row| {
        Ok((FileId(row.get::<_, i64>(0)?.cast_unsigned()), Epoch(row.get::<_, u32>(1)?)))
    })?;
    rows.collect()
}

/// Which cannot be looked at: their rows stay as they are, and the others are written.
fn write_changes(
    database: &mut Connection,
    store: &Store,
    files: &HashSet<FileId>,
) -> Result<Vec<FileId>, String> {
    let (mut looks, mut left) = (Vec::with_capacity(files.len()), Vec::new());
    for file in files {
        match store.look(*file) {
            Ok(look) => looks.push((*file, look)),
            Err(errno) => {
                tracing::debug!(pool = %store.pool, %file, %errno, "cannot look at a replica");
                left.push(*file);
            }
        }
    }
    let write = || {
        let transaction = database.transaction()?;
        for (file, look) in looks {
            match look {
                Some(extent) => {
                    let (size, space_used) = (extent.size, extent.space_used);
                    put(
                        &transaction,
                        &ReplicaFacts { file, birth: Birth::UNKNOWN, size, space_used, modified: None },
                    )?;
                }
                None => {
                    for table in ["replicas", "fences"] {
                        let delete = format!("DELETE FROM {table} WHERE file = ?1");
                        transaction.prepare_cached(&delete)?.execute([file.0.cast_signed()])?;
                    }
                }
            }
        }
        transaction.commit()
    };
    write().map_err(|error: rusqlite::Error| error.to_string())?;
    Ok(left)
}

fn put(database: &Connection, replica: &ReplicaFacts) -> Result<(), rusqlite::Error> {
    let row = [replica.file.0, replica.size, replica.space_used].map(u64::cast_signed);
    database.prepare_cached("INSERT OR REPLACE INTO replicas VALUES (?1, ?2, ?3)")?.execute(row)?;
    Ok(())
}

fn unknown(file: FileId) -> ReplicaFacts {
    ReplicaFacts { file, birth: Birth::UNKNOWN, size: 0, space_used: 0, modified: None }
}

fn put_fence(database: &Connection, file: FileId, epoch: Epoch) -> Result<(), rusqlite::Error> {
    let row = params![file.0.cast_signed(), epoch.0];
    database.prepare_cached("INSERT OR REPLACE INTO fences (file, epoch) VALUES (?1, ?2)")?.execute(row)?;
    Ok(())
}

fn facts(row: &rusqlite::Row<'_>) -> Result<ReplicaFacts, rusqlite::Error> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(ReplicaFacts {
        file: FileId(number(0)?),
        birth: Birth::UNKNOWN,
        size: number(1)?,
        space_used: number(2)?,
        modified: None,
    })
}

#[cfg(test)]
mod tests {
    use types::PoolId;

    use super::*;

    /// A directory of this name keeps SQLite from writing.
    const IN_THE_WAY: &str = "index.db-wal";

    fn replica(file: u64) -> ReplicaFacts {
        ReplicaFacts {
            file: FileId(file),
            birth: Birth::UNKNOWN,
            size: file * 10,
            space_used: 512,
            modified: None,
        }
    }

    fn store(dir: &tempfile::TempDir) -> Store {
        Store::new(PoolId(1), [1; 16], File::open(dir.path()).unwrap().into()).unwrap()
    }

    #[test]
    fn an_index_is_clean_only_after_a_proper_close() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(!clean);
        index.close(&store).unwrap();
        drop(index);
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(clean);
        drop(index);
        assert!(!Index::open(dir.path()).unwrap().1);
    }

    #[test]
    fn listing_goes_on_behind_an_id_and_keeps_order() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = Index::open(dir.path()).unwrap();
        index.rebuild([5, 3, 9].into_iter().map(replica)).unwrap();
        assert_eq!(index.list(FileId(0), 2).unwrap(), [replica(3), replica(5)]);
        assert_eq!(index.list(FileId(5), 2).unwrap(), [replica(9)]);
        assert_eq!(index.list(FileId(u64::MAX), 2).unwrap(), []);
        assert_eq!(index.count().unwrap(), 3);
        index.rebuild([7].into_iter().map(replica)).unwrap();
        assert_eq!(index.list(FileId(0), usize::MAX).unwrap(), [replica(7)]);
    }

    #[test]
    fn rows_follow_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, _) = Index::open(dir.path()).unwrap();
        let (file, _) = store.create(FileId(4)).unwrap();
        rustix::fs::ftruncate(&file, 33).unwrap();
        index.note(FileId(4));
        index.flush(&store).unwrap();
        assert_eq!(index.list(FileId(0), 9).unwrap()[0].size, 33);
        store.unlink(FileId(4)).unwrap();
        index.forget(FileId(4));
        index.flush(&store).unwrap();
        assert_eq!(index.list(FileId(0), 9).unwrap(), []);
    }

    #[test]
    fn a_replica_that_cannot_be_looked_at_keeps_no_other_from_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, _) = Index::open(dir.path()).unwrap();
        // Of a file whose directory is damaged.
        let place = dir.path().join(crate::layout::ReplicaPlace::of(FileId(4)).path());
        let above = place.parent().unwrap();
        std::fs::create_dir_all(above.parent().unwrap()).unwrap();
        std::fs::write(above, "").unwrap();
        let other = (5..9999).map(FileId).find(|file| store.create(*file).is_ok()).unwrap();
        index.note(FileId(4));
        index.note(other);
        index.flush(&store).unwrap();
        assert!(!index.changed.lock().files.contains(&other), "it is written");
        let listed: Vec<_> = index.list(FileId(0), 9).unwrap().iter().map(|facts| facts.file).collect();
        assert_eq!(listed, [FileId(4), other]);
        assert!(index.close(&store).is_err(), "its row may be behind");
    }

    #[test]
    fn a_fence_outlives_an_index_that_was_not_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = Index::open(dir.path()).unwrap();
        index.fence(FileId(4), Epoch(2)).unwrap();
        index.fence(FileId(4), Epoch(3)).unwrap();
        drop(index);
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(!clean);
        assert_eq!(index.fence_of(FileId(4)), Some(Epoch(3)));
        assert_eq!(index.fence_of(FileId(5)), None);
        index.forget(FileId(4));
        assert_eq!(index.fence_of(FileId(4)), None);
    }

    /// A pool on a full disk did not start.
    #[test]
    fn an_index_that_cannot_be_written_is_in_memory_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, _) = Index::open(dir.path()).unwrap();
        index.fence(FileId(4), Epoch(2)).unwrap();
        drop(index);
        // There is no place for a file that SQLite needs.
        let in_the_way = dir.path().join("index.db-wal");
        std::fs::create_dir(&in_the_way).unwrap();
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(!clean && index.refusal().is_some());
        assert_eq!(index.fence_of(FileId(4)), Some(Epoch(2)), "fences are nowhere else");
        index.rebuild([replica(7)].into_iter()).unwrap();
        assert!(index.fence(FileId(5), Epoch(1)).is_err(), "it would not be durable");
        index.flush(&store).unwrap();
        assert_eq!(index.list(FileId(0), 9).unwrap(), [replica(7)]);
        assert!(index.close(&store).is_err(), "it is not clean");
        std::fs::remove_dir(&in_the_way).unwrap();
        index.flush(&store).unwrap();
        assert_eq!(index.refusal(), None, "by itself");
        index.fence(FileId(5), Epoch(1)).unwrap();
        drop(index);
        let (index, _) = Index::open(dir.path()).unwrap();
        assert_eq!(index.list(FileId(0), 9).unwrap(), [replica(7)]);
        assert_eq!([4, 5].map(|file| index.fence_of(FileId(file))), [Some(Epoch(2)), Some(Epoch(1))]);
    }

    /// The mark that says that it is clean could not be removed, and was believed after a kill.
    #[test]
    fn an_index_that_lay_on_a_full_disk_is_not_taken_for_clean_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, _) = Index::open(dir.path()).unwrap();
        index.close(&store).unwrap();
        drop(index);
        let in_the_way = dir.path().join(IN_THE_WAY);
        std::fs::create_dir(&in_the_way).unwrap();
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(!clean && index.refusal().is_some());
        // A kill, and then there is room.
        drop(index);
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(!Index::open(dir.path()).unwrap().1);
    }

    /// All rows were copied each second, and writers of fences and lists waited for it.
    #[test]
    fn rows_that_the_disk_did_not_take_are_copied_again_after_a_pause_that_doubles() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        drop(Index::open(dir.path()).unwrap());
        let on_disk = || Connection::open(dir.path().join(FILE_NAME)).unwrap();
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON replicas BEGIN SELECT RAISE(ABORT, 'no'); END";
        on_disk().execute_batch(refuse).unwrap();
        let in_the_way = dir.path().join(IN_THE_WAY);
        std::fs::create_dir(&in_the_way).unwrap();
        let (index, _) = Index::open(dir.path()).unwrap();
        index.rebuild([replica(7)].into_iter()).unwrap();
        let flush = |times| (0..times).for_each(|_| index.flush(&store).unwrap());
        flush(5);
        std::fs::remove_dir(&in_the_way).unwrap();
        // It fails, the next is passed over, and it fails again.
        flush(3);
        on_disk().execute_batch("DROP TRIGGER refuse").unwrap();
        flush(2);
        assert!(index.refusal().is_some(), "two are passed over");
        assert!(index.fence(FileId(5), Epoch(1)).is_ok(), "the next is not");
        assert_eq!(index.refusal(), None);
        assert_eq!(index.list(FileId(0), 9).unwrap(), [replica(7)]);
    }

    #[test]
    fn an_index_that_finds_no_room_while_it_is_made_anew_is_made_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let (index, _) = Index::open(dir.path()).unwrap();
        index.database.lock().pragma_update(None, "max_page_count", 1).unwrap();
        let replicas = || (1..2_000).map(replica);
        let refused = index.rebuild(replicas()).unwrap_err();
        index.leave_disk(refused).unwrap();
        assert!(index.refusal().unwrap().contains("full"));
        index.rebuild(replicas()).unwrap();
        assert_eq!(index.count().unwrap(), 1_999);
        // The limit was the connection's.
        index.flush(&store).unwrap();
        assert_eq!((index.refusal(), index.count().unwrap()), (None, 1_999));
    }

    #[test]
    fn a_damaged_index_is_set_aside_and_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), [0x55; 8192]).unwrap();
        let (index, clean) = Index::open(dir.path()).unwrap();
        assert!(!clean);
        assert_eq!(index.count().unwrap(), 0);
        assert!(dir.path().join("index.db.damaged").exists());
    }
}
