//! The committer's side: a batch in one transaction.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use api::{Account, Counted, Property, ReplicaRef};
use bytes::Bytes;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use types::{Acl, Checksum, FileId, Name, PoolId, XattrName};

use super::reserve::{Reserve, classify};
use super::rows::{
    CHECKPOINT_PAGES, Durability, INODE_COLUMNS, corrupt, decode_inode, decode_name, insert_inode,
    set_durability, signed, unsigned, update_inode,
};
use super::schema::set_meta;
use super::wal_sync::Log;
use super::{accounts, acls, xattrs};
use crate::inode::{ChangeFloor, Inode};
use crate::locality::{decode_replica, state_number};
use crate::reads::decode_checksum;
use crate::store::{
    Batch, Habits, InodeChange, NameChange, NumberEnds, Questions, Store, StoreError, StoreResult, XattrEntry,
};

pub struct SqliteStore {
    pub connection: Connection,
    /// Of the next commit.
    durability: Durability,
    pub floor: ChangeFloor,
    /// Groups that were committed without a sync, for the thread that syncs the WAL.
    pub commits: Arc<AtomicU64>,
    /// Frames in the WAL, as SQLite told at the last commit, and with how many they are to be carried into the database.
    frames: Arc<AtomicU32>,
    frames_max: u32,
    /// The WAL where it is synced by the clock.
    pub log: Option<Arc<Log>>,
    /// The disk failed a commit, whose frames may all the same lie in the WAL: the next process to open it would take
    /// them for committed. They do also when there was no room for the index of the WAL, which follows them.
    is_uncertain: bool,
    dir: PathBuf,
    reserve: Reserve,
    /// The last checkpoint failed, which was logged.
    is_holding_back: bool,
}

impl SqliteStore {
    /// Takes the checkpoints upon itself: SQLite's own come within a commit. The connection syncs each commit.
    pub fn new(mut connection: Connection, floor: ChangeFloor, dir: &Path) -> rusqlite::Result<SqliteStore> {
        let frames = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&frames);
        connection.wal_hook(Some(move |_: &mut Wal, count: c_int| {
            told.store(count.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }))?;
        let (commits, frames_max) = (Arc::default(), CHECKPOINT_PAGES);
        Ok(SqliteStore {
            connection,
            durability: Durability::EachCommit,
            floor,
            commits,
            frames,
            frames_max,
            log: None,
            is_uncertain: false,
            dir: dir.to_owned(),
            reserve: Reserve::find(dir),
            is_holding_back: false,
        })
    }

    /// From now on there is room of its own.
    pub fn hold_reserve(&mut self) {
        self.reserve.hold();
        if !self.reserve.has_room() {
            tracing::warn!("namespace has no room for its reserve: changes that need more room are refused");
        }
    }

    /// With the reserve where there is no room otherwise. `work` begins anew then.
    fn with_reserve<T>(
        &mut self,
        mut work: impl FnMut(&mut SqliteStore) -> StoreResult<T>,
    ) -> StoreResult<T> {
        match work(self) {
            Err(StoreError::NoSpace(_)) if self.reserve.give_up() => {
                self.roll_back();
                work(self)
            }
            done => done,
        }
    }

    fn classify(&self, error: rusqlite::Error) -> StoreError {
        classify(&error, &self.dir)
    }

    fn roll_back(&self) {
        // Some errors have rolled back already, then this one says that there is nothing to roll back.
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// A commit that says nothing goes where the failed one lies, and ends its chain of checksums.
    fn overwrite_failed(&mut self) -> StoreResult<()> {
        self.roll_back();
        // A row that stays as it is would not be written.
        let count =
            "INSERT INTO meta VALUES ('failed_commits', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1";
        let overwritten = self.durably(|connection| connection.execute(count, []).map(drop));
        overwritten.map_err(|error| self.classify(error))?;
        self.is_uncertain = false;
        Ok(())
    }

    /// The kernel took pages for clean that a failed sync did not bring to the disk. They are in memory still: carried into
    /// the database they are written again.
    fn carry_over(&mut self, log: &Log) -> StoreResult<()> {
        let frames = self.frames.load(Ordering::Relaxed);
        let is_whole = log.holds(frames).map_err(|error| StoreError::Failed(error.to_string()))?;
        if !is_whole {
            return Err(StoreError::NeedsRestart(
                "log of the namespace lost changes on its disk: restart to go on from what is there"
                    .to_owned(),
            ));
        }
        let carried = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        let is_held_back: bool = carried.map_err(|error| self.classify(error))?;
        if is_held_back {
            return Err(StoreError::Busy("a reader holds the log".to_owned()));
        }
        self.frames.store(0, Ordering::Relaxed);
        log.mend();
        tracing::info!("namespace has carried its log, of which a sync had failed, into the database");
        Ok(())
    }

    /// Nothing is written behind what may be on disk or not.
    fn require_certain(&mut self) -> StoreResult<()> {
        if self.is_uncertain {
            self.overwrite_failed()?;
        }
        match self.log.clone().filter(|log| log.has_failed()) {
            Some(log) => self.carry_over(&log),
            None => Ok(()),
        }
    }

    fn durably(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let before = self.durability;
        self.turn_to(Durability::EachCommit)?;
        let done = work(&self.connection);
        self.turn_to(before)?;
        done
    }

    /// Not within a transaction.
    fn turn_to(&mut self, durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            set_durability(&self.connection, durability)?;
            self.durability = durability;
        }
        Ok(())
    }

    /// Told of each commit.
    fn note<T>(&mut self, committed: rusqlite::Result<T>) -> StoreResult<T> {
        let is_of_disk =
            |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
        if committed.as_ref().is_err_and(is_of_disk) {
            self.is_uncertain = true;
            // Answered groups that nobody has synced yet may be lost with it, and SQLite's next sync says nothing of them.
            if let Some(log) = &self.log {
                log.fail();
            }
        }
        committed.map_err(|error| self.classify(error))
    }

    fn begin_now(&mut self, durability: Durability) -> StoreResult<()> {
        self.require_certain()?;
        self.turn_to(durability).map_err(|error| self.classify(error))?;
        let begun = self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
        begun.map(drop).map_err(|error| self.classify(error))
    }

    fn commit_now(&mut self, batch: &Batch) -> StoreResult<()> {
        write_batch(&self.connection, batch).map_err(|error| self.classify(error))?;
        let committed = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        self.note(committed).map(drop)
    }

    /// Frames that the log holds still.
    fn checkpoint(&mut self) -> StoreResult<u32> {
        let pages = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let carried = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages);
        let (frames, carried) = carried.map_err(|error| self.classify(error))?;
        Ok(u32::try_from(frames - carried).unwrap_or(0))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        (&error).into()
    }
}

/// By its code alone; see `reserve::classify`.
impl From<&rusqlite::Error> for StoreError {
    fn from(error: &rusqlite::Error) -> StoreError {
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::NoSpace(reason),
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly(reason),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy(reason),
            _ => StoreError::Failed(reason),
        }
    }
}

impl Questions for SqliteStore {
    fn inode(&mut self, file: FileId) -> StoreResult<Option<Inode>> {
        Ok(read_inode(&self.connection, file, self.floor)?)
    }

    fn child(&mut self, dir: FileId, name: &Name) -> StoreResult<Option<FileId>> {
        Ok(read_child(&self.connection, dir, name)?)
    }

    fn some_names(&mut self, dir: FileId, limit: usize) -> StoreResult<Vec<Name>> {
        let mut statement =
            self.connection.prepare_cached("SELECT name FROM dentries WHERE parent = ?1 LIMIT ?2")?;
        let names = statement.query_map(params![signed(dir.0), limit as i64], |row| decode_name(row, 0))?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }

    fn names_of(&mut self, file: FileId, limit: usize) -> StoreResult<Vec<(FileId, Name)>> {
        let mut statement =
            self.connection.prepare_cached("SELECT parent, name FROM dentries WHERE inode = ?1 LIMIT ?2")?;
        let names = statement.query_map(params![signed(file.0), limit as i64], |row| {
            Ok((FileId(unsigned(row.get(0)?)), decode_name(row, 1)?))
        })?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }

    fn locations(&mut self, file: FileId) -> StoreResult<Vec<ReplicaRef>> {
        Ok(read_locations(&self.connection, file)?)
    }

    fn properties(&mut self, file: FileId) -> StoreResult<Vec<Property>> {
        Ok(read_properties(&self.connection, file)?)
    }

    fn xattrs(&mut self, file: FileId) -> StoreResult<Vec<(XattrName, XattrEntry)>> {
        Ok(xattrs::read_entries(&self.connection, file)?)
    }

    fn xattr(&mut self, file: FileId, name: &XattrName) -> StoreResult<Option<Bytes>> {
        Ok(xattrs::read_value(&self.connection, file, name)?)
    }

    fn acl(&mut self, file: FileId) -> StoreResult<Option<Acl>> {
        Ok(acls::read(&self.connection, file)?)
    }

    fn usage(&mut self, account: Account) -> StoreResult<Counted> {
        Ok(accounts::read_usage(&self.connection, account)?)
    }
}

impl Store for SqliteStore {
    fn habits(&self) -> Habits {
        Habits { prefetches: false, is_remote: false, is_synced_by_log: true }
    }

    fn has_room(&self) -> bool {
        self.reserve.has_room()
    }

    fn wants_upkeep(&self) -> bool {
        !self.has_room() || self.frames.load(Ordering::Relaxed) >= self.frames_max
    }

    /// A checkpoint; and the reserve.
    fn upkeep(&mut self) {
        self.reserve.renew();
        let frames = self.frames.load(Ordering::Relaxed);
        if frames < self.frames_max {
            return;
        }
        let carried = self.with_reserve(SqliteStore::checkpoint);
        // The next commit says it, if it concerns that, too.
        if let (Err(error), false) = (&carried, self.is_holding_back) {
            tracing::warn!(%error, "namespace cannot carry its log into the database");
        }
        self.is_holding_back = carried.is_err();
        let left = carried.unwrap_or(frames);
        if left == 0 {
            // The next group begins the log anew.
            self.frames.store(0, Ordering::Relaxed);
            self.frames_max = CHECKPOINT_PAGES;
        } else {
            // A reader holds some back: again when there is more.
            self.frames_max = frames.saturating_add(CHECKPOINT_PAGES / 4);
        }
    }

    fn begin(&mut self, is_awaited: bool) -> StoreResult<()> {
        let durability = if is_awaited { Durability::EachCommit } else { Durability::Deferred };
        self.with_reserve(|store| store.begin_now(durability))
    }

    fn commit(&mut self, batch: &Batch) -> StoreResult<()> {
        let (mut is_begun, durability) = (true, self.durability);
        self.with_reserve(|store| {
            // Only this connection writes: what the batch was made from is there still.
            if !std::mem::take(&mut is_begun) {
                store.begin_now(durability)?;
            }
            store.commit_now(batch)
        })?;
        if durability == Durability::Deferred {
            self.commits.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.roll_back();
        if self.is_uncertain
            && let Err(error) = self.overwrite_failed()
        {
            // The next group tries again before anything else, and fails with this.
            tracing::warn!(%error, "namespace cannot undo a change that its disk did not write");
        }
    }

    fn reserve(&mut self, ends: NumberEnds) -> StoreResult<()> {
        self.with_reserve(|store| {
            store.require_certain()?;
            let reserved = store.durably(|connection| reserve_in(connection, ends));
            store.note(reserved)
        })
    }

    fn end_cleanly(&mut self) -> StoreResult<()> {
        self.require_certain()?;
        set_meta(&self.connection, "clean_end", 1)?;
        Ok(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    #[cfg(test)]
    fn execute(&mut self, sql: &str) -> StoreResult<()> {
        Ok(self.connection.execute_batch(sql)?)
    }
}

fn reserve_in(connection: &Connection, ends: NumberEnds) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    set_meta(&transaction, "next_file", ends.files.cast_signed())?;
    set_meta(&transaction, "next_cookie", ends.cookies.cast_signed())?;
    transaction.commit()
}

fn write_batch(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    write_inodes(connection, batch)?;
    write_names(connection, batch)?;
    write_locations(connection, batch)?;
    write_properties(connection, batch)?;
    xattrs::write(connection, batch)?;
    acls::write(connection, batch)?;
    write_checksums(connection, batch)?;
    write_dir_deltas(connection, batch)?;
    accounts::write(connection, batch)?;
    for (file, target) in &batch.targets {
        match target {
            Some(target) => connection
                .prepare_cached("INSERT INTO symlinks (inode, target) VALUES (?1, ?2)")?
                .execute(params![signed(file.0), target.as_bytes()])?,
            None => execute(connection, "DELETE FROM symlinks WHERE inode = ?1", *file)?,
        };
    }
    for (owner, client) in &batch.clients {
        match client {
            Some(reclaim_complete) => connection
                .prepare_cached(
                    "INSERT INTO clients VALUES (?1, ?2) ON CONFLICT (owner) DO UPDATE SET \
                     reclaim_complete = excluded.reclaim_complete",
                )?
                .execute(params![owner, reclaim_complete])?,
            None => connection.prepare_cached("DELETE FROM clients WHERE owner = ?1")?.execute([owner])?,
        };
    }
    connection
        .prepare_cached("UPDATE progress SET groups = ?1, files = ?2, bytes = ?3 WHERE id = 1")?
        .execute(params![signed(batch.sequence), batch.totals.files, batch.totals.bytes])?;
    Ok(())
}

fn write_inodes(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for (file, change) in &batch.inodes {
        match change {
            InodeChange::Insert(inode) => insert_inode(connection, inode)?,
            InodeChange::Update(inode) => update_inode(connection, inode)?,
            InodeChange::Remove => {
                execute(connection, "DELETE FROM inodes WHERE id = ?1", *file)?;
            }
        }
    }
    Ok(())
}

fn write_names(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for ((dir, name), change) in &batch.names {
        let (dir, name) = (signed(dir.0), name.as_bytes());
        match change {
            NameChange::Put { cookie, child } => connection
                .prepare_cached(
                    "INSERT INTO dentries (parent, name, cookie, inode) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT (parent, name) DO UPDATE SET cookie = excluded.cookie, inode = excluded.inode",
                )?
                .execute(params![dir, name, signed(*cookie), signed(child.0)])?,
            NameChange::Repoint { child } => connection
                .prepare_cached("UPDATE dentries SET inode = ?3 WHERE parent = ?1 AND name = ?2")?
                .execute(params![dir, name, signed(child.0)])?,
            NameChange::Remove => connection
                .prepare_cached("DELETE FROM dentries WHERE parent = ?1 AND name = ?2")?
                .execute(params![dir, name])?,
        };
    }
    Ok(())
}

fn write_locations(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for file in &batch.locations.cleared {
        execute(connection, "DELETE FROM locations WHERE inode = ?1", *file)?;
    }
    for (file, pool, replica) in batch.locations.rows() {
        match replica {
            Some(ReplicaRef { state, since, .. }) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO locations (inode, pool, state, since) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![signed(file.0), pool.0, state_number(*state), since.seconds])?,
            None => connection
                .prepare_cached("DELETE FROM locations WHERE inode = ?1 AND pool = ?2")?
                .execute(params![signed(file.0), pool.0])?,
        };
    }
    Ok(())
}

fn write_properties(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for file in &batch.properties.cleared {
        execute(connection, "DELETE FROM properties WHERE inode = ?1", *file)?;
    }
    for (file, name, value) in batch.properties.rows() {
        match value {
            Some(value) => connection
                .prepare_cached("INSERT OR REPLACE INTO properties (inode, name, value) VALUES (?1, ?2, ?3)")?
                .execute(params![signed(file.0), name, &value[..]])?,
            None => connection
                .prepare_cached("DELETE FROM properties WHERE inode = ?1 AND name = ?2")?
                .execute(params![signed(file.0), name])?,
        };
    }
    Ok(())
}

fn write_checksums(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for file in &batch.checksums.cleared {
        execute(connection, "DELETE FROM checksums WHERE inode = ?1", *file)?;
    }
    for (file, kind, checksum) in batch.checksums.rows() {
        match checksum {
            Some(checksum) => connection
                .prepare_cached("INSERT OR REPLACE INTO checksums (inode, kind, value) VALUES (?1, ?2, ?3)")?
                .execute(params![signed(file.0), kind.name(), checksum.value()])?,
            None => connection
                .prepare_cached("DELETE FROM checksums WHERE inode = ?1 AND kind = ?2")?
                .execute(params![signed(file.0), kind.name()])?,
        };
    }
    Ok(())
}

fn write_dir_deltas(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for dir in &batch.folded {
        execute(connection, "DELETE FROM dir_deltas WHERE inode = ?1", *dir)?;
    }
    for (dir, delta) in &batch.dir_deltas {
        connection
            .prepare_cached(
                "INSERT INTO dir_deltas (inode, groups, nlink, change, time_s, time_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                signed(dir.0),
                signed(batch.sequence),
                delta.nlink,
                signed(delta.change),
                delta.time.seconds,
                delta.time.nanoseconds()
            ])?;
    }
    Ok(())
}

fn execute(connection: &Connection, sql: &'static str, file: FileId) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute([signed(file.0)])
}

pub fn read_inode(
    connection: &Connection,
    file: FileId,
    floor: ChangeFloor,
) -> rusqlite::Result<Option<Inode>> {
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {INODE_COLUMNS} FROM inodes i WHERE i.id = ?1"));
    connection.prepare_cached(&SQL)?.query_row([signed(file.0)], |row| decode_inode(row, 0, floor)).optional()
}

pub fn read_child(connection: &Connection, dir: FileId, name: &Name) -> rusqlite::Result<Option<FileId>> {
    connection
        .prepare_cached("SELECT inode FROM dentries WHERE parent = ?1 AND name = ?2")?
        .query_row(params![signed(dir.0), name.as_bytes()], |row| row.get(0))
        .optional()
        .map(|found: Option<i64>| found.map(|id| FileId(unsigned(id))))
}

pub fn read_locations(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<ReplicaRef>> {
    connection
        .prepare_cached("SELECT pool, state, since FROM locations WHERE inode = ?1 ORDER BY pool")?
        .query_map([signed(file.0)], |row| Ok(decode_replica(PoolId(row.get(0)?), row.get(1)?, row.get(2)?)))?
        .collect()
}

/// In the order of their names.
pub fn read_properties(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<Property>> {
    connection
        .prepare_cached("SELECT name, value FROM properties WHERE inode = ?1 ORDER BY name")?
        .query_map([signed(file.0)], |row| {
            Ok(Property { name: row.get(0)?, value: Bytes::copy_from_slice(row.get_ref(1)?.as_blob()?) })
        })?
        .collect()
}

pub fn read_checksums(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<Checksum>> {
    connection
        .prepare_cached("SELECT kind, value FROM checksums WHERE inode = ?1 ORDER BY kind")?
        .query_map([signed(file.0)], |row| {
            decode_checksum(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_blob()?)
                .map_err(|error| corrupt(1, error))
        })?
        .collect()
}

#[cfg(test)]
mod tests;
