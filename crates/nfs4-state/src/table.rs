//! All clients and sessions of one server, and the entry points of the session operations.
//!
//! Split by concern: `exchange` makes and ends client records, `establish` makes and ends sessions, `sequence` runs
//! requests, `slots` offers more of them and fewer, `lease` lets time pass, `courtesy` looks after who was silent for too
//! long, `callback` numbers the calls to clients. Maps are ordered so that the same steps
//! give the same trace.

mod callback;
mod courtesy;
mod establish;
mod exchange;
mod lease;
mod sequence;
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

use crate::client::Client;
use crate::grace::Grace;
use crate::session::Session;
use crate::{ConnectionId, KnownClient, SessionConfig};

/// What the shell makes durable, in this order, before it answers or releases anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    PutRecord { owner: Bytes, reclaim_complete: bool },
    RemoveRecord { owner: Bytes },
}

/// A client that is gone. The shell does `action` first and then releases the client's opens, locks and layouts.
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
    /// What the client says that it is.
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

    /// What the record of an owner must say now: whether its confirmed client has said RECLAIM_COMPLETE, and was not
    /// robbed; `None` if there is no such client. A removal that was decided earlier must ask again before it is done, since
    /// the client may have come back meanwhile.
    pub fn standing(&self, owner: &Bytes) -> Option<bool> {
        let client = self.clients.get(self.confirmed.get(owner)?)?;
        Some(client.reclaim_complete && !client.is_robbed)
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
