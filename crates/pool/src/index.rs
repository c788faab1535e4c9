//! `index.db`: which replicas there are, in order of file id, and the fences of files that have no replica yet.
//!
//! The replica rows follow the files: what changed is noted in memory and looked at again in batches. They are worth
//! something only if the pool was closed properly (`clean`); otherwise they are made anew from the files. The fences
//! are the one thing that is nowhere else, and durable at once.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::ReplicaFacts;
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, params};
use types::{Epoch, FileId};

use crate::error::OpenError;
use crate::store::Store;

pub const FILE_NAME: &str = "index.db";
const VERSION: i64 = 1;
/// A process that checks the pool may read the index for a moment.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Beyond this many changes that could not be written the index is given up until the next start.
const CHANGED_MAX: usize = 1 << 20;

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
    /// Locked to note or to take changes.
    changed: Mutex<Changed>,
    /// Locked to look up, and while a new fence is written.
    fences: Mutex<HashMap<FileId, Epoch>>,
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
                tracing::warn!(path = %path.display(), %error, "pool index is damaged and is made anew");
                set_aside(&path)?;
                connect(&path)
            }
            connected => connected,
        };
        let load = |database: Connection| {
            let clean = database.query_row("SELECT clean FROM state", [], |row| row.get::<_, bool>(0))?;
            let fences = read_fences(&database)?;
            // From here on the rows lag behind the files.
            durably(&database, |database| database.execute("UPDATE state SET clean = 0", []))?;
            Ok((database, clean, fences))
        };
        let (database, clean, fences) =
            database.and_then(load).map_err(|source| OpenError::Index { path: path.clone(), source })?;
        let index = Index {
            path,
            database: Mutex::new(database),
            changed: Mutex::default(),
            fences: Mutex::new(fences),
        };
        Ok((index, clean))
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
        let files = std::mem::take(&mut self.changed.lock().files);
        if files.is_empty() {
            return Ok(());
        }
        write_changes(&mut database, store, &files).inspect_err(|_| {
            for file in files {
                self.note(file);
            }
        })
    }

    pub fn list(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, String> {
        let list = || {
            let database = self.database.lock();
            let mut query = database.prepare_cached(
                "SELECT file, size, space_used FROM replicas WHERE file > ?1 ORDER BY file LIMIT ?2",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let after = i64::try_from(after.0).unwrap_or(i64::MAX);
            let rows = query.query_map(params![after, limit], facts)?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        list().map_err(|error: rusqlite::Error| error.to_string())
    }

    pub fn count(&self) -> Result<u64, OpenError> {
        let database = self.database.lock();
        database
            .query_row("SELECT count(*) FROM replicas", [], |row| row.get::<_, i64>(0))
            .map(i64::cast_unsigned)
            .map_err(|source| OpenError::Index { path: self.path.clone(), source })
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
        rebuild(&mut database).map_err(|source| OpenError::Index { path: self.path.clone(), source })
    }

    /// The epoch below which tickets are refused, as far as the replica's own label does not say so.
    pub fn fence_of(&self, file: FileId) -> Option<Epoch> {
        self.fences.lock().get(&file).copied()
    }

    /// Durable when it returns.
    pub fn fence(&self, file: FileId, epoch: Epoch) -> Result<(), String> {
        let database = self.database.lock();
        let insert = |database: &Connection| {
            let row = params![file.0.cast_signed(), epoch.0];
            database.execute("INSERT OR REPLACE INTO fences (file, epoch) VALUES (?1, ?2)", row)
        };
        durably(&database, insert).map_err(|error| error.to_string())?;
        self.fences.lock().insert(file, epoch);
        Ok(())
    }

    /// The replica is gone for ever, and with it the need for a fence.
    pub fn forget(&self, file: FileId) {
        self.fences.lock().remove(&file);
        self.note(file);
    }

    /// Writes down what is left and declares the index clean, if it is.
    pub fn close(&self, store: &Store) -> Result<(), String> {
        self.flush(store)?;
        if self.changed.lock().lost {
            return Err("too many changes could not be written".to_owned());
        }
        let database = self.database.lock();
        durably(&database, |database| database.execute("UPDATE state SET clean = 1", []))
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let database = Connection::open(path)?;
    database.busy_timeout(BUSY_WAIT)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    // Batches of rows that are rebuilt after a crash need no flush of their own; fences ask for theirs.
    database.pragma_update(None, "synchronous", "NORMAL")?;
    let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        VERSION => {}
        0 => database.execute_batch(&format!("BEGIN; {SCHEMA} COMMIT;"))?,
        _ => return Err(rusqlite::Error::InvalidQuery),
    }
    Ok(database)
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

pub fn durably<T>(
    database: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    database.pragma_update(None, "synchronous", "FULL")?;
    let done = work(database);
    database.pragma_update(None, "synchronous", "NORMAL")?;
    done
}

pub fn read_fences(database: &Connection) -> Result<HashMap<FileId, Epoch>, rusqlite::Error> {
    let mut query = database.prepare("SELECT file, epoch FROM fences")?;
    let rows = query.query_map([], |row| {
        Ok((FileId(row.get::<_, i64>(0)?.cast_unsigned()), Epoch(row.get::<_, u32>(1)?)))
    })?;
    rows.collect()
}

fn write_changes(database: &mut Connection, store: &Store, files: &HashSet<FileId>) -> Result<(), String> {
    let mut looks = Vec::with_capacity(files.len());
    for file in files {
        looks.push((*file, store.look(*file).map_err(|errno| errno.to_string())?));
    }
    let write = || {
        let transaction = database.transaction()?;
        for (file, look) in looks {
            match look {
                Some(extent) => {
                    let (size, space_used) = (extent.size, extent.space_used);
                    put(&transaction, &ReplicaFacts { file, size, space_used, modified: None })?;
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
    write().map_err(|error: rusqlite::Error| error.to_string())
}

fn put(database: &Connection, replica: &ReplicaFacts) -> Result<(), rusqlite::Error> {
    let row = [replica.file.0, replica.size, replica.space_used].map(u64::cast_signed);
    database.prepare_cached("INSERT OR REPLACE INTO replicas VALUES (?1, ?2, ?3)")?.execute(row)?;
    Ok(())
}

fn facts(row: &rusqlite::Row<'_>) -> Result<ReplicaFacts, rusqlite::Error> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(ReplicaFacts { file: FileId(number(0)?), size: number(1)?, space_used: number(2)?, modified: None })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use types::PoolId;

    use super::*;

    fn replica(file: u64) -> ReplicaFacts {
        ReplicaFacts { file: FileId(file), size: file * 10, space_used: 512, modified: None }
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
