//! All clients and sessions of one server, and the entry points of the session operations.
//!
//! Split by concern: `exchange` makes and ends client records, `establish` makes and ends sessions, `sequence` runs
//! requests, `slots` offers more of them and fewer, `lease` lets time pass, `courtesy` looks after clients that were
//! silent for too long, `share` leaves room to others than the greediest host, `callback` numbers the calls to clients.
//! Maps are ordered so that the same steps give the same trace.

mod callback;
mod courtesy;
mod establish;
mod exchange;
mod lease;
mod sequence;
mod share;
mod slots;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nfs4::{ClientId4, SessionId4};

pub use callback::{CallbackRefusal, CallbackTicket};
pub use courtesy::{Courtesy, Holdings, Lapsed};
pub use establish::{CreateStep, PendingSession, Started};
pub use exchange::Exchanged;
pub use sequence::{SequenceVerdict, SlotTicket};
pub use slots::{SlotFacts, SlotRecall};

use crate::client::{Client, Incarnation};
use crate::grace::Grace;
use crate::session::Session;
use crate::{ConnectionId, KnownClient, SessionConfig};

/// A change of records that the shell makes durable, in this order, before it answers or releases anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    PutRecord {
        owner: Bytes,
        reclaim_complete: bool,
    },
    /// It entitles to nothing from now on, unless its client has come back meanwhile.
    VoidRecord {
        owner: Bytes,
    },
    RemoveRecord {
        owner: Bytes,
    },
}

/// A client that is gone. The shell does `action` and releases the client's opens, locks and layouts: before that it sees to
/// it that the client's record entitles to nothing, and if it has anything at the pools, the record is removed after that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the client's state must be released"]
pub struct Departed {
    pub client: ClientId4,
    pub action: Option<Action>,
}

#[derive(Debug)]
pub struct SessionTable {
    config: SessionConfig,
    clients: BTreeMap<ClientId4, Client>,
    /// Client records by `co_ownerid`: at most one confirmed and one unconfirmed of each.
    confirmed: BTreeMap<Bytes, ClientId4>,
    unconfirmed: BTreeMap<Bytes, ClientId4>,
    sessions: BTreeMap<SessionId4, Session>,
    clients_made: u32,
    /// Bytes of the reply cache promised to sessions.
    reply_cache_reserved: u64,
    /// Clients that are to be asked for slots.
    slot_recalls: Vec<SlotRecall>,
    grace: Grace,
    /// Clients that made room, until somebody is told.
    evicted: Vec<Departed>,
}

/// One client as `forebay status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    pub client: ClientId4,
    /// `co_ownerid`: Linux puts its host name there.
    pub owner: Bytes,
    pub address: SocketAddr,
    /// The implementation that the client says it is.
    pub implementation: Option<Bytes>,
    pub confirmed: bool,
    pub reclaim_complete: bool,
    pub sessions: usize,
    pub connections: usize,
    pub slots: u32,
    pub slots_busy: u32,
    pub back_channel_up: bool,
    pub silent: Duration,
    /// Its lease has ended, and it stays until somebody needs what it has.
    pub is_courtesy: bool,
}

impl SessionTable {
    /// `now` is a monotonic time, as in every other call. `known` are the records that former instances left.
    pub fn new(config: SessionConfig, now: Duration, known: Vec<KnownClient>) -> SessionTable {
        let grace = Grace::new(now, config.grace, known);
        SessionTable {
            config,
            clients: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            sessions: BTreeMap::new(),
            clients_made: 0,
            reply_cache_reserved: 0,
            slot_recalls: Vec::new(),
            grace,
            evicted: Vec::new(),
        }
    }

    pub fn lease(&self) -> Duration {
        self.config.lease
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A confirmed client with that id is known.
    pub fn is_confirmed(&self, client: ClientId4) -> bool {
        self.clients.get(&client).is_some_and(|client| client.confirmed)
    }

    /// `None`: nobody knows it.
    pub fn incarnation(&self, client: ClientId4) -> Option<Incarnation> {
        let client = self.clients.get(&client)?;
        Some(Incarnation { owner: client.owner.clone(), verifier: client.verifier.0 })
    }

    /// The content that the record of an owner must have now: whether its confirmed client has said RECLAIM_COMPLETE,
    /// and has lost no state unknown to it; `None` if there is no such client. A removal that was decided earlier must
    /// ask again before it is done, since the client may have come back meanwhile.
    pub fn standing(&self, owner: &Bytes) -> Option<bool> {
        let client = self.clients.get(self.confirmed.get(owner)?)?;
        Some(client.reclaim_complete && !client.is_robbed)
    }

    /// Whether a session has this connection in either of its channels.
    pub fn is_used(&self, connection: ConnectionId) -> bool {
        self.sessions.values().any(|session| session.is_associated(connection))
    }

    /// The transport has closed a connection.
    pub fn connection_closed(&mut self, connection: ConnectionId) {
        self.sessions.values_mut().for_each(|session| session.dissociate(connection));
    }

    pub fn snapshot(&self, now: Duration) -> Vec<ClientFacts> {
        self.clients.values().map(|client| self.facts(client, now)).collect()
    }

    fn facts(&self, client: &Client, now: Duration) -> ClientFacts {
        let sessions = || client.sessions.iter().filter_map(|id| self.sessions.get(id));
        ClientFacts {
            client: client.id,
            owner: client.owner.clone(),
            address: client.address,
            implementation: client.implementation.clone(),
            confirmed: client.confirmed,
            reclaim_complete: client.reclaim_complete,
            sessions: client.sessions.len(),
            connections: sessions().map(Session::connection_count).sum(),
            slots: sessions().map(|session| session.slots.len()).sum(),
            slots_busy: sessions().map(|session| session.slots.busy()).sum(),
            back_channel_up: sessions().any(|session| session.back.is_up()),
            silent: now.saturating_sub(client.renewed),
            is_courtesy: client.is_courtesy,
        }
    }

    /// Takes a client out of all maps, with its sessions.
    fn remove_client(&mut self, id: ClientId4) -> Option<Client> {
        let client = self.clients.remove(&id)?;
        for session in &client.sessions {
            self.forget_session(*session);
        }
        let by_owner = if client.confirmed { &mut self.confirmed } else { &mut self.unconfirmed };
        if by_owner.get(&client.owner) == Some(&id) {
            by_owner.remove(&client.owner);
        }
        Some(client)
    }

    /// Takes a client out and says what must follow. Its record goes with it, unless it never had one.
    fn depart(&mut self, id: ClientId4) -> Option<Departed> {
        let client = self.remove_client(id)?;
        let action = client.confirmed.then_some(Action::RemoveRecord { owner: client.owner });
        Some(Departed { client: id, action })
    }

    /// Takes a session out of its map; the client's own list is the caller's.
    fn forget_session(&mut self, id: SessionId4) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.reply_cache_reserved -= session.reply_cache_bytes();
        Some(session)
    }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod model;
