//! The clients of the head: their sessions, what they hold of files, and the calls to them.

use std::sync::Arc;
use std::time::Duration;

use nfs4::{CbRecallSlot4Args, ClientId4, NfsCbArgop4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use nfs4_state::SlotRecall;
use nfs4_state::stateid::ClientState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::file_system::FileSystem;
use crate::session_ops::Sessions;

/// A recall may overtake the reply that grants. A client that says it has no such delegation is asked again after this.
pub(super) const OVERTAKEN_PAUSE: Duration = Duration::from_millis(20);
/// A client that sleeps is asked for slots for so long: there may be thousands of them.
const SLOTS_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Clients {
    pub fs: Arc<FileSystem>,
    pub sessions: Arc<Sessions>,
    /// Stateids, over the conflict table of `files`. Held for one decision at a time, never across an await, and taken
    /// before the table.
    pub states: Arc<Mutex<ClientState>>,
    /// Calls to clients and copies under way; ended with the head. Leaf lock.
    calls: Mutex<JoinSet<()>>,
    /// A request waits for the state of a departed client.
    pub departures: Notify,
}

impl Clients {
    pub(super) fn new(fs: Arc<FileSystem>, sessions: Arc<Sessions>, states: ClientState) -> Clients {
        Clients {
            fs,
            sessions,
            states: Arc::new(Mutex::new(states)),
            calls: Mutex::default(),
            departures: Notify::new(),
        }
    }

    /// Calls a client, or does what ends in a call, until the head ends.
    pub fn spawn_call(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut calls = self.calls.lock();
        while calls.try_join_next().is_some() {}
        calls.spawn(call);
    }

    /// Ends all calls soon.
    pub fn abort_calls(&self) {
        self.calls.lock().abort_all();
    }

    /// Ends all calls, and returns when they have ended.
    #[cfg(feature = "direct")]
    pub async fn shut_down_calls(&self) {
        let mut calls = std::mem::take(&mut *self.calls.lock());
        calls.shutdown().await;
    }

    /// Asks sleeping clients for slots where memory is short (RFC 8881 §20.8). A client that is not reached is told by
    /// its next reply.
    pub(super) fn recall_slots(&self) {
        for SlotRecall { client, target_highest } in self.sessions.take_slot_recalls() {
            let sessions = Arc::clone(&self.sessions);
            let recall = CbRecallSlot4Args { target_highest_slotid: target_highest };
            self.spawn_call(async move {
                let asked = sessions
                    .callbacks
                    .call_client(client, NfsCbArgop4::RecallSlot(recall), SLOTS_PATIENCE)
                    .await;
                tracing::debug!(client = client.0, ?asked, "asked a client for slots");
            });
        }
    }

    /// Says in the client's replies whether it still has to free what was revoked. Neither lock is held under the other.
    pub(super) fn tell_of_revoked(&self, client: ClientId4) {
        let has_revoked = || self.states.lock().delegations().has_revoked(client);
        if !has_revoked() {
            self.sessions.lower_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
        }
        // Something may have been revoked in between.
        if has_revoked() {
            self.sessions.raise_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
        }
    }
}
