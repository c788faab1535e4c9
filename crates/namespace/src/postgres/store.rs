//! The committer's side: what a group will look up is asked for at once, and its batch becomes statements.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use api::{Account, Counted, Property, ReplicaRef};
use bytes::Bytes;
use futures_util::future::join;
use postgres_types::ToSql;
use tokio::sync::Mutex;
use types::{Acl, FileId, Name, XattrName};

use super::change::{Change, remove_all};
use super::connection::{Link, Target, Trouble};
use super::presence::Side;
use super::rows::{
    INODE_COLUMNS, InodeArrays, WRITE_INODES, decode_inode, decode_name, decode_replica, file_id, get, signed,
};
pub use super::writer::LOCK;
use super::writer::Writer;
use super::{accounts, acls, xattrs};
use crate::inode::{ChangeFloor, Inode};
use crate::locality::state_number;
use crate::store::{
    Batch, DirDelta, Habits, InodeChange, NameChange, NumberEnds, Questions, Store, StoreError, StoreResult,
    Wanted, XattrEntry,
};

/// Errs unless the database is as our last group left it, and ours.
const MOVE_ON: &str = "WITH moved AS (UPDATE progress SET groups = $1::bigint, files = $2::bigint, \
    bytes = $3::bigint WHERE id = 1 AND groups = $1::bigint - 1 AND epoch = $4::bigint RETURNING 1) \
    SELECT 1 / (SELECT count(*) FROM moved)";

pub struct PostgresStore {
    target: Target,
    /// Held while a group is asked for or sent, for the background connects by it, too. Guards nothing else.
    writer: Arc<Mutex<Writer>>,
    floor: ChangeFloor,
    epoch: i64,
    found: Found,
}

/// Answers that were prefetched.
#[derive(Default)]
struct Found {
    inodes: HashMap<FileId, Option<Inode>>,
    children: HashMap<(FileId, Name), Option<FileId>>,
}

impl PostgresStore {
    pub fn new(target: Target, writer: Arc<Mutex<Writer>>, floor: ChangeFloor, epoch: i64) -> PostgresStore {
        PostgresStore { target, writer, floor, epoch, found: Found::default() }
    }

    /// Calls the writer, unless its patience is over: the background task that waits for the server may then hold it.
    fn with_writer<T>(&self, work: impl AsyncFnOnce(&mut Writer) -> StoreResult<T>) -> StoreResult<T> {
        if let Some(reason) = self.target.presence().given_up(Side::Writes) {
            return Err(StoreError::Busy(reason));
        }
        self.target.handle().block_on(async { work(&mut *self.writer.lock().await).await })
    }

    /// Asks until there is an answer, or patience ends.
    fn ask<T>(&mut self, question: impl AsyncFn(&Link, ChangeFloor) -> Result<T, Trouble>) -> StoreResult<T> {
        let floor = self.floor;
        self.with_writer(async |writer| writer.ask(async |link: &Link| question(link, floor).await).await)
    }
}

impl Questions for PostgresStore {
    fn inode(&mut self, file: FileId) -> StoreResult<Option<Inode>> {
        if let Some(found) = self.found.inodes.get(&file) {
            return Ok(*found);
        }
        let found = self.ask(async |link, floor| find_inodes(link, &[signed(file)], floor).await)?;
        Ok(found.into_iter().next().and_then(|(_, inode)| inode))
    }

    fn child(&mut self, dir: FileId, name: &Name) -> StoreResult<Option<FileId>> {
        if let Some(found) = self.found.children.get(&(dir, name.clone())) {
            return Ok(*found);
        }
        self.ask(async |link, _| {
            let rows = link
                .query(
                    "SELECT inode FROM dentries WHERE parent = $1 AND name = $2",
                    &[&signed(dir), &name.as_bytes()],
                )
                .await?;
            rows.first().map(|row| get(row, 0).map(file_id)).transpose().map_err(Trouble::Lasting)
        })
    }

    fn some_names(&mut self, dir: FileId, limit: usize) -> StoreResult<Vec<Name>> {
        self.ask(async |link, _| {
            let rows = link
                .query(
                    "SELECT name FROM dentries WHERE parent = $1 LIMIT $2",
                    &[&signed(dir), &(limit as i64)],
                )
                .await?;
            rows.iter().map(|row| decode_name(row, 0)).collect::<StoreResult<_>>().map_err(Trouble::Lasting)
        })
    }

    fn names_of(&mut self, file: FileId, limit: usize) -> StoreResult<Vec<(FileId, Name)>> {
        self.ask(async |link, _| {
            let rows = link
                .query(
                    "SELECT parent, name FROM dentries WHERE inode = $1 LIMIT $2",
                    &[&signed(file), &(limit as i64)],
                )
                .await?;
            let names = rows.iter().map(|row| Ok((file_id(get(row, 0)?), decode_name(row, 1)?)));
            names.collect::<StoreResult<_>>().map_err(Trouble::Lasting)
        })
    }

    fn locations(&mut self, file: FileId) -> StoreResult<Vec<ReplicaRef>> {
        self.ask(async |link, _| {
            let rows = link
                .query(
                    "SELECT pool, state, since FROM locations WHERE inode = $1 ORDER BY pool",
                    &[&signed(file)],
                )
                .await?;
            rows.iter()
                .map(|row| decode_replica(row, 0))
                .collect::<StoreResult<_>>()
                .map_err(Trouble::Lasting)
        })
    }

    fn properties(&mut self, file: FileId) -> StoreResult<Vec<Property>> {
        self.ask(async |link, _| {
            let rows = link
                .query("SELECT name, value FROM properties WHERE inode = $1 ORDER BY name", &[&signed(file)])
                .await?;
            let properties = rows.iter().map(|row| {
                Ok(Property { name: get(row, 0)?, value: Bytes::copy_from_slice(get::<&[u8]>(row, 1)?) })
            });
            properties.collect::<StoreResult<_>>().map_err(Trouble::Lasting)
        })
    }

    fn xattrs(&mut self, file: FileId) -> StoreResult<Vec<(XattrName, XattrEntry)>> {
        self.ask(async |link, _| xattrs::find_entries(link, file).await)
    }

    fn xattr(&mut self, file: FileId, name: &XattrName) -> StoreResult<Option<Bytes>> {
        self.ask(async |link, _| xattrs::find_value(link, file, name).await)
    }

    fn acl(&mut self, file: FileId) -> StoreResult<Option<Acl>> {
        self.ask(async |link, _| acls::find(link, file).await)
    }

    fn usage(&mut self, account: Account) -> StoreResult<Counted> {
        self.ask(async |link, _| accounts::read_usage(link, account).await)
    }
}

impl Store for PostgresStore {
    fn begin(&mut self, _is_awaited: bool) -> StoreResult<()> {
        // The batch says it.
        self.found = Found::default();
        match self.target.presence().ended() {
            Some(ended) => Err(StoreError::NeedsRestart(ended)),
            None => Ok(()),
        }
    }

    fn habits(&self) -> Habits {
        Habits { prefetches: true, is_remote: true, is_synced_by_log: false }
    }

    fn prefetch(&mut self, wanted: &dyn Fn() -> Vec<Wanted>) -> StoreResult<()> {
        let wanted = wanted();
        if wanted.is_empty() {
            return Ok(());
        }
        let (mut files, mut dirs, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for one in &wanted {
            match one {
                Wanted::Inode(file) => files.push(signed(*file)),
                Wanted::Name(dir, name) => {
                    dirs.push(signed(*dir));
                    names.push(name.as_bytes().to_vec());
                }
            }
        }
        let found = self.ask(async |link, floor| {
            let mut found = Found::default();
            let (inodes, children) = join(
                async {
                    if files.is_empty() { Ok(Vec::new()) } else { find_inodes(link, &files, floor).await }
                },
                async {
                    if dirs.is_empty() {
                        Ok(Vec::new())
                    } else {
                        find_children(link, &dirs, &names, floor).await
                    }
                },
            )
            .await;
            found.inodes.extend(inodes?);
            for (child, inode) in children? {
                found.children.insert(child, inode.map(|inode| inode.id()));
                found.inodes.extend(inode.map(|inode| (inode.id(), Some(inode))));
            }
            Ok(found)
        })?;
        self.found = found;
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> StoreResult<()> {
        let changes = changes(batch, self.epoch);
        self.with_writer(async |writer| writer.carry(batch, changes).await)
    }

    fn abandon(&mut self) {
        self.found = Found::default();
    }

    fn reserve(&mut self, ends: NumberEnds) -> StoreResult<()> {
        self.with_writer(async |writer| writer.reserve(ends).await)
    }

    fn end_cleanly(&mut self) -> StoreResult<()> {
        self.with_writer(async |writer| writer.end_cleanly().await)
    }

    #[cfg(test)]
    fn execute(&mut self, sql: &str) -> StoreResult<()> {
        let sql = sql.to_owned();
        self.ask(async |link, _| Ok(link.client.batch_execute(&sql).await?))
    }
}

async fn find_inodes(
    link: &Link,
    files: &[i64],
    floor: ChangeFloor,
) -> Result<Vec<(FileId, Option<Inode>)>, Trouble> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT k.id, {INODE_COLUMNS} FROM unnest($1::bigint[]) AS k(id) LEFT JOIN inodes i ON i.id = k.id"
        )
    });
    let rows = link.query(&SQL, &[&files]).await?;
    let found = rows.iter().map(|row| Ok((file_id(get(row, 0)?), decode_inode(row, 1, floor)?)));
    found.collect::<StoreResult<_>>().map_err(Trouble::Lasting)
}

type FoundChild = ((FileId, Name), Option<Inode>);

async fn find_children(
    link: &Link,
    dirs: &[i64],
    names: &[Vec<u8>],
    floor: ChangeFloor,
) -> Result<Vec<FoundChild>, Trouble> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT k.parent, k.name, {INODE_COLUMNS} FROM unnest($1::bigint[], $2::bytea[]) AS k(parent, name) \
             LEFT JOIN dentries d ON d.parent = k.parent AND d.name = k.name LEFT JOIN inodes i ON i.id = d.inode"
        )
    });
    let rows = link.query(&SQL, &[&dirs, &names]).await?;
    let found = rows
        .iter()
        .map(|row| Ok(((file_id(get(row, 0)?), decode_name(row, 1)?), decode_inode(row, 2, floor)?)));
    found.collect::<StoreResult<_>>().map_err(Trouble::Lasting)
}

/// Up to which `join_all` polls in the order that it was given.
const CHANGES_MAX: usize = 30;

/// The group's number before all, then a statement for each table and way of changing it: [`CHANGES_MAX`] at most.
fn changes(batch: &Batch, epoch: i64) -> Vec<Change> {
    let totals = batch.totals;
    let mut changes = vec![Change {
        sql: MOVE_ON,
        values: vec![
            Box::new(batch.sequence.cast_signed()),
            Box::new(totals.files),
            Box::new(totals.bytes),
            Box::new(epoch),
        ],
    }];
    change_inodes(batch, &mut changes);
    change_names(batch, &mut changes);
    change_attached(batch, &mut changes);
    xattrs::change(batch, &mut changes);
    acls::change(batch, &mut changes);
    change_clients(batch, &mut changes);
    change_dir_deltas(batch, &mut changes);
    accounts::change(batch, &mut changes);
    assert!(changes.len() <= CHANGES_MAX, "more than join_all keeps in their order");
    changes
}

fn change_inodes(batch: &Batch, changes: &mut Vec<Change>) {
    let (mut written, mut removed) = (InodeArrays::default(), Vec::new());
    for (file, change) in &batch.inodes {
        match change {
            InodeChange::Insert(inode) | InodeChange::Update(inode) => written.push(inode),
            InodeChange::Remove => removed.push(signed(*file)),
        }
    }
    if !written.is_empty() {
        changes.push(Change { sql: WRITE_INODES, values: written.into_values() });
    }
    remove_all(changes, "DELETE FROM inodes WHERE id = ANY($1)", removed);
}

fn change_names(batch: &Batch, changes: &mut Vec<Change>) {
    let mut put = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut repointed = (Vec::new(), Vec::new(), Vec::new());
    let mut removed = (Vec::new(), Vec::new());
    for ((dir, name), change) in &batch.names {
        let (dir, name) = (signed(*dir), name.as_bytes().to_vec());
        match change {
            NameChange::Put { cookie, child } => {
                put.0.push(dir);
                put.1.push(name);
                put.2.push(cookie.cast_signed());
                put.3.push(signed(*child));
            }
            NameChange::Repoint { child } => {
                repointed.0.push(dir);
                repointed.1.push(name);
                repointed.2.push(signed(*child));
            }
            NameChange::Remove => {
                removed.0.push(dir);
                removed.1.push(name);
            }
        }
    }
    if !removed.0.is_empty() {
        changes.push(Change {
            sql: "DELETE FROM dentries d USING unnest($1::bigint[], $2::bytea[]) AS k(parent, name) \
                  WHERE d.parent = k.parent AND d.name = k.name",
            values: vec![Box::new(removed.0), Box::new(removed.1)],
        });
    }
    if !put.0.is_empty() {
        changes.push(Change {
            sql: "INSERT INTO dentries (parent, name, cookie, inode) \
                  SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[]) \
                  ON CONFLICT (parent, name) DO UPDATE SET cookie = excluded.cookie, inode = excluded.inode",
            values: vec![Box::new(put.0), Box::new(put.1), Box::new(put.2), Box::new(put.3)],
        });
    }
    if !repointed.0.is_empty() {
        changes.push(Change {
            sql: "UPDATE dentries d SET inode = k.inode \
                  FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS k(parent, name, inode) \
                  WHERE d.parent = k.parent AND d.name = k.name",
            values: vec![Box::new(repointed.0), Box::new(repointed.1), Box::new(repointed.2)],
        });
    }
}

fn change_attached(batch: &Batch, changes: &mut Vec<Change>) {
    let all = |files: &BTreeSet<FileId>| files.iter().map(|file| signed(*file)).collect();
    remove_all(changes, "DELETE FROM locations WHERE inode = ANY($1)", all(&batch.locations.cleared));
    change_locations(batch, changes);
    let properties = batch
        .properties
        .rows()
        .map(|(file, name, value)| (file, name.clone(), value.map(|value| value.to_vec())));
    change_rows(
        changes,
        &batch.properties.cleared,
        properties,
        "INSERT INTO properties SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[]) \
         ON CONFLICT (inode, name) DO UPDATE SET value = excluded.value",
        "DELETE FROM properties p USING unnest($1::bigint[], $2::text[]) AS k(inode, name) \
         WHERE p.inode = k.inode AND (k.name IS NULL OR p.name = k.name)",
    );
    let checksums = batch.checksums.rows().map(|(file, kind, checksum)| {
        (file, kind.name().to_owned(), checksum.map(|checksum| checksum.value().to_vec()))
    });
    change_rows(
        changes,
        &batch.checksums.cleared,
        checksums,
        "INSERT INTO checksums SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[]) \
         ON CONFLICT (inode, kind) DO UPDATE SET value = excluded.value",
        "DELETE FROM checksums c USING unnest($1::bigint[], $2::text[]) AS k(inode, kind) \
         WHERE c.inode = k.inode AND (k.kind IS NULL OR c.kind = k.kind)",
    );
    let targets = batch.targets.iter().filter_map(|(file, target)| Some((signed(*file), target.as_ref()?)));
    let (files, targets): (Vec<i64>, Vec<Vec<u8>>) =
        targets.map(|(file, target)| (file, target.as_bytes().to_vec())).unzip();
    if !files.is_empty() {
        changes.push(Change {
            sql: "INSERT INTO symlinks SELECT * FROM unnest($1::bigint[], $2::bytea[])",
            values: vec![Box::new(files), Box::new(targets)],
        });
    }
    let gone =
        batch.targets.iter().filter(|(_, target)| target.is_none()).map(|(file, _)| signed(*file)).collect();
    remove_all(changes, "DELETE FROM symlinks WHERE inode = ANY($1)", gone);
}

fn change_locations(batch: &Batch, changes: &mut Vec<Change>) {
    let mut put = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut removed = (Vec::new(), Vec::new());
    for (file, pool, replica) in batch.locations.rows() {
        let (file, pool) = (signed(file), pool.0.cast_signed());
        match replica {
            Some(replica) => {
                put.0.push(file);
                put.1.push(pool);
                put.2.push(state_number(replica.state));
                put.3.push(replica.since.seconds);
            }
            None => {
                removed.0.push(file);
                removed.1.push(pool);
            }
        }
    }
    if !removed.0.is_empty() {
        changes.push(Change {
            sql: "DELETE FROM locations l USING unnest($1::bigint[], $2::integer[]) AS k(inode, pool) \
                  WHERE l.inode = k.inode AND l.pool = k.pool",
            values: vec![Box::new(removed.0), Box::new(removed.1)],
        });
    }
    if !put.0.is_empty() {
        changes.push(Change {
            sql: "INSERT INTO locations (inode, pool, state, since) \
                  SELECT * FROM unnest($1::bigint[], $2::integer[], $3::smallint[], $4::bigint[]) \
                  ON CONFLICT (inode, pool) DO UPDATE SET state = excluded.state, since = excluded.since",
            values: vec![Box::new(put.0), Box::new(put.1), Box::new(put.2), Box::new(put.3)],
        });
    }
}

/// Rows by file and a further key. To `remove` a key that is null stands for all of the file, of those that are `cleared`: a
/// group has few statements.
fn change_rows<K>(
    changes: &mut Vec<Change>,
    cleared: &BTreeSet<FileId>,
    rows: impl Iterator<Item = (FileId, K, Option<Vec<u8>>)>,
    put: &'static str,
    remove: &'static str,
) where
    K: Send + Sync + std::fmt::Debug,
    Vec<K>: ToSql,
    Vec<Option<K>>: ToSql,
    K: 'static,
{
    let mut there = (Vec::new(), Vec::new(), Vec::new());
    let mut gone: (Vec<i64>, Vec<Option<K>>) = cleared.iter().map(|file| (signed(*file), None)).unzip();
    for (file, key, value) in rows {
        match value {
            Some(value) => {
                there.0.push(signed(file));
                there.1.push(key);
                there.2.push(value);
            }
            None => {
                gone.0.push(signed(file));
                gone.1.push(Some(key));
            }
        }
    }
    if !gone.0.is_empty() {
        changes.push(Change { sql: remove, values: vec![Box::new(gone.0), Box::new(gone.1)] });
    }
    if !there.0.is_empty() {
        let values: Vec<Box<dyn ToSql + Sync + Send>> =
            vec![Box::new(there.0), Box::new(there.1), Box::new(there.2)];
        changes.push(Change { sql: put, values });
    }
}

fn change_clients(batch: &Batch, changes: &mut Vec<Change>) {
    let there = batch.clients.iter().filter_map(|(owner, client)| Some((owner.clone(), (*client)?)));
    let (owners, reclaimed): (Vec<Vec<u8>>, Vec<bool>) = there.unzip();
    if !owners.is_empty() {
        changes.push(Change {
            sql: "INSERT INTO clients SELECT * FROM unnest($1::bytea[], $2::boolean[]) \
                  ON CONFLICT (owner) DO UPDATE SET reclaim_complete = excluded.reclaim_complete",
            values: vec![Box::new(owners), Box::new(reclaimed)],
        });
    }
    let gone = batch.clients.iter().filter(|(_, client)| client.is_none());
    let gone: Vec<Vec<u8>> = gone.map(|(owner, _)| owner.clone()).collect();
    if !gone.is_empty() {
        changes
            .push(Change { sql: "DELETE FROM clients WHERE owner = ANY($1)", values: vec![Box::new(gone)] });
    }
}

fn change_dir_deltas(batch: &Batch, changes: &mut Vec<Change>) {
    let folded = batch.folded.iter().map(|dir| signed(*dir)).collect();
    remove_all(changes, "DELETE FROM dir_deltas WHERE inode = ANY($1)", folded);
    let deltas = &batch.dir_deltas;
    if deltas.is_empty() {
        return;
    }
    let column = |of: fn(&DirDelta) -> i64| deltas.values().map(of).collect::<Vec<i64>>();
    let nanoseconds = deltas.values().map(|delta| delta.time.nanoseconds().cast_signed());
    changes.push(Change {
        sql: "INSERT INTO dir_deltas (inode, groups, nlink, change, time_s, time_ns) \
              SELECT k.inode, $1::bigint, k.nlink, k.change, k.time_s, k.time_ns FROM unnest($2::bigint[], $3::bigint[], \
              $4::bigint[], $5::bigint[], $6::integer[]) AS k(inode, nlink, change, time_s, time_ns)",
        values: vec![
            Box::new(batch.sequence.cast_signed()),
            Box::new(deltas.keys().map(|dir| signed(*dir)).collect::<Vec<i64>>()),
            Box::new(column(|delta| delta.nlink)),
            Box::new(column(|delta| delta.change.cast_signed())),
            Box::new(column(|delta| delta.time.seconds)),
            Box::new(nanoseconds.collect::<Vec<i32>>()),
        ],
    });
}

#[cfg(test)]
mod tests;
