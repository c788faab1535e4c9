//! One group: working copies of what its operations touch, on top of one transaction.
//!
//! An operation checks everything before it changes anything, so one that is refused leaves no trace and needs no
//! savepoint. Names go to the database at once (a later operation of the group may ask whether a directory is empty);
//! inodes are written once at the end however often they were touched, which is what makes a hot directory cheap.

mod attached;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use api::NamespaceError;
use rusqlite::{Connection, OptionalExtension, params};
use types::{Clock, FileId, Name, PoolId, SymlinkTarget, Timestamp};

use crate::cache::{Cache, Changes};
use crate::ids::Ids;
use crate::inode::{Inode, Instance};
pub use attached::{read_checksums, read_properties};

use crate::sqlite::{ChangeFloor, INODE_COLUMNS, decode_inode, insert_inode, signed, unsigned, update_inode};

/// Why an operation ended without a result.
#[derive(Debug)]
pub enum OpError {
    /// The operation alone is refused.
    Refused(NamespaceError),
    /// The database failed: the whole group is rolled back.
    Failed(rusqlite::Error),
}

impl From<NamespaceError> for OpError {
    fn from(error: NamespaceError) -> OpError {
        OpError::Refused(error)
    }
}

impl From<rusqlite::Error> for OpError {
    fn from(error: rusqlite::Error) -> OpError {
        OpError::Failed(error)
    }
}

pub type OpResult<T> = Result<T, OpError>;

/// Files and their bytes, as `progress` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub files: i64,
    pub bytes: i64,
}

pub struct Group<'a> {
    pub connection: &'a Connection,
    pub cache: &'a Cache,
    pub clock: &'a dyn Clock,
    pub instance: Instance,
    pub floor: ChangeFloor,
    pub ids: &'a mut Ids,
    inodes: HashMap<FileId, Working>,
    dentries: HashMap<(FileId, Name), Looked>,
    locations: HashMap<FileId, Option<Vec<PoolId>>>,
    targets: Vec<(FileId, SymlinkTarget)>,
    taken: Vec<FileId>,
    /// Something other than inodes was written.
    is_written: bool,
}

struct Working {
    /// `None`: removed.
    inode: Option<Inode>,
    /// What the database has.
    stored: Option<Inode>,
    /// There may be rows of checksums, also such as this group wrote.
    is_summed: bool,
    is_dirty: bool,
}

#[derive(Clone, Copy)]
struct Looked {
    child: Option<FileId>,
    is_changed: bool,
}

impl<'a> Group<'a> {
    pub fn new(
        connection: &'a Connection,
        cache: &'a Cache,
        clock: &'a dyn Clock,
        (instance, floor): (Instance, ChangeFloor),
        ids: &'a mut Ids,
    ) -> Group<'a> {
        Group {
            connection,
            cache,
            clock,
            instance,
            floor,
            ids,
            inodes: HashMap::new(),
            dentries: HashMap::new(),
            locations: HashMap::new(),
            targets: Vec::new(),
            taken: Vec::new(),
            is_written: false,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// `Stale` if there is none.
    pub fn inode(&mut self, file: FileId) -> OpResult<Inode> {
        if let Some(working) = self.inodes.get(&file) {
            return working.inode.ok_or(OpError::Refused(NamespaceError::Stale(file)));
        }
        let (inode, stored, is_dirty) = match self.cache.take_unsettled(file) {
            Some(entry) => {
                let is_dirty = entry.is_waiting();
                if is_dirty {
                    self.taken.push(file);
                }
                (entry.visible, entry.stored, is_dirty)
            }
            None => match self.cache.stored_inode(file) {
                Some(inode) => (inode, inode, false),
                None => {
                    let inode = self.read_inode(file)?.ok_or(NamespaceError::Stale(file))?;
                    (inode, inode, false)
                }
            },
        };
        let is_summed = stored.extras.has_checksums;
        self.inodes.insert(file, Working { inode: Some(inode), stored: Some(stored), is_summed, is_dirty });
        Ok(inode)
    }

    pub fn directory(&mut self, dir: FileId) -> OpResult<Inode> {
        let inode = self.inode(dir)?;
        if inode.is_directory() { Ok(inode) } else { Err(NamespaceError::NotDirectory.into()) }
    }

    pub fn child(&mut self, dir: FileId, name: &Name) -> OpResult<Option<FileId>> {
        let key = (dir, name.clone());
        if let Some(looked) = self.dentries.get(&key) {
            return Ok(looked.child);
        }
        let child = match self.cache.dentry(dir, name) {
            Some(child) => child,
            None => read_child(self.connection, dir, name)?,
        };
        self.dentries.insert(key, Looked { child, is_changed: false });
        Ok(child)
    }

    pub fn has_children(&self, dir: FileId) -> OpResult<bool> {
        let mut statement =
            self.connection.prepare_cached("SELECT 1 FROM dentries WHERE parent = ?1 LIMIT 1")?;
        Ok(statement.exists([signed(dir.0)])?)
    }

    /// Replaces a working copy; the row is written at the end of the group.
    pub fn put(&mut self, inode: Inode) {
        let working =
            self.inodes.get_mut(&inode.id()).expect("an inode is put after it was read or inserted");
        working.inode = Some(inode);
        working.is_dirty = true;
    }

    pub fn insert(&mut self, inode: Inode) {
        let working = Working { inode: Some(inode), stored: None, is_summed: false, is_dirty: true };
        self.inodes.insert(inode.id(), working);
    }

    /// Removes the row with all that hangs on it.
    pub fn remove(&mut self, inode: &Inode) -> OpResult<()> {
        let file = inode.id();
        let working = self.inodes.get_mut(&file).expect("an inode is removed after it was read");
        working.inode = None;
        working.is_dirty = true;
        self.is_written = true;
        let kind = inode.attributes.kind;
        if kind.is_regular() {
            self.execute("DELETE FROM locations WHERE inode = ?1", file)?;
            self.locations.insert(file, None);
        } else if kind == types::FileKind::Symlink {
            self.execute("DELETE FROM symlinks WHERE inode = ?1", file)?;
        }
        if inode.extras.has_properties {
            self.execute("DELETE FROM properties WHERE inode = ?1", file)?;
        }
        Ok(())
    }

    pub fn new_file_id(&mut self) -> OpResult<FileId> {
        // The committer reserves for a whole group; it could not if the disk is full.
        self.ids.files.take().map(FileId).ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn new_cookie(&mut self) -> OpResult<u64> {
        self.ids.cookies.take().ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn add_name(&mut self, dir: FileId, name: &Name, cookie: u64, child: FileId) -> OpResult<()> {
        self.connection
            .prepare_cached("INSERT INTO dentries (parent, name, cookie, inode) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![signed(dir.0), name.as_bytes(), signed(cookie), signed(child.0)])?;
        self.changed_name(dir, name, Some(child));
        Ok(())
    }

    /// The name keeps its place in listings.
    pub fn replace_name(&mut self, dir: FileId, name: &Name, child: FileId) -> OpResult<()> {
        self.connection
            .prepare_cached("UPDATE dentries SET inode = ?3 WHERE parent = ?1 AND name = ?2")?
            .execute(params![signed(dir.0), name.as_bytes(), signed(child.0)])?;
        self.changed_name(dir, name, Some(child));
        Ok(())
    }

    pub fn remove_name(&mut self, dir: FileId, name: &Name) -> OpResult<()> {
        self.connection
            .prepare_cached("DELETE FROM dentries WHERE parent = ?1 AND name = ?2")?
            .execute(params![signed(dir.0), name.as_bytes()])?;
        self.changed_name(dir, name, None);
        Ok(())
    }

    fn changed_name(&mut self, dir: FileId, name: &Name, child: Option<FileId>) {
        self.is_written = true;
        self.dentries.insert((dir, name.clone()), Looked { child, is_changed: true });
    }

    pub fn set_target(&mut self, file: FileId, target: &SymlinkTarget) -> OpResult<()> {
        self.is_written = true;
        self.connection
            .prepare_cached("INSERT INTO symlinks (inode, target) VALUES (?1, ?2)")?
            .execute(params![signed(file.0), target.as_bytes()])?;
        self.targets.push((file, target.clone()));
        Ok(())
    }

    /// The pools of a file, in order.
    pub fn locations(&mut self, file: FileId) -> OpResult<Vec<PoolId>> {
        match self.locations.get(&file) {
            Some(locations) => Ok(locations.clone().unwrap_or_default()),
            None => match self.cache.locations(file) {
                Some(locations) => Ok(locations.to_vec()),
                None => Ok(read_locations(self.connection, file)?),
            },
        }
    }

    pub fn add_location(&mut self, file: FileId, pool: PoolId, mut known: Vec<PoolId>) -> OpResult<()> {
        let Err(at) = known.binary_search(&pool) else { return Ok(()) };
        known.insert(at, pool);
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO locations (inode, pool) VALUES (?1, ?2)")?
            .execute(params![signed(file.0), pool.0])?;
        self.is_written = true;
        self.locations.insert(file, Some(known));
        Ok(())
    }

    pub fn drop_location(&mut self, file: FileId, pool: PoolId) -> OpResult<()> {
        let mut known = self.locations(file)?;
        let Ok(at) = known.binary_search(&pool) else { return Ok(()) };
        known.remove(at);
        self.connection
            .prepare_cached("DELETE FROM locations WHERE inode = ?1 AND pool = ?2")?
            .execute(params![signed(file.0), pool.0])?;
        self.is_written = true;
        self.locations.insert(file, Some(known));
        Ok(())
    }

    /// The operation wrote rows that no cache knows.
    pub fn wrote(&mut self) {
        self.is_written = true;
    }

    pub fn is_written(&self) -> bool {
        self.is_written || self.inodes.values().any(|working| working.is_dirty)
    }

    /// Writes the touched inodes, in the order of the table, and says how the totals move.
    pub fn flush(&mut self) -> rusqlite::Result<Totals> {
        let mut totals = Totals::default();
        let mut dirty: Vec<_> = self.inodes.iter().filter(|(_, working)| working.is_dirty).collect();
        dirty.sort_unstable_by_key(|(file, _)| **file);
        for (file, working) in dirty {
            match (working.stored, &working.inode) {
                (None, Some(inode)) => insert_inode(self.connection, inode)?,
                (Some(_), Some(inode)) => update_inode(self.connection, inode)?,
                (Some(_), None) => self.execute("DELETE FROM inodes WHERE id = ?1", *file)?,
                (None, None) => {}
            }
            // Data may have changed in ways that know nothing of this table: the inode says it.
            if working.is_summed && !working.inode.is_some_and(|inode| inode.extras.has_checksums) {
                self.execute("DELETE FROM checksums WHERE inode = ?1", *file)?;
            }
            if let Some(inode) = &working.inode {
                totals.files += 1;
                totals.bytes = totals.bytes.wrapping_add(signed(counted_bytes(inode)));
            }
            if let Some(inode) = &working.stored {
                totals.files -= 1;
                totals.bytes = totals.bytes.wrapping_sub(signed(counted_bytes(inode)));
            }
        }
        Ok(totals)
    }

    /// For the cache, once the group is committed.
    pub fn into_changes(self) -> Changes {
        let mut changes = Changes::default();
        for (file, working) in self.inodes {
            match working.inode {
                inode if working.is_dirty => changes.inodes.push((file, inode)),
                Some(inode) => changes.learned.inodes.push(inode),
                None => {}
            }
        }
        for (key, looked) in self.dentries {
            let into = if looked.is_changed { &mut changes.dentries } else { &mut changes.learned.dentries };
            into.push((key, looked.child));
        }
        changes.locations =
            self.locations.into_iter().map(|(file, known)| (file, known.map(Arc::from))).collect();
        changes.targets = self.targets;
        changes
    }

    /// Files whose waiting writes this group carries.
    pub fn taken(&self) -> &[FileId] {
        &self.taken
    }

    fn read_inode(&self, file: FileId) -> rusqlite::Result<Option<Inode>> {
        read_inode(self.connection, file, self.floor)
    }

    fn execute(&self, sql: &'static str, file: FileId) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([signed(file.0)])?;
        Ok(())
    }
}

fn counted_bytes(inode: &Inode) -> u64 {
    if inode.attributes.kind.is_regular() { inode.attributes.size } else { 0 }
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

pub fn read_locations(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<PoolId>> {
    connection
        .prepare_cached("SELECT pool FROM locations WHERE inode = ?1 ORDER BY pool")?
        .query_map([signed(file.0)], |row| row.get(0).map(PoolId))?
        .collect()
}
