//! Departures: the state of clients that are gone is fenced off at the pools and released.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use nfs4::ClientId4;

use super::clients::Clients;
use super::copy::Offloads;
use super::courtesy;
use super::device::Devices;
use super::grants::Grants;
use super::reports::Reports;
use super::revocation::FENCED_AT_ONCE;

pub(crate) struct Departures {
    pub clients: Arc<Clients>,
    pub grants: Arc<Grants>,
    pub offloads: Arc<Offloads>,
    pub devices: Arc<Devices>,
    pub reports: Arc<Reports>,
    /// Held while departed clients are released.
    pub releasing: tokio::sync::Mutex<()>,
}

impl Departures {
    /// Releases the state of clients whose lease is over, or that have come back as new ones. Layouts that could not be
    /// fenced off stay for the next round.
    pub async fn release(&self) {
        let Clients { sessions, states, .. } = &*self.clients;
        // A client that another is about to release would be taken for one without a record.
        let _alone = self.releasing.lock().await;
        let gone = sessions.expire(&courtesy::Held(states)).await;
        let (departed, with_state) = {
            let mut states = states.lock();
            gone.into_iter().for_each(|client| states.depart(client));
            (states.departed(), states.clients())
        };
        let copying = self.offloads.end_of(&departed).await;
        for client in departed {
            if copying.contains(&client) {
                tracing::warn!(client = client.0, "a copy of a lost client does not end, will look again");
                continue;
            }
            self.release_one(client).await;
        }
        let strays = sessions.leases.strangers(with_state);
        states.lock().note_strays(strays);
    }

    async fn release_one(&self, client: ClientId4) {
        let Clients { fs, sessions, states, .. } = &*self.clients;
        let writable = states.lock().layouts().writable(client);
        let mut unfenced = Vec::new();
        let mut fenced = stream::iter(writable)
            .map(|file| async move { (file, self.grants.fencing.fence(file).await) })
            .buffer_unordered(FENCED_AT_ONCE);
        while let Some((file, fenced)) = fenced.next().await {
            if let Err(error) = fenced {
                tracing::warn!(client = client.0, %file, %error, "cannot fence off a lost client, will try again");
                unfenced.push(file);
            }
        }
        let is_freed = {
            let mut states = states.lock();
            let before = states.count(client);
            states.release(client, &unfenced);
            unfenced.is_empty() || states.count(client) < before
        };
        if unfenced.is_empty() {
            sessions.leases.released(client).await;
        }
        self.grants.forget_client(client);
        self.devices.forget_client(client);
        self.reports.forget_client(client);
        fs.files.pools().forget_client(client.0);
        if is_freed {
            fs.files.returned();
        }
    }
}
