//! The pool-manager seam: which pool serves a file. Decided in memory, over the last known state of the pools.

use std::sync::Arc;

use types::{FileId, PoolId};

use crate::{Pool, PoolStatus, SelectError, Ticket};

pub trait PoolManager: Send + Sync {
    /// Chooses among `Selection::locations`, or among all pools for a new file.
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError>;

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>>;

    fn pools(&self) -> Vec<PoolStatus>;

    /// A client could not reach or use a pool (RFC 8435 `ff_ioerr4`): it is avoided for that client for a while.
    fn report_failure(&self, client: u64, pool: PoolId);
}

#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub purpose: Purpose,
    /// Where replicas are; empty for a new file.
    pub locations: &'a [PoolId],
    /// The door's number for the client, as in `report_failure`. `None`: the head itself, which reaches every pool.
    pub client: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Read,
    Write,
    /// A new file: any pool with space.
    Create,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub pool: PoolId,
}

impl Grant {
    pub fn ticket(self, file: FileId, mode: crate::TicketMode, epoch: types::Epoch) -> Ticket {
        Ticket { file, pool: self.pool, mode, epoch }
    }
}
