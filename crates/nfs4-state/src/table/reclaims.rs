//! The grace period and its end (RFC 8881 §8.4.2), RECLAIM_COMPLETE (§18.51).

use std::time::Duration;

use nfs4::{ClientId4, NfsStat4};

use super::clients::Clients;
use super::records::Action;
use crate::grace::Grace;

/// The right of clients to reclaim, and of others to obtain.
pub struct Reclaims<'a> {
    pub(super) clients: &'a mut Clients,
    pub(super) grace: &'a mut Grace,
}

impl Reclaims<'_> {
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

    /// Whether clients that a former instance knew may still come back in time.
    pub fn is_awaiting(&self) -> bool {
        self.grace.is_awaiting()
    }

    pub fn grace_remaining(&self, now: Duration) -> Option<Duration> {
        self.grace.remaining(now)
    }

    /// Whether the client may reclaim opens and locks of the former instance now; NO_GRACE if not.
    pub fn may_reclaim(&mut self, now: Duration, id: ClientId4) -> Result<(), NfsStat4> {
        let client = self.clients.get(id).ok_or(NfsStat4::StaleClientId)?;
        if client.reclaim.is_complete || !self.grace.may_reclaim(client.owner(), now) {
            return Err(NfsStat4::NoGrace);
        }
        Ok(())
    }

    /// Whether the client may obtain new opens, locks and layouts now; GRACE if not. Nobody may in the grace period,
    /// and no client before its RECLAIM_COMPLETE (RFC 8881 §18.51.3).
    pub fn may_obtain(&self, id: ClientId4) -> Result<(), NfsStat4> {
        let client = self.clients.get(id).ok_or(NfsStat4::StaleClientId)?;
        if self.grace.is_on() || !client.reclaim.is_complete { Err(NfsStat4::Grace) } else { Ok(()) }
    }

    /// The first step of RECLAIM_COMPLETE for all file systems: what to make durable before
    /// [`completed`](Self::completed) and the reply.
    pub fn complete(&self, id: ClientId4) -> Result<Action, NfsStat4> {
        let client = self.clients.get(id).ok_or(NfsStat4::StaleClientId)?;
        if client.reclaim.is_complete {
            return Err(NfsStat4::CompleteAlready);
        }
        Ok(Action::PutRecord { owner: client.owner().clone(), reclaim_complete: !client.reclaim.is_robbed })
    }

    pub fn completed(&mut self, id: ClientId4) {
        if let Some(client) = self.clients.get_mut(id) {
            client.reclaim.is_complete = true;
            self.grace.reclaimed(client.owner());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::fixture::{Fixture, GRACE, LEASE, facts, s, sequence_args};
    use super::super::records::Departed;
    use super::super::sequence::SequenceVerdict;
    use super::*;
    use crate::KnownClient;

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
        assert_eq!(
            server.table.reclaims().may_obtain(client),
            Err(NfsStat4::Grace),
            "before RECLAIM_COMPLETE"
        );
        let action = server.table.reclaims().complete(client).unwrap();
        assert_eq!(action, Action::PutRecord { owner: "a".into(), reclaim_complete: true });
        server.table.reclaims().completed(client);
        assert_eq!(server.table.reclaims().complete(client), Err(NfsStat4::CompleteAlready));
        assert_eq!(server.table.reclaims().may_obtain(client), Ok(()));
        assert_eq!(server.table.reclaims().may_reclaim(server.now, client), Err(NfsStat4::NoGrace));
    }

    #[test]
    fn the_standing_of_an_owner_is_that_of_its_confirmed_client() {
        let mut server = Fixture::new();
        let owner = "a".into();
        assert_eq!(server.table.clients().standing(&owner), None);
        server.exchange_id("a", 1).unwrap();
        assert_eq!(server.table.clients().standing(&owner), None, "not confirmed");
        let (client, _) = server.mount("a");
        assert_eq!(server.table.clients().standing(&owner), Some(false));
        server.table.reclaims().completed(client);
        assert_eq!(server.table.clients().standing(&owner), Some(true));
    }

    #[test]
    fn a_client_that_was_robbed_is_entitled_to_nothing_until_it_has_heard_of_it() {
        let mut server = Fixture::new();
        let (client, _) = server.mount("a");
        let owner = Bytes::from("a");
        assert_eq!(server.table.clients_mut().set_robbed(client, true), Some(owner.clone()));
        let action = Action::PutRecord { owner: owner.clone(), reclaim_complete: false };
        assert_eq!(server.table.reclaims().complete(client), Ok(action));
        server.table.reclaims().completed(client);
        assert_eq!(server.table.clients().standing(&owner), Some(false));
        assert_eq!(server.table.reclaims().may_obtain(client), Ok(()), "it goes on as before");
        server.table.clients_mut().set_robbed(client, false);
        assert_eq!(server.table.clients().standing(&owner), Some(true));
        server.now += LEASE + s(1);
        assert_eq!(server.expire()[0].client, client);
        assert_eq!(server.table.clients_mut().set_robbed(client, true), None);
    }

    #[test]
    fn in_grace_known_clients_reclaim_and_nobody_obtains() {
        let known = |owner: &'static str| KnownClient { owner: owner.into(), may_reclaim: true };
        let mut server = Fixture::restarted(vec![known("a"), known("gone")]);
        let (a, _) = server.mount("a");
        let (b, _) = server.mount("b");
        assert_eq!(server.table.reclaims().may_reclaim(server.now, a), Ok(()));
        assert_eq!(server.table.reclaims().may_reclaim(server.now, b), Err(NfsStat4::NoGrace));
        for client in [a, b] {
            server.table.reclaims().complete(client).unwrap();
            server.table.reclaims().completed(client);
            assert_eq!(server.table.reclaims().may_obtain(client), Err(NfsStat4::Grace));
        }
        assert_eq!(
            server.table.reclaims().may_reclaim(server.now, a),
            Err(NfsStat4::NoGrace),
            "it said that it was done"
        );
        assert_eq!(server.table.reclaims().grace_due(server.now), None, "somebody is missing");
        server.now += GRACE;
        let actions = server.table.reclaims().grace_due(server.now).unwrap();
        assert_eq!(actions, [Action::VoidRecord { owner: "gone".into() }]);
        assert!(server.table.reclaims().in_grace(), "until the records are changed");
        server.table.reclaims().grace_ended();
        assert_eq!(server.table.reclaims().may_obtain(b), Ok(()));
    }
}
