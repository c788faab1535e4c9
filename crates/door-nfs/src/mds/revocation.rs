//! Revocation: how layouts and delegations end without their holder's word.
//!
//! One that was used at the pools is fenced off first: the pools refuse its tickets from then on.

use std::time::Duration;

use files::Granted;
use futures_util::{StreamExt, stream};
use nfs4_state::stateid::Revoked;

use super::counts::Step;
use super::fencing::Fencing;
use super::grants::Grants;
use super::recalls::name_of;

/// A revocation that failed (the database is away) is tried again after this time.
const RETRY: Duration = Duration::from_secs(2);
/// A client may leave tens of thousands of layouts, and each fence waits for a commit, which they share.
pub(super) const FENCED_AT_ONCE: usize = 64;

/// Revokes layouts and delegations that were not returned in time.
pub(super) async fn expire_recalls(grants: &Grants) {
    let clients = &grants.clients;
    let now = clients.fs.clock.monotonic();
    let due = clients.states.lock().recalls().expired(now, now + RETRY);
    let mut fenced =
        stream::iter(due).map(|revoked| fence_off(&grants.fencing, revoked)).buffer_unordered(FENCED_AT_ONCE);
    while let Some(revoked) = fenced.next().await {
        if let Some(revoked) = revoked {
            revoke(grants, revoked).await;
        }
    }
    // A client that has freed all its revoked stateids knows of the loss.
    clients.sessions.reclaims.allow(|client| !clients.states.lock().delegations().has_revoked(client)).await;
}

/// `None`: the pools still accept its tickets.
async fn fence_off(fencing: &Fencing, revoked: Revoked) -> Option<Revoked> {
    let file = revoked.file;
    if revoked.is_at_pools
        && let Err(error) = fencing.fence(file).await
    {
        tracing::warn!(%file, %error, "cannot fence off a client at the pool, will try again");
        return None;
    }
    Some(revoked)
}

async fn revoke(grants: &Grants, revoked: Revoked) {
    let Revoked { client, file, granted, .. } = revoked;
    let clients = &grants.clients;
    // A layout is fenced off and never reclaimed; the holder of a delegation that is reclaimed is believed again.
    if revoked.is_overdue
        && matches!(granted, Granted::Delegation(_))
        && let Err(error) = clients.sessions.reclaims.forbid(client).await
    {
        tracing::warn!(client = client.0, %error, "cannot record that a client may not reclaim, will try again");
        return;
    }
    let is_revoked = clients.states.lock().recalls().revoke(&revoked);
    if is_revoked {
        grants.counts.count(granted, Step::Revoked);
    }
    if is_revoked && revoked.is_overdue {
        tracing::warn!(client = client.0, %file, "revoked {} that was not returned", name_of(granted));
    }
    clients.tell_of_revoked(client);
    clients.fs.files.returned();
}
