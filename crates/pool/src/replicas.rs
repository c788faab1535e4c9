//! The replicas in use, and what is done to one as part of all of them: found, copied from, synced to make room.

use std::sync::Arc;

use api::{PoolError, Source, Verifier};
use io_engine::{SyncGate, Syncable};
use types::FileId;

use crate::parts::PoolParts;
use crate::replica::{Claim, CopySource, Replica};
use crate::table::{Full, Table};

pub struct Replicas {
    shared: Arc<PoolParts>,
    table: Table,
}

impl Replicas {
    pub fn new(shared: Arc<PoolParts>, open_files_max: usize) -> Arc<Replicas> {
        Arc::new(Replicas { shared, table: Table::new(open_files_max) })
    }

    /// The replica that another one is copied from, as far as the pool reaches it. Blocks.
    pub fn source_to_copy(&self, source: Source) -> Result<CopySource, PoolError> {
        let (file, ticket) = match source {
            Source::Local(pool, file) if pool == self.shared.id() => (file, None),
            Source::Ticket(ticket) if ticket.pool == self.shared.id() => (ticket.file, Some(ticket)),
            Source::Local(..) | Source::Ticket(_) => return Err(PoolError::Unsupported(self.shared.id())),
        };
        let replica = self.take(file).map_err(|_| PoolError::Busy(self.shared.id()))?;
        replica.file().load(&self.shared)?;
        if let Some(ticket) = ticket {
            replica.file().record().check_claim(&self.shared, Claim::of(&ticket))?;
        }
        replica.file().record().faults.check_undamaged(&self.shared)?;
        let file = replica.file().descriptors().lend().ok_or(PoolError::NoReplica(self.shared.id()))?;
        if replica.has_gathered() {
            // A flush that failed may have left part of the bytes in the file.
            replica.file().check_unbroken(&self.shared)?;
        }
        // Lost bytes would become a hole of the copy.
        replica.file().check_whole(&self.shared)?;
        Ok(CopySource { replica, file })
    }

    /// The one object for the file. The table has room for later, as far as syncing gives it.
    pub fn take(&self, file: FileId) -> Result<Arc<Replica>, Full> {
        let taken = self.table.take(file)?;
        for replica in taken.to_settle {
            // A failure marks the replica, and the next sync of it returns the error.
            self.shared.engine.settle(&Settling { shared: Arc::clone(&self.shared), replica });
        }
        Ok(taken.replica)
    }

    /// The object for the file, if it is in use or kept for the next use.
    pub fn find(&self, file: FileId) -> Option<Arc<Replica>> {
        self.table.find(file)
    }

    /// Shows all replicas that are in use or kept. `look` is quick: others wait for it.
    pub fn each(&self, look: &mut dyn FnMut(&Replica)) {
        self.table.each(look);
    }

    /// Forgets a replica that is gone; its holders keep it.
    pub fn drop_replica(&self, replica: &Replica) {
        self.table.drop_replica(replica);
    }

    /// Every write of the file that runs now is done when this returns. A replica that nobody has in use has none.
    pub fn wait_for_writers(&self, file: FileId) {
        if let Some(replica) = self.table.find(file) {
            replica.wait_for_writers();
        }
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
        self.replica.unsynced().gate()
    }

    fn sync(&self) -> Result<(), PoolError> {
        self.replica.settle(&self.shared)
    }

    fn verifier(&self) -> Verifier {
        self.shared.verifier
    }
}
