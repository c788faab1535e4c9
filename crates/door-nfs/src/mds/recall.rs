//! Recall, revocation and fencing: how layouts and delegations come back, with their holder's help or without it.
//!
//! Who changes a file under somebody's layout or delegation waits shortly, then gets DELAY and asks again; the holder has
//! its time to give back, then what it holds is revoked. What ends without its holder's word and was used at the pools is
//! fenced off first: the file's epoch is raised, durably, and the pools refuse older tickets.

use std::sync::{Arc, Weak};
use std::time::Duration;

use access::{Change, Changing, Granted, Modes, Recall, Recaller, Share};
use api::NamespaceError;
use nfs4::{ClientId4, NfsStat4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use nfs4_state::stateid::{AddressedRecall, LayoutModes, Revoked, holder, iomode};
use tokio::time::Instant;
use types::FileId;

use super::Head;
use crate::callback::CallbackError;
use crate::context::Compound;
use crate::{callback, fh, status};

/// How long an operation waits for others before it answers DELAY: Linux comes again after 100 ms at the earliest.
pub(super) const WAIT: Duration = Duration::from_millis(100);
/// A revocation that failed (the database is away) is tried again after this time.
const RETRY: Duration = Duration::from_secs(2);
/// A recall may overtake the reply that grants: a client that says it has no such delegation is asked again for so long.
const OVERTAKEN: Duration = Duration::from_secs(5);
const OVERTAKEN_PAUSE: Duration = Duration::from_millis(20);
/// Recalls that one client is asked at a time, as many as Linux has slots for; and those told again in one round.
const ASKED_MAX: usize = 16;
const REPEATED_MAX: usize = 256;

/// Carries out recalls of what clients of this door hold.
pub(crate) struct ClientRecaller(pub Weak<Head>);

impl Recaller for ClientRecaller {
    fn recall(&self, recalls: &[Recall]) {
        let Some(head) = self.0.upgrade() else { return };
        let addressed = head.states.lock().address_recalls(recalls);
        addressed.into_iter().for_each(|recall| send(&head, recall));
    }
}

/// Asks a client to give back. What it does then arrives as LAYOUTRETURN or DELEGRETURN, or does not.
fn send(head: &Arc<Head>, recall: AddressedRecall) {
    if let Granted::Delegation(_) = recall.granted {
        head.note_recall(recall.file);
    }
    let Some(turn) = Turn::take(head, recall.client) else {
        head.states.lock().recall_unheard(&recall);
        return;
    };
    let asking = {
        let head = Arc::downgrade(head);
        async move {
            let Some(head) = head.upgrade() else { return };
            let answered = match recall.granted {
                Granted::Layout(modes) => ask_layout(&head, &recall, modes).await,
                Granted::Delegation(_) => ask_delegation(&head, &recall).await,
            };
            settle(&head, &recall, answered);
            drop(turn);
        }
    };
    head.spawn_call(asking);
}

/// One of the calls that a client may have under way: one that answers none does not take the calls of others.
struct Turn {
    head: Weak<Head>,
    client: ClientId4,
}

impl Turn {
    fn take(head: &Arc<Head>, client: ClientId4) -> Option<Turn> {
        let mut asked = head.asked.lock();
        let count = asked.entry(client).or_default();
        if *count >= ASKED_MAX {
            return None;
        }
        *count += 1;
        Some(Turn { head: Arc::downgrade(head), client })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(head) = self.head.upgrade() else { return };
        let mut asked = head.asked.lock();
        let Some(count) = asked.get_mut(&self.client) else { return };
        *count -= 1;
        if *count == 0 {
            asked.remove(&self.client);
        }
    }
}

async fn ask_layout(
    head: &Head,
    recall: &AddressedRecall,
    modes: LayoutModes,
) -> Result<NfsStat4, CallbackError> {
    let handle = fh::encode(&head.key, recall.file);
    let asked = callback::LayoutRecall { handle, stateid: recall.stateid, iomode: iomode(modes) };
    let answered = head.sessions.recall_layout(recall.client, asked, head.lease).await?;
    // OLD_STATEID: it has heard this recall before, and the answer was lost.
    Ok(if answered == NfsStat4::OldStateId { NfsStat4::Ok } else { answered })
}

async fn ask_delegation(head: &Head, recall: &AddressedRecall) -> Result<NfsStat4, CallbackError> {
    let handle = fh::encode(&head.key, recall.file);
    let overtaken_until = Instant::now() + OVERTAKEN;
    loop {
        let delegation = (handle.clone(), recall.stateid);
        let answered =
            head.sessions.recall_delegation(recall.client, delegation, head.access.recall_time()).await?;
        let is_unknown = matches!(answered, NfsStat4::BadStateId | NfsStat4::BadHandle);
        if !is_unknown || Instant::now() >= overtaken_until || !head.states.lock().is_recalled(recall) {
            return Ok(answered);
        }
        tokio::time::sleep(OVERTAKEN_PAUSE).await;
    }
}

/// Tells again of recalls that clients could not be told of: their connection is back, or their calls have become fewer.
pub(crate) fn repeat_recalls(head: &Arc<Head>) {
    let again = head.states.lock().unheard_recalls(REPEATED_MAX);
    again.into_iter().for_each(|recall| send(head, recall));
}

/// Says in the client's replies whether it still has to free what was revoked. Neither lock is held under the other.
pub(super) fn tell_of_revoked(head: &Head, client: ClientId4) {
    let has_revoked = || head.states.lock().has_revoked(client);
    if !has_revoked() {
        head.sessions.lower_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    }
    // Something may have been revoked in between.
    if has_revoked() {
        head.sessions.raise_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    }
}

/// What follows from the answer to a recall.
fn settle(head: &Head, recall: &AddressedRecall, answered: Result<NfsStat4, CallbackError>) {
    let AddressedRecall { client, file, .. } = *recall;
    let mut states = head.states.lock();
    match answered {
        Ok(NfsStat4::Ok) => {}
        // Never sent: it is told again soon, or by who asks next.
        Err(CallbackError::Busy) => states.recall_unheard(recall),
        // It knows nothing of it: there is nothing to wait for.
        Ok(status) => {
            tracing::debug!(client = client.0, %file, status = status.name(), "client holds nothing of the file");
            states.expire_recall(recall);
        }
        // A cache cannot be fenced off: its holder has all its time to come back and be told.
        Err(error) if matches!(recall.granted, Granted::Delegation(_)) => {
            tracing::debug!(client = client.0, %file, %error, "cannot recall a delegation yet");
            states.recall_unheard(recall);
        }
        Err(error) => {
            tracing::warn!(client = client.0, %file, %error, "cannot recall a layout, revoking it");
            states.expire_recall(recall);
        }
    }
}

/// Before a file is changed: what others hold of it that stands in the way comes home first, or the answer is DELAY. What
/// is answered is kept until the change is made.
pub(super) async fn before_change(
    compound: &Compound<'_>,
    head: &Head,
    file: FileId,
    change: Change,
) -> Result<Changing, access::AccessError> {
    let by = compound.client.map(holder);
    head.access.before_change(file, by, change, WAIT, head.access.recall_time()).await
}

/// As `before_change`, of an open, or of I/O without one.
pub(super) async fn make_way(
    compound: &Compound<'_>,
    head: &Head,
    file: FileId,
    access: Modes,
    deny: Modes,
) -> Result<Changing, NfsStat4> {
    let change = Change::Access(Share::new(access, deny));
    before_change(compound, head, file, change).await.map_err(status::of_access)
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
        head.adaptive.lock().forget_client(client);
        head.access.returned();
    }
    let is_unknown =
        |client: &ClientId4| head.sessions.judge_reclaim(*client, false) == Err(NfsStat4::StaleClientId);
    let strays: Vec<_> = with_state.into_iter().filter(is_unknown).collect();
    head.states.lock().note_strays(strays);
}

/// Revokes what was not given back in time.
pub(crate) async fn expire_recalls(head: &Head) {
    let now = head.clock.monotonic();
    let due = head.states.lock().expired_recalls(now, now + RETRY);
    for revoked in due {
        let Revoked { client, file, granted, .. } = revoked;
        if revoked.is_at_pools
            && let Err(error) = fence(head, file).await
        {
            tracing::warn!(%file, %error, "cannot fence off what a client held, will try again");
            continue;
        }
        let is_revoked = head.states.lock().revoke(&revoked);
        if is_revoked && revoked.is_overdue {
            tracing::warn!(client = client.0, %file, "revoked {} that was not returned", what(granted));
        }
        tell_of_revoked(head, client);
        head.access.returned();
    }
}

fn what(granted: Granted) -> &'static str {
    match granted {
        Granted::Layout(_) => "a layout",
        Granted::Delegation(_) => "a delegation",
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
