//! The parts of a pool that its replicas share: files, threads, index, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{PoolError, Verifier};
use io_engine::{Engine, SyncGate, Syncable};
use rustix::io::Errno;
use types::PoolId;

use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::index::Index;
use crate::removed::Removed;
use crate::replica::Replica;
use crate::space::Space;
use crate::store::Store;
use crate::writability::Writability;

pub struct PoolParts {
    pub store: Store,
    pub engine: Engine,
    pub index: Index,
    pub descriptions: Descriptions,
    pub space: Space,
    pub writability: Writability,
    pub counters: Counters,
    pub removed: Removed,
    pub verifier: Verifier,
    pub closed: AtomicBool,
}

impl PoolParts {
    pub fn id(&self) -> PoolId {
        self.store.pool
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Offline(self.id())) } else { Ok(()) }
    }

    pub fn failure(&self, operation: &'static str, errno: Errno) -> PoolError {
        io_engine::pool_error(self.id(), operation, errno)
    }

    /// Of something that writes.
    pub fn write_failure(&self, operation: &'static str, errno: Errno) -> PoolError {
        self.writability.note(self.id(), errno);
        self.failure(operation, errno)
    }
}

/// A replica that nobody has to have open to sync it.
#[derive(Clone)]
pub struct Settling {
    pub shared: Arc<PoolParts>,
    pub replica: Arc<Replica>,
}

impl Syncable for Settling {
    fn gate(&self) -> &SyncGate {
        self.replica.gate()
    }

    fn sync(&self) -> Result<(), PoolError> {
        self.replica.settle(&self.shared)
    }

    fn verifier(&self) -> Verifier {
        self.shared.verifier
    }
}
