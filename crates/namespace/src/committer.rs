//! The committer, a thread: takes all waiting operations, applies them in one transaction, commits once, answers all.
//!
//! While one group is on its way to the disk the next gathers by itself; the committer waits a moment only for callers
//! that it has just answered (`gather`). If a group cannot be written, each of its operations fails, nothing of it is
//! visible, and the next group tries afresh.
//!
//! Where a commit waits for no disk, to hand a change over and to be woken costs more than the change. A caller that
//! finds the committer idle then borrows it and commits itself (`CommitterState::commit_here`).
//!
//! With `Sync::Names` a group is on disk when it is answered, unless all its operations were submitted as deferrable. A
//! group that is answered on disk has all groups before it there, also if it changes nothing itself.

mod gather;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::NamespaceError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use types::{Clock, FileId};

use crate::accounts::{self, Accounts, Limited, Settled};
use crate::cache::Cache;
use crate::config::Sync;
use crate::counts;
use crate::group::{Group, OpError, OpResult};
use crate::ids::{self, Ids};
use crate::inode::Instance;
use crate::keeper::Keeper;
use crate::postgres::presence::Presence;
use crate::queue::{FairQueue, Order};
use crate::session::Session;
use crate::store::{Habits, Store, StoreError, StoreResult, Totals, Wanted};
use crate::trouble::{Trouble, TroubleKind, Troubles};

use gather::{Gather, Patience};

/// Unstable writes reach the database after this long at most, and twice it while the disk is slow.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How often numbers are reserved that could not be: it is noted in all pools each time.
const RESERVATION_INTERVAL: Duration = Duration::from_secs(1);

/// State that the committer shares with its callers.
pub struct CommitterState {
    pub cache: Cache,
    pub accounts: Accounts,
    pub clock: Arc<dyn Clock>,
    pub instance: Instance,
    pub sync: Sync,
    pub writes: FairQueue<Box<dyn Job>>,
    /// The thread that holds the lock commits. `None`: the committer has not begun, or has ended.
    pub committer: Mutex<Option<Committer>>,
    pub habits: Habits,
    /// The committer's thread looks by itself, and soon, for what is to be written besides operations.
    pub is_looked_after: AtomicBool,
    pub progress: Progress,
    /// All that was in memory is on disk, and nothing more is taken.
    pub has_ended_cleanly: AtomicBool,
    /// For health. Leaf lock.
    pub troubles: Mutex<Troubles>,
    /// Where another head can take over.
    pub presence: Option<Arc<Presence>>,
    pub keeper: Arc<Keeper>,
}

/// How far the committed groups have come.
pub struct Progress {
    /// Every cookie ever given lies below.
    pub cookies_end: AtomicU64,
    /// Every file of a committed group has a lower number.
    pub next_file: AtomicU64,
    /// Leaf lock.
    pub totals: Mutex<Totals>,
}

/// An operation with the way back to its caller.
pub trait Job: Send {
    fn wanted(&self) -> &[Wanted];
    /// Whether it may be answered before it is on disk, where some changes may.
    fn is_deferrable(&self) -> bool;
    fn apply(&mut self, group: &mut Group<'_>) -> StoreResult<()>;
    /// `failure`: why the group is not on disk.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct Operation<F, T> {
    wanted: Vec<Wanted>,
    is_deferrable: bool,
    operation: Option<F>,
    claim: Claim,
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

    fn is_deferrable(&self) -> bool {
        self.is_deferrable
    }

    fn apply(&mut self, group: &mut Group<'_>) -> StoreResult<()> {
        let Some(operation) = self.operation.take().filter(|_| self.claim.take()) else { return Ok(()) };
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
        // The caller may be gone; the change stays done.
        let _ = self.answer.send(result);
    }
}

/// Whether an operation is applied or its caller told to come again: the first side that takes the claim decides. A
/// group that is under way keeps the operations that it took, as they may be in the database.
#[derive(Clone, Default)]
struct Claim {
    is_taken: Arc<AtomicBool>,
}

impl Claim {
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }
}

impl CommitterState {
    /// That what is in memory is the truth.
    pub async fn require_certain(&self) -> Result<(), NamespaceError> {
        match &self.presence {
            Some(presence) => presence.certain().await,
            None => Ok(()),
        }
    }

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
        self.hand_in(order, wanted, operation, false).await
    }

    /// As `submit_for`, but with `Sync::Names` its group need not be on disk when it is answered.
    pub async fn submit_deferrable<T, F>(
        &self,
        order: Order,
        wanted: impl IntoIterator<Item = Wanted>,
        operation: F,
    ) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        self.hand_in(order, wanted, operation, true).await
    }

    async fn hand_in<T, F>(
        &self,
        order: Order,
        wanted: impl IntoIterator<Item = Wanted>,
        operation: F,
        is_deferrable: bool,
    ) -> Result<T, NamespaceError>
    where
        F: FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
        T: Send + 'static,
    {
        // A group that changes nothing asks no database, so that it would not be found out.
        self.require_certain().await?;
        let (answer, mut answered) = oneshot::channel();
        let wanted = if self.habits.prefetches { wanted.into_iter().collect() } else { Vec::new() };
        let claim = Claim::default();
        let (operation, of_job) = (Some(operation), claim.clone());
        let job = Operation { wanted, is_deferrable, operation, claim: of_job, result: None, answer };
        if let Err(job) = self.commit_here(order, Box::new(job)) {
            self.writes.push(order, job).map_err(|_| NamespaceError::Busy)?;
        }
        let hopeless = async {
            match &self.presence {
                Some(presence) => presence.hopeless().await,
                None => std::future::pending().await,
            }
        };
        let answer = tokio::select! {
            answer = &mut answered => answer,
            () = hopeless => match claim.take() {
                true => return Err(NamespaceError::Busy),
                false => answered.await,
            },
        };
        answer.unwrap_or_else(|_| Err(NamespaceError::Database("committer stopped".to_owned())))
    }
}

impl CommitterState {
    /// Given back if it has to be handed over: commits wait for the disk, or there are others to share one with.
    fn commit_here(&self, order: Order, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        let waits = self.habits.is_remote || self.is_awaited(std::slice::from_ref(&job), &Waiting::default());
        if waits || order == Order::Behind || !self.writes.is_idle() {
            return Err(job);
        }
        let Some(mut committer) = self.committer.try_lock() else { return Err(job) };
        if committer.as_ref().is_none_or(|committer| committer.has_more_to_do(self)) {
            return Err(job);
        }
        let done = self.guarded(&mut committer, |committer| committer.commit_group(self, vec![job], false));
        drop(committer);
        done.into_iter().for_each(Done::answer);
        let is_looked_after = || self.is_looked_after.swap(true, Ordering::SeqCst);
        if self.cache.pending.has_due() || self.is_behind() && !is_looked_after() {
            self.writes.nudge();
        }
        Ok(())
    }

    /// Whether a group of these is answered when it is on disk.
    fn is_awaited(&self, jobs: &[Box<dyn Job>], waiting: &Waiting) -> bool {
        match self.sync {
            Sync::Always => true,
            Sync::Names(_) => !waiting.is_empty() || jobs.iter().any(|job| !job.is_deferrable()),
            Sync::Interval(_) => false,
        }
    }

    /// A panic is a bug, and may have left anything half done: nothing more is taken, and waiting callers get an error.
    fn guarded<T>(&self, held: &mut Option<Committer>, work: impl FnOnce(&mut Committer) -> T) -> Option<T> {
        let committer = held.as_mut()?;
        let done = catch_unwind(AssertUnwindSafe(|| work(committer))).ok();
        if done.is_none() {
            self.give_up(held);
        }
        done
    }

    fn give_up(&self, held: &mut Option<Committer>) {
        tracing::error!("namespace committer panicked; no more changes are taken");
        let why = "its committer has panicked".to_owned();
        self.troubles.lock().changes = Some(Trouble { kind: TroubleKind::NeedsRestart, why });
        *held = None;
        self.writes.abandon();
    }

    /// Something waits for the next flush; or it is looked then whether what failed works again.
    fn is_behind(&self) -> bool {
        let cache = &self.cache;
        cache.has_unsettled() || !cache.pending.is_empty() || self.accounts.has_noted() || self.is_refusing()
    }

    /// Changes, or some of them, by no fault of theirs.
    fn is_refusing(&self) -> bool {
        self.troubles.lock().is_any() || !self.keeper.is_covering()
    }

    /// The committer's thread: until the queue is closed and empty; then marks a clean end.
    pub fn commit_all(&self) {
        let mut flushed = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while self.committer.lock().is_some() {
                self.commit_next(&mut flushed);
            }
        }));
        if ended.is_err() {
            self.give_up(&mut self.committer.lock());
        }
        self.writes.abandon();
    }

    fn commit_next(&self, flushed: &mut Instant) {
        let group_len_max = match &mut *self.committer.lock() {
            Some(committer) => {
                committer.store.upkeep();
                committer.gather(&self.writes);
                committer.group_len_max
            }
            None => return,
        };
        let taken = self.writes.take(group_len_max, self.flush_timeout());
        let is_end = taken.is_closed && taken.items.is_empty();
        let is_flush = is_end || flushed.elapsed() >= FLUSH_INTERVAL;
        if is_flush {
            *flushed = Instant::now();
        }
        let mut held = self.committer.lock();
        let done = self.guarded(&mut held, |committer| {
            if is_end {
                self.cache.close();
            }
            let done = committer.commit_group(self, taken.items, is_flush);
            if is_end && done.is_written() && committer.fold_all(self) {
                committer.end_cleanly(self);
            }
            done
        });
        if is_end {
            *held = None;
        }
        drop(held);
        // A caller that is answered finds the committer idle.
        self.writes.finish();
        done.into_iter().for_each(Done::answer);
    }

    fn flush_timeout(&self) -> Option<Duration> {
        // First: a caller that leaves something to be written from here on wakes the committer.
        self.is_looked_after.store(false, Ordering::SeqCst);
        // Due directories are folded with waiting operations, and at once without them.
        if self.cache.pending.has_due() {
            return Some(Duration::ZERO);
        }
        let is_behind = self.is_behind();
        if is_behind {
            self.is_looked_after.store(true, Ordering::SeqCst);
        }
        is_behind.then_some(FLUSH_INTERVAL)
    }
}

pub struct Committer {
    store: Box<dyn Store>,
    ids: Ids,
    group_len_max: usize,
    /// The last group in the database.
    sequence: u64,
    /// It, and perhaps groups before it, was answered before it was on disk.
    is_behind: bool,
    gather: Gather,
    is_failing: bool,
    /// When numbers could not be reserved, and why.
    unreserved: Option<(Instant, StoreError)>,
    /// Operations of the last group.
    last_len: usize,
}

impl Committer {
    pub fn new(store: Box<dyn Store>, ids: Ids, group_len_max: usize, sequence: u64) -> Committer {
        let (group_len_max, gather) = (group_len_max.max(1), Gather::new());
        let (is_behind, is_failing, unreserved, last_len) = (false, false, None, 0);
        Committer { store, ids, group_len_max, sequence, is_behind, gather, is_failing, unreserved, last_len }
    }

    /// More than one change that waits for nothing: there are others to share a commit with, or the disk is to be waited for.
    fn has_more_to_do(&self, shared: &CommitterState) -> bool {
        self.last_len > 1
            || self.ids.lack(self.group_len_max as u64)
            || self.store.wants_upkeep()
            || shared.cache.pending.has_due()
            || shared.accounts.is_full()
    }

    fn gather(&mut self, writes: &FairQueue<Box<dyn Job>>) {
        let began = Instant::now();
        match self.gather.wait(writes.len(), self.group_len_max) {
            Some(Patience::Sleep(wait)) => {
                let len = writes.wait_for_len(wait.len, wait.time_max);
                self.gather.waited(wait, len, began.elapsed());
            }
            Some(Patience::Offer { len, time_max }) => {
                let mut waiting = writes.len();
                while waiting < len && began.elapsed() < time_max {
                    std::thread::yield_now();
                    let before = std::mem::replace(&mut waiting, writes.len());
                    if waiting == before {
                        break;
                    }
                }
            }
            None => {}
        }
    }

    /// Whether all directories hold what their entries made of them.
    fn fold_all(&mut self, shared: &CommitterState) -> bool {
        while shared.cache.pending.has_due() {
            if !self.commit_group(shared, Vec::new(), false).is_written() {
                return false;
            }
        }
        true
    }

    fn commit_group(&mut self, shared: &CommitterState, mut jobs: Vec<Box<dyn Job>>, is_flush: bool) -> Done {
        let pending = &shared.cache.pending;
        if is_flush {
            pending.forget();
            pending.fall_due();
        }
        let unsettled = if is_flush { shared.cache.waiting() } else { Vec::new() };
        let accounts = &shared.accounts;
        let waiting = Waiting {
            // Also what these writes add: the last group leaves nothing noted.
            accounts: accounts.is_full() || is_flush && (accounts.has_noted() || !unsettled.is_empty()),
            unsettled,
            folding: pending.take_due(),
            // A probe finds out whether the database works again, so that no caller's operation fails for it.
            is_probe: is_flush && self.is_failing && jobs.is_empty(),
        };
        let is_looked_at = is_flush && (shared.is_refusing() || !self.store.has_room());
        if jobs.is_empty() && waiting.is_empty() && !is_looked_at {
            return Done { jobs, result: Ok(()) };
        }
        // Operations that need no number may pass though none can be reserved.
        self.reserve_ids(shared);
        let result = self.apply(shared, &mut jobs, &waiting);
        self.tell(shared, &result);
        if !jobs.is_empty() {
            self.last_len = jobs.len();
        }
        // Counted first: an answered caller may be back before the last one is answered.
        self.gather.expect(jobs.len() + shared.writes.len());
        Done { jobs, result: result.map(drop) }
    }

    /// Once when it begins to fail, once when it works again: a full disk fails every group.
    fn tell(&mut self, shared: &CommitterState, result: &StoreResult<Outcome>) {
        match result {
            Err(error) if !self.is_failing => tracing::error!(%error, "namespace cannot write its database"),
            Ok(Outcome::Written) if self.is_failing => tracing::info!("namespace writes its database again"),
            _ => {}
        }
        // A group with nothing to write says nothing of it.
        self.is_failing = result.is_err() || self.is_failing && matches!(result, Ok(Outcome::Nothing));
        let unreserved = self.unreserved.as_ref().map(|(_, error)| Trouble::from(error));
        let growth = unreserved.or_else(|| {
            let why = || "what its disk has left is for changes that need no more room".to_owned();
            (!self.store.has_room()).then(|| Trouble { kind: TroubleKind::Full, why: why() })
        });
        let mut troubles = shared.troubles.lock();
        troubles.growth = growth;
        match result {
            Err(error) => troubles.changes = Some(error.into()),
            Ok(Outcome::Written) => troubles.changes = None,
            Ok(Outcome::Nothing) => {}
        }
    }

    fn reserve_ids(&mut self, shared: &CommitterState) {
        let is_too_soon = |(at, _): &(Instant, _)| at.elapsed() < RESERVATION_INTERVAL;
        if self.unreserved.as_ref().is_some_and(is_too_soon) {
            return;
        }
        let reserved = self.try_to_reserve_ids(shared);
        match &reserved {
            Err(error) if self.unreserved.is_none() => {
                tracing::error!(%error, "namespace cannot reserve file numbers; no files can be created");
            }
            Ok(()) if self.unreserved.is_some() => tracing::info!("namespace reserves file numbers again"),
            _ => {}
        }
        self.unreserved = reserved.err().map(|error| (Instant::now(), error));
    }

    fn try_to_reserve_ids(&mut self, shared: &CommitterState) -> StoreResult<()> {
        let (needed, groups) = (self.group_len_max as u64, self.sequence);
        if let Err(error) = shared.keeper.cover(self.ids.files.end()) {
            // They were reserved before anything was noted.
            self.ids.files.skip();
            return Err(ids::uncovered(&error));
        }
        let reserved = self.ids.reserve(&mut *self.store, needed, &|files_end| {
            // The reservation is on disk, and every group before it.
            shared.keeper.note_groups(groups);
            shared.keeper.cover(files_end)
        });
        shared.progress.cookies_end.store(self.ids.cookies.end(), Ordering::Release);
        reserved
    }

    fn apply(
        &mut self,
        shared: &CommitterState,
        jobs: &mut [Box<dyn Job>],
        waiting: &Waiting,
    ) -> StoreResult<Outcome> {
        let applied = self.apply_in_group(shared, jobs, waiting);
        if applied.is_err() {
            shared.cache.pending.put_back(&waiting.folding);
        }
        applied
    }

    fn apply_in_group(
        &mut self,
        shared: &CommitterState,
        jobs: &mut [Box<dyn Job>],
        waiting: &Waiting,
    ) -> StoreResult<Outcome> {
        let is_awaited = shared.is_awaited(jobs, waiting);
        let Committer { store, ids, gather, .. } = self;
        store.begin(is_awaited)?;
        let wanted = || {
            let wanted = jobs.iter().flat_map(|job| job.wanted());
            wanted.filter(|wanted| !shared.cache.knows(wanted)).cloned().collect()
        };
        store.prefetch(&wanted).inspect_err(|_| store.abandon())?;
        let mut group =
            Group::new(&mut **store, (&shared.cache, &shared.accounts), &*shared.clock, shared.instance, ids);
        group.rows.batch.is_durable = is_awaited;
        if is_awaited && self.is_behind {
            // Also if it changes nothing: what its callers have seen may be of a group that is not on disk.
            group.rows.be_durable();
        }
        let sequence = self.sequence + 1;
        let totals = *shared.progress.totals.lock();
        match write(&mut group, jobs, waiting, totals, sequence, gather) {
            Ok(totals) => {
                let outcome = if totals.is_some() { Outcome::Written } else { Outcome::Nothing };
                if let Some(totals) = totals {
                    self.sequence = sequence;
                    self.is_behind = !is_awaited;
                    if shared.habits.is_synced_by_log || group.rows.batch.is_durable {
                        shared.keeper.note_groups(sequence);
                    }
                    *shared.progress.totals.lock() = totals;
                    shared.accounts.settle(group.quotas.settled());
                }
                // Before anybody sees them.
                shared.progress.next_file.store(group.ids.files.next(), Ordering::Release);
                shared.cache.publish(self.sequence, group.into_changes(), shared.instance);
                Ok(outcome)
            }
            Err(error) => {
                shared.cache.untake(group.inodes.taken());
                store.abandon();
                Err(error)
            }
        }
    }

    /// Loads quotas and the usage that earlier starts noted. Before the first group.
    pub fn load_accounts(&mut self, shared: &CommitterState, session: &mut dyn Session) -> StoreResult<()> {
        let loaded = accounts::load(session)?;
        let Committer { store, ids, .. } = self;
        shared.accounts.load(loaded.noted);
        let mut settled = Settled::default();
        if !loaded.quotas.is_empty() {
            store.begin(true)?;
            let mut group = Group::new(
                &mut **store,
                (&shared.cache, &shared.accounts),
                &*shared.clock,
                shared.instance,
                ids,
            );
            for (account, quota) in loaded.quotas {
                let used = group.usage().usage_of(account).inspect_err(|_| group.abandon())?;
                settled.limited.insert(account, Some(Limited { quota, used }));
            }
            group.abandon();
        }
        shared.accounts.settle(settled);
        // If it cannot be written now, it is with a later group.
        self.commit_group(shared, Vec::new(), true);
        Ok(())
    }

    fn end_cleanly(&mut self, shared: &CommitterState) {
        match self.store.end_cleanly() {
            Ok(()) => {
                shared.has_ended_cleanly.store(true, Ordering::Release);
                shared.keeper.end_cleanly(self.sequence);
            }
            Err(error) => tracing::warn!(%error, "namespace cannot record that it ended in order"),
        }
    }
}

/// Of a group that did not fail.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Written,
    Nothing,
}

/// A group that was committed, or failed as a whole.
struct Done {
    jobs: Vec<Box<dyn Job>>,
    result: StoreResult<()>,
}

impl Done {
    fn is_written(&self) -> bool {
        self.result.is_ok()
    }

    fn answer(self) {
        for job in self.jobs {
            job.answer(self.result.as_ref().err());
        }
    }
}

/// Work that a group carries besides operations.
#[derive(Default)]
struct Waiting {
    /// Files with unstable writes.
    unsettled: Vec<FileId>,
    /// Directories with deltas.
    folding: Vec<FileId>,
    /// It writes all noted changes of accounts into `usage`.
    accounts: bool,
    /// It is written, and durably, though it says nothing.
    is_probe: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.unsettled.is_empty() && self.folding.is_empty() && !self.accounts && !self.is_probe
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
        group.inodes.fold(*dir)?;
    }
    group.take_unsettled(&waiting.unsettled)?;
    if waiting.is_probe {
        group.rows.be_durable();
    }
    group.quotas.is_flush |= waiting.accounts;
    if !group.is_written() && !group.quotas.is_flush {
        group.abandon();
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
