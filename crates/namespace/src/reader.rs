//! Cold reads: a few threads, each with its connection, each read in one snapshot.
//!
//! A snapshot knows the last group it holds. Before anything of it is told or cached, that group must be published, so
//! that a warm read never shows less than a cold one did before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use api::{NamespaceError, Property};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;
use types::{Checksum, FileId, Name, PoolId, SymlinkTarget};

use crate::cache::{Cache, Learned};
use crate::committer::Shared;
use crate::inode::Inode;
use crate::queue::Queue;
use crate::sqlite::{
    AFTER_INODE, ChangeFloor, INODE_COLUMNS, corrupt, decode_inode, decode_name, read_checksums, read_child,
    read_inode, read_locations, read_properties, signed, to_namespace_error, unsigned,
};

/// A consistent view of the database, as of one group.
pub struct Snapshot<'a> {
    pub connection: &'a Connection,
    pub floor: ChangeFloor,
    /// The last group in it.
    pub sequence: u64,
    learned: Learned,
}

/// A row of a listing.
pub struct Listed {
    pub name: Name,
    pub cookie: u64,
    pub inode: Inode,
}

trait Read: Send {
    fn run(self: Box<Self>, reader: &Reader);
}

struct Question<F, T> {
    question: F,
    answer: oneshot::Sender<Result<T, NamespaceError>>,
}

impl<F, T> Read for Question<F, T>
where
    F: FnOnce(&mut Snapshot<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(self: Box<Self>, reader: &Reader) {
        let result = reader.read(self.question);
        // Whoever asked may be gone.
        let _ = self.answer.send(result);
    }
}

/// Where cold reads are handed in.
pub struct Reads {
    queue: Queue<Box<dyn Read>>,
}

impl Reads {
    pub fn new(queue_len_max: usize) -> Reads {
        Reads { queue: Queue::new(queue_len_max) }
    }

    pub async fn ask<T, F>(&self, question: F) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Snapshot<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.queue.push(Box::new(Question { question, answer })).map_err(|_| NamespaceError::Busy)?;
        answered.await.unwrap_or_else(|_| Err(NamespaceError::Database("reader stopped".to_owned())))
    }

    pub fn close(&self) {
        self.queue.close();
    }
}

pub struct Reader {
    pub connection: Connection,
    pub shared: Arc<Shared>,
    pub reads: Arc<Reads>,
}

impl Reader {
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

    fn read<T>(
        &self,
        question: impl FnOnce(&mut Snapshot<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, NamespaceError> {
        let (result, sequence, learned) = in_snapshot(&self.connection, self.shared.floor, question)
            .map_err(|error| to_namespace_error(&error))?;
        let cache: &Cache = &self.shared.cache;
        if !cache.wait_published(sequence) {
            return Err(NamespaceError::Database("committer stopped".to_owned()));
        }
        cache.learn(sequence, learned);
        Ok(result)
    }
}

fn in_snapshot<T>(
    connection: &Connection,
    floor: ChangeFloor,
    question: impl FnOnce(&mut Snapshot<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<(T, u64, Learned)> {
    // Rolls back when dropped, which for a read is as good as any end.
    let transaction = connection.unchecked_transaction()?;
    let sequence = transaction
        .prepare_cached("SELECT groups FROM progress WHERE id = 1")?
        .query_row([], |row| row.get(0).map(unsigned))?;
    let mut snapshot = Snapshot { connection: &transaction, floor, sequence, learned: Learned::default() };
    let result = question(&mut snapshot)?;
    let learned = snapshot.learned;
    Ok((result, sequence, learned))
}

impl Snapshot<'_> {
    pub fn inode(&mut self, file: FileId) -> rusqlite::Result<Option<Inode>> {
        let inode = read_inode(self.connection, file, self.floor)?;
        self.learned.inodes.extend(inode);
        Ok(inode)
    }

    pub fn child(&mut self, dir: FileId, name: &Name) -> rusqlite::Result<Option<FileId>> {
        let child = read_child(self.connection, dir, name)?;
        self.learned.dentries.push(((dir, name.clone()), child));
        Ok(child)
    }

    pub fn locations(&mut self, file: FileId) -> rusqlite::Result<Vec<PoolId>> {
        let pools = read_locations(self.connection, file)?;
        self.learned.locations.push((file, pools.clone().into()));
        Ok(pools)
    }

    pub fn target(&mut self, file: FileId) -> rusqlite::Result<Option<SymlinkTarget>> {
        let target = self
            .connection
            .prepare_cached("SELECT target FROM symlinks WHERE inode = ?1")?
            .query_row([signed(file.0)], |row| {
                SymlinkTarget::new(row.get_ref(0)?.as_blob()?).map_err(|error| corrupt(0, &error.to_string()))
            })
            .optional()?;
        self.learned.targets.extend(target.clone().map(|target| (file, target)));
        Ok(target)
    }

    /// Not cached: few files have any, and the inode says which.
    pub fn properties(&self, file: FileId) -> rusqlite::Result<Vec<Property>> {
        read_properties(self.connection, file)
    }

    pub fn checksums(&self, file: FileId) -> rusqlite::Result<Vec<Checksum>> {
        read_checksums(self.connection, file)
    }

    /// Entries in the order of their cookies, with their inodes, by one walk of the index.
    pub fn list(&mut self, dir: FileId, after: u64, limit: usize) -> rusqlite::Result<Vec<Listed>> {
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
        let listed = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        for entry in &listed {
            // Who lists will look up and ask attributes.
            self.learned.inodes.push(entry.inode);
            self.learned.dentries.push(((dir, entry.name.clone()), Some(entry.inode.id())));
        }
        Ok(listed)
    }

    /// Regular files by id behind `after`, all or only those without a name, with their pools.
    pub fn files(
        &mut self,
        after: FileId,
        limit: usize,
        only_orphans: bool,
    ) -> rusqlite::Result<Vec<(Inode, Vec<PoolId>)>> {
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
        let floor = self.floor;
        let sql: &str = if only_orphans { &ORPHANS } else { &FILES };
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
