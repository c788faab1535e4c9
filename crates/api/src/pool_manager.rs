//! The pool-manager seam: which pool serves a file. Decided in memory, over the last known state of the pools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use types::{FileId, PoolId};

use crate::{Pool, PoolStatus, SelectError, Ticket};

pub trait PoolManager: Send + Sync {
    /// Chooses among `Selection::locations`, or among all pools for a new file.
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError>;

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>>;

    fn pools(&self) -> Vec<PoolStatus>;

    /// Whether no client is to be sent to the pool: it is drained, or offline. Its files go through the head, as far as
    /// it can reach the pool.
    fn is_closed(&self, _pool: PoolId) -> bool {
        false
    }

    /// Those of all that are closed now.
    fn closed(&self) -> BTreeSet<PoolId> {
        BTreeSet::new()
    }

    /// What clients tell of a pool decides whether they are sent there again.
    fn report(&self, report: &ClientReport);

    /// How long their reads and writes took. Nothing need follow from it.
    fn report_transfers(&self, _report: &TransferReport) {}

    /// The client is gone: what it told of its reads and writes counts no more, beside what it tells when it comes again.
    fn forget_client(&self, _client: u64) {}
}

/// How a client fared with a file at a pool, as it tells in LAYOUTERROR and LAYOUTRETURN (RFC 8435 §9.1 `ff_ioerr4`).
#[derive(Clone, Copy, Debug)]
pub struct ClientReport {
    /// The door's number for the client, as in [`Selection`].
    pub client: u64,
    pub file: FileId,
    pub outcome: Outcome,
    /// When the client was last sent to a pool for this file, by the monotonic clock. What is told twice of the same
    /// attempt counts once.
    pub sent: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has given back what it had, and told of no error with that.
    Fine,
    /// It could not talk to the pool.
    Unreachable(PoolId),
    /// The pool has answered with an error.
    Refused(PoolId),
}

/// What a client did at a pool since it told last (RFC 8435 §9.2 `ff_iostats4`). Claims: who tells may lie.
#[derive(Clone, Copy, Debug)]
pub struct TransferReport {
    /// The door's number for the client, as in [`Selection`].
    pub client: u64,
    pub pool: PoolId,
    pub reads: Transfers,
    pub writes: Transfers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// That were answered.
    pub operations: u64,
    pub bytes: u64,
    /// The sum of what each of them took, as the client saw it.
    pub time: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub purpose: Purpose,
    /// Where replicas are; empty for a new file.
    pub locations: &'a [PoolId],
    /// `None`: a new file.
    pub file: Option<FileId>,
    /// The door's number for the client. `None`: the head itself, which reaches every pool.
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
