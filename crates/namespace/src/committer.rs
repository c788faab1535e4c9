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
use tokio::sync::oneshot;
use types::Clock;

use crate::cache::Cache;
use crate::group::{Group, OpError, OpResult};
use crate::ids::Ids;
use crate::inode::Instance;
use crate::queue::Queue;
use crate::store::{Store, StoreError, StoreResult, Totals, Wanted};

/// Unstable writes reach the database after this long at most, and twice it while the disk is slow.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// What the committer shares with everybody who asks it.
pub struct Shared {
    pub cache: Cache,
    pub clock: Arc<dyn Clock>,
    pub instance: Instance,
    pub writes: Queue<Box<dyn Job>>,
    /// Every cookie ever given lies below.
    pub cookies_end: AtomicU64,
    pub totals: Mutex<Totals>,
    /// Why the last group is not on disk, for health. Leaf lock.
    pub failure: Mutex<Option<String>>,
}

/// An operation with the way back to its caller.
pub trait Job: Send {
    fn wanted(&self) -> &[Wanted];
    fn apply(&mut self, group: &mut Group<'_>) -> StoreResult<()>;
    /// `failure`: why the group is not on disk.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct Operation<F, T> {
    wanted: Vec<Wanted>,
    operation: Option<F>,
    result: Option<Result<T, NamespaceError>>,
    answer: oneshot::Sender<Result<T, NamespaceError>>,
}

impl<F, T> Job for Operation<F, T>
where
    F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send,
    T: Send,
{
    fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    fn apply(&mut self, group: &mut Group<'_>) -> StoreResult<()> {
        let Some(operation) = self.operation.take() else { return Ok(()) };
        self.result = Some(match operation(group) {
            Ok(value) => Ok(value),
            Err(OpError::Refused(error)) => Err(error),
            Err(OpError::Failed(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, failure: Option<&StoreError>) {
        let result = match (failure, self.result) {
            (Some(error), _) => Err(error.into()),
            (None, Some(result)) => result,
            (None, None) => Err(NamespaceError::Database("operation was not applied".to_owned())),
        };
        // Whoever asked may be gone; what was done stays done.
        let _ = self.answer.send(result);
    }
}

impl Shared {
    /// Hands an operation to the committer and waits until its group is on disk.
    #[cfg(test)]
    pub async fn submit<T, F>(&self, operation: F) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        self.submit_for(Vec::new(), operation).await
    }

    /// As `submit`; `wanted` is what the operation begins with, so that it need not wait for each alone.
    pub async fn submit_for<T, F>(&self, wanted: Vec<Wanted>, operation: F) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Operation { wanted, operation: Some(operation), result: None, answer };
        self.writes.push(Box::new(job)).map_err(|_| NamespaceError::Busy)?;
        answered.await.unwrap_or_else(|_| Err(NamespaceError::Database("committer stopped".to_owned())))
    }
}

pub struct Committer {
    pub store: Box<dyn Store>,
    pub shared: Arc<Shared>,
    pub ids: Ids,
    pub group_len_max: usize,
    /// The last group in the database.
    pub sequence: u64,
    pub is_failing: bool,
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
        // Operations that need no number may pass though none can be reserved.
        let reserved = self.reserve_ids();
        let result = self.apply(&mut jobs, &waiting);
        self.tell(reserved.as_ref().err().or(result.as_ref().err()));
        for job in jobs {
            job.answer(result.as_ref().err());
        }
        result.is_ok()
    }

    /// Once when it begins to fail, once when it works again: a full disk fails every group.
    fn tell(&mut self, failure: Option<&StoreError>) {
        match failure {
            Some(error) if !self.is_failing => tracing::error!(%error, "namespace cannot write its database"),
            None if self.is_failing => tracing::info!("namespace writes its database again"),
            _ => {}
        }
        if failure.is_some() || self.is_failing {
            *self.shared.failure.lock() = failure.map(ToString::to_string);
        }
        self.is_failing = failure.is_some();
    }

    fn reserve_ids(&mut self) -> StoreResult<()> {
        let reserved = self.ids.reserve(&mut *self.store, self.group_len_max as u64);
        self.shared.cookies_end.store(self.ids.cookies.end(), Ordering::Release);
        reserved
    }

    fn apply(&mut self, jobs: &mut [Box<dyn Job>], waiting: &[types::FileId]) -> StoreResult<()> {
        let Committer { store, shared, ids, .. } = self;
        store.begin()?;
        let wanted = || {
            let wanted = jobs.iter().flat_map(|job| job.wanted());
            wanted.filter(|wanted| !shared.cache.knows(wanted)).cloned().collect()
        };
        store.prefetch(&wanted).inspect_err(|_| store.abandon())?;
        let mut group = Group::new(&mut **store, &shared.cache, &*shared.clock, shared.instance, ids);
        let sequence = self.sequence + 1;
        let totals = *shared.totals.lock();
        match write(&mut group, jobs, waiting, totals, sequence) {
            Ok(totals) => {
                if let Some(totals) = totals {
                    self.sequence = sequence;
                    *shared.totals.lock() = totals;
                }
                shared.cache.publish(self.sequence, group.into_changes(), shared.instance);
                Ok(())
            }
            Err(error) => {
                shared.cache.untake(group.taken());
                store.abandon();
                Err(error)
            }
        }
    }

    fn end_cleanly(&mut self) {
        if let Err(error) = self.store.end_cleanly() {
            tracing::warn!(%error, "namespace cannot note its clean end");
        }
    }
}

/// Applies and commits; the new totals, if there was anything to write.
fn write(
    group: &mut Group<'_>,
    jobs: &mut [Box<dyn Job>],
    waiting: &[types::FileId],
    totals: Totals,
    sequence: u64,
) -> StoreResult<Option<Totals>> {
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
    if !group.is_written() {
        group.store.abandon();
        return Ok(None);
    }
    group.commit(sequence, totals).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{name, occupy, open, regular};
    use api::{Locations, Namespace, Stability, Written};
    use types::{FileId, Identity};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_queue_is_busy_and_recovers() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let (release, occupied) = occupy(&namespace);
        release.wait_begun();
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let shared = Arc::clone(&namespace.shared);
            let (pushed, is_pushed) = oneshot::channel();
            waiting.push(tokio::spawn(async move {
                let submitted = shared.submit(|_| Ok(()));
                tokio::pin!(submitted);
                let mut pushed = Some(pushed);
                std::future::poll_fn(|context| {
                    let polled = submitted.as_mut().poll(context);
                    if let Some(pushed) = pushed.take() {
                        pushed.send(()).unwrap();
                    }
                    polled
                })
                .await
            }));
            is_pushed.await.unwrap();
        }
        let refused = namespace.shared.submit(|_| Ok(())).await;
        assert!(matches!(refused, Err(NamespaceError::Busy)));
        release.release();
        occupied.await.unwrap().unwrap();
        for waited in waiting {
            waited.await.unwrap().unwrap();
        }
        assert!(namespace.shared.submit(|_| Ok(())).await.is_ok());
    }

    /// What is asked for is queued at its first poll.
    async fn begun(asked: impl Future) {
        tokio::pin!(asked);
        tokio::select! {
            biased;
            _ = &mut asked => panic!("the committer is busy"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_that_nobody_waits_for_can_be_seen_behind_any_later_answer() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let (root, left) = (Identity::root(), name("left"));
        let (release, occupied) = occupy(&namespace);
        release.wait_begun();
        begun(namespace.create(&root, FileId::ROOT, &left, &regular())).await;
        let later = tokio::spawn({
            let namespace = Arc::clone(&namespace);
            async move { namespace.forget(&[]).await }
        });
        release.release();
        later.await.unwrap().unwrap();
        assert!(namespace.lookup(&root, FileId::ROOT, &left).await.is_ok());
        occupied.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_group_that_fails_leaves_no_trace_and_the_next_one_works() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let root = Identity::root();
        let kept = namespace.create(&root, FileId::ROOT, &name("kept"), &regular()).await.unwrap().attributes;
        let written =
            Written { size_at_least: Some(9), mtime: None, space_used: None, stability: Stability::Unstable };
        let shown = namespace.commit(kept.file, &written).await.unwrap();
        let before = namespace.attributes(FileId::ROOT).await.unwrap();
        // All of it in one operation, so that it is one group.
        let failed: Result<(), _> = namespace
            .shared
            .submit(move |group| {
                crate::ops::create::create(
                    group,
                    &Identity::root(),
                    FileId::ROOT,
                    &name("gone"),
                    &regular(),
                )?;
                crate::ops::unlink::unlink(group, &Identity::root(), FileId::ROOT, &name("kept"))?;
                Err(OpError::Failed(StoreError::Failed("for the test".to_owned())))
            })
            .await;
        assert!(matches!(failed, Err(NamespaceError::Database(_))));
        assert_eq!(namespace.attributes(FileId::ROOT).await.unwrap(), before);
        let gone = namespace.lookup(&root, FileId::ROOT, &name("gone")).await;
        assert!(matches!(gone, Err(NamespaceError::NotFound)));
        assert_eq!(namespace.lookup(&root, FileId::ROOT, &name("kept")).await.unwrap(), shown);
        namespace.create(&root, FileId::ROOT, &name("gone"), &regular()).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }

    #[tokio::test]
    async fn a_full_disk_is_told_and_over_when_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let limit = |pages: u32| {
            let shared = Arc::clone(&namespace.shared);
            async move {
                shared
                    .submit(move |group| {
                        Ok(group.store.execute(&format!("PRAGMA max_page_count = {pages}"))?)
                    })
                    .await
            }
        };
        // No fewer than there are: what is free in those goes first.
        limit(1).await.unwrap();
        let mut made = 0;
        let refused = loop {
            let text = name(&format!("{made:0>200}"));
            match namespace.create(&Identity::root(), FileId::ROOT, &text, &regular()).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, NamespaceError::NoSpace), "{refused}");
        let text = name(&format!("{made:0>200}"));
        let lookup = namespace.lookup(&Identity::root(), FileId::ROOT, &text).await;
        assert!(matches!(lookup, Err(NamespaceError::NotFound)));
        limit(100_000).await.unwrap();
        namespace.create(&Identity::root(), FileId::ROOT, &text, &regular()).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }

    #[tokio::test]
    async fn a_closed_namespace_takes_nothing_and_has_written_everything() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let file = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
        let file = file.attributes.file;
        let written = Written {
            size_at_least: Some(77),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        let shown = namespace.commit(file, &written).await.unwrap();
        namespace.close().await;
        namespace.close().await;
        let refused = namespace.create(&Identity::root(), FileId::ROOT, &name("b"), &regular()).await;
        assert!(matches!(refused, Err(NamespaceError::Busy)));
        assert!(matches!(namespace.commit(file, &written).await, Err(NamespaceError::Busy)));
        drop(namespace);
        // A clean end raises no floor: clients keep what they cached.
        assert_eq!(open(&dir).attributes(file).await.unwrap(), shown);
    }

    #[tokio::test]
    async fn an_unstable_write_reaches_the_database_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let file = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
        let file = file.attributes.file;
        for size in [77, 78] {
            let written = Written {
                size_at_least: Some(size),
                mtime: None,
                space_used: None,
                stability: Stability::Unstable,
            };
            namespace.commit(file, &written).await.unwrap();
            let in_database =
                || async { namespace.reads.inode(file).await.unwrap().value.unwrap().attributes.size };
            while in_database().await != size {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_committer_leaves_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let died: Result<(), _> = namespace.shared.submit(|_| panic!("a bug, for the test")).await;
        assert!(matches!(died, Err(NamespaceError::Database(_))));
        // It may still be on its way out.
        let after = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await;
        assert!(after.is_err());
        assert!(namespace.attributes(FileId::ROOT).await.is_ok());
    }
}
