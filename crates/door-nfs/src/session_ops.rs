//! The sessions of one server, head or pool: the sans-io table of `nfs4_state` with a clock, a lock and a database.
//!
//! [`Sessions`] has the operations; its parts have the grace period, the ends of leases, and the back channels. Invariant:
//! a record that a reply depends on is durable before the reply leaves.
//! Lock order: the table before the head's states (`holds_state`); all others are leaves.

mod back_channels;
mod leases;
mod operations;
mod reclaims;
mod records;
mod timed_table;

use std::sync::Arc;
use std::time::Duration;

use api::{ClientRecord, FormerTickets, RecoveryRecords};
use bytes::Bytes;
use nfs4::{
    ClientId4, Compound4Res, CompoundArgs, NfsResop4, NfsStat4, ReferringCall4, Res, Sequence4Args,
    Sequence4ResOk, op,
};
use nfs4_state::{
    ConnectionId, Courtesy, Holdings, Incarnation, KnownClient, Peer, Principal, RequestFacts, Role,
    SequenceVerdict, ServerIdentity, SessionConfig, SessionLimits, SessionTable, SlotFacts, SlotRecall,
};
use types::{Clock, FileId};
use xdr::{Decoder, Encoder, Opaque, Xdr};

use leases::Leases;
use reclaims::Reclaims;
use records::Records;
use timed_table::TimedTable;

pub(crate) use back_channels::BackChannels;

use crate::context::Compound;

/// xid, type, RPC version, program, version, procedure, and the shortest credential and verifier.
const CALL_HEADER_BYTES: usize = 40;
/// xid, type, accepted, verifier, status.
const REPLY_HEADER_BYTES: usize = 24;
pub(crate) struct SessionsConfig {
    pub role: Role,
    pub major_id: Vec<u8>,
    pub scope: Vec<u8>,
    pub lease: Duration,
    pub courtesy: Courtesy,
    pub grace: Duration,
    /// Random per start.
    pub boot: u64,
    pub limits: SessionLimits,
}

pub(crate) struct Sessions {
    table: Arc<TimedTable>,
    records: Arc<Records>,
    pub reclaims: Reclaims,
    pub leases: Leases,
    pub callbacks: BackChannels,
}

/// The COMPOUND around a SEQUENCE, as the engine has decoded it.
pub(crate) struct SequenceFacts<'a> {
    /// Of all of it.
    pub body_bytes: usize,
    pub header: &'a CompoundArgs,
    /// Stands behind the SEQUENCE.
    pub behind: &'a Decoder,
}

pub(crate) enum SequenceOutcome {
    Execute {
        result: Sequence4ResOk,
        slot: SlotTicket,
        /// Of the COMPOUND4res.
        reply_bytes_max: usize,
    },
    /// A retransmission: the COMPOUND4res to send again.
    Replay(Vec<Bytes>),
    Refuse(NfsStat4),
}

/// The right of one request to run. Dropped without [`Sessions::finish`] (its task was ended) it frees the slot and
/// leaves word that the request was seen.
pub(crate) struct SlotTicket {
    ticket: Option<nfs4_state::SlotTicket>,
    table: Arc<TimedTable>,
}

/// One client for `status`.
pub(crate) struct ClientSummary {
    pub id: ClientId4,
    pub name: String,
    pub address: String,
    pub sessions: u64,
    pub slots: u64,
    pub slots_busy: u64,
    pub idle: Duration,
    /// Its lease has ended, and it stays until another client needs its state.
    pub is_courtesy: bool,
}

impl SlotTicket {
    /// The error of an operation whose result does not fit.
    pub fn too_big(&self) -> NfsStat4 {
        self.ticket.as_ref().map_or(NfsStat4::RepTooBig, nfs4_state::SlotTicket::too_big)
    }
}

impl Drop for SlotTicket {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let now = self.table.now();
            self.table.lock().finish(now, ticket, None);
        }
    }
}

/// For the recovery of clients after a restart.
pub(crate) struct Recovery {
    pub records: Arc<dyn RecoveryRecords>,
    /// Those on record now.
    pub known: Vec<ClientRecord>,
    pub former_tickets: Arc<dyn FormerTickets>,
}

impl Sessions {
    /// `recovery`: of clients over a restart; pools have none.
    pub fn new(config: SessionsConfig, recovery: Option<Recovery>, clock: Arc<dyn Clock>) -> Sessions {
        let (records, known, former_tickets) = match recovery {
            Some(Recovery { records, known, former_tickets }) => (Some(records), known, Some(former_tickets)),
            None => (None, Vec::new(), None),
        };
        let known = known
            .into_iter()
            .map(|record| KnownClient { owner: record.owner.into(), may_reclaim: record.reclaim_complete });
        let identity = ServerIdentity {
            major_id: config.major_id.into(),
            minor_id: 0,
            scope: config.scope.into(),
            role: config.role,
            implementation: Bytes::from_static(concat!("forebay ", env!("CARGO_PKG_VERSION")).as_bytes()),
        };
        let config = SessionConfig {
            identity,
            limits: config.limits,
            lease: config.lease,
            courtesy: config.courtesy,
            grace: config.grace,
            instance: config.boot,
        };
        let table = SessionTable::new(config, clock.monotonic(), known.collect());
        let table = Arc::new(TimedTable::new(table, clock));
        let records = Arc::new(Records::new(Arc::clone(&table), records));
        Sessions {
            reclaims: Reclaims::new(Arc::clone(&table), Arc::clone(&records), former_tickets),
            leases: Leases::new(Arc::clone(&table), Arc::clone(&records)),
            callbacks: BackChannels::new(Arc::clone(&table)),
            table,
            records,
        }
    }

    /// Lets time pass: ends leases and the grace period. Returns the clients that are gone for good, as
    /// [`Leases::expire`] does.
    pub async fn expire(&self, holdings: &(dyn Holdings + Sync)) -> Vec<ClientId4> {
        let gone = self.leases.expire(holdings).await;
        self.reclaims.end_grace().await;
        gone
    }

    /// Judges a COMPOUND by its SEQUENCE; sets the client and the session of one that may run.
    pub fn begin(
        &self,
        compound: &mut Compound,
        args: &Sequence4Args,
        facts: SequenceFacts<'_>,
    ) -> SequenceOutcome {
        let SequenceFacts { body_bytes, header, behind } = facts;
        let bytes = body_bytes + CALL_HEADER_BYTES;
        let facts = RequestFacts::new(bytes, header.op_count, &principal(compound), &behind.rest());
        let verdict = self.table.lock().begin(self.table.now(), args, &facts, &peer(compound));
        match verdict {
            SequenceVerdict::Execute(ticket) => {
                compound.client = Some(ticket.client);
                compound.session = Some(ticket.session);
                compound.request = Some(ReferringCall4 { sequenceid: args.sequenceid, slotid: args.slotid });
                SequenceOutcome::Execute {
                    result: ticket.result,
                    reply_bytes_max: ticket.reply_bytes_max.saturating_sub(REPLY_HEADER_BYTES),
                    slot: SlotTicket { ticket: Some(ticket), table: Arc::clone(&self.table) },
                }
            }
            SequenceVerdict::Replay(reply) => SequenceOutcome::Replay(vec![reply]),
            SequenceVerdict::Uncached(result) => {
                let next = behind.clone().u32().unwrap_or(op::ILLEGAL);
                SequenceOutcome::Replay(uncached(header.tag.clone(), result, next))
            }
            SequenceVerdict::Refuse(status) => SequenceOutcome::Refuse(status),
        }
    }

    /// The request is done; its reply is kept where the client asked for it.
    pub fn finish(&self, mut slot: SlotTicket, reply: &[Bytes]) {
        let Some(ticket) = slot.ticket.take() else { return };
        // Copied, since the segments may pin far larger buffers; it is bounded by the session's cached size.
        let kept = (ticket.cache_this
            && reply.iter().map(Bytes::len).sum::<usize>() <= ticket.reply_bytes_max)
            .then(|| Bytes::from(reply.concat()));
        self.table.lock().finish(self.table.now(), ticket, kept);
    }

    pub fn incarnation(&self, client: ClientId4) -> Option<Incarnation> {
        self.table.lock().clients().incarnation(client)
    }

    pub fn slot_facts(&self) -> SlotFacts {
        self.table.lock().sessions().slot_facts()
    }

    /// Clients that are to be asked for slots, since this was last asked.
    pub fn take_slot_recalls(&self) -> Vec<SlotRecall> {
        self.table.lock().sessions_mut().take_slot_recalls()
    }

    /// Raises SEQ4_STATUS_* flags in the client's replies until they are lowered.
    pub fn raise_status(&self, client: ClientId4, flags: u32) {
        self.table.lock().clients_mut().raise_status(client, flags);
    }

    pub fn lower_status(&self, client: ClientId4, flags: u32) {
        self.table.lock().clients_mut().lower_status(client, flags);
    }

    /// Confirmed clients, by id.
    pub fn clients(&self) -> Vec<ClientSummary> {
        let facts = self.table.lock().snapshot(self.table.now());
        let confirmed = facts.into_iter().filter(|client| client.confirmed);
        confirmed
            .map(|client| ClientSummary {
                id: client.client,
                name: client.owner.escape_ascii().to_string(),
                address: client.address.ip().to_string(),
                sessions: client.sessions.count as u64,
                slots: client.sessions.slots.into(),
                slots_busy: client.sessions.slots_busy.into(),
                idle: client.silent,
                is_courtesy: client.is_courtesy,
            })
            .collect()
    }

    /// Clients, confirmed or not, and sessions.
    pub fn known(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.snapshot(self.table.now()).len(), table.sessions().count())
    }

    /// Whether a session has the connection for its calls or for those to its client.
    pub fn is_used(&self, connection: ConnectionId) -> bool {
        self.table.lock().sessions().is_used(connection)
    }

    /// The request is about to grant something of the file that may be recalled.
    pub fn note_grant(&self, compound: &Compound, file: FileId) {
        if let (Some(session), Some(request)) = (compound.session, compound.request) {
            self.table.lock().sessions_mut().note_grant(session, request.slotid, file);
        }
    }
}

/// `so_major_id`: of one instance but different for each daemon, or Linux would take two servers for one
/// (`nfs41_walk_client_list`).
pub(crate) fn major_id(instance: &[u8; 16], daemon: &str) -> Vec<u8> {
    format!("forebay-{}-{daemon}", types::hex::Hex(instance)).into_bytes()
}

fn principal(compound: &Compound) -> Principal {
    compound.caller.principal
}

fn peer(compound: &Compound) -> Peer {
    Peer { connection: compound.caller.connection.id(), address: compound.caller.connection.peer() }
}

/// RFC 8881 §2.10.6.1.3: SEQUENCE succeeds and the operation after it says that the reply was not kept.
fn uncached(tag: Opaque, result: Sequence4ResOk, next: u32) -> Vec<Bytes> {
    let status = NfsStat4::RetryUncachedRep;
    let resarray = vec![NfsResop4::Sequence(Res::Ok(result)), NfsResop4::error(next, status)];
    let mut encoder = Encoder::new();
    Compound4Res { status, tag, resarray }.encode(&mut encoder);
    encoder.into_segments()
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
