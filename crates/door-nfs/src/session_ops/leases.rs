//! Clients whose lease is over, until their state is released and their records are removed.
//!
//! Invariant: the state of a client that is gone is given to nobody before its record ceases to entitle to reclaims, and the
//! record is removed when its tickets are void.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::NamespaceError;
use nfs4::ClientId4;
use nfs4_state::{Action, Departed, Holdings, Lapsed, SessionTable};
use parking_lot::Mutex;

use super::records::Records;
use super::timed_table::TimedTable;

pub(crate) struct Leases {
    table: Arc<TimedTable>,
    records: Arc<Records>,
    /// Clients that are gone and whose state is not yet released. Leaf lock.
    departed: Mutex<Vec<Departed>>,
    /// Those that were handed over with state, and whose records are still to be removed. Leaf lock.
    releasing: Mutex<BTreeMap<ClientId4, Departed>>,
}

impl Leases {
    pub fn new(table: Arc<TimedTable>, records: Arc<Records>) -> Leases {
        Leases { table, records, departed: Mutex::default(), releasing: Mutex::default() }
    }

    /// There are clients whose state waits to be released by [`expire`](Self::expire).
    pub fn has_departed(&self) -> bool {
        !self.departed.lock().is_empty()
    }

    /// A request conflicts with the state of these clients. Those whose lease has ended depart, and their state is
    /// released with the next [`expire`](Self::expire). Returns these, and those that had departed before.
    pub fn dislodge(&self, clients: &[ClientId4]) -> BTreeSet<ClientId4> {
        let mut table = self.table.lock();
        let departed = table.dislodge(self.table.now(), clients);
        for departed in &departed {
            tracing::info!(
                client = departed.client.0,
                "dropped a client whose lease has ended: another client needs what it holds"
            );
        }
        // Before others can see that they are gone: a departed client is always in this list or released.
        self.departed.lock().extend(departed);
        clients.iter().filter(|client| !table.clients().is_confirmed(**client)).copied().collect()
    }

    /// Those of the clients that are unknown: neither confirmed, nor departed with [`expire`](Self::expire) still to
    /// come.
    pub fn strangers(&self, mut clients: Vec<ClientId4>) -> Vec<ClientId4> {
        // Under both locks, or one that goes in between would be neither.
        let table = self.table.lock();
        let departing: BTreeSet<_> = self.departed.lock().iter().map(|departed| departed.client).collect();
        clients.retain(|client| !departing.contains(client) && !table.clients().is_confirmed(*client));
        clients
    }

    /// Lets time pass: ends leases. Returns the clients that are gone for good, so that their
    /// state can be released. Their records entitle to nothing any more; the records of clients that hold something are
    /// removed when they are [`released`](Self::released). If the database fails, the next call tries again.
    pub async fn expire(&self, holdings: &(dyn Holdings + Sync)) -> Vec<ClientId4> {
        let batch = {
            let mut table = self.table.lock();
            let Lapsed { departed: expired, kept } = table.expire(self.table.now(), holdings);
            for client in kept {
                tracing::info!(
                    client = client.0,
                    "lease of a client has ended; it keeps its state until other clients need it"
                );
            }
            for departed in &expired {
                tracing::info!(
                    client = departed.client.0,
                    "lease of a client has ended; its state is dropped"
                );
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
                self.records.record(Some(&Action::VoidRecord { owner: owner.clone() })).await?;
                self.releasing.lock().insert(departed.client, departed.clone());
                Ok(())
            }
            action => self.records.record(action.as_ref()).await,
        }
    }

    /// The client, which is gone, is fenced off, and its state released.
    pub async fn released(&self, client: ClientId4) {
        let Some(departed) = self.releasing.lock().remove(&client) else { return };
        if let Err(error) = self.records.record(departed.action.as_ref()).await {
            tracing::warn!(%error, "cannot remove the record of a client, will try again");
            self.departed.lock().push(departed);
        }
    }

    /// A client is gone: its state is released with the next [`expire`](Self::expire), which the engine calls at once.
    pub(super) fn note_departed(&self, departed: Departed) {
        self.departed.lock().push(departed);
    }

    /// As `note_departed`, of clients that were evicted to make room. Called before others can see that they are gone:
    /// a request that conflicts with their state looks for them in the list.
    pub(super) fn note_evicted(&self, table: &mut SessionTable) {
        let evicted = table.take_evicted();
        if !evicted.is_empty() {
            self.departed.lock().extend(evicted);
        }
    }
}
