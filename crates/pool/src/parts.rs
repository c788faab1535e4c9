//! The parts of a pool that its replicas share: files, threads, index, counters.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{PoolError, Source, Verifier};
use io_engine::{Engine, SyncGate, Syncable};
use rustix::io::Errno;
use types::{FileId, PoolId};

use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::index::Index;
use crate::removed::Removed;
use crate::replica::{Claim, Replica};
use crate::space::Space;
use crate::store::Store;
use crate::table::{Full, Table};
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
    pub table: Table,
}

impl PoolParts {
    pub fn id(&self) -> PoolId {
        self.store.pool
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Offline(self.id())) } else { Ok(()) }
    }

    /// The file of a replica that another one is copied from, as far as the pool reaches it. Blocks.
    pub fn file_to_copy(self: &Arc<PoolParts>, source: Source) -> Result<Arc<OwnedFd>, PoolError> {
        let (file, ticket) = match source {
            Source::Local(pool, file) if pool == self.id() => (file, None),
            Source::Ticket(ticket) if ticket.pool == self.id() => (ticket.file, Some(ticket)),
            Source::Local(..) | Source::Ticket(_) => return Err(PoolError::Unsupported(self.id())),
        };
        let replica = self.take(file).map_err(|_| PoolError::Busy(self.id()))?;
        replica.load(self)?;
        if let Some(ticket) = ticket {
            replica.check_claim(self, Claim::of(&ticket))?;
        }
        let found = replica.lend_file().ok_or(PoolError::NoReplica(self.id()))?;
        // Lost bytes would become a hole of the copy.
        replica.check_whole(self)?;
        Ok(found)
    }

    /// The one object for the file. The table has room for later, as far as syncing gives it.
    pub fn take(self: &Arc<PoolParts>, file: FileId) -> Result<Arc<Replica>, Full> {
        let taken = self.table.take(file)?;
        for replica in taken.to_settle {
            // A failure marks the replica, and the next sync of it returns the error.
            self.engine.settle(&Settling { shared: Arc::clone(self), replica });
        }
        Ok(taken.replica)
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
