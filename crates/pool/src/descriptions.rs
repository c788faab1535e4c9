//! `descriptions.db`: what files are called and whose they are, as the pool was last told.
//!
//! Beside the index and not in it: the index may be thrown away at any time and made anew from the files, this may not.
//! Not in the files' own attributes: a name goes beyond what fits into an inode, and costs a block for each file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use api::{Description, ReplicaRef, ReplicaState};
use parking_lot::Mutex;
use rusqlite::{Connection, Row, params};
use types::{Device, Epoch, FileId, FileKind, Name, PoolId, SymlinkTarget, Timestamp};

use crate::database;
use crate::error::OpenError;
use crate::index;

const FILE_NAME: &str = "descriptions.db";
const VERSION: i64 = 2;
/// It said nothing of replicas.
const VERSION_BEFORE: i64 = 1;
const COLUMNS: &str = "file, kind, mode, uid, gid, size, mtime_s, mtime_ns, change, epoch, major, minor, names, target, replicas";
const SCHEMA: &str = "
    CREATE TABLE files (
        file INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        mode INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        size INTEGER NOT NULL,
        mtime_s INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        change INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        major INTEGER NOT NULL,
        minor INTEGER NOT NULL,
        -- Each: directory (8 bytes), length (2), bytes; numbers with the high byte first.
        names BLOB NOT NULL,
        target BLOB,
        -- Each: pool (4 bytes), state (1), since when, in seconds since 1970 (8). Null: nothing was told.
        replicas BLOB
    );
    PRAGMA user_version = 2;
";
const UPGRADE: &str = "ALTER TABLE files ADD COLUMN replicas BLOB; PRAGMA user_version = 2;";

/// Made when something is described first.
pub struct Descriptions {
    path: PathBuf,
    /// Held for a batch, or for one row.
    database: Mutex<Option<Connection>>,
}

impl Descriptions {
    pub fn new(dir: &Path) -> Descriptions {
        Descriptions { path: dir.join(FILE_NAME), database: Mutex::new(None) }
    }

    /// Durable when it returns. Unchanged descriptions are not written. Descriptions in the range that are not in
    /// `files` are deleted, except those of files that still `has_replica`, and of the directories beside them: an
    /// empty or wrong namespace must not delete the data that it could be rebuilt from.
    pub fn replace(
        &self,
        after: FileId,
        through: FileId,
        files: &[Description],
        has_replica: impl Fn(FileId) -> bool,
    ) -> Result<(), String> {
        let mut open = self.database.lock();
        let replaced = (|| {
            let database = match &mut *open {
                Some(database) => database,
                none => none.insert(connect(&self.path)?),
            };
            replace(database, (after, through), files, has_replica)
        })();
        replaced.map_err(|error: rusqlite::Error| error.to_string())
    }

    /// Its replica is gone for ever. That this is on disk matters little: the next pass does it again.
    pub fn forget(&self, file: FileId) {
        let mut open = self.database.lock();
        if open.is_none() && self.path.exists() {
            *open = connect(&self.path).ok();
        }
        if let Some(database) = &*open
            && let Err(error) = delete(database, file)
        {
            tracing::debug!(%file, %error, "description stays");
        }
    }

    /// Closes the database, which another process may open then.
    pub fn let_go(&self) {
        *self.database.lock() = None;
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    database::connect_upgrading(path, VERSION, SCHEMA, Some(UPGRADE))
}

fn delete(database: &Connection, file: FileId) -> rusqlite::Result<usize> {
    database.prepare_cached("DELETE FROM files WHERE file = ?1")?.execute([file.0.cast_signed()])
}

fn replace(
    database: &Connection,
    (after, through): (FileId, FileId),
    files: &[Description],
    has_replica: impl Fn(FileId) -> bool,
) -> rusqlite::Result<()> {
    let mut kept: HashMap<FileId, Description> = read(database, after, through, usize::MAX)?
        .into_iter()
        .map(|description| (description.file, description))
        .collect();
    let new: Vec<_> = files.iter().filter(|file| kept.remove(&file.file).as_ref() != Some(file)).collect();
    let before = kept.len();
    kept.retain(|file, _| !has_replica(*file));
    if kept.len() < before {
        // Their names may be in these.
        kept.retain(|_, description| !description.kind.is_directory());
    }
    if new.is_empty() && kept.is_empty() {
        return Ok(());
    }
    database::durably(database, |database| {
        let transaction = database.unchecked_transaction()?;
        for gone in kept.keys() {
            delete(&transaction, *gone)?;
        }
        for description in new {
            put(&transaction, description)?;
        }
        transaction.commit()
    })
}

fn put(database: &Connection, it: &Description) -> rusqlite::Result<()> {
    let (kind, device) = encode_kind(it.kind);
    let sql = format!(
        "INSERT OR REPLACE INTO files ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
    );
    database.prepare_cached(&sql)?.execute(params![
        it.file.0.cast_signed(),
        kind,
        it.mode,
        it.uid,
        it.gid,
        it.size.cast_signed(),
        it.mtime.seconds,
        it.mtime.nanoseconds(),
        it.change.cast_signed(),
        it.epoch.0,
        device.major,
        device.minor,
        encode_names(&it.names),
        it.target.as_ref().map(SymlinkTarget::as_bytes),
        encode_replicas(&it.replicas),
    ])?;
    Ok(())
}

/// In order.
fn read(
    database: &Connection,
    after: FileId,
    through: FileId,
    limit: usize,
) -> rusqlite::Result<Vec<Description>> {
    read_columns(database, COLUMNS, (after, through), limit)
}

fn read_columns(
    database: &Connection,
    columns: &str,
    (after, through): (FileId, FileId),
    limit: usize,
) -> rusqlite::Result<Vec<Description>> {
    let sql = format!("SELECT {columns} FROM files WHERE file > ?1 AND file <= ?2 ORDER BY file LIMIT ?3");
    let bound = |file: FileId| i64::try_from(file.0).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = database.prepare_cached(&sql)?;
    statement.query_map(params![bound(after), bound(through), limit], decode)?.collect()
}

fn decode(row: &Row<'_>) -> rusqlite::Result<Description> {
    let damaged = |at: usize| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Null, "it is damaged".into())
    };
    let device = Device { major: row.get(10)?, minor: row.get(11)? };
    let target = row.get::<_, Option<Vec<u8>>>(13)?;
    let replicas = row.get::<_, Option<Vec<u8>>>(14)?.unwrap_or_default();
    Ok(Description {
        file: FileId(row.get::<_, i64>(0)?.cast_unsigned()),
        kind: decode_kind(row.get(1)?, device).ok_or_else(|| damaged(1))?,
        mode: row.get(2)?,
        uid: row.get(3)?,
        gid: row.get(4)?,
        size: row.get::<_, i64>(5)?.cast_unsigned(),
        mtime: Timestamp::new(row.get(6)?, row.get(7)?).ok_or_else(|| damaged(7))?,
        change: row.get::<_, i64>(8)?.cast_unsigned(),
        epoch: Epoch(row.get(9)?),
        names: decode_names(row.get_ref(12)?.as_blob()?).ok_or_else(|| damaged(12))?,
        target: target.map(|bytes| SymlinkTarget::new(&bytes)).transpose().map_err(|_| damaged(13))?,
        replicas: decode_replicas(&replicas).ok_or_else(|| damaged(14))?,
    })
}

fn encode_kind(kind: FileKind) -> (u8, Device) {
    match kind {
        FileKind::Regular => (0, Device::default()),
        FileKind::Directory => (1, Device::default()),
        FileKind::Symlink => (2, Device::default()),
        FileKind::BlockDevice(device) => (3, device),
        FileKind::CharacterDevice(device) => (4, device),
        FileKind::Fifo => (5, Device::default()),
        FileKind::Socket => (6, Device::default()),
    }
}

fn decode_kind(kind: u8, device: Device) -> Option<FileKind> {
    Some(match kind {
        0 => FileKind::Regular,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        3 => FileKind::BlockDevice(device),
        4 => FileKind::CharacterDevice(device),
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        _ => return None,
    })
}

fn encode_names(names: &[(FileId, Name)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (dir, name) in names {
        let bytes = name.as_bytes();
        out.extend_from_slice(&dir.0.to_be_bytes());
        // A name has at most 255 bytes.
        out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

fn decode_names(mut bytes: &[u8]) -> Option<Vec<(FileId, Name)>> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let (dir, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        names.push((FileId(u64::from_be_bytes(*dir)), Name::new(name).ok()?));
        bytes = rest;
    }
    Some(names)
}

const REPLICA_BYTES: usize = 13;

fn encode_replicas(replicas: &[ReplicaRef]) -> Vec<u8> {
    let mut out = Vec::with_capacity(replicas.len() * REPLICA_BYTES);
    for replica in replicas {
        out.extend_from_slice(&replica.pool.0.to_be_bytes());
        out.push(match replica.state {
            ReplicaState::Good => 1,
            ReplicaState::Filling => 2,
            ReplicaState::Stale => 3,
            ReplicaState::Broken => 4,
            ReplicaState::Missing => 5,
        });
        out.extend_from_slice(&replica.since.seconds.to_be_bytes());
    }
    out
}

fn decode_replicas(bytes: &[u8]) -> Option<Vec<ReplicaRef>> {
    let decode = |row: &[u8]| {
        let (pool, rest) = row.split_first_chunk::<4>()?;
        let (state, since) = rest.split_first_chunk::<1>()?;
        let state = match state {
            [1] => ReplicaState::Good,
            [2] => ReplicaState::Filling,
            [3] => ReplicaState::Stale,
            [4] => ReplicaState::Broken,
            [5] => ReplicaState::Missing,
            _ => return None,
        };
        let since = Timestamp::from_seconds(i64::from_be_bytes(since.try_into().ok()?));
        Some(ReplicaRef { pool: PoolId(u32::from_be_bytes(*pool)), state, since })
    };
    bytes.chunks(REPLICA_BYTES).map(decode).collect()
}

/// Descriptions that a closed pool keeps, for rebuilding a namespace.
pub struct KeptDescriptions {
    path: PathBuf,
    database: Connection,
    columns: String,
}

impl KeptDescriptions {
    /// `None`: the pool never got a description.
    pub fn open(dir: &Path) -> Result<Option<KeptDescriptions>, OpenError> {
        let path = dir.join(FILE_NAME);
        if !path.exists() {
            return Ok(None);
        }
        let opened = database::look(&path).and_then(|database| match database::found_version(&database)? {
            VERSION => Ok((database, COLUMNS.to_owned())),
            // Nothing is changed here.
            VERSION_BEFORE => Ok((database, COLUMNS.replace("replicas", "NULL"))),
            _ => Err(rusqlite::Error::InvalidQuery),
        });
        let (database, columns) = opened.map_err(|error| OpenError::Index { path: path.clone(), error })?;
        Ok(Some(KeptDescriptions { path, database, columns }))
    }

    pub fn count(&self) -> Result<u64, OpenError> {
        let counted = self.database.query_row("SELECT count(*) FROM files", [], |row| row.get::<_, i64>(0));
        let counted = counted.map(i64::cast_unsigned);
        counted.map_err(|error| OpenError::Index { path: self.path.clone(), error })
    }

    /// In the order of file ids.
    pub fn page(&self, after: FileId, limit: usize) -> Result<Vec<Description>, OpenError> {
        let through = FileId(i64::MAX.cast_unsigned());
        read_columns(&self.database, &self.columns, (after, through), limit)
            .map_err(|error| OpenError::Index { path: self.path.clone(), error })
    }
}

/// Fences of files that have no replica, from the index of a pool that is not open. Nothing, if that is damaged.
pub fn fences(dir: &Path) -> Vec<(FileId, Epoch)> {
    let path = dir.join(index::FILE_NAME);
    let fences = database::look(&path).and_then(|database| index::read_fences(&database));
    fences.map(|fences| fences.into_iter().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(file: u64, name: &str) -> Description {
        Description {
            file: FileId(file),
            kind: FileKind::Regular,
            mode: 0o640,
            uid: u32::MAX,
            gid: 7,
            size: u64::MAX,
            mtime: Timestamp::new(-5, 999_999_999).unwrap(),
            change: u64::MAX - 1,
            epoch: Epoch(3),
            names: vec![(FileId(1), Name::new(name.as_bytes()).unwrap())],
            target: None,
            replicas: Vec::new(),
        }
    }

    fn kept(dir: &tempfile::TempDir) -> Vec<Description> {
        KeptDescriptions::open(dir.path()).unwrap().unwrap().page(FileId(0), 100).unwrap()
    }

    #[test]
    fn new_descriptions_replace_the_old_ones_of_their_range() {
        let dir = tempfile::tempdir().unwrap();
        assert!(KeptDescriptions::open(dir.path()).unwrap().is_none());
        let descriptions = Descriptions::new(dir.path());
        let last = FileId(i64::MAX.cast_unsigned());
        let device = FileKind::BlockDevice(Device { major: 8, minor: u32::MAX });
        let link = Description {
            kind: FileKind::Symlink,
            target: Some(SymlinkTarget::new(b"../there").unwrap()),
            ..described(4, "link")
        };
        let mut first = vec![described(3, "a"), link, Description { kind: device, ..described(9, "disk") }];
        first[0].replicas = (0..).zip(ReplicaState::ALL).map(|(pool, state)| replica(pool, state)).collect();
        first[0].names.push((FileId(2), Name::new(&[0xff; 255]).unwrap()));
        descriptions.replace(FileId(0), last, &first, |_| false).unwrap();
        assert_eq!(kept(&dir), first);
        descriptions.replace(FileId(3), FileId(4), &[], |_| false).unwrap();
        let new = [described(9, "disk"), described(10, "new")];
        descriptions.replace(FileId(4), last, &new, |_| false).unwrap();
        assert_eq!(kept(&dir), [first[0].clone(), described(9, "disk"), described(10, "new")]);
        descriptions.forget(FileId(9));
        assert_eq!(kept(&dir).len(), 2);
    }

    fn replica(pool: u32, state: ReplicaState) -> ReplicaRef {
        ReplicaRef { pool: PoolId(pool), state, since: Timestamp::from_seconds(1_700_000_000) }
    }

    #[test]
    fn descriptions_of_the_version_before_are_kept_and_say_nothing_of_replicas() {
        let dir = tempfile::tempdir().unwrap();
        let (path, last) = (dir.path().join(FILE_NAME), FileId(i64::MAX.cast_unsigned()));
        let told = described(3, "a");
        Descriptions::new(dir.path())
            .replace(FileId(0), last, std::slice::from_ref(&told), |_| false)
            .unwrap();
        let database = Connection::open(&path).unwrap();
        database.execute_batch("ALTER TABLE files DROP COLUMN replicas; PRAGMA user_version = 1").unwrap();
        drop(database);
        assert_eq!(kept(&dir), std::slice::from_ref(&told));
        let placed = Description { replicas: vec![replica(1, ReplicaState::Stale)], ..described(4, "b") };
        let descriptions = Descriptions::new(dir.path());
        descriptions.replace(FileId(3), last, std::slice::from_ref(&placed), |_| false).unwrap();
        descriptions.let_go();
        assert_eq!(kept(&dir), [told, placed]);
        Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 3").unwrap();
        assert!(KeptDescriptions::open(dir.path()).is_err());
    }

    #[test]
    fn replicas_that_were_cut_off_or_are_in_an_unknown_state_are_refused_without_a_panic() {
        let mut whole = encode_replicas(&[replica(7, ReplicaState::Broken)]);
        assert_eq!(decode_replicas(&whole), Some(vec![replica(7, ReplicaState::Broken)]));
        for length in 1..whole.len() {
            assert_eq!(decode_replicas(&whole[..length]), None);
        }
        whole[4] = 6;
        assert_eq!(decode_replicas(&whole), None);
    }

    #[test]
    fn an_empty_namespace_takes_away_no_name_of_a_replica_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let descriptions = Descriptions::new(dir.path());
        let last = FileId(i64::MAX.cast_unsigned());
        let folder = Description { kind: FileKind::Directory, ..described(2, "folder") };
        let fifo = Description { kind: FileKind::Fifo, ..described(5, "fifo") };
        let told = [folder, described(3, "there"), described(4, "gone"), fifo];
        descriptions.replace(FileId(0), last, &told, |_| false).unwrap();
        descriptions.replace(FileId(0), last, &[], |file| file == FileId(3)).unwrap();
        assert_eq!(kept(&dir), told[..2]);
        descriptions.replace(FileId(0), last, &[], |_| false).unwrap();
        assert_eq!(kept(&dir), []);
    }

    #[test]
    fn names_that_were_cut_off_are_refused_without_a_panic() {
        let whole = encode_names(&[(FileId(1), Name::new(b"abc").unwrap())]);
        assert!(decode_names(&whole).is_some());
        for length in 1..whole.len() {
            assert_eq!(decode_names(&whole[..length]), None);
        }
    }
}
