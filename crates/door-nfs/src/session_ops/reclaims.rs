//! The grace period, and the clients that may reclaim.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{FormerTickets, NamespaceError};
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::Action;
use parking_lot::Mutex;

use super::records::Records;
use super::timed_table::TimedTable;

/// Of failures to end former tickets one in so many is told: there are a few each second.
const TRIES_TOLD: u64 = 40;
/// The first that is told.
const TRIES_FIRST: u64 = 12;

pub(crate) struct Reclaims {
    table: Arc<TimedTable>,
    records: Arc<Records>,
    /// Records to change before the grace period ends. Leaf lock.
    grace_ending: Mutex<Option<Vec<Action>>>,
    /// `None`: at a pool, which seals none.
    former_tickets: Option<Arc<dyn FormerTickets>>,
    /// No pool honours a ticket to write from before this start.
    are_former_void: AtomicBool,
    void_tries: AtomicU64,
    /// Clients whose records entitle them to nothing since something was taken from them. Leaf lock.
    pub(super) robbed: Mutex<BTreeSet<ClientId4>>,
}

impl Reclaims {
    pub fn new(
        table: Arc<TimedTable>,
        records: Arc<Records>,
        former_tickets: Option<Arc<dyn FormerTickets>>,
    ) -> Reclaims {
        Reclaims {
            table,
            records,
            grace_ending: Mutex::default(),
            are_former_void: AtomicBool::new(former_tickets.is_none()),
            former_tickets,
            void_tries: AtomicU64::new(0),
            robbed: Mutex::default(),
        }
    }

    pub fn in_grace(&self) -> bool {
        self.table.lock().reclaims().in_grace()
    }

    pub fn grace_left(&self) -> Duration {
        self.table.lock().reclaims().grace_remaining(self.table.now()).unwrap_or_default()
    }

    /// Whether the client may reclaim (or, not reclaiming, obtain) opens, locks and layouts now: NO_GRACE, or GRACE.
    pub fn judge(&self, client: ClientId4, is_reclaim: bool) -> Result<(), NfsStat4> {
        let mut table = self.table.lock();
        if is_reclaim {
            table.reclaims().may_reclaim(self.table.now(), client)
        } else {
            table.reclaims().may_obtain(client)
        }
    }

    /// Whether nobody writes by a ticket from before this start any more.
    pub fn are_former_tickets_void(&self) -> bool {
        self.are_former_void.load(Ordering::Acquire)
    }

    /// Whether clients may still come back and reclaim.
    pub fn are_awaited(&self) -> bool {
        self.table.lock().reclaims().is_awaiting()
    }

    /// Ends the grace period when it is due, and with it the tickets to write of before. If the database or a pool fails,
    /// the next call tries again.
    pub async fn end_grace(&self) {
        let due = self.table.lock().reclaims().grace_due(self.table.now());
        let actions = due.or_else(|| self.grace_ending.lock().take());
        if actions.is_none() && (self.are_former_tickets_void() || self.are_awaited()) {
            return;
        }
        // Before the records change: a start that finds a record of a client that has missed its time finds the floor too.
        if let Err(error) = self.void_former_tickets().await {
            let tries = self.void_tries.fetch_add(1, Ordering::Relaxed);
            // A pool on another host may need a moment to say that it has heard of it.
            if tries % TRIES_TOLD == TRIES_FIRST {
                tracing::warn!(
                    error,
                    "cannot end the tickets to write of before the restart, will try again"
                );
            }
            *self.grace_ending.lock() = actions;
            return;
        }
        let Some(actions) = actions else { return };
        for action in &actions {
            if let Err(error) = self.records.record(Some(action)).await {
                tracing::warn!(%error, "cannot end the grace period, will try again");
                *self.grace_ending.lock() = Some(actions);
                return;
            }
        }
        self.table.lock().reclaims().grace_ended();
        tracing::info!(not_reclaimed = actions.len(), "the grace period is over");
    }

    async fn void_former_tickets(&self) -> Result<(), String> {
        if let Some(former) = &self.former_tickets
            && !self.are_former_void.load(Ordering::Acquire)
        {
            former.void().await?;
            self.are_former_void.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Before something is taken from a client that it may not hear of: should the server start anew, the client may not reclaim
    /// over what others have done since (RFC 8881 §8.4.3, §10.2.1).
    pub async fn forbid(&self, client: ClientId4) -> Result<(), NamespaceError> {
        if self.robbed.lock().contains(&client) {
            return Ok(());
        }
        let owner = self.table.lock().clients_mut().set_robbed(client, true);
        let Some(owner) = owner else { return Ok(()) };
        if let Err(error) = self.records.record_standing(&owner).await {
            self.table.lock().clients_mut().set_robbed(client, false);
            return Err(error);
        }
        self.robbed.lock().insert(client);
        Ok(())
    }

    /// Clients that have heard of all that was taken from them may reclaim again.
    pub async fn allow(&self, has_heard: impl Fn(ClientId4) -> bool) {
        let robbed: Vec<ClientId4> = self.robbed.lock().iter().copied().collect();
        for client in robbed.into_iter().filter(|client| has_heard(*client)) {
            let owner = self.table.lock().clients_mut().set_robbed(client, false);
            if let Some(owner) = owner
                && let Err(error) = self.records.record_standing(&owner).await
            {
                tracing::warn!(client = client.0, %error, "cannot record that a client may reclaim, will try again");
                self.table.lock().clients_mut().set_robbed(client, true);
                continue;
            }
            self.robbed.lock().remove(&client);
        }
    }
}
