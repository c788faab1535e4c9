//! Back channels: their connections, their slots, and how many calls may be under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use nfs4::{ClientId4, ReferringCallList4};
use nfs4_state::{CallbackOutcome, CallbackRefusal, CallbackTicket, ConnectionId};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use types::FileId;

use super::timed_table::TimedTable;
use crate::context::Compound;
use crate::transport::Connection;

/// Calls to clients under way or waiting for a slot, of all clients.
const CALLBACKS_MAX: usize = 1024;

pub(crate) struct BackChannels {
    table: Arc<TimedTable>,
    /// Connections that serve as back channels. Leaf lock.
    connections: Mutex<HashMap<ConnectionId, Weak<Connection>>>,
    pub(crate) places: Semaphore,
    /// Calls that each client is being asked. Leaf lock.
    pub(crate) called: Mutex<BTreeMap<ClientId4, usize>>,
    /// A callback slot has become free.
    pub(crate) freed: Notify,
}

impl BackChannels {
    pub fn new(table: Arc<TimedTable>) -> BackChannels {
        BackChannels {
            table,
            connections: Mutex::default(),
            places: Semaphore::new(CALLBACKS_MAX),
            called: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Whether the client could be asked to give something back.
    pub fn is_reachable(&self, client: ClientId4) -> bool {
        self.table.lock().callbacks().has_back_channel(client)
    }

    /// The transport has closed a connection.
    pub fn disconnected(&self, connection: ConnectionId) {
        self.connections.lock().remove(&connection);
        self.table.lock().sessions_mut().connection_closed(connection);
    }

    /// A connection that serves as back channel, if it is still there.
    pub fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id)?.upgrade()
    }

    /// The connection serves as a back channel: calls find it by its id.
    pub(super) fn remember(&self, compound: &Compound) {
        let mut connections = self.connections.lock();
        // It may have closed while its request waited.
        if !compound.caller.connection.is_closed() {
            connections.insert(compound.caller.connection.id(), Arc::downgrade(&compound.caller.connection));
        }
    }

    /// Requests whose replies a recall of what they grant of the file may overtake.
    pub fn granting_calls(&self, client: ClientId4, file: Option<FileId>) -> Vec<ReferringCallList4> {
        self.table.lock().callbacks().granting_calls(client, file)
    }

    pub fn begin(&self, client: ClientId4) -> Result<CallbackTicket, CallbackRefusal> {
        self.table.lock().callbacks().begin(client)
    }

    pub fn misordered(&self, ticket: &CallbackTicket) -> Option<CallbackTicket> {
        self.table.lock().callbacks().misordered(ticket)
    }

    pub fn end(&self, ticket: CallbackTicket, outcome: CallbackOutcome) {
        self.table.lock().callbacks().end(ticket, outcome);
        self.freed.notify_waiters();
    }
}
