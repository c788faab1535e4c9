//! Clients as an operator sees them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nfs4::ClientId4;

use super::SessionTable;
use super::records::Records;
use crate::client::Client;
use crate::session::Session;

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
    pub sessions: SessionFacts,
    pub silent: Duration,
    /// Its lease has ended, and it stays until somebody needs what it has.
    pub is_courtesy: bool,
}

/// All sessions of a client together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFacts {
    pub count: usize,
    pub connections: usize,
    pub slots: u32,
    pub slots_busy: u32,
    pub back_channel_up: bool,
}

impl SessionTable {
    pub fn snapshot(&self, now: Duration) -> Vec<ClientFacts> {
        self.records.clients.iter().map(|client| self.records.facts(client, now)).collect()
    }
}

impl Records {
    fn facts(&self, client: &Client, now: Duration) -> ClientFacts {
        let sessions = || self.sessions.of(&client.sessions);
        ClientFacts {
            client: client.id,
            owner: client.owner().clone(),
            address: client.address,
            implementation: client.implementation.clone(),
            confirmed: client.confirmed,
            reclaim_complete: client.reclaim.is_complete,
            sessions: SessionFacts {
                count: client.sessions.len(),
                connections: sessions().map(Session::connection_count).sum(),
                slots: sessions().map(|session| session.slots.len()).sum(),
                slots_busy: sessions().map(|session| session.slots.busy()).sum(),
                back_channel_up: sessions().any(|session| session.back.is_up()),
            },
            silent: now.saturating_sub(client.lease.renewed),
            is_courtesy: client.lease.is_courtesy,
        }
    }
}
