//! Courtesy for clients whose lease has ended (RFC 8881 §8.4.3 lets a server keep state that nobody else wants).
//!
//! Nothing is stored that could disagree with the lease: a client is lapsed when it was silent for longer and has no
//! request running. A lapsed client that holds something stays with its sessions until somebody needs what it holds,
//! its time is over, or there are too many of the kind; one SEQUENCE makes it an ordinary client again. It may reclaim
//! after a restart of the server, since nobody else got its state: before that, the state is taken from it, and its
//! record too.

use std::cmp::Reverse;
use std::time::Duration;

use nfs4::ClientId4;

use super::SessionTable;
use super::records::{Departed, Records};
use crate::SessionConfig;

/// The state of clients, as their door knows it. Asked under the table's lock.
pub trait Holdings {
    /// Opens, locks, layouts and delegations.
    fn states(&self, client: ClientId4) -> u64;
    /// Somebody waits for a lock that the client may have.
    fn is_waited_for(&self, client: ClientId4) -> bool;
}

/// Clients have no state but their sessions.
impl Holdings for () {
    fn states(&self, _: ClientId4) -> u64 {
        0
    }

    fn is_waited_for(&self, _: ClientId4) -> bool {
        false
    }
}

/// The result of a look at the leases.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the state of clients that are gone must be released"]
pub struct Lapsed {
    pub departed: Vec<Departed>,
    /// Their lease has ended since the last look, and they stay.
    pub kept: Vec<ClientId4>,
}

impl SessionTable {
    /// Looks at the leases. A client with a request running is not silent. Unconfirmed clients are removed and not
    /// reported: they have no state.
    pub fn expire(&mut self, now: Duration, holdings: &dyn Holdings) -> Lapsed {
        let SessionConfig { lease, courtesy, ref limits, .. } = self.config;
        let Records { clients, sessions, .. } = &mut self.records;
        let is_only = |id| clients.get(id).is_some_and(|client| client.sessions.len() == 1);
        sessions.review_slots(now, lease, limits, is_only);
        let mut found = Lapsed { departed: self.take_evicted(), kept: Vec::new() };
        let mut lapsed: Vec<(Duration, ClientId4)> =
            self.records.lapsed(now, lease).map(|client| (client.lease.renewed, client.id)).collect();
        lapsed.sort_unstable_by_key(|(renewed, id)| Reverse((*renewed, *id)));
        let (mut clients, mut states) = (0, 0_u64);
        for (_, id) in lapsed {
            let time = lease.saturating_add(courtesy.time);
            let client = self.records.clients.get_mut(id).expect("it was found a moment ago");
            // A client without RECLAIM_COMPLETE has obtained nothing, and its record entitles it to nothing.
            let may_stay =
                client.confirmed && client.reclaim.is_complete && !client.is_silent_since(now, time);
            let held = if may_stay { holdings.states(id) } else { 0 };
            let is_new = !client.lease.is_courtesy;
            if held > 0
                && clients < courtesy.clients_max
                && states.saturating_add(held) <= courtesy.states_max
                && !(is_new && holdings.is_waited_for(id))
            {
                (clients, states) = (clients + 1, states + held);
                client.lease.is_courtesy = true;
                found.kept.extend(is_new.then_some(id));
                continue;
            }
            let was_confirmed = client.confirmed;
            found.departed.extend(self.records.depart(id).filter(|_| was_confirmed));
        }
        found
    }

    /// Ends those of these clients whose lease has ended, for others need what they have. A client that is back stays.
    pub fn dislodge(&mut self, now: Duration, clients: &[ClientId4]) -> Vec<Departed> {
        let (records, lease) = (&self.records, self.config.lease);
        let is_lapsed = |id: &&ClientId4| {
            records.clients.get(**id).is_some_and(|client| records.is_lapsed(client, now, lease))
        };
        let lapsed: Vec<_> = clients.iter().filter(is_lapsed).copied().collect();
        lapsed.into_iter().filter_map(|id| self.records.depart(id)).collect()
    }

    /// Clients that made room for others since this was last asked. If nobody asks, the next [`expire`](Self::expire)
    /// returns them.
    pub fn take_evicted(&mut self) -> Vec<Departed> {
        std::mem::take(&mut self.records.evicted)
    }
}

#[cfg(test)]
mod tests {
    use nfs4::{NfsStat4, SessionId4};

    use super::super::fixture::{CHANNEL, COURTESY, Fixture, LEASE, facts, s, sequence_args};
    use super::super::sequence::SequenceVerdict;
    use super::*;
    use crate::SessionLimits;
    use crate::table::records::Action;

    /// Each of these has so much.
    struct Holds(u64);

    impl Holdings for Holds {
        fn states(&self, _: ClientId4) -> u64 {
            self.0
        }

        fn is_waited_for(&self, _: ClientId4) -> bool {
            false
        }
    }

    const ONE: Holds = Holds(1);

    fn client(server: &mut Fixture, owner: &str) -> (ClientId4, SessionId4) {
        let (client, session) = server.mount(owner);
        server.table.reclaims().completed(client);
        (client, session)
    }

    fn gone(lapsed: &Lapsed) -> Vec<ClientId4> {
        lapsed.departed.iter().map(|departed| departed.client).collect()
    }

    #[test]
    fn a_client_that_holds_something_stays_after_its_lease_and_goes_on_as_if_nothing_were() {
        let mut server = Fixture::new();
        let (a, session) = client(&mut server, "a");
        server.now += LEASE + s(1);
        assert_eq!(server.table.expire(server.now, &ONE), Lapsed { departed: vec![], kept: vec![a] });
        assert!(server.table.snapshot(server.now)[0].is_courtesy);
        server.now += LEASE * 5;
        assert_eq!(server.table.expire(server.now, &ONE), Lapsed::default(), "told once");
        assert_eq!(server.sequence(session, 0, 1).unwrap().status_flags, 0);
        assert!(!server.table.snapshot(server.now)[0].is_courtesy);
        assert_eq!(server.table.dislodge(server.now, &[a]), [], "it is back");
        server.now += LEASE + s(1);
        assert_eq!(server.table.expire(server.now, &ONE).kept, [a], "and again");
    }

    #[test]
    fn a_client_without_state_or_without_reclaim_complete_goes_with_its_lease() {
        let mut server = Fixture::new();
        let (a, _) = client(&mut server, "a");
        server.now += LEASE + s(1);
        assert_eq!(gone(&server.table.expire(server.now, &Holds(0))), [a]);
        let (b, _) = server.mount("b");
        server.now += LEASE + s(1);
        assert_eq!(gone(&server.table.expire(server.now, &ONE)), [b]);
    }

    #[test]
    fn courtesy_ends_with_its_time() {
        let mut server = Fixture::new();
        let (a, _) = client(&mut server, "a");
        server.now += LEASE + COURTESY.time;
        assert_eq!(server.table.expire(server.now, &ONE).kept, [a]);
        server.now += s(1);
        let action = Some(Action::RemoveRecord { owner: "a".into() });
        assert_eq!(server.table.expire(server.now, &ONE).departed, [Departed { client: a, action }]);
    }

    #[test]
    fn beyond_a_bound_those_go_that_were_silent_longest() {
        let mut server = Fixture::new();
        let mut clients = vec![];
        for owner in ["a", "b", "c", "d"] {
            clients.push(client(&mut server, owner).0);
            server.now += s(1);
        }
        server.now += LEASE;
        let lapsed = server.table.expire(server.now, &ONE);
        assert_eq!(
            (gone(&lapsed), lapsed.kept),
            (vec![clients[0]], vec![clients[3], clients[2], clients[1]])
        );
        // Ten of each are more than all may have together.
        let lapsed = server.table.expire(server.now, &Holds(10));
        assert_eq!((gone(&lapsed), lapsed.kept), (vec![clients[1]], vec![]));
    }

    #[test]
    fn a_need_for_the_state_of_a_lapsed_client_ends_it_and_no_other() {
        let mut server = Fixture::new();
        let (a, session) = client(&mut server, "a");
        let (b, _) = client(&mut server, "b");
        let (c, of_c) = client(&mut server, "c");
        server.now += LEASE + s(1);
        let SequenceVerdict::Execute(running) = server.begin(&sequence_args(of_c, 0, 1), &facts()) else {
            panic!("it is new")
        };
        server.now += LEASE + s(1);
        let action = Some(Action::RemoveRecord { owner: "a".into() });
        assert_eq!(server.table.dislodge(server.now, &[a, c]), [Departed { client: a, action }]);
        assert_eq!(server.sequence(session, 0, 1), Err(NfsStat4::BadSession));
        assert!(
            server.table.clients().is_confirmed(b) && server.table.clients().is_confirmed(c),
            "busy is not silent"
        );
        server.table.finish(server.now, running, None);
    }

    #[test]
    fn a_client_whose_lock_others_wait_for_goes_with_its_lease() {
        struct Waited;
        impl Holdings for Waited {
            fn states(&self, _: ClientId4) -> u64 {
                1
            }
            fn is_waited_for(&self, _: ClientId4) -> bool {
                true
            }
        }
        let mut server = Fixture::new();
        let (a, _) = client(&mut server, "a");
        server.now += LEASE + s(1);
        assert_eq!(gone(&server.table.expire(server.now, &Waited)), [a]);
    }

    #[test]
    fn a_lapsed_client_makes_room_for_a_new_one_and_what_it_had_is_told() {
        let mut server = Fixture::with_limits(SessionLimits { clients_max: 2, ..SessionLimits::default() });
        let (a, _) = client(&mut server, "a");
        server.now += s(1);
        let (b, _) = client(&mut server, "b");
        assert_eq!(server.exchange_id("c", 1).unwrap_err(), NfsStat4::Delay);
        server.now += LEASE + s(1);
        client(&mut server, "c");
        assert!(!server.table.clients().is_confirmed(a) && server.table.clients().is_confirmed(b));
        let lapsed = server.table.expire(server.now, &ONE);
        assert_eq!((gone(&lapsed), lapsed.kept), (vec![a], vec![b]));
    }

    #[test]
    fn for_a_client_that_may_have_no_more_sessions_nobody_goes() {
        let bytes = u64::from(CHANNEL.maxresponsesize_cached) * u64::from(CHANNEL.maxrequests);
        let limits = SessionLimits {
            reply_cache_bytes_max: 2 * bytes,
            sessions_per_client_max: 1,
            ..SessionLimits::default()
        };
        let mut server = Fixture::with_limits(limits);
        let (a, _) = client(&mut server, "a");
        let (b, _) = client(&mut server, "b");
        server.now += LEASE + s(1);
        assert_eq!(server.create_session(b, 2), Err(NfsStat4::NoSpc));
        assert!(server.table.clients().is_confirmed(a), "it has made no room for anybody");
    }

    #[test]
    fn a_lapsed_client_gives_its_part_of_the_reply_cache_to_a_client_that_would_get_none() {
        let bytes = u64::from(CHANNEL.maxresponsesize_cached) * u64::from(CHANNEL.maxrequests);
        let mut server =
            Fixture::with_limits(SessionLimits { reply_cache_bytes_max: bytes, ..SessionLimits::default() });
        let (a, _) = client(&mut server, "a");
        let b = server.exchange_id("b", 1).unwrap().clientid;
        assert_eq!(server.create_session(b, 1), Err(NfsStat4::Delay));
        server.now += LEASE;
        let b = server.exchange_id("b", 1).unwrap().clientid;
        server.now += s(1);
        assert_eq!(server.create_session(b, 1).unwrap().fore_chan_attrs.maxrequests, CHANNEL.maxrequests);
        assert_eq!(gone(&server.table.expire(server.now, &ONE)), [a]);
    }
}
