//! The parts of a pool that its replicas share: files, threads, index, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{PoolError, Verifier};
use io_engine::Engine;
use rustix::io::Errno;
use types::PoolId;

use crate::calibrating::Calibrating;
use crate::contended::Contended;
use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::gathering::Gathering;
use crate::index::Index;
use crate::journal::PoolJournal;
use crate::pressure::Pressure;
use crate::removed::Removed;
use crate::scrub::Scrubbing;
use crate::space::Space;
use crate::store::{Extent, Store};
use crate::writability::Writability;

pub struct PoolParts {
    pub store: Store,
    pub engine: Engine,
    pub calibrating: Arc<Calibrating>,
    pub journal: PoolJournal,
    pub scrubbing: Scrubbing,
    pub gathering: Gathering,
    pub pressure: Pressure,
    pub index: Index,
    pub descriptions: Descriptions,
    pub space: Space,
    pub writability: Writability,
    pub counters: Counters,
    pub contended: Contended,
    pub removed: Removed,
    pub verifier: Verifier,
    pub closed: AtomicBool,
}

impl PoolParts {
    pub fn id(&self) -> PoolId {
        self.store.pool
    }

    /// A pool that is being closed is asked again by its callers: the process ends, and another comes.
    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Busy(self.id())) } else { Ok(()) }
    }

    /// An error while records of the write journal cannot be applied.
    pub fn check_changeable(&self) -> Result<(), PoolError> {
        if self.journal.is_late() {
            return Err(self.write_failure("apply the write journal", Errno::ROFS));
        }
        Ok(())
    }

    /// Requests so far, of every kind.
    pub fn requests(&self) -> u64 {
        self.engine.jobs() + self.counters.reads.value()
    }

    /// Takes the space that `[offset, end)` may need in a file.
    pub fn admit_bytes(&self, extent: Extent, offset: u64, end: u64) -> Result<(), PoolError> {
        let added = self.store.space_for(extent, offset, end);
        if added == 0 || self.space.admit_bytes(self.store.root(), added) {
            return Ok(());
        }
        Err(PoolError::NoSpace(self.id()))
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
