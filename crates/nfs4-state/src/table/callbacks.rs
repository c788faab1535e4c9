//! Calls to clients: which connection, which slot, which number (RFC 8881 §2.10.6, §20.9).

use nfs4::{CallbackSecParms4, ClientId4, ReferringCallList4, SessionId4};
use types::FileId;

use super::clients::Clients;
use super::sessions::Sessions;
use crate::ConnectionId;
use crate::back_channel::CallbackOutcome;

/// The most calls that CB_SEQUENCE names: with the recall it stays below the 4 KiB that Linux takes.
const REFERRING_CALLS_MAX: usize = 32;
const REFERRING_LISTS_MAX: usize = 4;

/// A call to a client that is under way, with all that CB_SEQUENCE has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a callback slot is busy until its ticket is given back"]
pub struct CallbackTicket {
    pub session: SessionId4,
    pub slot: u32,
    pub sequence: u32,
    pub highest_slot: u32,
    pub connection: ConnectionId,
    pub program: u32,
    pub security: CallbackSecParms4,
    pub minor_version: u32,
    /// Most bytes of the request with its RPC header.
    pub request_bytes_max: usize,
}

/// Why no call can be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackRefusal {
    #[error("client is not known")]
    UnknownClient,
    #[error("client has no back channel")]
    NoPath,
    #[error("all slots of the client's back channels are busy")]
    Busy,
}

/// The back channels of clients.
pub struct Callbacks<'a> {
    pub(super) clients: &'a Clients,
    pub(super) sessions: &'a mut Sessions,
}

impl Callbacks<'_> {
    /// Takes a slot on a back channel of the client. Call [`end`](Self::end) whatever comes of it.
    pub fn begin(&mut self, client: ClientId4) -> Result<CallbackTicket, CallbackRefusal> {
        let client = self.clients.get(client).ok_or(CallbackRefusal::UnknownClient)?;
        let mut refusal = CallbackRefusal::NoPath;
        // The newest session first: the client has made it because it is in use.
        for id in client.sessions.iter().rev() {
            let Some(session) = self.sessions.get_mut(*id) else { continue };
            let Some(connection) = session.back.connection().filter(|_| !session.back.is_at_fault()) else {
                continue;
            };
            let Some((slot, sequence)) = session.back.begin() else {
                refusal = CallbackRefusal::Busy;
                continue;
            };
            return Ok(CallbackTicket {
                session: *id,
                slot,
                sequence,
                highest_slot: session.back.highest_busy(),
                connection,
                program: session.back.program,
                security: session.back.security.clone(),
                minor_version: session.minor_version,
                request_bytes_max: session.back.attrs.maxrequestsize as usize,
            });
        }
        Err(refusal)
    }

    /// The client answered SEQ_MISORDERED: the ticket to try once more with, if an earlier loss explains it.
    pub fn misordered(&mut self, ticket: &CallbackTicket) -> Option<CallbackTicket> {
        let sequence = self.sessions.get_mut(ticket.session)?.back.misordered(ticket.slot)?;
        Some(CallbackTicket { sequence, ..ticket.clone() })
    }

    pub fn end(&mut self, ticket: CallbackTicket, outcome: CallbackOutcome) {
        if let Some(session) = self.sessions.get_mut(ticket.session) {
            session.back.end(ticket.slot, outcome);
        }
    }

    /// Requests of the client that have granted something of the file (of any, if none is named) and whose replies a recall
    /// may overtake (RFC 8881 §2.10.6.3, §20.9.3).
    pub fn granting_calls(&self, client: ClientId4, file: Option<FileId>) -> Vec<ReferringCallList4> {
        let sessions = self.clients.get(client).into_iter().flat_map(|client| client.sessions.iter());
        let of_session = |id: &SessionId4| {
            let session = self.sessions.get(*id)?;
            let referring_calls: Vec<_> = session.slots.granting(file).take(REFERRING_CALLS_MAX).collect();
            (!referring_calls.is_empty()).then_some(ReferringCallList4 { sessionid: *id, referring_calls })
        };
        sessions.filter_map(of_session).take(REFERRING_LISTS_MAX).collect()
    }

    /// Whether a call to the client could be made.
    pub fn has_back_channel(&self, client: ClientId4) -> bool {
        self.clients.get(client).is_some_and(|client| {
            let mut sessions = self.sessions.of(&client.sessions);
            sessions.any(|session| session.back.is_up() && !session.back.is_at_fault())
        })
    }
}

#[cfg(test)]
mod tests {
    use nfs4::ReferringCall4;

    use super::super::fixture::{Fixture, facts, peer, sequence_args};
    use super::*;

    #[test]
    fn a_call_goes_over_the_connection_that_was_bound_last() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        server.peer = peer(9);
        server.bind_back(session);
        let ticket = server.table.callbacks().begin(client).unwrap();
        assert_eq!((ticket.connection, ticket.slot, ticket.sequence), (ConnectionId(9), 0, 1));
        assert_eq!((ticket.session, ticket.minor_version), (session, 1));
        server.table.callbacks().end(ticket, CallbackOutcome::Answered);
        assert_eq!(server.table.callbacks().begin(client).unwrap().sequence, 2);
    }

    #[test]
    fn without_a_path_there_is_no_call() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        assert!(server.table.callbacks().has_back_channel(client));
        server.table.sessions_mut().connection_closed(server.peer.connection);
        assert!(!server.table.callbacks().has_back_channel(client));
        assert_eq!(server.table.callbacks().begin(client), Err(CallbackRefusal::NoPath));
        assert_eq!(server.table.callbacks().begin(ClientId4(1)), Err(CallbackRefusal::UnknownClient));
    }

    #[test]
    fn a_recall_names_the_calls_of_all_sessions_that_granted_the_file() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        let (_, stranger) = server.mount("b");
        let _ = server.begin(&sequence_args(session, 2, 1), &facts());
        let _ = server.begin(&sequence_args(stranger, 0, 1), &facts());
        server.table.sessions_mut().note_grant(session, 2, FileId(5));
        server.table.sessions_mut().note_grant(stranger, 0, FileId(5));
        let call = ReferringCall4 { sequenceid: 1, slotid: 2 };
        let list = ReferringCallList4 { sessionid: session, referring_calls: vec![call] };
        assert_eq!(
            server.table.callbacks().granting_calls(client, Some(FileId(5))),
            std::slice::from_ref(&list)
        );
        assert_eq!(server.table.callbacks().granting_calls(client, None), [list], "of any file");
        assert_eq!(server.table.callbacks().granting_calls(client, Some(FileId(6))), []);
    }

    #[test]
    fn calls_are_bounded_by_the_slots() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        let tickets: Vec<_> = (0..16).map(|_| server.table.callbacks().begin(client).unwrap()).collect();
        assert_eq!(tickets[15].highest_slot, 15);
        assert_eq!(server.table.callbacks().begin(client), Err(CallbackRefusal::Busy));
        for ticket in tickets {
            server.table.callbacks().end(ticket, CallbackOutcome::Answered);
        }
        assert_eq!(server.table.callbacks().begin(client).unwrap().sequence, 2);
    }

    #[test]
    fn a_lost_call_is_made_up_for_when_the_client_says_misordered() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        let lost = server.table.callbacks().begin(client).unwrap();
        server.table.callbacks().end(lost, CallbackOutcome::Lost);
        let others: Vec<_> = (1..16).map(|_| server.table.callbacks().begin(client).unwrap()).collect();
        assert!(others.iter().all(|ticket| ticket.slot != 0), "slots without doubt come first");
        let ticket = server.table.callbacks().begin(client).unwrap();
        assert_eq!((ticket.slot, ticket.sequence), (0, 2));
        assert_eq!(server.table.callbacks().misordered(&ticket).unwrap().sequence, 1);
        assert_eq!(server.table.callbacks().misordered(&ticket), None, "once");
    }
}
