//! Recalls: how layouts and delegations come back with their holder's help.
//!
//! A request that changes a file under another client's layout or delegation waits shortly, then gets DELAY and is
//! repeated. The holder has its time to return the layout or delegation; then it is revoked (`revocation`).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use files::Granted;
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::stateid::{AddressedRecall, LayoutModes, iomode};
use parking_lot::Mutex;
use tokio::time::Instant;
use types::FileId;

use super::clients::{Clients, OVERTAKEN_PAUSE};
use super::counts::Step;
use super::grants::Grants;
use crate::callback::{self, CallbackError};

/// A recall may overtake the reply that grants. CB_SEQUENCE names that call (`csa_referring_call_lists`), and Linux waits
/// for its reply; a client that does not, and says it has no such delegation, is asked again for so long.
const OVERTAKEN: Duration = Duration::from_secs(5);
/// Recalls that one client is asked at a time, as many as Linux has slots for; and those told again in one round.
const ASKED_MAX: usize = 16;
const REPEATED_MAX: usize = 256;

pub(crate) struct Recalls {
    pub clients: Arc<Clients>,
    pub grants: Arc<Grants>,
    /// Recalls that each client is being asked. Leaf lock.
    asked: Mutex<BTreeMap<ClientId4, usize>>,
}

impl Recalls {
    pub(super) fn new(grants: Arc<Grants>) -> Recalls {
        Recalls { clients: Arc::clone(&grants.clients), grants, asked: Mutex::default() }
    }

    /// Asks a client to return a layout or delegation. The LAYOUTRETURN or DELEGRETURN arrives later, or never.
    pub(super) fn send(self: &Arc<Self>, recall: AddressedRecall) {
        if let Granted::Delegation(_) = recall.granted {
            self.grants.note_recall(recall.file);
        }
        let Some(turn) = Turn::take(self, recall.client) else {
            self.clients.states.lock().recalls().note_unheard(&recall);
            return;
        };
        self.grants.counts.count(recall.granted, Step::Sent);
        let asking = {
            let recalls = Arc::downgrade(self);
            async move {
                let Some(recalls) = recalls.upgrade() else { return };
                let answered = match recall.granted {
                    Granted::Layout(modes) => ask_layout(&recalls.clients, &recall, modes).await,
                    Granted::Delegation(_) => ask_delegation(&recalls.clients, &recall).await,
                };
                recalls.settle(&recall, answered);
                drop(turn);
            }
        };
        self.clients.spawn_call(asking);
    }

    /// Tells again of recalls that clients could not be told of: their connection is back, or their calls have become
    /// fewer.
    pub fn repeat(self: &Arc<Self>) {
        let again = self.clients.states.lock().recalls().repeat_unheard(ASKED_MAX, REPEATED_MAX);
        again.into_iter().for_each(|recall| self.send(recall));
    }

    /// Whether the client has as many recalls under way as it is asked at a time.
    pub(super) fn is_busy(&self, client: ClientId4) -> bool {
        self.asked.lock().get(&client).is_some_and(|count| *count >= ASKED_MAX)
    }

    /// A client that has a layout of the file and is busy.
    pub(super) fn busy_holder(&self, file: FileId) -> Option<ClientId4> {
        let clients = self.clients.states.lock().layouts().clients(file);
        clients.into_iter().find(|client| self.is_busy(*client))
    }

    fn settle(&self, recall: &AddressedRecall, answered: Result<NfsStat4, CallbackError>) {
        let AddressedRecall { client, file, granted, .. } = *recall;
        if let Some(step) = Step::of_answer(answered) {
            self.grants.counts.count(granted, step);
        }
        let answer = answered.map_or_else(|error| error.to_string(), |status| status.name().to_owned());
        let mut states = self.clients.states.lock();
        match next(granted, answered) {
            Next::Wait => {}
            Next::TellAgain => {
                tracing::debug!(client = client.0, %file, answer, "cannot recall {} yet", name_of(granted));
                states.recalls().note_unheard(recall);
            }
            Next::HoldsNothing => {
                tracing::debug!(client = client.0, %file, answer, "client holds nothing of the file");
                states.recalls().expire(recall);
            }
            Next::Revoke => {
                tracing::warn!(client = client.0, %file, answer, "cannot recall {}, revoking it", name_of(granted));
                states.recalls().expire(recall);
            }
        }
    }
}

/// One of the calls that a client may have under way: one that answers none does not take the calls of others.
pub(super) struct Turn {
    recalls: Weak<Recalls>,
    client: ClientId4,
}

impl Turn {
    pub fn take(recalls: &Arc<Recalls>, client: ClientId4) -> Option<Turn> {
        let mut asked = recalls.asked.lock();
        let count = asked.entry(client).or_default();
        if *count >= ASKED_MAX {
            return None;
        }
        *count += 1;
        Some(Turn { recalls: Arc::downgrade(recalls), client })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(recalls) = self.recalls.upgrade() else { return };
        let mut asked = recalls.asked.lock();
        let Some(count) = asked.get_mut(&self.client) else { return };
        *count -= 1;
        if *count == 0 {
            asked.remove(&self.client);
        }
    }
}

async fn ask_layout(
    clients: &Clients,
    recall: &AddressedRecall,
    modes: LayoutModes,
) -> Result<NfsStat4, CallbackError> {
    let (file, handle) = (recall.file, clients.fs.handle(recall.file));
    let is_closed = clients.fs.files.pools().is_any_closed(file).await;
    let (stateid, iomode) = (recall.stateid, iomode(modes));
    let asked = callback::LayoutRecall { file, handle, stateid, iomode, is_closed };
    let answered = clients.sessions.callbacks.recall_layout(recall.client, asked, clients.fs.lease).await?;
    // OLD_STATEID: it has heard this recall before, and the answer was lost.
    Ok(if answered == NfsStat4::OldStateId { NfsStat4::Ok } else { answered })
}

async fn ask_delegation(clients: &Clients, recall: &AddressedRecall) -> Result<NfsStat4, CallbackError> {
    let Clients { fs, sessions, states, .. } = clients;
    let handle = fs.handle(recall.file);
    let overtaken_until = Instant::now() + OVERTAKEN;
    loop {
        let delegation = (recall.file, handle.clone(), recall.stateid);
        // Once the client has used the slot again it has had the reply.
        let may_overtake = !sessions.callbacks.granting_calls(recall.client, Some(recall.file)).is_empty();
        let answered =
            sessions.callbacks.recall_delegation(recall.client, delegation, fs.files.recall_time()).await?;
        let is_unknown = matches!(answered, NfsStat4::BadStateId | NfsStat4::BadHandle);
        if !is_unknown
            || !may_overtake
            || Instant::now() >= overtaken_until
            || !states.lock().recalls().is_recalled(recall)
        {
            return Ok(answered);
        }
        tokio::time::sleep(OVERTAKEN_PAUSE).await;
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

pub(super) fn name_of(granted: Granted) -> &'static str {
    match granted {
        Granted::Layout(_) => "a layout",
        Granted::Delegation(_) => "a delegation",
    }
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
