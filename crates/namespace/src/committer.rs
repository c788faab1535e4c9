//! The committer: one thread that takes whatever waits, applies it in one transaction, commits once, answers all.
//!
//! While one group is on its way to the disk the next gathers by itself; only for those who were just answered it waits a
//! moment (`gather`). If a group cannot be written, each of its operations is told so, nothing of it is visible, and the
//! next group tries afresh.

mod gather;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::NamespaceError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use types::{Clock, FileId};

use crate::accounts::{self, Accounts, Limited, Settled};
use crate::cache::Cache;
use crate::counts;
use crate::group::{Group, OpError, OpResult};
use crate::ids::Ids;
use crate::inode::Instance;
use crate::queue::{FairQueue, Order};
use crate::session::Session;
use crate::store::{Store, StoreError, StoreResult, Totals, Wanted};

pub use gather::Gather;

/// Unstable writes reach the database after this long at most, and twice it while the disk is slow.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// What the committer shares with everybody who asks it.
pub struct Shared {
    pub cache: Cache,
    pub accounts: Accounts,
    pub clock: Arc<dyn Clock>,
    pub instance: Instance,
    pub writes: FairQueue<Box<dyn Job>>,
    /// Whether the store wants to know what operations begin with.
    pub prefetches: bool,
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
        self.submit_for(Order::BY_INSTANCE, [], operation).await
    }

    /// As `submit`; `wanted` is what the operation begins with, so that it need not wait for each alone.
    pub async fn submit_for<T, F>(
        &self,
        order: Order,
        wanted: impl IntoIterator<Item = Wanted>,
        operation: F,
    ) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let wanted = if self.prefetches { wanted.into_iter().collect() } else { Vec::new() };
        let job = Operation { wanted, operation: Some(operation), result: None, answer };
        self.writes.push(order, Box::new(job)).map_err(|_| NamespaceError::Busy)?;
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
    pub gather: Gather,
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
        let mut flushed = Instant::now();
        loop {
            self.gather();
            let timeout = match &self.shared.cache {
                // What is due for folding goes with whatever waits, and does not wait for it.
                cache if cache.pending.has_due() => Some(Duration::ZERO),
                cache => {
                    let is_behind = cache.has_unsettled() || !cache.pending.is_empty();
                    (is_behind || self.shared.accounts.has_noted()).then_some(FLUSH_INTERVAL)
                }
            };
            let taken = self.shared.writes.take(self.group_len_max, timeout);
            let is_end = taken.is_closed && taken.items.is_empty();
            let is_flush = is_end || flushed.elapsed() >= FLUSH_INTERVAL;
            if is_flush {
                flushed = Instant::now();
            }
            if is_end {
                self.shared.cache.close();
            }
            let is_written = self.commit_group(taken.items, is_flush);
            if is_end {
                if is_written && self.fold_all() {
                    self.end_cleanly();
                }
                return;
            }
        }
    }

    fn gather(&mut self) {
        let writes = &self.shared.writes;
        let Some(wait) = self.gather.wait(writes.len(), self.group_len_max) else { return };
        let began = Instant::now();
        let len = writes.wait_for_len(wait.len, wait.time_max);
        self.gather.waited(wait, len, began.elapsed());
    }

    /// Whether all directories hold what their entries made of them.
    fn fold_all(&mut self) -> bool {
        while self.shared.cache.pending.has_due() {
            if !self.commit_group(Vec::new(), false) {
                return false;
            }
        }
        true
    }

    /// Whether it is on disk.
    fn commit_group(&mut self, mut jobs: Vec<Box<dyn Job>>, is_flush: bool) -> bool {
        let pending = &self.shared.cache.pending;
        if is_flush {
            pending.forget();
            pending.fall_due();
        }
        let unsettled = if is_flush { self.shared.cache.waiting() } else { Vec::new() };
        let accounts = &self.shared.accounts;
        let waiting = Waiting {
            // Also what these writes add: the last group leaves nothing noted.
            accounts: accounts.is_full() || is_flush && (accounts.has_noted() || !unsettled.is_empty()),
            unsettled,
            folding: pending.take_due(),
        };
        if jobs.is_empty() && waiting.is_empty() {
            return true;
        }
        // Operations that need no number may pass though none can be reserved.
        let reserved = self.reserve_ids();
        let result = self.apply(&mut jobs, &waiting);
        self.tell(reserved.as_ref().err().or(result.as_ref().err()));
        // Counted first: who is answered may be back before the last one is.
        self.gather.expect(jobs.len() + self.shared.writes.len());
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

    fn apply(&mut self, jobs: &mut [Box<dyn Job>], waiting: &Waiting) -> StoreResult<()> {
        let applied = self.apply_in_group(jobs, waiting);
        if applied.is_err() {
            self.shared.cache.pending.put_back(&waiting.folding);
        }
        applied
    }

    fn apply_in_group(&mut self, jobs: &mut [Box<dyn Job>], waiting: &Waiting) -> StoreResult<()> {
        let Committer { store, shared, ids, gather, .. } = self;
        store.begin()?;
        let wanted = || {
            let wanted = jobs.iter().flat_map(|job| job.wanted());
            wanted.filter(|wanted| !shared.cache.knows(wanted)).cloned().collect()
        };
        store.prefetch(&wanted).inspect_err(|_| store.abandon())?;
        let mut group =
            Group::new(&mut **store, (&shared.cache, &shared.accounts), &*shared.clock, shared.instance, ids);
        let sequence = self.sequence + 1;
        let totals = *shared.totals.lock();
        match write(&mut group, jobs, waiting, totals, sequence, gather) {
            Ok(totals) => {
                if let Some(totals) = totals {
                    self.sequence = sequence;
                    *shared.totals.lock() = totals;
                    shared.accounts.settle(group.charges.settled());
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

    /// What earlier starts noted of accounts, and quotas. Before the first group.
    pub fn load_accounts(&mut self, session: &mut dyn Session) -> StoreResult<()> {
        let loaded = accounts::load(session)?;
        let Committer { store, shared, ids, .. } = self;
        shared.accounts.load(loaded.noted);
        let mut settled = Settled::default();
        if !loaded.quotas.is_empty() {
            store.begin()?;
            let mut group = Group::new(
                &mut **store,
                (&shared.cache, &shared.accounts),
                &*shared.clock,
                shared.instance,
                ids,
            );
            for (account, quota) in loaded.quotas {
                let used = group.usage_of(account).inspect_err(|_| group.store.abandon())?;
                settled.limited.insert(account, Some(Limited { quota, used }));
            }
            group.store.abandon();
        }
        shared.accounts.settle(settled);
        // If it cannot be written now, it is with a later group.
        self.commit_group(Vec::new(), true);
        Ok(())
    }

    fn end_cleanly(&mut self) {
        if let Err(error) = self.store.end_cleanly() {
            tracing::warn!(%error, "namespace cannot note its clean end");
        }
    }
}

/// What a group carries besides operations.
struct Waiting {
    /// Files with unstable writes.
    unsettled: Vec<FileId>,
    /// Directories with deltas.
    folding: Vec<FileId>,
    /// What accounts are to be told.
    accounts: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.unsettled.is_empty() && self.folding.is_empty() && !self.accounts
    }
}

/// Applies and commits; the new totals, if there was anything to write.
fn write(
    group: &mut Group<'_>,
    jobs: &mut [Box<dyn Job>],
    waiting: &Waiting,
    totals: Totals,
    sequence: u64,
    gather: &mut Gather,
) -> StoreResult<Option<Totals>> {
    for job in jobs.iter_mut() {
        job.apply(group)?;
    }
    for dir in &waiting.folding {
        group.fold(*dir)?;
    }
    for file in &waiting.unsettled {
        // Reading it takes it; a file that was removed meanwhile has nothing to write.
        match group.inode(*file) {
            Ok(_) | Err(OpError::Refused(_)) => {}
            Err(OpError::Failed(error)) => return Err(error),
        }
    }
    group.charges.is_flush |= waiting.accounts;
    if !group.is_written() && !group.charges.is_flush {
        group.store.abandon();
        return Ok(None);
    }
    let (began, computed) = (Instant::now(), cpu_time());
    let totals = group.commit(sequence, totals)?;
    let took = began.elapsed();
    gather.committed(took.saturating_sub(cpu_time().saturating_sub(computed)));
    counts::record_group(jobs.len(), took);
    Ok(Some(totals))
}

/// Of this thread.
fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

#[cfg(test)]
mod tests;
