//! The pool-manager seam: which pool serves a file. Decided in memory, over the last known state of the pools.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use types::{Attributes, Epoch, FileId, Name, PoolId};

use crate::{Birth, Face, Pool, PoolStatus, Presence, SelectError, Ticket, TicketMode};

pub trait PoolManager: Send + Sync {
    /// Chooses among `Selection::locations`, or among all pools for a new file.
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError>;

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>>;

    fn pools(&self) -> Vec<PoolStatus>;

    /// Where the data face of a door (by its name) listens at a pool. Asked for each client that is sent there, since it may
    /// change. An unspecified address stands for the one that the client used to reach the head. `None`: no client of that door
    /// can be sent there.
    fn address(&self, pool: PoolId, door: &str) -> Option<SocketAddr>;

    /// As `address`, with all that is known of the face.
    fn face(&self, pool: PoolId, door: &str) -> Option<Face> {
        self.address(pool, door).map(Face::here)
    }

    /// Whether no client is to be sent to the pool: it is drained, or offline. Its files go through the head, as far as
    /// it can reach the pool.
    fn is_closed(&self, _pool: PoolId) -> bool {
        false
    }

    /// Those of all that are closed now.
    fn closed(&self) -> BTreeSet<PoolId> {
        BTreeSet::new()
    }

    /// The reports of clients decide whether they are sent to a pool again.
    fn report(&self, report: &ClientReport);

    /// How long their reads and writes took. Nothing need follow from it.
    fn report_transfers(&self, _report: &TransferReport) {}

    /// The client is gone: its reports of reads and writes are not added to those that it sends when it comes again.
    fn forget_client(&self, _client: u64) {}
}

/// How a client fared with a file at a pool, as it tells in LAYOUTERROR and LAYOUTRETURN (RFC 8435 §9.1 `ff_ioerr4`).
#[derive(Clone, Copy, Debug)]
pub struct ClientReport {
    /// The door's number for the client, as in [`Selection`].
    pub client: u64,
    pub file: FileId,
    pub outcome: Outcome,
    /// When the client was last sent to a pool for this file, by the monotonic clock. Two reports of the same attempt
    /// count once.
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

/// Reads and writes of a client at a pool since its last report (RFC 8435 §9.2 `ff_iostats4`). The client may lie.
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
    /// The sum of their durations, as the client saw it.
    pub time: Duration,
}

/// A question of a manager, with what the caller knows of the file. A manager need not look at all of it.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub purpose: Purpose,
    /// Where replicas are; empty for a new file.
    pub locations: &'a [PoolId],
    /// `None`: the file is yet to be made.
    pub file: Option<FileId>,
    /// The parent. `None`: unknown, as where a file is reached by its id.
    pub directory: Option<FileId>,
    /// In the directory.
    pub name: Option<&'a Name>,
    /// User and group. `None`: unknown.
    pub owner: Option<(u32, u32)>,
    /// That a new file is to have, as far as it is known (a pool with less room is not chosen), or that a file has.
    pub bytes: u64,
    /// The label by which policies tell files apart. Nothing gives files a label yet.
    pub class: Option<&'a str>,
    /// The door's number for the client. `None`: the head itself, which reaches every pool.
    pub client: Option<u64>,
    /// Pools that have failed this request already: they are not chosen again.
    pub tried: &'a [PoolId],
}

impl Selection<'_> {
    /// Of a file of which nothing else is known.
    pub const fn new(purpose: Purpose) -> Selection<'static> {
        Selection {
            purpose,
            locations: &[],
            file: None,
            directory: None,
            name: None,
            owner: None,
            bytes: 0,
            class: None,
            client: None,
            tried: &[],
        }
    }
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
    /// For the head itself, whose access no fence ends.
    pub fn own_ticket(self, file: &Attributes, mode: TicketMode) -> Ticket {
        Ticket { epoch: Epoch::OF_HEAD, ..self.ticket(file, mode) }
    }

    /// To be sealed.
    pub fn ticket(self, file: &Attributes, mode: TicketMode) -> Ticket {
        let presence = Presence::of_size(file.size);
        let birth = Birth::of(file.birth);
        let (pool, epoch, io) = (self.pool, file.epoch, file.io);
        Ticket { file: file.file, birth, pool, mode, epoch, presence, io }
    }
}
