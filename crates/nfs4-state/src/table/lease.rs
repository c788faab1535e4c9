//! The grace period and its end (RFC 8881 §8.4.2), RECLAIM_COMPLETE (§18.51).

use std::time::Duration;

use bytes::Bytes;
use nfs4::{ClientId4, NfsStat4};

use super::{Action, SessionTable};
use crate::client::Client;

impl SessionTable {
    /// When the grace period is due to end: the records to change first. Call [`grace_ended`](Self::grace_ended) when
    /// that is durable; until then nobody obtains new state.
    pub fn grace_due(&mut self, now: Duration) -> Option<Vec<Action>> {
        let owners = self.grace.due(now)?;
        Some(owners.into_iter().map(|owner| Action::VoidRecord { owner }).collect())
    }

    pub fn grace_ended(&mut self) {
        self.grace.ended();
    }

    pub fn in_grace(&self) -> bool {
        self.grace.is_on()
    }

    /// Whether a client that a former instance knew has not come back in the grace period, or was not to reclaim at all:
    /// what it may still do at the pools is known to nobody.
    pub fn has_missed_reclaims(&self) -> bool {
        self.grace.has_missed()
    }

    pub fn grace_remaining(&self, now: Duration) -> Option<Duration> {
        self.grace.remaining(now)
    }

    /// Whether the client may reclaim opens and locks of the former instance now; NO_GRACE if not.
    pub fn may_reclaim(&mut self, now: Duration, id: ClientId4) -> Result<(), NfsStat4> {
        let client = self.clients.get(&id).ok_or(NfsStat4::StaleClientId)?;
        if client.reclaim_complete || !self.grace.may_reclaim(&client.owner, now) {
            return Err(NfsStat4::NoGrace);
        }
        Ok(())
    }

    /// Whether the client may obtain new opens, locks and layouts now; GRACE if not. Nobody may in the grace period,
    /// and no client before its RECLAIM_COMPLETE (RFC 8881 §18.51.3).
    pub fn may_obtain(&self, id: ClientId4) -> Result<(), NfsStat4> {
        let client = self.clients.get(&id).ok_or(NfsStat4::StaleClientId)?;
        if self.grace.is_on() || !client.reclaim_complete { Err(NfsStat4::Grace) } else { Ok(()) }
    }

    /// The first step of RECLAIM_COMPLETE for all file systems: what to make durable before
    /// [`reclaim_completed`](Self::reclaim_completed) and the reply.
    pub fn reclaim_complete(&self, id: ClientId4) -> Result<Action, NfsStat4> {
        let client = self.clients.get(&id).ok_or(NfsStat4::StaleClientId)?;
        if client.reclaim_complete {
            return Err(NfsStat4::CompleteAlready);
        }
        Ok(Action::PutRecord { owner: client.owner.clone(), reclaim_complete: !client.is_robbed })
    }

    /// Something is about to be taken from a client that it may not hear of in time, or it has heard of all that was: its
    /// record, which is to follow the [`standing`](Self::standing) of the owner that is answered, entitles it to reclaims or
    /// does not (RFC 8881 §8.4.3). `None`: it is not known any more.
    pub fn set_robbed(&mut self, id: ClientId4, is_robbed: bool) -> Option<Bytes> {
        let client = self.clients.get_mut(&id).filter(|client| client.confirmed)?;
        client.is_robbed = is_robbed;
        Some(client.owner.clone())
    }

    pub fn reclaim_completed(&mut self, id: ClientId4) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.reclaim_complete = true;
            self.grace.reclaimed(&client.owner);
        }
    }

    pub(super) fn is_busy(&self, client: &Client) -> bool {
        client.create_slot.running
            || client
                .sessions
                .iter()
                .filter_map(|id| self.sessions.get(id))
                .any(|session| session.slots.busy() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SequenceVerdict;
    use super::super::fixture::{Fixture, GRACE, LEASE, facts, s, sequence_args};
    use super::*;
    use crate::KnownClient;
    use crate::table::Departed;

    #[test]
    fn a_silent_client_is_gone_after_its_lease_and_not_before() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        server.now += LEASE;
        assert_eq!(server.expire(), []);
        server.now += s(1);
        let action = Some(Action::RemoveRecord { owner: "a".into() });
        assert_eq!(server.expire(), [Departed { client, action }]);
        assert_eq!(server.sequence(session, 0, 1), Err(NfsStat4::BadSession));
        assert_eq!(server.create_session(client, 2), Err(NfsStat4::StaleClientId));
    }

    #[test]
    fn sequence_renews_the_lease_even_when_it_is_refused() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        server.now += LEASE;
        assert_eq!(server.sequence(session, 0, 9), Err(NfsStat4::SeqMisordered));
        server.now += LEASE;
        assert_eq!(server.expire(), []);
    }

    #[test]
    fn a_client_with_a_request_running_is_not_silent() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        let SequenceVerdict::Execute(ticket) = server.begin(&sequence_args(session, 0, 1), &facts()) else {
            panic!("it is new")
        };
        server.now += LEASE * 3;
        assert_eq!(server.expire(), []);
        server.table.finish(server.now, ticket, None);
        assert_eq!(server.expire(), [], "the end of a request is a sign of life");
        server.now += LEASE + s(1);
        assert_eq!(server.expire()[0].client, client);
    }

    #[test]
    fn an_unconfirmed_record_ends_quietly_with_its_lease() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        server.now += LEASE + s(1);
        assert_eq!(server.expire(), []);
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::StaleClientId));
    }

    #[test]
    fn reclaim_complete_is_said_once() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        assert_eq!(server.table.may_obtain(client), Err(NfsStat4::Grace), "before RECLAIM_COMPLETE");
        let action = server.table.reclaim_complete(client).unwrap();
        assert_eq!(action, Action::PutRecord { owner: "a".into(), reclaim_complete: true });
        server.table.reclaim_completed(client);
        assert_eq!(server.table.reclaim_complete(client), Err(NfsStat4::CompleteAlready));
        assert_eq!(server.table.may_obtain(client), Ok(()));
        assert_eq!(server.table.may_reclaim(server.now, client), Err(NfsStat4::NoGrace));
    }

    #[test]
    fn the_standing_of_an_owner_is_that_of_its_confirmed_client() {
        let mut server = Fixture::new();
        let owner = "a".into();
        assert_eq!(server.table.standing(&owner), None);
        server.exchange_id("a", 1).unwrap();
        assert_eq!(server.table.standing(&owner), None, "not confirmed");
        let (client, _) = server.mount("a");
        assert_eq!(server.table.standing(&owner), Some(false));
        server.table.reclaim_completed(client);
        assert_eq!(server.table.standing(&owner), Some(true));
    }

    #[test]
    fn a_client_that_was_robbed_is_entitled_to_nothing_until_it_has_heard_of_it() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        let owner = Bytes::from("a");
        assert_eq!(server.table.set_robbed(client, true), Some(owner.clone()));
        let action = Action::PutRecord { owner: owner.clone(), reclaim_complete: false };
        assert_eq!(server.table.reclaim_complete(client), Ok(action));
        server.table.reclaim_completed(client);
        assert_eq!(server.table.standing(&owner), Some(false));
        assert_eq!(server.table.may_obtain(client), Ok(()), "it goes on as before");
        server.table.set_robbed(client, false);
        assert_eq!(server.table.standing(&owner), Some(true));
        server.now += LEASE + s(1);
        assert_eq!(server.expire()[0].client, client);
        assert_eq!(server.table.set_robbed(client, true), None);
    }

    #[test]
    fn in_grace_known_clients_reclaim_and_nobody_obtains() {
        let known = |owner: &'static str| KnownClient { owner: owner.into(), may_reclaim: true };
        let mut server = Fixture::restarted(vec![known("a"), known("gone")]);
        let (a, _) = server.mount("a");
        let (b, _) = server.mount("b");
        assert_eq!(server.table.may_reclaim(server.now, a), Ok(()));
        assert_eq!(server.table.may_reclaim(server.now, b), Err(NfsStat4::NoGrace));
        for client in [a, b] {
            server.table.reclaim_complete(client).unwrap();
            server.table.reclaim_completed(client);
            assert_eq!(server.table.may_obtain(client), Err(NfsStat4::Grace));
        }
        assert_eq!(
            server.table.may_reclaim(server.now, a),
            Err(NfsStat4::NoGrace),
            "it said that it was done"
        );
        assert_eq!(server.table.grace_due(server.now), None, "somebody is missing");
        server.now += GRACE;
        let actions = server.table.grace_due(server.now).unwrap();
        assert_eq!(actions, [Action::VoidRecord { owner: "gone".into() }]);
        assert!(server.table.in_grace(), "until the records are changed");
        server.table.grace_ended();
        assert_eq!(server.table.may_obtain(b), Ok(()));
    }
}
