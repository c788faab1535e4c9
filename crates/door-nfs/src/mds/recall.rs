//! Recall, revocation and fencing: how layouts and delegations come back, with their holder's help or without it.
//!
//! A request that changes a file under another client's layout or delegation waits shortly, then gets DELAY and is
//! repeated. The holder has its time to return the layout or delegation; then it is revoked. If it ends without its
//! holder's word and was used at the pools, it is fenced off first: the file's epoch is raised, durably, and the pools
//! refuse older tickets.

use std::sync::{Arc, Weak};
use std::time::Duration;

use access::{Change, FileChangeGuard, Granted, Modes, Recall, Recaller, Share, Told};
use api::NamespaceError;
use async_trait::async_trait;
use file_state::Holder;
use futures_util::{StreamExt, stream};
use nfs4::{CbRecallSlot4Args, ClientId4, NfsCbArgop4, NfsStat4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use nfs4_state::SlotRecall;
use nfs4_state::stateid::{AddressedRecall, LayoutModes, Revoked, holder, iomode};
use tokio::time::Instant;
use types::FileId;

use super::counts::Step;
use super::{Head, courtesy, lost_locks, unwritten};
use crate::callback::CallbackError;
use crate::context::Compound;
use crate::{callback, fh, status};

/// How long an operation waits for others before it answers DELAY: Linux comes again after 100 ms at the earliest.
pub(super) const WAIT: Duration = Duration::from_millis(100);
/// A revocation that failed (the database is away) is tried again after this time.
const RETRY: Duration = Duration::from_secs(2);
/// A client may leave tens of thousands of layouts, and each fence waits for a commit, which they share.
const FENCED_AT_ONCE: usize = 64;
/// A recall may overtake the reply that grants. CB_SEQUENCE names that call (`csa_referring_call_lists`), and Linux waits
/// for its reply; a client that does not, and says it has no such delegation, is asked again for so long.
const OVERTAKEN: Duration = Duration::from_secs(5);
pub(super) const OVERTAKEN_PAUSE: Duration = Duration::from_millis(20);
/// Recalls that one client is asked at a time, as many as Linux has slots for; and those told again in one round.
const ASKED_MAX: usize = 16;
const REPEATED_MAX: usize = 256;
/// A client that sleeps is asked for slots for so long: there may be thousands of them.
const SLOTS_PATIENCE: Duration = Duration::from_secs(5);

/// Carries out recalls of grants that clients of this door hold.
pub(crate) struct ClientRecaller(pub Weak<Head>);

#[async_trait]
impl Recaller for ClientRecaller {
    async fn ask_writer(&self, file: FileId, writer: Holder, patience: Duration) -> Option<Told> {
        let (head, client) = (self.0.upgrade()?, ClientId4(writer.number));
        // A client that is silent for longer than a lease is not asked, and not waited for.
        if courtesy::depart(&head, &[client]).contains(&client) {
            return None;
        }
        unwritten::ask(&head, file, client, patience).await
    }

    fn recall(&self, recalls: &[Recall]) {
        let Some(head) = self.0.upgrade() else { return };
        let addressed = head.states.lock().address_recalls(recalls);
        let clients: Vec<ClientId4> = addressed.iter().map(|recall| recall.client).collect();
        // A client that is silent for longer than a lease is not asked, and not waited for.
        let going = courtesy::depart(&head, &clients);
        let asked = addressed.into_iter().filter(|recall| !going.contains(&recall.client));
        asked.for_each(|recall| send(&head, recall));
    }

    async fn void_former(&self, file: FileId) -> bool {
        let Some(head) = self.0.upgrade() else { return true };
        lost_locks::fence_former(&head, file).await.is_ok()
    }

    fn dislodge(&self, holders: &[Holder]) -> bool {
        self.0.upgrade().is_some_and(|head| courtesy::is_any_departing(&head, holders))
    }
}

/// Asks a client to return a layout or delegation. The LAYOUTRETURN or DELEGRETURN arrives later, or never.
fn send(head: &Arc<Head>, recall: AddressedRecall) {
    if let Granted::Delegation(_) = recall.granted {
        head.note_recall(recall.file);
    }
    let Some(turn) = Turn::take(head, recall.client) else {
        head.states.lock().recall_unheard(&recall);
        return;
    };
    head.counts.count(recall.granted, Step::Sent);
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
pub(super) struct Turn {
    head: Weak<Head>,
    client: ClientId4,
}

impl Turn {
    pub(super) fn take(head: &Arc<Head>, client: ClientId4) -> Option<Turn> {
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

/// Whether the client has as many recalls under way as it is asked at a time.
pub(super) fn is_busy(head: &Head, client: ClientId4) -> bool {
    head.asked.lock().get(&client).is_some_and(|count| *count >= ASKED_MAX)
}

/// A client that has a layout of the file and is busy.
pub(super) fn busy_holder(head: &Head, file: FileId) -> Option<ClientId4> {
    let clients = head.states.lock().layout_clients(file);
    clients.into_iter().find(|client| is_busy(head, *client))
}

async fn ask_layout(
    head: &Head,
    recall: &AddressedRecall,
    modes: LayoutModes,
) -> Result<NfsStat4, CallbackError> {
    let handle = fh::encode(&head.handle_key, recall.file);
    let file = recall.file;
    let asked = callback::LayoutRecall { file, handle, stateid: recall.stateid, iomode: iomode(modes) };
    let answered = head.sessions.recall_layout(recall.client, asked, head.lease).await?;
    // OLD_STATEID: it has heard this recall before, and the answer was lost.
    Ok(if answered == NfsStat4::OldStateId { NfsStat4::Ok } else { answered })
}

async fn ask_delegation(head: &Head, recall: &AddressedRecall) -> Result<NfsStat4, CallbackError> {
    let handle = fh::encode(&head.handle_key, recall.file);
    let overtaken_until = Instant::now() + OVERTAKEN;
    loop {
        let delegation = (recall.file, handle.clone(), recall.stateid);
        // Once the client has used the slot again it has had the reply.
        let may_overtake = !head.sessions.granting_calls(recall.client, Some(recall.file)).is_empty();
        let answered =
            head.sessions.recall_delegation(recall.client, delegation, head.access.recall_time()).await?;
        let is_unknown = matches!(answered, NfsStat4::BadStateId | NfsStat4::BadHandle);
        if !is_unknown
            || !may_overtake
            || Instant::now() >= overtaken_until
            || !head.states.lock().is_recalled(recall)
        {
            return Ok(answered);
        }
        tokio::time::sleep(OVERTAKEN_PAUSE).await;
    }
}

/// Tells again of recalls that clients could not be told of: their connection is back, or their calls have become fewer.
pub(crate) fn repeat_recalls(head: &Arc<Head>) {
    let again = head.states.lock().unheard_recalls(ASKED_MAX, REPEATED_MAX);
    again.into_iter().for_each(|recall| send(head, recall));
}

/// Asks sleeping clients for slots where memory is short (RFC 8881 §20.8). A client that is not reached is told by its
/// next reply.
pub(crate) fn recall_slots(head: &Head) {
    for SlotRecall { client, target_highest } in head.sessions.take_slot_recalls() {
        let sessions = Arc::clone(&head.sessions);
        let recall = CbRecallSlot4Args { target_highest_slotid: target_highest };
        head.spawn_call(async move {
            let asked = sessions.call_client(client, NfsCbArgop4::RecallSlot(recall), SLOTS_PATIENCE).await;
            tracing::debug!(client = client.0, ?asked, "asked a client for slots");
        });
    }
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

/// The consequence of the answer to a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The client gives back, or its time passes.
    Wait,
    /// The recall is sent again soon, or by the next request, until its time has passed.
    TellAgain,
    /// The client has nothing to return: it is not waited for.
    HoldsNothing,
    /// The layout can be fenced off, and is.
    Revoke,
}

fn next(granted: Granted, answered: Result<NfsStat4, CallbackError>) -> Next {
    let is_layout = matches!(granted, Granted::Layout(_));
    match answered {
        Ok(NfsStat4::Ok) => Next::Wait,
        // RFC 8881 §20.2.3, §20.3.3.
        Ok(NfsStat4::BadHandle | NfsStat4::BadStateId) => Next::HoldsNothing,
        Ok(NfsStat4::NoMatchingLayout) if is_layout => Next::HoldsNothing,
        // The client will return it, but not now; or it was never asked.
        Ok(NfsStat4::Delay) | Err(CallbackError::Busy) => Next::TellAgain,
        // A cache cannot be fenced off: its holder has all its time to come back and get the recall.
        _ if !is_layout => Next::TellAgain,
        _ => Next::Revoke,
    }
}

fn settle(head: &Head, recall: &AddressedRecall, answered: Result<NfsStat4, CallbackError>) {
    let AddressedRecall { client, file, granted, .. } = *recall;
    if let Some(step) = Step::of_answer(answered) {
        head.counts.count(granted, step);
    }
    let answer = answered.map_or_else(|error| error.to_string(), |status| status.name().to_owned());
    let mut states = head.states.lock();
    match next(granted, answered) {
        Next::Wait => {}
        Next::TellAgain => {
            tracing::debug!(client = client.0, %file, answer, "cannot recall {} yet", what(granted));
            states.recall_unheard(recall);
        }
        Next::HoldsNothing => {
            tracing::debug!(client = client.0, %file, answer, "client holds nothing of the file");
            states.expire_recall(recall);
        }
        Next::Revoke => {
            tracing::warn!(client = client.0, %file, answer, "cannot recall {}, revoking it", what(granted));
            states.expire_recall(recall);
        }
    }
}

/// Before a file is changed: conflicting grants of others must be returned first, or the answer is DELAY. The caller
/// keeps the [`FileChangeGuard`] until the change is made.
pub(super) async fn before_change(
    compound: &Compound,
    head: &Head,
    file: FileId,
    change: Change,
) -> Result<FileChangeGuard, access::AccessError> {
    let by = compound.client.map(holder);
    head.access.before_change(file, by, change, WAIT).await
}

/// As `before_change`, of an open, or of I/O without one.
pub(super) async fn make_way(
    compound: &Compound,
    head: &Head,
    file: FileId,
    access: Modes,
    deny: Modes,
) -> Result<FileChangeGuard, NfsStat4> {
    let change = Change::Access(Share::new(access, deny));
    before_change(compound, head, file, change).await.map_err(status::of_access)
}

/// Releases the state of clients whose lease is over, or that have come back as new ones. Layouts that could not be
/// fenced off stay for the next round.
pub(crate) async fn expire_clients(head: &Head) {
    // A client that another is about to release would be taken for one without a record.
    let _alone = head.releasing.lock().await;
    let gone = head.sessions.expire(&courtesy::Held(&head.states)).await;
    let (departed, with_state) = {
        let mut states = head.states.lock();
        gone.into_iter().for_each(|client| states.depart(client));
        (states.departed(), states.clients())
    };
    let copying = head.offloads.end_of(&departed).await;
    for client in departed {
        if copying.contains(&client) {
            tracing::warn!(client = client.0, "a copy of a lost client does not end, will look again");
            continue;
        }
        let writable = head.states.lock().writable_layouts(client);
        let mut unfenced = Vec::new();
        let mut fenced = stream::iter(writable)
            .map(|file| async move { (file, fence(head, file).await) })
            .buffer_unordered(FENCED_AT_ONCE);
        while let Some((file, fenced)) = fenced.next().await {
            if let Err(error) = fenced {
                tracing::warn!(client = client.0, %file, %error, "cannot fence off a lost client, will try again");
                unfenced.push(file);
            }
        }
        let is_freed = {
            let mut states = head.states.lock();
            let before = states.count(client);
            states.release(client, &unfenced);
            unfenced.is_empty() || states.count(client) < before
        };
        if unfenced.is_empty() {
            head.sessions.released(client).await;
        }
        head.adaptive.lock().forget_client(client);
        head.devices.lock().forget_client(client);
        head.reports.forget_client(client);
        head.pools.forget_client(client.0);
        if is_freed {
            head.access.returned();
        }
    }
    let strays = head.sessions.strangers(with_state);
    head.states.lock().note_strays(strays);
}

/// Revokes layouts and delegations that were not returned in time.
pub(crate) async fn expire_recalls(head: &Head) {
    let now = head.clock.monotonic();
    let due = head.states.lock().expired_recalls(now, now + RETRY);
    let mut fenced =
        stream::iter(due).map(|revoked| fence_off(head, revoked)).buffer_unordered(FENCED_AT_ONCE);
    while let Some(revoked) = fenced.next().await {
        if let Some(revoked) = revoked {
            revoke(head, revoked).await;
        }
    }
    // A client that has freed all its revoked stateids knows of the loss.
    head.sessions.allow_reclaim(|client| !head.states.lock().has_revoked(client)).await;
}

/// `None`: the pools still accept its tickets.
async fn fence_off(head: &Head, revoked: Revoked) -> Option<Revoked> {
    let file = revoked.file;
    if revoked.is_at_pools
        && let Err(error) = fence(head, file).await
    {
        tracing::warn!(%file, %error, "cannot fence off what a client held, will try again");
        return None;
    }
    Some(revoked)
}

async fn revoke(head: &Head, revoked: Revoked) {
    let Revoked { client, file, granted, .. } = revoked;
    // A layout is fenced off and never reclaimed; the holder of a delegation that is reclaimed is believed again.
    if revoked.is_overdue
        && matches!(granted, Granted::Delegation(_))
        && let Err(error) = head.sessions.forbid_reclaim(client).await
    {
        tracing::warn!(client = client.0, %error, "cannot put down that a client may not reclaim, will try again");
        return;
    }
    let is_revoked = head.states.lock().revoke(&revoked);
    if is_revoked {
        head.counts.count(granted, Step::Revoked);
    }
    if is_revoked && revoked.is_overdue {
        tracing::warn!(client = client.0, %file, "revoked {} that was not returned", what(granted));
    }
    tell_of_revoked(head, client);
    head.access.returned();
}

fn what(granted: Granted) -> &'static str {
    match granted {
        Granted::Layout(_) => "a layout",
        Granted::Delegation(_) => "a delegation",
    }
}

/// From here on no pool takes tickets that were given out for the file before.
pub(super) async fn fence(head: &Head, file: FileId) -> Result<(), NamespaceError> {
    let epoch = match head.locations.raise_epoch(file).await {
        Ok(epoch) => epoch,
        // The file is gone, and its replicas with it.
        Err(NamespaceError::Stale(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for location in head.locations.locality(file).await?.pools() {
        let Some(pool) = head.pools.pool(location) else { continue };
        pool.fence(file, epoch)
            .await
            .map_err(|error| NamespaceError::Database(format!("{location} cannot fence: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nfs4_state::stateid::DelegationKind;

    use super::*;

    const LAYOUT: Granted = Granted::Layout(LayoutModes::ALL);
    const DELEGATION: Granted = Granted::Delegation(DelegationKind::Read);

    #[test]
    fn only_a_client_that_denies_having_the_grant_counts_as_holding_nothing() {
        for granted in [LAYOUT, DELEGATION] {
            assert_eq!(next(granted, Ok(NfsStat4::Ok)), Next::Wait);
            for unknown in [NfsStat4::BadHandle, NfsStat4::BadStateId] {
                assert_eq!(next(granted, Ok(unknown)), Next::HoldsNothing);
            }
        }
        assert_eq!(next(LAYOUT, Ok(NfsStat4::NoMatchingLayout)), Next::HoldsNothing);
        assert_eq!(next(DELEGATION, Ok(NfsStat4::NoMatchingLayout)), Next::TellAgain);
    }

    #[test]
    fn a_client_that_says_delay_to_the_end_still_has_its_time() {
        for granted in [LAYOUT, DELEGATION] {
            assert_eq!(next(granted, Ok(NfsStat4::Delay)), Next::TellAgain);
            assert_eq!(next(granted, Err(CallbackError::Busy)), Next::TellAgain);
        }
    }

    #[test]
    fn another_error_fences_off_a_layout_and_leaves_a_delegation_its_time() {
        let failed = [
            Ok(NfsStat4::ServerFault),
            Ok(NfsStat4::Resource),
            Ok(NfsStat4::OpNotInSession),
            Err(CallbackError::NoPath),
            Err(CallbackError::TimedOut),
            Err(CallbackError::Refused(NfsStat4::BadSession)),
        ];
        for answered in failed {
            assert_eq!(next(LAYOUT, answered), Next::Revoke, "{answered:?}");
            assert_eq!(next(DELEGATION, answered), Next::TellAgain, "{answered:?}");
        }
    }
}
