//! The engine that moves replicas: it empties drained pools, and clears up what interrupted moves have left.
//!
//! It walks over all files by their ids, a page at a time, and moves those that lie on a pool to empty, a few at once. Files
//! that wait or fail stay, and are tried again by the next walk. A pool is empty when two walks in a row have found nothing.

mod pace;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{FileLocations, Locations, NamespaceError, Paths, PoolManager, ReplicaState};
use files::{FilesError, MoveWaits, Moved, Mover};
use futures_util::{StreamExt, stream::FuturesUnordered};
use namespace::SqlNamespace;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use types::{Clock, FileId, PoolId};

use crate::fsck::escaped;
use crate::pools::drain::{DrainState, FailedMove};
use crate::progress::Meter;

use pace::{Activity, DrainPace};
use tally::{Outcome, Tally};

const PAGE: usize = 256;
/// Files that are moved at once.
const AT_ONCE: usize = 4;
/// Between two walks, and as many times the length of the last one.
const PAUSE: Duration = Duration::from_secs(5);
const REST: u32 = 4;
/// Before a pool in which nothing was found is looked at again.
const PAUSE_OF_EMPTY: Duration = Duration::from_secs(1);
/// How often who waits for an empty pool is told.
const TOLD_EVERY: Duration = Duration::from_millis(200);

pub struct Drains {
    namespace: Arc<SqlNamespace>,
    mover: Mover,
    clock: Arc<dyn Clock>,
    activity: Arc<Activity>,
    /// Pools to empty. Leaf lock.
    pools: Mutex<BTreeMap<PoolId, Tally>>,
    changed: Notify,
}

impl Drains {
    /// `share`: of the time in which copies go on while others use the pools.
    pub fn new(
        namespace: Arc<SqlNamespace>,
        pools: Arc<dyn PoolManager>,
        mover: Mover,
        clock: Arc<dyn Clock>,
        share: f64,
    ) -> Drains {
        let activity = Arc::new(Activity::new(pools, Arc::clone(&clock), share));
        Drains { namespace, mover, clock, activity, pools: Mutex::default(), changed: Notify::new() }
    }

    /// Empties these pools from now on, and no others.
    pub fn set(&self, emptied: &BTreeSet<PoolId>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool, _| emptied.contains(pool));
        for pool in emptied {
            pools.entry(*pool).or_default().look_again();
        }
        self.changed.notify_one();
    }

    /// `None`: its files stay.
    pub fn state(&self, pool: PoolId) -> Option<DrainState> {
        self.pools.lock().get(&pool).map(Tally::state)
    }

    /// Returns when no file is left at the pool, when all that are left cannot be moved, or when they are to stay.
    pub async fn until_empty(&self, pool: PoolId, meter: &Meter) {
        let mut total = None;
        while let Some(state) = self.state(pool).filter(|state| !state.is_empty) {
            let left = state.files_left.map(|left| left + state.files_moved);
            if total != left {
                total = left;
                meter.begin_items(format!("moving files of {pool}"), total);
            }
            meter.set(state.files_moved);
            if self.pools.lock().get(&pool).is_none_or(Tally::is_stuck) || meter.is_stopped() {
                return;
            }
            tokio::time::sleep(TOLD_EVERY).await;
        }
    }

    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut pause = Duration::ZERO;
        let mut is_left = true;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
                _ = stop.changed() => {}
            }
            if *stop.borrow() {
                return;
            }
            let began = self.clock.monotonic();
            let to_empty = self.unfinished();
            if is_left || !to_empty.is_empty() {
                is_left = self.logged(self.settle_all(&stop).await).unwrap_or(true);
            }
            if !to_empty.is_empty() {
                self.logged(self.walk(&to_empty, &stop).await);
                is_left = true;
            }
            let took = self.clock.monotonic().saturating_sub(began);
            pause = match self.pools.lock().values().all(Tally::has_found_nothing) {
                true => PAUSE_OF_EMPTY,
                false => PAUSE.max(took * REST),
            };
            if self.unfinished().is_empty() && !is_left {
                // Until something changes.
                pause = Duration::from_secs(u64::from(u32::MAX));
            }
        }
    }

    fn logged<T>(&self, done: Result<T, FilesError>) -> Option<T> {
        done.inspect_err(|error| tracing::warn!(%error, "cannot look for files to move, will try again")).ok()
    }

    fn unfinished(&self) -> BTreeSet<PoolId> {
        let pools = self.pools.lock();
        pools.iter().filter(|(_, tally)| !tally.state().is_empty).map(|(pool, _)| *pool).collect()
    }

    fn is_wanted(&self, pool: PoolId) -> bool {
        self.pools.lock().contains_key(&pool)
    }

    /// Clears up what moves have left. Whether something is left still.
    async fn settle_all(&self, stop: &watch::Receiver<bool>) -> Result<bool, FilesError> {
        let (mut after, mut is_left) = (FileId(0), false);
        while !*stop.borrow() {
            let page = self.mover.unsettled(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.attributes.file;
            for entry in page.iter().filter(|entry| entry.attributes.nlink > 0) {
                is_left = true;
                let file = entry.attributes.file;
                if let Err(error) = self.mover.settle(file).await {
                    tracing::debug!(%file, %error, "cannot clear up after a move yet");
                }
            }
        }
        Ok(is_left)
    }

    /// Once over all files.
    async fn walk(
        &self,
        to_empty: &BTreeSet<PoolId>,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), FilesError> {
        self.count(to_empty, stop).await?;
        let mut after = FileId(0);
        while !*stop.borrow() {
            let page = self.page(after).await?;
            let Some(last) = page.last() else { break };
            after = last.attributes.file;
            let mut running = FuturesUnordered::new();
            for entry in &page {
                for pool in on_pools(entry, to_empty) {
                    running.push(self.try_one(pool, entry, stop));
                    if running.len() == AT_ONCE {
                        running.next().await;
                    }
                }
            }
            while running.next().await.is_some() {}
        }
        if !*stop.borrow() {
            self.end_walk(to_empty);
        }
        Ok(())
    }

    async fn try_one(&self, pool: PoolId, entry: &FileLocations, stop: &watch::Receiver<bool>) {
        if !self.is_wanted(pool) || *stop.borrow() {
            return;
        }
        let outcome = self.move_one(pool, entry, stop).await;
        if let Some(tally) = self.pools.lock().get_mut(&pool) {
            tally.note(entry.attributes.size, outcome);
        }
    }

    /// So that people see how much there is before the first walk is over.
    async fn count(
        &self,
        to_empty: &BTreeSet<PoolId>,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), FilesError> {
        let is_counted = |pool: &PoolId| self.pools.lock().get(pool).is_none_or(Tally::is_counted);
        let uncounted: BTreeSet<PoolId> = to_empty.iter().copied().filter(|pool| !is_counted(pool)).collect();
        let mut counts: BTreeMap<PoolId, (u64, u64)> = uncounted.iter().map(|pool| (*pool, (0, 0))).collect();
        let mut after = FileId(0);
        while !uncounted.is_empty() && !*stop.borrow() {
            let page = self.page(after).await?;
            let Some(last) = page.last() else { break };
            after = last.attributes.file;
            for entry in &page {
                for pool in on_pools(entry, &uncounted) {
                    let count = counts.entry(pool).or_default();
                    *count = (count.0 + 1, count.1 + entry.attributes.size);
                }
            }
        }
        let mut pools = self.pools.lock();
        for (pool, (files, bytes)) in counts {
            if let Some(tally) = pools.get_mut(&pool) {
                tally.set_counted(files, bytes);
            }
        }
        Ok(())
    }

    fn end_walk(&self, walked: &BTreeSet<PoolId>) {
        let mut pools = self.pools.lock();
        for (pool, tally) in pools.iter_mut().filter(|(pool, _)| walked.contains(pool)) {
            let was_empty = tally.state().is_empty;
            tally.end_walk();
            let state = tally.state();
            if state.is_empty && !was_empty {
                tracing::info!(%pool, files = state.files_moved, "all files of the drained pool are moved");
            } else if let Some(failed) = state.failures.first() {
                let (files, file, why) = (state.files_failed, &failed.file, &failed.why);
                tracing::warn!(%pool, files, file, why, "files of the drained pool cannot be moved");
            }
        }
    }

    async fn page(&self, after: FileId) -> Result<Vec<FileLocations>, NamespaceError> {
        self.namespace.files(after, PAGE).await
    }

    async fn move_one(&self, pool: PoolId, entry: &FileLocations, stop: &watch::Receiver<bool>) -> Outcome {
        let file = entry.attributes.file;
        match entry.locality.state_at(pool) {
            Some(ReplicaState::Good) => {}
            // They are cleared up, or were before this walk saw it.
            Some(ReplicaState::Filling | ReplicaState::Stale) | None => return Outcome::Waits,
            Some(state @ (ReplicaState::Broken | ReplicaState::Missing)) => {
                return self.failed(file, format!("its replica there is {}", state.name())).await;
            }
        }
        let pace = DrainPace { drains: self, pool, stop };
        match self.mover.move_away(file, pool, &pace).await {
            Ok(Moved::Done { .. }) => Outcome::Moved,
            Ok(Moved::NothingToDo) => Outcome::Gone,
            Ok(Moved::Waits(
                MoveWaits::InUse
                | MoveWaits::Unnamed
                | MoveWaits::Changed
                | MoveWaits::Reclaims
                | MoveWaits::Unwanted,
            )) => Outcome::Waits,
            Err(error) => self.failed(file, error.to_string()).await,
        }
    }

    async fn failed(&self, file: FileId, why: String) -> Outcome {
        tracing::debug!(%file, why, "cannot move a file");
        let paths = self.namespace.paths(&[file]).await.unwrap_or_default();
        let path = paths.into_iter().next().flatten().map(|path| escaped(&path));
        Outcome::Failed(FailedMove { file: file.to_string(), path, why })
    }
}

/// Those of the pools that have the file, in whatever state.
fn on_pools(entry: &FileLocations, pools: &BTreeSet<PoolId>) -> impl Iterator<Item = PoolId> {
    entry.locality.pools().filter(|pool| pools.contains(pool))
}
