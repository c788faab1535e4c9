//! The client records, by their ids and by their owners.
//!
//! Invariant: each owner has at most one confirmed record and one unconfirmed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use nfs4::ClientId4;
use types::shares::network;

use crate::Incarnation;
use crate::client::Client;

#[derive(Debug, Default)]
pub struct Clients {
    by_id: BTreeMap<ClientId4, Client>,
    /// By `co_ownerid`.
    confirmed: BTreeMap<Bytes, ClientId4>,
    unconfirmed: BTreeMap<Bytes, ClientId4>,
    made: u32,
}

impl Clients {
    /// A confirmed client with that id is known.
    pub fn is_confirmed(&self, client: ClientId4) -> bool {
        self.get(client).is_some_and(|client| client.confirmed)
    }

    /// `None`: nobody knows it.
    pub fn incarnation(&self, client: ClientId4) -> Option<Incarnation> {
        Some(self.get(client)?.incarnation.clone())
    }

    /// The content that the record of an owner must have now: whether its confirmed client has said RECLAIM_COMPLETE,
    /// and has lost no state unknown to it; `None` if there is no such client. A removal that was decided earlier must
    /// ask again before it is done, since the client may have come back meanwhile.
    pub fn standing(&self, owner: &Bytes) -> Option<bool> {
        Some(self.get(self.confirmed_of(owner)?)?.reclaim.is_entitled())
    }

    /// Something is about to be taken from a client that it may not hear of in time, or it has heard of all that was: its
    /// record, which is to follow the [`standing`](Self::standing) of the owner that is answered, entitles it to reclaims or
    /// does not (RFC 8881 §8.4.3). `None`: it is not known any more.
    pub fn set_robbed(&mut self, id: ClientId4, is_robbed: bool) -> Option<Bytes> {
        let client = self.get_mut(id).filter(|client| client.confirmed)?;
        client.reclaim.is_robbed = is_robbed;
        Some(client.owner().clone())
    }

    /// Raises flags in `sr_status_flags` of the client's replies until they are lowered.
    pub fn raise_status(&mut self, client: ClientId4, flags: u32) {
        if let Some(client) = self.get_mut(client) {
            client.status_flags |= flags;
        }
    }

    pub fn lower_status(&mut self, client: ClientId4, flags: u32) {
        if let Some(client) = self.get_mut(client) {
            client.status_flags &= !flags;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: ClientId4) -> Option<&Client> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ClientId4) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.by_id.values()
    }

    /// Those of the network that the address counts for.
    pub(super) fn of_address(&self, address: SocketAddr) -> impl Iterator<Item = &Client> {
        let address = network(address.ip());
        self.iter().filter(move |client| network(client.address.ip()) == address)
    }

    pub(super) fn confirmed_of(&self, owner: &Bytes) -> Option<ClientId4> {
        self.confirmed.get(owner).copied()
    }

    pub(super) fn unconfirmed_of(&self, owner: &Bytes) -> Option<ClientId4> {
        self.unconfirmed.get(owner).copied()
    }

    /// The id of the next client of this instance.
    pub(super) fn next_id(&mut self, instance: u64) -> ClientId4 {
        self.made = self.made.wrapping_add(1);
        ClientId4(instance << 32 | u64::from(self.made))
    }

    /// A client that is not confirmed yet.
    pub(super) fn insert(&mut self, client: Client) {
        self.unconfirmed.insert(client.owner().clone(), client.id);
        self.by_id.insert(client.id, client);
    }

    /// Confirms a client at its first session; the record of its former incarnation is answered, which is to go.
    pub(super) fn confirm(&mut self, id: ClientId4) -> Option<ClientId4> {
        let client = self.get_mut(id).filter(|client| !client.confirmed)?;
        client.confirmed = true;
        let owner = client.owner().clone();
        self.unconfirmed.remove(&owner);
        self.confirmed.insert(owner, id)
    }

    /// Takes a client out of all maps.
    pub(super) fn remove(&mut self, id: ClientId4) -> Option<Client> {
        let client = self.by_id.remove(&id)?;
        let by_owner = if client.confirmed { &mut self.confirmed } else { &mut self.unconfirmed };
        if by_owner.get(client.owner()) == Some(&id) {
            by_owner.remove(client.owner());
        }
        Some(client)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.confirmed.is_empty() && self.unconfirmed.is_empty()
    }
}
