//! Recall, revocation and fencing: how layouts come back, with their holder's help or without it.
//!
//! Who changes a file under somebody's layout waits shortly, then gets DELAY and asks again; the holder has one lease to
//! give back, then its layout is revoked. A write layout that ends without its holder's word is fenced off first: the
//! file's epoch is raised, durably, and the pools refuse older tickets.

use std::sync::Weak;
use std::time::Duration;

use access::{Recall, Recaller};
use api::NamespaceError;
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::stateid::LayoutRecall;
use types::FileId;

use super::Head;
use crate::{callback, fh};

/// How long an operation waits for layouts before it answers DELAY: Linux comes again after 100 ms at the earliest.
pub(super) const WAIT: Duration = Duration::from_millis(100);
/// A revocation that failed (the database is away) is tried again after this time.
const RETRY: Duration = Duration::from_secs(2);

/// Carries out recalls of what clients of this door hold.
pub(crate) struct LayoutRecaller(pub Weak<Head>);

impl Recaller for LayoutRecaller {
    fn recall(&self, recalls: &[Recall]) {
        let Some(head) = self.0.upgrade() else { return };
        let addressed = head.states.lock().address_recalls(recalls);
        addressed.into_iter().for_each(|recall| send(&head, recall));
    }
}

/// Asks a client for a layout. What it does then arrives as LAYOUTRETURN, or does not.
fn send(head: &Head, recall: LayoutRecall) {
    let (sessions, states) = (head.sessions.clone(), head.states.clone());
    let handle = fh::encode(&head.key, recall.file);
    let patience = head.lease;
    let mut tasks = head.recalls.lock();
    while tasks.try_join_next().is_some() {}
    tasks.spawn(async move {
        let LayoutRecall { client, file, stateid, iomode } = recall;
        let asked = callback::LayoutRecall { handle, stateid, iomode };
        match sessions.recall_layout(client, asked, patience).await {
            // OLD_STATEID: it has heard this recall before, and the answer was lost.
            Ok(NfsStat4::Ok | NfsStat4::OldStateId) => {}
            // Never sent: who asks next sends it again.
            Err(callback::CallbackError::Busy) => states.lock().recall_unheard(client, file),
            // It knows nothing of the layout, or cannot be reached: there is nothing to wait for.
            Ok(status) => {
                tracing::debug!(client = client.0, %file, status = status.name(), "client has no such layout");
                states.lock().expire_recall(client, file);
            }
            Err(error) => {
                tracing::warn!(client = client.0, %file, %error, "cannot recall a layout, revoking it");
                states.lock().expire_recall(client, file);
            }
        }
    });
}

/// Releases what clients held whose lease is over, or that have come back as new ones. What could not be fenced off
/// stays for the next round.
pub(crate) async fn expire_clients(head: &Head) {
    let gone = head.sessions.expire().await;
    let (departed, with_state) = {
        let mut states = head.states.lock();
        gone.into_iter().for_each(|client| states.depart(client));
        (states.departed(), states.clients())
    };
    for client in departed {
        let writable = head.states.lock().writable_layouts(client);
        let mut unfenced = Vec::new();
        for file in writable {
            if let Err(error) = fence(head, file).await {
                tracing::warn!(client = client.0, %file, %error, "cannot fence off a lost client, will try again");
                unfenced.push(file);
            }
        }
        head.states.lock().release(client, &unfenced);
        head.access.returned();
    }
    let is_unknown =
        |client: &ClientId4| head.sessions.judge_reclaim(*client, false) == Err(NfsStat4::StaleClientId);
    let strays: Vec<_> = with_state.into_iter().filter(is_unknown).collect();
    head.states.lock().note_strays(strays);
}

/// Revokes the layouts that were not given back in time.
pub(crate) async fn expire_recalls(head: &Head) {
    let now = head.clock.monotonic();
    let due = head.states.lock().expired_recalls(now, now + RETRY);
    for revoked in due {
        if revoked.can_write
            && let Err(error) = fence(head, revoked.file).await
        {
            tracing::warn!(file = %revoked.file, %error, "cannot fence off a layout, will try again");
            continue;
        }
        if revoked.is_overdue {
            tracing::warn!(client = revoked.client.0, file = %revoked.file, "revoked a layout that was not returned");
        }
        head.states.lock().revoke_layout(revoked.client, revoked.file);
        head.access.returned();
    }
}

/// From here on no pool takes tickets that were given out for the file before.
async fn fence(head: &Head, file: FileId) -> Result<(), NamespaceError> {
    let epoch = match head.locations.raise_epoch(file).await {
        Ok(epoch) => epoch,
        // The file is gone, and its replicas with it.
        Err(NamespaceError::Stale(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for location in head.locations.locations(file).await? {
        let Some(pool) = head.pools.pool(location) else { continue };
        pool.fence(file, epoch)
            .await
            .map_err(|error| NamespaceError::Database(format!("{location} cannot fence: {error}")))?;
    }
    Ok(())
}
