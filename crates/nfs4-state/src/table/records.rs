//! Clients with their sessions.
//!
//! Invariant: a client's list names its sessions, and a session belongs to a client that is there.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nfs4::{ClientId4, CreateSession4Args};

use super::clients::Clients;
use super::sessions::Sessions;
use super::share;
use crate::client::Client;
use crate::{SessionLimits, channel};

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

#[derive(Debug, Default)]
pub(super) struct Records {
    pub clients: Clients,
    pub sessions: Sessions,
    /// Clients that made room, until somebody is told.
    pub evicted: Vec<Departed>,
}

impl Records {
    /// Takes a client out of all maps, with its sessions.
    pub fn remove_client(&mut self, id: ClientId4) -> Option<Client> {
        let client = self.clients.remove(id)?;
        for session in &client.sessions {
            self.sessions.remove(*session);
        }
        Some(client)
    }

    /// Takes a client out and says what must follow. Its record goes with it, unless it never had one.
    pub fn depart(&mut self, id: ClientId4) -> Option<Departed> {
        let client = self.remove_client(id)?;
        let action = client.confirmed.then_some(Action::RemoveRecord { owner: client.incarnation.owner });
        Some(Departed { client: id, action })
    }

    /// Confirms a client at its first session; a former incarnation of the owner departs.
    pub fn confirm(&mut self, id: ClientId4) -> Option<Departed> {
        let former = self.clients.confirm(id)?;
        self.remove_client(former).map(|former| Departed { client: former.id, action: None })
    }

    /// Makes room by the client that is silent longest, if one is lapsed. It is told of by
    /// [`SessionTable::take_evicted`](super::SessionTable::take_evicted).
    pub fn evict(&mut self, now: Duration, lease: Duration) -> bool {
        let longest = self.lapsed(now, lease).filter(|client| client.confirmed);
        let Some(id) = longest.min_by_key(|client| (client.lease.renewed, client.id)).map(|client| client.id)
        else {
            return false;
        };
        let departed = self.depart(id);
        self.evicted.extend(departed);
        true
    }

    pub fn lapsed(&self, now: Duration, lease: Duration) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter(move |client| self.is_lapsed(client, now, lease))
    }

    pub fn is_lapsed(&self, client: &Client, now: Duration, lease: Duration) -> bool {
        client.is_silent_since(now, lease) && !self.is_busy(client)
    }

    fn is_busy(&self, client: &Client) -> bool {
        client.create_slot.running
            || self.sessions.of(&client.sessions).any(|session| session.slots.busy() > 0)
    }

    /// As many as are asked for, and as the reply cache has room for where the client comes from.
    pub fn affordable_slots(
        &self,
        client: ClientId4,
        args: &CreateSession4Args,
        limits: &SessionLimits,
    ) -> u32 {
        let asked = &args.fore_chan_attrs;
        let slot_bytes = u64::from(channel::cached_bytes(asked, limits)).max(1);
        let own = || self.clients.get(client).map_or(0, |client| self.reply_cache_bytes_of(client.address));
        let wanted = u64::from(asked.maxrequests.min(limits.slots_first).min(limits.slots_max));
        let bytes = slot_bytes * wanted;
        let reserved = self.sessions.reply_cache_reserved();
        let room = share::room(limits.reply_cache_bytes_max, reserved, bytes, own);
        // No more than are wanted, which are 32 bits.
        (room / slot_bytes) as u32
    }

    fn reply_cache_bytes_of(&self, address: SocketAddr) -> u64 {
        let clients = self.clients.of_address(address);
        let sessions = clients.flat_map(|client| self.sessions.of(&client.sessions));
        sessions.map(|session| session.reply_cache_bytes()).sum()
    }
}
