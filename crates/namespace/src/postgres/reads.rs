//! Cold reads: each one statement, which tells the last group that it shows besides, on one of a few connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use api::{ClientRecord, NamespaceError, Property, ReplicaRef};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tokio_postgres::Row;
use types::{Acl, Checksum, FileId, Name, SymlinkTarget, XattrName};

use super::connection::{ANSWER_TIMEOUT, Link, Target};
use super::presence::{Attempts, PATIENCE, Side};
use super::rows::{AFTER_INODE, INODE_COLUMNS, corrupt, decode_inode, decode_name, file_id, get, signed};
use super::trouble::{Trouble, slow};
use super::writer::GROUPS;
use super::{acls, check, rows, xattrs};
use crate::inode::{ChangeFloor, Inode};
use crate::reads::{
    AclReads, Answer, AsOf, DEPTH_MAX, Entry, LOOKUPS_MAX, Listed, PATH_BYTES_MAX, Reads, Which, XattrReads,
    decode_checksum,
};
use crate::session::{Purpose, Session};
use crate::store::{StoreError, StoreResult, XattrEntry};

const CONNECTIONS: usize = 4;
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// While it is away.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

pub struct PostgresReads {
    target: Target,
    links: [Mutex<Option<Arc<Link>>>; CONNECTIONS],
    next: AtomicUsize,
    places: Semaphore,
    floor: ChangeFloor,
}

impl PostgresReads {
    /// At least one connection has to be had, beside that which writes.
    pub fn new(target: Target, first: Link, floor: ChangeFloor, questions_max: usize) -> PostgresReads {
        let mut links: [Mutex<Option<Arc<Link>>>; CONNECTIONS] = Default::default();
        links[0] = Mutex::new(Some(Arc::new(first)));
        PostgresReads {
            target,
            links,
            next: AtomicUsize::new(0),
            places: Semaphore::new(questions_max),
            floor,
        }
    }

    /// Until these are gone. Notices that the database goes away or comes back, also while nobody reads.
    pub async fn watch(reads: Weak<PostgresReads>) {
        let mut interval = WATCH_INTERVAL;
        loop {
            tokio::time::sleep(interval).await;
            let Some(reads) = reads.upgrade() else { return };
            // `attempt` notes the outcome.
            let asked = reads.attempt(GROUPS, &[], ANSWER_TIMEOUT).await;
            interval = if asked.is_ok() { WATCH_INTERVAL } else { PROBE_INTERVAL };
        }
    }

    /// A server that gives no more connections has given one before.
    async fn link(&self, at: usize) -> Result<Arc<Link>, Trouble> {
        let mut slot = self.links[at].lock().await;
        if let Some(link) = slot.as_ref().filter(|link| !link.client.is_closed()) {
            return Ok(Arc::clone(link));
        }
        match self.target.connect().await {
            Ok(link) => Ok(Arc::clone(slot.insert(Arc::new(link)))),
            Err(trouble) => self.other_link(at).ok_or(trouble),
        }
    }

    fn other_link(&self, at: usize) -> Option<Arc<Link>> {
        let others = self.links.iter().enumerate().filter(|(other, _)| *other != at);
        let mut free = others.filter_map(|(_, slot)| slot.try_lock().ok()?.clone());
        free.find(|link| !link.client.is_closed())
    }

    /// It is silent: the next read gets another.
    fn forget(&self, silent: Option<&Arc<Link>>) {
        let Some(silent) = silent else { return };
        // Where another holds the place he is about to do the same, or connects anew.
        for mut slot in self.links.iter().filter_map(|slot| slot.try_lock().ok()) {
            slot.take_if(|link| Arc::ptr_eq(link, silent));
        }
    }

    /// All rows of `sql`, with the group number as their first column.
    async fn rows(
        &self,
        sql: &'static str,
        parameters: &[&(dyn postgres_types::ToSql + Sync)],
    ) -> Answer<Vec<Row>> {
        let _place = self.places.try_acquire().map_err(|_| NamespaceError::Busy)?;
        let presence = self.target.presence();
        let (mut attempts, began) = (Attempts::default(), Instant::now());
        loop {
            // Others may be answered meanwhile, so that the database does not count as away.
            let left = PATIENCE.saturating_sub(began.elapsed());
            if left.is_zero() || presence.is_stopping() || presence.given_up(Side::Reads).is_some() {
                return Err(NamespaceError::Busy);
            }
            match self.attempt(sql, parameters, left).await {
                Ok(rows) => return Ok(rows),
                Err(Trouble::Lasting(error)) => return Err((&error).into()),
                Err(Trouble::Moved) => return Err(NamespaceError::Busy),
                Err(Trouble::Passing(_) | Trouble::Torn(_)) => attempts.pause().await,
            }
        }
    }

    async fn attempt(
        &self,
        sql: &'static str,
        parameters: &[&(dyn postgres_types::ToSql + Sync)],
        patience: Duration,
    ) -> Result<AsOf<Vec<Row>>, Trouble> {
        let (presence, began) = (self.target.presence(), Instant::now());
        let at = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        // Groups acknowledged before the query are to be in the answer.
        let acknowledged = presence.acknowledged();
        let mut used = None;
        let asking = async {
            let link = used.insert(self.link(at).await?);
            let rows = link.query(sql, parameters).await?;
            let sequence = rows.first().ok_or_else(|| corrupt("there is no progress"));
            let sequence = sequence.and_then(|row| get::<i64>(row, 0)).map_err(Trouble::Lasting)?;
            Ok(AsOf { value: rows, sequence: sequence.cast_unsigned() })
        };
        let asked = timeout(patience.min(ANSWER_TIMEOUT), asking).await.unwrap_or_else(|_| {
            self.forget(used.as_ref());
            Err(slow())
        });
        let checked = match asked {
            Ok(rows) => self.check_progress(at, rows.sequence, acknowledged).await.map(|()| rows),
            Err(trouble) => Err(trouble),
        };
        match &checked {
            Err(Trouble::Passing(reason) | Trouble::Torn(reason)) => {
                presence.note_away_at(Side::Reads, reason, began);
            }
            Err(Trouble::Lasting(_) | Trouble::Moved) => {}
            Ok(_) => presence.note_there(Side::Reads),
        }
        checked
    }

    /// An older state than what was acknowledged is no answer: the database lost something, which the writer may be able to
    /// send again, or it was set back, or this is another server.
    async fn check_progress(&self, at: usize, found: u64, acknowledged: u64) -> Result<(), Trouble> {
        let presence = self.target.presence();
        if let Some(ended) = presence.ended().filter(|_| found != acknowledged) {
            return Err(Trouble::Lasting(StoreError::Failed(ended)));
        }
        if found >= acknowledged {
            return Ok(());
        }
        presence.suspect();
        *self.links[at].lock().await = None;
        Err(Trouble::Passing(format!(
            "database holds {found} groups of changes, {acknowledged} were acknowledged"
        )))
    }

    async fn ask<T>(
        &self,
        sql: &'static str,
        parameters: &[&(dyn postgres_types::ToSql + Sync)],
        decode: impl FnOnce(&[Row]) -> StoreResult<T>,
    ) -> Answer<T> {
        let found = self.rows(sql, parameters).await?;
        let value = decode(&found.value).map_err(|error| NamespaceError::from(&error))?;
        Ok(AsOf { value, sequence: found.sequence })
    }
}

/// A question that always has a row: where nothing is found, one of the group number and nulls.
macro_rules! question {
    ($($part:tt)*) => {{
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let question = format!($($part)*);
            format!("SELECT p.groups, x.* FROM progress p LEFT JOIN LATERAL ({question}) x ON true WHERE p.id = 1")
        });
        LazyLock::force(&SQL).as_str()
    }};
}

/// Pool, state and time of each replica, one behind the other.
const REPLICAS: &str = "ARRAY(SELECT r.value FROM locations l CROSS JOIN LATERAL \
    (VALUES (1, l.pool::bigint), (2, l.state::bigint), (3, l.since)) AS r(part, value) \
    WHERE l.inode = i.id ORDER BY l.pool, r.part)";

/// The rows of a question that found something.
fn found(rows: &[Row]) -> impl Iterator<Item = &Row> {
    // Every question's first column is of a key.
    rows.iter().filter(|row| !matches!(row.try_get::<_, Option<Null>>(1), Ok(None)))
}

/// A value of any type that is not null.
struct Null;

impl<'a> postgres_types::FromSql<'a> for Null {
    fn from_sql(
        _: &postgres_types::Type,
        _: &'a [u8],
    ) -> Result<Null, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Null)
    }

    fn accepts(_: &postgres_types::Type) -> bool {
        true
    }
}

#[async_trait]
impl Reads for PostgresReads {
    async fn inode(&self, file: FileId) -> Answer<Option<Inode>> {
        let sql = question!("SELECT {INODE_COLUMNS} FROM inodes i WHERE i.id = $1");
        self.ask(sql, &[&signed(file)], |rows| decode_inode(&rows[0], 1, self.floor)).await
    }

    async fn entry(&self, dir: FileId, name: &Name) -> Answer<Option<Entry>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            let child = INODE_COLUMNS.replace("i.", "c.");
            format!(
                "SELECT p.groups, {INODE_COLUMNS}, {child} FROM progress p LEFT JOIN inodes i ON i.id = $1 \
                 LEFT JOIN dentries d ON d.parent = $1 AND d.name = $2 LEFT JOIN inodes c ON c.id = d.inode \
                 WHERE p.id = 1"
            )
        });
        self.ask(&SQL, &[&signed(dir), &name.as_bytes()], |rows| {
            let Some(dir) = decode_inode(&rows[0], 1, self.floor)? else { return Ok(None) };
            Ok(Some(Entry { dir, child: decode_inode(&rows[0], 1 + AFTER_INODE, self.floor)? }))
        })
        .await
    }

    async fn list(&self, dir: FileId, after: u64, limit: usize) -> Answer<Vec<Listed>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT p.groups, {INODE_COLUMNS}, d.cookie, d.name FROM progress p LEFT JOIN \
                 (SELECT cookie, name, inode FROM dentries WHERE parent = $1 AND cookie > $2 ORDER BY cookie LIMIT $3) d \
                 ON true LEFT JOIN inodes i ON i.id = d.inode WHERE p.id = 1 ORDER BY d.cookie"
            )
        });
        let parameters: [&(dyn postgres_types::ToSql + Sync); 3] =
            [&signed(dir), &after.cast_signed(), &(limit as i64)];
        self.ask(&SQL, &parameters, |rows| {
            let mut listed = Vec::with_capacity(rows.len());
            for row in rows {
                if let Some(inode) = decode_inode(row, 1, self.floor)? {
                    let cookie = get::<i64>(row, 1 + AFTER_INODE)?.cast_unsigned();
                    listed.push(Listed { name: decode_name(row, 2 + AFTER_INODE)?, cookie, inode });
                }
            }
            Ok(listed)
        })
        .await
    }

    async fn target(&self, file: FileId) -> Answer<Option<SymlinkTarget>> {
        let sql = question!("SELECT target FROM symlinks WHERE inode = $1");
        let decode = |row: &Row| SymlinkTarget::new(get::<&[u8]>(row, 1)?).map_err(corrupt);
        self.ask(sql, &[&signed(file)], |rows| found(rows).next().map(decode).transpose()).await
    }

    async fn locations(&self, file: FileId) -> Answer<Vec<ReplicaRef>> {
        let sql = question!("SELECT pool, state, since FROM locations WHERE inode = $1 ORDER BY pool");
        let decode = |row: &Row| rows::decode_replica(row, 1);
        self.ask(sql, &[&signed(file)], |rows| found(rows).map(decode).collect()).await
    }

    async fn files(
        &self,
        after: FileId,
        limit: usize,
        which: Which,
    ) -> Answer<Vec<(Inode, Vec<ReplicaRef>)>> {
        let sql = match which {
            Which::All => question!(
                "SELECT {INODE_COLUMNS}, {} FROM inodes i WHERE i.kind = 0 AND i.id > $1 ORDER BY i.id LIMIT $2",
                REPLICAS
            ),
            Which::Orphans => question!(
                "SELECT {INODE_COLUMNS}, {} FROM inodes i WHERE i.nlink = 0 AND i.id > $1 ORDER BY i.id LIMIT $2",
                REPLICAS
            ),
            // The index has the rows of replicas that are not good, and no others.
            Which::Unsettled => question!(
                "SELECT {INODE_COLUMNS}, {} FROM (SELECT DISTINCT inode FROM locations WHERE state <> 1 AND inode > $1 \
                 ORDER BY inode LIMIT $2) u JOIN inodes i ON i.id = u.inode ORDER BY i.id",
                REPLICAS
            ),
        };
        self.ask(sql, &[&signed(after), &(limit as i64)], |rows| {
            let mut files = Vec::with_capacity(rows.len());
            for row in rows {
                if let Some(inode) = decode_inode(row, 1, self.floor)? {
                    files.push((inode, rows::decode_replicas(row, 1 + AFTER_INODE)?));
                }
            }
            Ok(files)
        })
        .await
    }

    async fn properties(&self, file: FileId) -> Answer<Vec<Property>> {
        let sql = question!("SELECT name, value FROM properties WHERE inode = $1 ORDER BY name");
        let decode = |row: &Row| {
            Ok(Property { name: get(row, 1)?, value: Bytes::copy_from_slice(get::<&[u8]>(row, 2)?) })
        };
        self.ask(sql, &[&signed(file)], |rows| found(rows).map(decode).collect()).await
    }

    async fn checksums(&self, file: FileId) -> Answer<Vec<Checksum>> {
        let sql = question!("SELECT kind, value FROM checksums WHERE inode = $1 ORDER BY kind");
        let decode = |row: &Row| decode_checksum(get(row, 1)?, get(row, 2)?).map_err(corrupt);
        self.ask(sql, &[&signed(file)], |rows| found(rows).map(decode).collect()).await
    }

    async fn paths(&self, files: &[FileId]) -> Answer<Vec<Option<Vec<Name>>>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "WITH RECURSIVE way AS ( \
                 SELECT k.file AS start, k.file AS here, 0 AS depth, NULL::bytea AS name \
                 FROM unnest($1::bigint[]) AS k(file) \
                 UNION ALL SELECT w.start, d.parent, w.depth + 1, d.name FROM way w CROSS JOIN LATERAL \
                 (SELECT parent, name FROM dentries WHERE inode = w.here LIMIT 1) d \
                 WHERE w.here != 1 AND w.depth < {DEPTH_MAX}) \
                 SELECT p.groups, w.start, w.here, w.name FROM progress p LEFT JOIN \
                 (SELECT * FROM way LIMIT {}) w ON true WHERE p.id = 1 ORDER BY w.start, w.depth",
                LOOKUPS_MAX
            )
        });
        let mut asked: Vec<i64> = files.iter().map(|file| signed(*file)).collect();
        asked.sort_unstable();
        asked.dedup();
        self.ask(&SQL, &[&asked], |rows| {
            let mut ways: HashMap<FileId, (FileId, Vec<Name>)> = HashMap::new();
            for row in found(rows) {
                let (start, here) = (file_id(get(row, 1)?), file_id(get(row, 2)?));
                let way = ways.entry(start).or_insert((start, Vec::new()));
                way.0 = here;
                if get::<Option<&[u8]>>(row, 3)?.is_some() {
                    way.1.push(decode_name(row, 3)?);
                }
            }
            Ok(files.iter().map(|file| whole_path(ways.get(file)?)).collect())
        })
        .await
    }

    async fn clients(&self) -> Answer<Vec<ClientRecord>> {
        let sql = question!("SELECT owner, reclaim_complete FROM clients");
        let decode = |row: &Row| Ok(ClientRecord { owner: get(row, 1)?, reclaim_complete: get(row, 2)? });
        self.ask(sql, &[], |rows| found(rows).map(decode).collect()).await
    }

    fn session(&self, purpose: Purpose) -> Result<Box<dyn Session>, NamespaceError> {
        check::session(&self.target, purpose).map_err(|error| (&error).into())
    }

    fn close(&self) {
        self.target.presence().stop();
    }
}

#[async_trait]
impl AclReads for PostgresReads {
    async fn acl(&self, file: FileId) -> Answer<Option<Acl>> {
        let decode = |row: &Row| acls::decode(row, 1);
        self.ask(question!("{}", acls::ACL), &[&signed(file)], |rows| {
            found(rows).next().map(decode).transpose()
        })
        .await
    }
}

#[async_trait]
impl XattrReads for PostgresReads {
    async fn xattrs(&self, file: FileId) -> Answer<Vec<(XattrName, XattrEntry)>> {
        let decode = |row: &Row| xattrs::decode_entry(row, 1);
        self.ask(question!("{}", xattrs::ENTRIES), &[&signed(file)], |rows| found(rows).map(decode).collect())
            .await
    }

    async fn xattr(&self, file: FileId, name: &XattrName) -> Answer<Option<Bytes>> {
        let decode = |row: &Row| xattrs::decode_value(row, 1);
        self.ask(question!("{}", xattrs::VALUE), &[&signed(file), &name.as_bytes()], |rows| {
            found(rows).next().map(decode).transpose()
        })
        .await
    }
}

/// From the root, if that is where it ended.
fn whole_path((end, names): &(FileId, Vec<Name>)) -> Option<Vec<Name>> {
    let bytes: usize = names.iter().map(|name| 1 + name.as_bytes().len()).sum();
    let is_whole = *end == FileId::ROOT && bytes <= PATH_BYTES_MAX;
    is_whole.then(|| names.iter().rev().cloned().collect())
}
