//! The sessions of one server, head or pool: the sans-io table of `nfs4_state` with a clock, a lock and a database.
//!
//! Invariants: a record that a reply depends on is durable before the reply leaves; the state of a client that is gone
//! is given to nobody before its record ceases to entitle to reclaims, and the record is removed when its tickets are void;
//! records of one owner are written in the order of what happened.
//! Lock order: the table before the head's states (`holds_state`); all others are leaves.

mod operations;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{ClientRecord, NamespaceError, RecoveryRecords};
use bytes::Bytes;
use nfs4::{
    ClientId4, Compound4Res, CompoundArgs, NfsResop4, NfsStat4, ReferringCall4, ReferringCallList4, Res,
    Sequence4Args, Sequence4ResOk, op,
};
use nfs4_state::{
    Action, CallbackOutcome, CallbackRefusal, CallbackTicket, ConnectionId, Courtesy, Departed, Holdings,
    Incarnation, KnownClient, Lapsed, Peer, Principal, RequestFacts, Role, SequenceVerdict, ServerIdentity,
    SessionConfig, SessionLimits, SessionTable, SlotFacts, SlotRecall,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use types::{Clock, FileId};
use xdr::{Decoder, Encoder, Opaque, Xdr};

use crate::context::Compound;
use crate::transport::Connection;

/// xid, type, RPC version, program, version, procedure, and the shortest credential and verifier.
const CALL_HEADER_BYTES: usize = 40;
/// xid, type, accepted, verifier, status.
const REPLY_HEADER_BYTES: usize = 24;
/// Calls to clients under way or waiting for a slot, of all clients.
const CALLBACKS_MAX: usize = 1024;

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
    shared: Arc<SharedSessions>,
    records: Option<Arc<dyn RecoveryRecords>>,
    /// Held while a record is written, so that writes of one owner keep their order.
    recording: tokio::sync::Mutex<()>,
    /// Clients that are gone and whose state is not yet released. Leaf lock.
    departed: Mutex<Vec<Departed>>,
    /// Those that were handed over with state, and whose records are still to be removed. Leaf lock.
    releasing: Mutex<BTreeMap<ClientId4, Departed>>,
    /// Records to change before the grace period ends. Leaf lock.
    grace_ending: Mutex<Option<Vec<Action>>>,
    /// Clients whose records entitle them to nothing since something was taken from them. Leaf lock.
    robbed: Mutex<BTreeSet<ClientId4>>,
    /// Connections that serve as back channels. Leaf lock.
    connections: Mutex<HashMap<ConnectionId, Weak<Connection>>>,
    pub(crate) callback_places: Semaphore,
    /// Calls that each client is being asked. Leaf lock.
    pub(crate) called: Mutex<BTreeMap<ClientId4, usize>>,
    /// A callback slot has become free.
    pub(crate) callback_freed: Notify,
}

struct SharedSessions {
    table: Mutex<SessionTable>,
    clock: Arc<dyn Clock>,
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
    shared: Arc<SharedSessions>,
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
            let now = self.shared.clock.monotonic();
            self.shared.table.lock().finish(now, ticket, None);
        }
    }
}

impl Sessions {
    /// `records` keeps clients over a restart, with those on record now; pools have none.
    pub fn new(
        config: SessionsConfig,
        records: Option<(Arc<dyn RecoveryRecords>, Vec<ClientRecord>)>,
        clock: Arc<dyn Clock>,
    ) -> Sessions {
        let (records, known) = records.map_or((None, Vec::new()), |(records, known)| (Some(records), known));
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
        Sessions {
            shared: Arc::new(SharedSessions { table: Mutex::new(table), clock }),
            records,
            recording: tokio::sync::Mutex::new(()),
            departed: Mutex::default(),
            releasing: Mutex::default(),
            grace_ending: Mutex::default(),
            robbed: Mutex::default(),
            connections: Mutex::default(),
            callback_places: Semaphore::new(CALLBACKS_MAX),
            called: Mutex::default(),
            callback_freed: Notify::new(),
        }
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
        let verdict = self.lock().begin(self.now(), args, &facts, &peer(compound));
        match verdict {
            SequenceVerdict::Execute(ticket) => {
                compound.client = Some(ticket.client);
                compound.session = Some(ticket.session);
                compound.request = Some(ReferringCall4 { sequenceid: args.sequenceid, slotid: args.slotid });
                SequenceOutcome::Execute {
                    result: ticket.result,
                    reply_bytes_max: ticket.reply_bytes_max.saturating_sub(REPLY_HEADER_BYTES),
                    slot: SlotTicket { ticket: Some(ticket), shared: Arc::clone(&self.shared) },
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
        self.lock().finish(self.now(), ticket, kept);
    }

    pub fn in_grace(&self) -> bool {
        self.lock().reclaims().in_grace()
    }

    pub fn grace_left(&self) -> Duration {
        self.lock().reclaims().grace_remaining(self.now()).unwrap_or_default()
    }

    /// Whether the client may reclaim (or, not reclaiming, obtain) opens, locks and layouts now: NO_GRACE, or GRACE.
    pub fn judge_reclaim(&self, client: ClientId4, is_reclaim: bool) -> Result<(), NfsStat4> {
        let mut table = self.lock();
        if is_reclaim {
            table.reclaims().may_reclaim(self.now(), client)
        } else {
            table.reclaims().may_obtain(client)
        }
    }

    /// Whether a client of a former start may still have tickets, and has not come back in time to reclaim.
    pub fn has_missed_reclaims(&self) -> bool {
        self.lock().reclaims().has_missed()
    }

    pub fn incarnation(&self, client: ClientId4) -> Option<Incarnation> {
        self.lock().clients().incarnation(client)
    }

    /// Whether the client could be asked to give something back.
    pub fn has_back_channel(&self, client: ClientId4) -> bool {
        self.lock().callbacks().has_back_channel(client)
    }

    pub fn slot_facts(&self) -> SlotFacts {
        self.lock().sessions().slot_facts()
    }

    /// Clients that are to be asked for slots, since this was last asked.
    pub fn take_slot_recalls(&self) -> Vec<SlotRecall> {
        self.lock().sessions_mut().take_slot_recalls()
    }

    /// Raises SEQ4_STATUS_* flags in the client's replies until they are lowered.
    pub fn raise_status(&self, client: ClientId4, flags: u32) {
        self.lock().clients_mut().raise_status(client, flags);
    }

    pub fn lower_status(&self, client: ClientId4, flags: u32) {
        self.lock().clients_mut().lower_status(client, flags);
    }

    /// Confirmed clients, by id.
    pub fn clients(&self) -> Vec<ClientSummary> {
        let facts = self.lock().snapshot(self.now());
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
    #[cfg(feature = "direct")]
    pub fn known(&self) -> (usize, usize) {
        let table = self.lock();
        (table.snapshot(self.now()).len(), table.sessions().count())
    }

    /// The transport has closed a connection.
    pub fn disconnected(&self, connection: ConnectionId) {
        self.connections.lock().remove(&connection);
        self.lock().sessions_mut().connection_closed(connection);
    }

    /// Whether a session has the connection for its calls or for those to its client.
    pub fn is_used(&self, connection: ConnectionId) -> bool {
        self.lock().sessions().is_used(connection)
    }

    /// A connection that serves as back channel, if it is still there.
    pub fn back_connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id)?.upgrade()
    }

    /// The request is about to grant something of the file that may be recalled.
    pub fn note_grant(&self, compound: &Compound, file: FileId) {
        if let (Some(session), Some(request)) = (compound.session, compound.request) {
            self.lock().sessions_mut().note_grant(session, request.slotid, file);
        }
    }

    /// Requests whose replies a recall of what they grant of the file may overtake.
    pub fn granting_calls(&self, client: ClientId4, file: Option<FileId>) -> Vec<ReferringCallList4> {
        self.lock().callbacks().granting_calls(client, file)
    }

    pub fn callback_begin(&self, client: ClientId4) -> Result<CallbackTicket, CallbackRefusal> {
        self.lock().callbacks().begin(client)
    }

    pub fn callback_misordered(&self, ticket: &CallbackTicket) -> Option<CallbackTicket> {
        self.lock().callbacks().misordered(ticket)
    }

    pub fn callback_end(&self, ticket: CallbackTicket, outcome: CallbackOutcome) {
        self.lock().callbacks().end(ticket, outcome);
        self.callback_freed.notify_waiters();
    }

    /// There are clients whose state waits to be released by [`expire`](Self::expire).
    pub fn has_departed(&self) -> bool {
        !self.departed.lock().is_empty()
    }

    /// A request conflicts with the state of these clients. Those whose lease has ended depart, and their state is
    /// released with the next [`expire`](Self::expire). Returns these, and those that had departed before.
    pub fn dislodge(&self, clients: &[ClientId4]) -> BTreeSet<ClientId4> {
        let mut table = self.lock();
        let departed = table.dislodge(self.now(), clients);
        for departed in &departed {
            tracing::info!(client = departed.client.0, "a client whose lease is over makes way");
        }
        // Before others can see that they are gone: a departed client is always in this list or released.
        self.departed.lock().extend(departed);
        clients.iter().filter(|client| !table.clients().is_confirmed(**client)).copied().collect()
    }

    /// Those of the clients that are unknown: neither confirmed, nor departed with [`expire`](Self::expire) still to
    /// come.
    pub fn strangers(&self, mut clients: Vec<ClientId4>) -> Vec<ClientId4> {
        // Under both locks, or one that goes in between would be neither.
        let table = self.lock();
        let departing: BTreeSet<_> = self.departed.lock().iter().map(|departed| departed.client).collect();
        clients.retain(|client| !departing.contains(client) && !table.clients().is_confirmed(*client));
        clients
    }

    /// Lets time pass: ends leases and the grace period. Returns the clients that are gone for good, so that their
    /// state can be released. Their records entitle to nothing any more; the records of clients that hold something are
    /// removed when they are [`released`](Self::released). If the database fails, the next call tries again.
    pub async fn expire(&self, holdings: &(dyn Holdings + Sync)) -> Vec<ClientId4> {
        let batch = {
            let mut table = self.lock();
            let Lapsed { departed: expired, kept } = table.expire(self.now(), holdings);
            for client in kept {
                tracing::info!(
                    client = client.0,
                    "lease of a client is over, what it has stays until it is needed"
                );
            }
            for departed in &expired {
                tracing::info!(client = departed.client.0, "lease of a client is over");
            }
            let mut departed = self.departed.lock();
            departed.extend(expired);
            std::mem::take(&mut *departed)
        };
        let mut gone = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter();
        while let Some(departed) = rest.next() {
            match self.hand_over(&departed, holdings).await {
                Ok(()) => gone.push(departed.client),
                Err(error) => {
                    tracing::warn!(%error, "cannot remove the record of a client, will try again");
                    let mut waiting = self.departed.lock();
                    waiting.push(departed);
                    waiting.extend(rest);
                    break;
                }
            }
        }
        self.end_grace().await;
        gone
    }

    /// A head that is killed before the client is fenced off must know that it was there.
    async fn hand_over(
        &self,
        departed: &Departed,
        holdings: &(dyn Holdings + Sync),
    ) -> Result<(), NamespaceError> {
        match &departed.action {
            Some(Action::RemoveRecord { owner }) if holdings.states(departed.client) > 0 => {
                self.record(Some(&Action::VoidRecord { owner: owner.clone() })).await?;
                self.releasing.lock().insert(departed.client, departed.clone());
                Ok(())
            }
            action => self.record(action.as_ref()).await,
        }
    }

    /// The client, which is gone, is fenced off, and its state released.
    pub async fn released(&self, client: ClientId4) {
        let Some(departed) = self.releasing.lock().remove(&client) else { return };
        if let Err(error) = self.record(departed.action.as_ref()).await {
            tracing::warn!(%error, "cannot remove the record of a client, will try again");
            self.departed.lock().push(departed);
        }
    }

    async fn end_grace(&self) {
        let due = self.lock().reclaims().grace_due(self.now());
        let Some(actions) = due.or_else(|| self.grace_ending.lock().take()) else { return };
        for action in &actions {
            if let Err(error) = self.record(Some(action)).await {
                tracing::warn!(%error, "cannot end the grace period, will try again");
                *self.grace_ending.lock() = Some(actions);
                return;
            }
        }
        self.lock().reclaims().grace_ended();
        tracing::info!(not_reclaimed = actions.len(), "the grace period is over");
    }

    /// Before something is taken from a client that it may not hear of: should the server start anew, the client may not reclaim
    /// over what others have done since (RFC 8881 §8.4.3, §10.2.1).
    pub async fn forbid_reclaim(&self, client: ClientId4) -> Result<(), NamespaceError> {
        if self.robbed.lock().contains(&client) {
            return Ok(());
        }
        let owner = self.lock().clients_mut().set_robbed(client, true);
        let Some(owner) = owner else { return Ok(()) };
        if let Err(error) = self.record_standing(&owner).await {
            self.lock().clients_mut().set_robbed(client, false);
            return Err(error);
        }
        self.robbed.lock().insert(client);
        Ok(())
    }

    /// Clients that have heard of all that was taken from them may reclaim again.
    pub async fn allow_reclaim(&self, has_heard: impl Fn(ClientId4) -> bool) {
        let robbed: Vec<ClientId4> = self.robbed.lock().iter().copied().collect();
        for client in robbed.into_iter().filter(|client| has_heard(*client)) {
            let owner = self.lock().clients_mut().set_robbed(client, false);
            if let Some(owner) = owner
                && let Err(error) = self.record_standing(&owner).await
            {
                tracing::warn!(client = client.0, %error, "cannot put down that a client may reclaim, will try again");
                self.lock().clients_mut().set_robbed(client, true);
                continue;
            }
            self.robbed.lock().remove(&client);
        }
    }

    /// Makes the record of an owner say what it must say now.
    async fn record_standing(&self, owner: &Bytes) -> Result<(), NamespaceError> {
        let Some(records) = &self.records else { return Ok(()) };
        let _in_order = self.recording.lock().await;
        let standing = self.lock().clients().standing(owner);
        let Some(reclaim_complete) = standing else { return Ok(()) };
        records.put(&ClientRecord { owner: owner.to_vec(), reclaim_complete }).await
    }

    /// Makes an action durable.
    async fn record(&self, action: Option<&Action>) -> Result<(), NamespaceError> {
        let (Some(action), Some(records)) = (action, &self.records) else { return Ok(()) };
        let _in_order = self.recording.lock().await;
        let put = async |owner: &Bytes, reclaim_complete| {
            records.put(&ClientRecord { owner: owner.to_vec(), reclaim_complete }).await
        };
        match action {
            Action::PutRecord { owner, reclaim_complete } => put(owner, *reclaim_complete).await,
            Action::VoidRecord { owner } => {
                let standing = self.lock().clients().standing(owner);
                if standing == Some(true) { Ok(()) } else { put(owner, false).await }
            }
            Action::RemoveRecord { owner } => {
                let standing = self.lock().clients().standing(owner);
                match standing {
                    None => records.remove(owner).await,
                    // The client is back, with nothing of what it had.
                    Some(false) => put(owner, false).await,
                    Some(true) => Ok(()),
                }
            }
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, SessionTable> {
        self.shared.table.lock()
    }

    fn now(&self) -> Duration {
        self.shared.clock.monotonic()
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
