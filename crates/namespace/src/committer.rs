//! The committer: one thread that takes whatever waits, applies it in one transaction, commits once, answers all.
//!
//! It never waits for more to come: while one group is on its way to the disk the next gathers by itself. If a group
//! cannot be written, each of its operations is told so, nothing of it is visible, and the next group tries afresh.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::NamespaceError;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;
use types::Clock;

use crate::cache::Cache;
use crate::group::{Group, OpError, OpResult, Totals};
use crate::ids::Ids;
use crate::inode::Instance;
use crate::queue::Queue;
use crate::schema::set_meta;
use crate::sqlite::{ChangeFloor, Durability, to_namespace_error};

/// Unstable writes reach the database after this long at most, and twice it while the disk is slow.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// What the committer shares with everybody who asks it.
pub struct Shared {
    pub cache: Cache,
    pub clock: Arc<dyn Clock>,
    pub instance: Instance,
    pub floor: ChangeFloor,
    pub writes: Queue<Box<dyn Job>>,
    /// Every cookie ever given lies below.
    pub cookies_end: AtomicU64,
    pub totals: Mutex<Totals>,
    /// Groups committed, for whoever syncs the WAL.
    pub commits: AtomicU64,
}

/// An operation with the way back to its caller.
pub trait Job: Send {
    fn apply(&mut self, group: &mut Group<'_>) -> rusqlite::Result<()>;
    /// `Err`: the group is not on disk.
    fn answer(self: Box<Self>, committed: Result<(), &rusqlite::Error>);
}

struct Operation<F, T> {
    operation: Option<F>,
    result: Option<Result<T, NamespaceError>>,
    answer: oneshot::Sender<Result<T, NamespaceError>>,
}

impl<F, T> Job for Operation<F, T>
where
    F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send,
    T: Send,
{
    fn apply(&mut self, group: &mut Group<'_>) -> rusqlite::Result<()> {
        let Some(operation) = self.operation.take() else { return Ok(()) };
        self.result = Some(match operation(group) {
            Ok(value) => Ok(value),
            Err(OpError::Refused(error)) => Err(error),
            Err(OpError::Failed(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), &rusqlite::Error>) {
        let result = match (committed, self.result) {
            (Err(error), _) => Err(to_namespace_error(error)),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(NamespaceError::Database("operation was not applied".to_owned())),
        };
        // Whoever asked may be gone; what was done stays done.
        let _ = self.answer.send(result);
    }
}

impl Shared {
    /// Hands an operation to the committer and waits until its group is on disk.
    pub async fn submit<T, F>(&self, operation: F) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Operation { operation: Some(operation), result: None, answer };
        self.writes.push(Box::new(job)).map_err(|_| NamespaceError::Busy)?;
        answered.await.unwrap_or_else(|_| Err(NamespaceError::Database("committer stopped".to_owned())))
    }
}

pub struct Committer {
    pub connection: Connection,
    pub shared: Arc<Shared>,
    pub ids: Ids,
    pub durability: Durability,
    pub group_len_max: usize,
    /// The last group in the database.
    pub sequence: u64,
}

impl Committer {
    /// Until the queue is closed and empty; then marks a clean end.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // A panic here is a bug; whoever waits must hear of it rather than hang.
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            tracing::error!("namespace committer panicked; no more changes are taken");
        }
        shared.writes.abandon();
    }

    fn work(&mut self) {
        let mut flushed = std::time::Instant::now();
        loop {
            let timeout = self.shared.cache.has_unsettled().then_some(FLUSH_INTERVAL);
            let taken = self.shared.writes.take(self.group_len_max, timeout);
            let is_end = taken.is_closed && taken.items.is_empty();
            let is_flush = is_end || flushed.elapsed() >= FLUSH_INTERVAL;
            if is_flush {
                flushed = std::time::Instant::now();
            }
            if is_end {
                self.shared.cache.close();
            }
            let is_written = self.commit_group(taken.items, is_flush);
            if is_end {
                if is_written {
                    self.end_cleanly();
                }
                return;
            }
        }
    }

    /// Whether it is on disk.
    fn commit_group(&mut self, mut jobs: Vec<Box<dyn Job>>, is_flush: bool) -> bool {
        let waiting = if is_flush { self.shared.cache.waiting() } else { Vec::new() };
        if jobs.is_empty() && waiting.is_empty() {
            return true;
        }
        if let Err(error) = self.reserve_ids() {
            // Operations that need no number may still pass.
            tracing::warn!(%error, "namespace cannot reserve ids");
        }
        let result = self.apply(&mut jobs, &waiting);
        if let Err(error) = &result {
            tracing::warn!(%error, operations = jobs.len(), "namespace cannot write a group");
        }
        for job in jobs {
            job.answer(result.as_ref().map(|()| ()));
        }
        result.is_ok()
    }

    fn reserve_ids(&mut self) -> rusqlite::Result<()> {
        let reserved = self.ids.reserve(&self.connection, self.group_len_max as u64, self.durability);
        self.shared.cookies_end.store(self.ids.cookies.end(), Ordering::Release);
        reserved
    }

    fn apply(&mut self, jobs: &mut [Box<dyn Job>], waiting: &[types::FileId]) -> rusqlite::Result<()> {
        let Committer { connection, shared, ids, .. } = self;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut group =
            Group::new(connection, &shared.cache, &*shared.clock, (shared.instance, shared.floor), ids);
        let sequence = self.sequence + 1;
        match write(&mut group, jobs, waiting, shared, sequence) {
            Ok(totals) => {
                if group.is_written() {
                    self.sequence = sequence;
                    *shared.totals.lock() = totals;
                    shared.commits.fetch_add(1, Ordering::Release);
                }
                shared.cache.publish(self.sequence, group.into_changes(), shared.instance);
                Ok(())
            }
            Err(error) => {
                // Some errors have rolled back already, then this one says that there is nothing to roll back.
                if !connection.is_autocommit() {
                    let _ = connection.execute_batch("ROLLBACK");
                }
                shared.cache.untake(group.taken());
                Err(error)
            }
        }
    }

    fn end_cleanly(&mut self) {
        let ended = set_meta(&self.connection, "clean_end", 1)
            .and_then(|()| self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        if let Err(error) = ended {
            tracing::warn!(%error, "namespace cannot note its clean end");
        }
    }
}

/// Applies and commits; the new totals.
fn write(
    group: &mut Group<'_>,
    jobs: &mut [Box<dyn Job>],
    waiting: &[types::FileId],
    shared: &Shared,
    sequence: u64,
) -> rusqlite::Result<Totals> {
    for job in jobs {
        job.apply(group)?;
    }
    for file in waiting {
        // Reading it takes it; a file that was removed meanwhile has nothing to write.
        match group.inode(*file) {
            Ok(_) | Err(OpError::Refused(_)) => {}
            Err(OpError::Failed(error)) => return Err(error),
        }
    }
    let mut totals = *shared.totals.lock();
    if group.is_written() {
        let moved = group.flush()?;
        totals.files += moved.files;
        totals.bytes = totals.bytes.wrapping_add(moved.bytes);
        group
            .connection
            .prepare_cached("UPDATE progress SET groups = ?1, files = ?2, bytes = ?3 WHERE id = 1")?
            .execute(rusqlite::params![sequence.cast_signed(), totals.files, totals.bytes])?;
    }
    group.connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(totals)
}
