//! What the replicas of a pool share: its files, its threads, its books.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{PoolError, Verifier};
use io_engine::{Asked, Engine, Lane, Waiter};
use rustix::io::Errno;
use types::PoolId;

use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::index::Index;
use crate::removed::Removed;
use crate::replica::Replica;
use crate::space::Space;
use crate::store::Store;

pub struct Shared {
    pub store: Store,
    pub engine: Engine,
    pub index: Index,
    pub descriptions: Descriptions,
    pub space: Space,
    pub counters: Counters,
    pub removed: Removed,
    pub verifier: Verifier,
    pub closed: AtomicBool,
}

impl Shared {
    pub fn id(&self) -> PoolId {
        self.store.pool
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Offline(self.id())) } else { Ok(()) }
    }

    pub fn failure(&self, operation: &'static str, errno: Errno) -> PoolError {
        match errno {
            // Too many open files is a bound that was reached, not a disk that failed.
            Errno::MFILE | Errno::NFILE => PoolError::Busy(self.id()),
            errno => io_engine::pool_error(self.id(), operation, errno),
        }
    }

    /// Tells `waiter` when everything written to the replica so far is on disk.
    pub fn settle(self: &Arc<Shared>, replica: &Arc<Replica>, waiter: Waiter) {
        if self.leads(replica, waiter) {
            let (shared, led) = (Arc::clone(self), Arc::clone(replica));
            let run = Box::new(move || shared.lead(led));
            if let Err(error) = self.engine.enqueue(Lane::Sync, run) {
                replica.gate().abandon(&error);
            }
        }
    }

    /// The same in this thread, unless another is at it.
    pub fn settle_here(&self, replica: Arc<Replica>, waiter: Waiter) {
        if self.leads(&replica, waiter) {
            self.lead(replica);
        }
    }

    /// Whether whoever asked has to run the sync.
    fn leads(&self, replica: &Replica, waiter: Waiter) -> bool {
        match replica.gate().ask(waiter) {
            Asked::Lead => return true,
            Asked::Queued => {}
            Asked::Full(waiter) => waiter(Err(PoolError::Busy(self.id()))),
        }
        false
    }

    fn lead(&self, replica: Arc<Replica>) {
        let answers = replica.gate().run(|| replica.settle(self));
        drop(replica);
        answers.tell();
    }
}
