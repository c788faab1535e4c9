//! Delayed allocation of a pool: whether its small unstable writes are gathered in memory, the memory for them, and the
//! flushes of extents that are due.
//!
//! Absent on file systems that allocate space in large pieces anyway ([`Gathering::is_worth_it`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use io_engine::Work;
use io_engine::gather::{Budget, BudgetUse, GatherCounts, GatherLimits};
use rustix::fs::{FsWord, fstatfs};
use serde::{Deserialize, Serialize};
use types::FileId;

use crate::parts::PoolParts;
use crate::replicas::Replicas;
use crate::store::Store;

/// Memory of the gathered writes of one pool.
const BYTES_MAX: usize = 64 << 20;
/// XFS makes an extent of each small write that goes to the disk by itself. ext4 reserves several MiB around it for the next
/// ones, and Btrfs has the same extents with and without (decision 0026).
const FRAGMENTING: FsWord = 0x5846_5342;

/// The setting `pools.gather`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatherPolicy {
    /// On file systems where it was measured to pay.
    #[default]
    Auto,
    Always,
    Never,
}

pub struct Gathering {
    /// `None`: every write goes to its file at once.
    budget: Option<Arc<Budget>>,
    replicas: OnceLock<Weak<Replicas>>,
    /// A thread of the engine flushes, or will.
    is_flushing: AtomicBool,
    /// A write found no memory since the last look.
    is_full: AtomicBool,
    /// A flush failed, and may pass when it is tried again.
    has_failed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherReport {
    pub in_use: BudgetUse,
    pub counts: GatherCounts,
}

impl Gathering {
    pub fn new(policy: GatherPolicy, store: &Store) -> Gathering {
        let gathers = match policy {
            GatherPolicy::Always => true,
            GatherPolicy::Never => false,
            GatherPolicy::Auto => {
                fstatfs(store.root()).is_ok_and(|about| Gathering::is_worth_it(about.f_type))
            }
        };
        let budget = gathers.then(|| Budget::new(GatherLimits::for_memory(BYTES_MAX)));
        Gathering {
            budget,
            replicas: OnceLock::new(),
            is_flushing: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    fn is_worth_it(file_system: FsWord) -> bool {
        file_system == FRAGMENTING
    }

    pub fn attach(&self, replicas: &Arc<Replicas>) {
        self.replicas.get_or_init(|| Arc::downgrade(replicas));
    }

    pub fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.as_ref()
    }

    /// A write has found no memory.
    pub fn note_full(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// It lost nothing, and is tried again with what is due next.
    pub fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether one has since this was asked last.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed) && self.is_full.swap(false, Ordering::Relaxed)
    }

    /// `None`: the pool does not gather.
    pub fn report(&self) -> Option<GatherReport> {
        let budget = self.budget.as_ref()?;
        Some(GatherReport { in_use: budget.in_use(), counts: budget.counts() })
    }

    /// Flushes what is due, in a thread of the engine. Called once a second, and when memory is used up.
    pub fn flush_due(shared: &Arc<PoolParts>) {
        let gathering = &shared.gathering;
        let Some(budget) = &gathering.budget else { return };
        let has_failed = gathering.has_failed.load(Ordering::Relaxed);
        if !has_failed && budget.due(Instant::now(), 1).is_empty()
            || gathering.is_flushing.swap(true, Ordering::AcqRel)
        {
            return;
        }
        // Dropped with a job that finds no thread, or panics. It is tried again in a second.
        let flushing = Flushing(Arc::clone(shared));
        let job = move || flushing.0.gathering.flush(&flushing.0);
        let _ = shared.engine.begin(Work::Flush, job);
    }

    /// A failure is kept by the replica, whose next COMMIT returns it.
    fn flush(&self, shared: &PoolParts) {
        let (Some(budget), Some(replicas)) = (&self.budget, self.replicas.get().and_then(Weak::upgrade))
        else {
            return;
        };
        for due in budget.due(Instant::now(), usize::MAX) {
            if let Some(replica) = replicas.find(due.file) {
                let _ = replica.flush_opened_until(shared, due.opened_until);
            }
        }
        if self.has_failed.swap(false, Ordering::Relaxed) {
            let mut failed: Vec<FileId> = Vec::new();
            replicas.each(&mut |replica| failed.extend(replica.has_failed_flush().then(|| replica.id())));
            for replica in failed.into_iter().filter_map(|file| replicas.find(file)) {
                let _ = replica.flush(shared);
            }
        }
    }

    /// Flushes everything. Nobody writes any more.
    pub fn close(&self, shared: &PoolParts) {
        let (Some(_), Some(replicas)) = (&self.budget, self.replicas.get().and_then(Weak::upgrade)) else {
            return;
        };
        let mut files: Vec<FileId> = Vec::new();
        replicas.each(&mut |replica| files.extend(replica.has_gathered().then(|| replica.id())));
        for file in files {
            if let Some(replica) = replicas.find(file)
                && let Err(error) = replica.flush(shared)
            {
                // They were not stable, and the next start has another verifier: the clients write them again.
                let pool = shared.id();
                tracing::warn!(%pool, %file, %error, "writes that were not stable are lost with this stop");
            }
        }
    }
}

/// While it lives, nobody else begins.
struct Flushing(Arc<PoolParts>);

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.gathering.is_flushing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
impl Gathering {
    /// While it is held, nothing is flushed for its age: a test may take any time.
    pub fn hold_for_test(&self, is_held: bool) {
        self.is_flushing.store(is_held, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gathers_where_small_writes_become_extents() {
        assert!(Gathering::is_worth_it(0x5846_5342), "XFS");
        for other in [0xef53, 0x9123_683e, 0x0102_1994, 0x2fc1_2fc1] {
            assert!(!Gathering::is_worth_it(other), "{other:x}");
        }
    }
}
