//! Cold reads: a few threads, each with its connection, each read in one snapshot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use api::{ClientRecord, NamespaceError, Property, ReplicaRef};
use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;
use types::{Acl, Checksum, FileId, Name, SymlinkTarget, XattrName};

use super::rows::{
    AFTER_INODE, INODE_COLUMNS, corrupt, decode_inode, decode_name, open_reader, signed, to_namespace_error,
    unsigned,
};
use super::store::{read_checksums, read_child, read_inode, read_locations, read_properties};
use super::{acls, check, paths, xattrs};
use crate::inode::{ChangeFloor, Inode};
use crate::queue::Queue;
use crate::reads::{AclReads, Answer, AsOf, Entry, Listed, Reads, Which, XattrReads};
use crate::session::{Purpose, Session};
use crate::store::XattrEntry;

/// A consistent view of the database, as of one group.
pub struct Snapshot<'a> {
    pub connection: &'a Connection,
    pub floor: ChangeFloor,
}

trait Read: Send {
    fn run(self: Box<Self>, reader: &Reader);
}

struct Question<F, T> {
    question: F,
    answer: oneshot::Sender<Answer<T>>,
}

impl<F, T> Read for Question<F, T>
where
    F: FnOnce(&Snapshot<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(self: Box<Self>, reader: &Reader) {
        let result = reader.read(self.question);
        // The caller may be gone.
        let _ = self.answer.send(result);
    }
}

/// Where cold reads are handed in.
pub struct SqliteReads {
    queue: Queue<Box<dyn Read>>,
    path: PathBuf,
}

impl SqliteReads {
    pub fn new(queue_len_max: usize, path: &Path) -> SqliteReads {
        SqliteReads { queue: Queue::new(queue_len_max), path: path.to_owned() }
    }

    async fn ask<T, F>(&self, question: F) -> Answer<T>
    where
        F: FnOnce(&Snapshot<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.queue.push(Box::new(Question { question, answer })).map_err(|_| NamespaceError::Busy)?;
        answered.await.unwrap_or_else(|_| Err(NamespaceError::Database("reader stopped".to_owned())))
    }
}

#[async_trait]
impl Reads for SqliteReads {
    async fn inode(&self, file: FileId) -> Answer<Option<Inode>> {
        self.ask(move |snapshot| snapshot.inode(file)).await
    }

    async fn entry(&self, dir: FileId, name: &Name) -> Answer<Option<Entry>> {
        let name = name.clone();
        self.ask(move |snapshot| {
            let Some(dir) = snapshot.inode(dir)? else { return Ok(None) };
            let child = match read_child(snapshot.connection, dir.id(), &name)? {
                Some(child) => snapshot.inode(child)?,
                None => None,
            };
            Ok(Some(Entry { dir, child }))
        })
        .await
    }

    async fn list(&self, dir: FileId, after: u64, limit: usize) -> Answer<Vec<Listed>> {
        self.ask(move |snapshot| snapshot.list(dir, after, limit)).await
    }

    async fn target(&self, file: FileId) -> Answer<Option<SymlinkTarget>> {
        self.ask(move |snapshot| snapshot.target(file)).await
    }

    async fn locations(&self, file: FileId) -> Answer<Vec<ReplicaRef>> {
        self.ask(move |snapshot| read_locations(snapshot.connection, file)).await
    }

    async fn files(
        &self,
        after: FileId,
        limit: usize,
        which: Which,
    ) -> Answer<Vec<(Inode, Vec<ReplicaRef>)>> {
        self.ask(move |snapshot| snapshot.files(after, limit, which)).await
    }

    async fn properties(&self, file: FileId) -> Answer<Vec<Property>> {
        self.ask(move |snapshot| read_properties(snapshot.connection, file)).await
    }

    async fn checksums(&self, file: FileId) -> Answer<Vec<Checksum>> {
        self.ask(move |snapshot| read_checksums(snapshot.connection, file)).await
    }

    async fn paths(&self, files: &[FileId]) -> Answer<Vec<Option<Vec<Name>>>> {
        let files = files.to_vec();
        self.ask(move |snapshot| paths::paths(snapshot.connection, &files)).await
    }

    async fn clients(&self) -> Answer<Vec<ClientRecord>> {
        self.ask(|snapshot| {
            let mut statement =
                snapshot.connection.prepare_cached("SELECT owner, reclaim_complete FROM clients")?;
            let rows = statement.query_map([], |row| {
                Ok(ClientRecord { owner: row.get(0)?, reclaim_complete: row.get(1)? })
            })?;
            rows.collect()
        })
        .await
    }

    fn session(&self, purpose: Purpose) -> Result<Box<dyn Session>, NamespaceError> {
        check::session(&self.path, purpose).map_err(|error| (&error).into())
    }

    fn close(&self) {
        self.queue.close();
    }
}

#[async_trait]
impl AclReads for SqliteReads {
    async fn acl(&self, file: FileId) -> Answer<Option<Acl>> {
        self.ask(move |snapshot| acls::read(snapshot.connection, file)).await
    }
}

#[async_trait]
impl XattrReads for SqliteReads {
    async fn xattrs(&self, file: FileId) -> Answer<Vec<(XattrName, XattrEntry)>> {
        self.ask(move |snapshot| xattrs::read_entries(snapshot.connection, file)).await
    }

    async fn xattr(&self, file: FileId, name: &XattrName) -> Answer<Option<Bytes>> {
        let name = name.clone();
        self.ask(move |snapshot| xattrs::read_value(snapshot.connection, file, &name)).await
    }
}

pub struct Reader {
    connection: Connection,
    floor: ChangeFloor,
    reads: Arc<SqliteReads>,
}

impl Reader {
    pub fn open(reads: &Arc<SqliteReads>, floor: ChangeFloor) -> rusqlite::Result<Reader> {
        Ok(Reader { connection: open_reader(&reads.path)?, floor, reads: Arc::clone(reads) })
    }

    pub fn run(self) {
        loop {
            let taken = self.reads.queue.take(1, None);
            let is_end = taken.is_closed && taken.items.is_empty();
            for read in taken.items {
                // A panic is a bug; its caller hears of it by the dropped answer, and the next read is served.
                if catch_unwind(AssertUnwindSafe(|| read.run(&self))).is_err() {
                    tracing::error!("namespace reader panicked");
                }
            }
            if is_end {
                return;
            }
        }
    }

    fn read<T>(&self, question: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T>) -> Answer<T> {
        in_snapshot(&self.connection, self.floor, question).map_err(to_namespace_error)
    }
}

fn in_snapshot<T>(
    connection: &Connection,
    floor: ChangeFloor,
    question: impl FnOnce(&Snapshot<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<AsOf<T>> {
    // Rolls back when dropped, which for a read is as good as any end.
    let transaction = connection.unchecked_transaction()?;
    let sequence = transaction
        .prepare_cached("SELECT groups FROM progress WHERE id = 1")?
        .query_row([], |row| row.get(0).map(unsigned))?;
    let value = question(&Snapshot { connection: &transaction, floor })?;
    Ok(AsOf { value, sequence })
}

impl Snapshot<'_> {
    fn inode(&self, file: FileId) -> rusqlite::Result<Option<Inode>> {
        read_inode(self.connection, file, self.floor)
    }

    fn target(&self, file: FileId) -> rusqlite::Result<Option<SymlinkTarget>> {
        self.connection
            .prepare_cached("SELECT target FROM symlinks WHERE inode = ?1")?
            .query_row([signed(file.0)], |row| {
                SymlinkTarget::new(row.get_ref(0)?.as_blob()?).map_err(|error| corrupt(0, &error.to_string()))
            })
            .optional()
    }

    /// Entries in the order of their cookies, with their inodes, by one walk of the index.
    fn list(&self, dir: FileId, after: u64, limit: usize) -> rusqlite::Result<Vec<Listed>> {
        static SQL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {INODE_COLUMNS}, d.cookie, d.name FROM dentries d INDEXED BY dentries_by_cookie \
                 CROSS JOIN inodes i ON i.id = d.inode WHERE d.parent = ?1 AND d.cookie > ?2 ORDER BY d.cookie LIMIT ?3"
            )
        });
        let floor = self.floor;
        let mut statement = self.connection.prepare_cached(&SQL)?;
        let rows = statement.query_map(params![signed(dir.0), signed(after), limit as i64], |row| {
            Ok(Listed {
                inode: decode_inode(row, 0, floor)?,
                cookie: unsigned(row.get(AFTER_INODE)?),
                name: decode_name(row, AFTER_INODE + 1)?,
            })
        })?;
        rows.collect()
    }

    /// Regular files by id behind `after`, with their replicas.
    fn files(
        &self,
        after: FileId,
        limit: usize,
        which: Which,
    ) -> rusqlite::Result<Vec<(Inode, Vec<ReplicaRef>)>> {
        static FILES: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {INODE_COLUMNS} FROM inodes i WHERE i.id > ?1 AND i.kind = 0 ORDER BY i.id LIMIT ?2"
            )
        });
        static ORPHANS: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {INODE_COLUMNS} FROM inodes i WHERE i.nlink = 0 AND i.id > ?1 ORDER BY i.id LIMIT ?2"
            )
        });
        // The index has the rows of replicas that are not good, and no others.
        static UNSETTLED: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {INODE_COLUMNS} FROM (SELECT DISTINCT inode FROM locations WHERE state <> 1 AND inode > ?1 \
                 ORDER BY inode LIMIT ?2) u JOIN inodes i ON i.id = u.inode ORDER BY i.id"
            )
        });
        let floor = self.floor;
        let sql: &str = match which {
            Which::All => &FILES,
            Which::Orphans => &ORPHANS,
            Which::Unsettled => &UNSETTLED,
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows =
            statement.query_map(params![signed(after.0), limit as i64], |row| decode_inode(row, 0, floor))?;
        rows.map(|inode| {
            let inode = inode?;
            Ok((inode, read_locations(self.connection, inode.id())?))
        })
        .collect()
    }
}
