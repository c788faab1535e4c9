//! One session: its slots, its channels, its connections (RFC 8881 §2.10).

use std::time::Duration;

use nfs4::{ChannelAttrs4, ClientId4, SessionId4};

use crate::ConnectionId;
use crate::back_channel::BackChannel;
use crate::slot::SlotTable;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: ClientId4,
    /// Of the COMPOUND that made it; callbacks carry the same, or Linux does not find the session.
    pub(crate) minor_version: u32,
    pub(crate) fore: ChannelAttrs4,
    pub(crate) slots: SlotTable,
    /// When its use of slots was last looked at.
    pub(crate) reviewed: Duration,
    pub(crate) back: BackChannel,
    /// Connections that have carried requests, the most recent last. Several with `nconnect`.
    connections: Vec<ConnectionId>,
    connections_max: usize,
}

impl Session {
    pub(crate) fn new(
        client: ClientId4,
        minor_version: u32,
        fore: ChannelAttrs4,
        back: BackChannel,
        connections_max: usize,
        reviewed: Duration,
    ) -> Session {
        let slots = SlotTable::new(fore.maxrequests);
        Session {
            client,
            minor_version,
            fore,
            slots,
            back,
            reviewed,
            connections: Vec::new(),
            connections_max,
        }
    }

    /// With SP4_NONE a connection joins a session by its first SEQUENCE (RFC 8881 §2.10.3.1).
    pub(crate) fn associate(&mut self, connection: ConnectionId) {
        if self.connections.contains(&connection) {
            return;
        }
        if self.connections.len() >= self.connections_max {
            self.connections.remove(0);
        }
        self.connections.push(connection);
    }

    pub(crate) fn dissociate(&mut self, connection: ConnectionId) {
        self.connections.retain(|known| *known != connection);
        self.back.unbind(connection);
    }

    pub(crate) fn is_associated(&self, connection: ConnectionId) -> bool {
        self.connections.contains(&connection) || self.back.is_bound(connection)
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The most bytes that the session may keep of replies.
    pub(crate) fn reply_cache_bytes(&self) -> u64 {
        u64::from(self.slots.len()) * self.slot_bytes()
    }

    /// The most bytes that one slot may keep.
    pub(crate) fn slot_bytes(&self) -> u64 {
        u64::from(self.fore.maxresponsesize_cached)
    }
}

/// Session ids carry their client and a number, and something of the instance.
pub(crate) fn session_id(client: ClientId4, number: u32, instance: u32) -> SessionId4 {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&client.0.to_be_bytes());
    id[8..12].copy_from_slice(&instance.to_be_bytes());
    id[12..].copy_from_slice(&number.to_be_bytes());
    SessionId4(id)
}
