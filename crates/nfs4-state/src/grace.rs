//! The grace period after a restart (RFC 8881 §8.4.2) and the records that make it safe.
//!
//! A record says that a client may hold state. It is written when the client says RECLAIM_COMPLETE (before that it may
//! obtain nothing but what it reclaims, RFC 8881 §18.51.3) and removed when its state is gone. Only clients with a
//! record may reclaim, so that one whose lock went to somebody else before a second restart cannot take it back (the
//! edge conditions of RFC 8881 §8.4.2.1). Records of clients that did not come back cease to entitle before the grace
//! period ends, which is why it ends in two steps: [`Grace::due`] names these clients, [`Grace::ended`] ends the
//! period. In between the shell ends the tickets to write that clients got before the restart.
//!
//! A client that is reclaiming when the time is over may go on: as long as reclaims come one after the other the end
//! waits, at most for the length of the period again (RFC 8881 §8.4.2 leaves the length to the server; Linux does so).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

/// A client that a former instance of the server knew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownClient {
    /// `co_ownerid`.
    pub owner: Bytes,
    /// It may have held state when the former instance stopped. `false`: it had restarted and obtained nothing since.
    pub may_reclaim: bool,
}

/// The longest pause between two reclaims, of one client or of different ones, that puts the end off.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Grace {
    state: State,
    length: Duration,
    /// When somebody reclaimed last.
    heard: Option<Duration>,
    /// Owners that may reclaim, and whether they have said RECLAIM_COMPLETE since.
    known: BTreeMap<Bytes, bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Until(Duration),
    /// The records to be changed have been told; the shell is changing them.
    Ending,
    Over,
}

impl Grace {
    /// Without anybody who could reclaim there is no grace period.
    pub(crate) fn new(now: Duration, length: Duration, known: Vec<KnownClient>) -> Grace {
        let known: BTreeMap<Bytes, bool> = known
            .into_iter()
            .filter(|client| client.may_reclaim)
            .map(|client| (client.owner, false))
            .collect();
        let state = if known.is_empty() { State::Over } else { State::Until(now.saturating_add(length)) };
        Grace { state, length, heard: None, known }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state != State::Over
    }

    /// Until its end begins.
    pub(crate) fn is_awaiting(&self) -> bool {
        matches!(self.state, State::Until(_))
    }

    pub(crate) fn remaining(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Until(end) => Some(self.postponed(end).saturating_sub(now)),
            State::Ending => Some(Duration::ZERO),
            State::Over => None,
        }
    }

    /// Whether the owner may reclaim: not once the end has begun, for its record may be gone.
    pub(crate) fn may_reclaim(&mut self, owner: &Bytes, now: Duration) -> bool {
        let may = matches!(self.state, State::Until(_)) && self.known.get(owner) == Some(&false);
        if may {
            self.heard = Some(now);
        }
        may
    }

    fn postponed(&self, end: Duration) -> Duration {
        let wanted = self.heard.map_or(end, |heard| heard.saturating_add(PAUSE));
        wanted.clamp(end, end.saturating_add(self.length))
    }

    pub(crate) fn reclaimed(&mut self, owner: &Bytes) {
        if let Some(complete) = self.known.get_mut(owner) {
            *complete = true;
        }
    }

    /// Once, when the time is over or everybody has come back: the owners that may reclaim no more.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Vec<Bytes>> {
        let State::Until(end) = self.state else { return None };
        if now < self.postponed(end) && self.known.values().any(|complete| !complete) {
            return None;
        }
        self.state = State::Ending;
        let known = std::mem::take(&mut self.known).into_iter();
        Some(known.filter(|(_, complete)| !complete).map(|(owner, _)| owner).collect())
    }

    /// The records of the owners in [`due`](Self::due) no longer entitle them.
    pub(crate) fn ended(&mut self) {
        assert!(self.state == State::Ending, "the grace period ends after its records were told");
        self.state = State::Over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn known(owner: &'static str) -> KnownClient {
        KnownClient { owner: Bytes::from_static(owner.as_bytes()), may_reclaim: true }
    }

    #[test]
    fn a_server_that_knew_nobody_has_no_grace_period() {
        assert!(!Grace::new(s(0), s(90), vec![]).is_on());
        let restarted = KnownClient { may_reclaim: false, ..known("a") };
        assert!(!Grace::new(s(0), s(90), vec![restarted]).is_on());
    }

    #[test]
    fn grace_ends_early_when_all_known_clients_have_reclaimed() {
        let mut grace = Grace::new(s(5), s(90), vec![known("a"), known("b")]);
        grace.reclaimed(&known("a").owner);
        assert_eq!(grace.due(s(6)), None);
        assert!(!grace.may_reclaim(&known("a").owner, s(6)) && grace.may_reclaim(&known("b").owner, s(6)));
        grace.reclaimed(&known("b").owner);
        grace.reclaimed(&known("stranger").owner);
        assert_eq!(grace.due(s(6)), Some(vec![]));
        assert!(grace.is_on() && !grace.is_awaiting(), "until the records are changed");
        grace.ended();
        assert!(!grace.is_on());
    }

    #[test]
    fn a_client_that_is_not_back_may_not_reclaim_before_grace_ends() {
        let mut grace = Grace::new(s(5), s(90), vec![known("a"), known("b")]);
        grace.reclaimed(&known("a").owner);
        assert_eq!((grace.due(s(94)), grace.remaining(s(94))), (None, Some(s(1))));
        assert!(grace.is_awaiting());
        assert_eq!(grace.due(s(95)), Some(vec![known("b").owner]));
        assert!(!grace.is_awaiting());
        assert!(!grace.may_reclaim(&known("b").owner, s(96)));
        assert_eq!(grace.due(s(96)), None, "told once");
    }

    #[test]
    fn a_stranger_may_not_reclaim() {
        let mut grace = Grace::new(s(0), s(90), vec![known("a")]);
        assert!(!grace.may_reclaim(&known("stranger").owner, s(89)));
        assert_eq!(grace.remaining(s(89)), Some(s(1)), "a stranger does not put the end off");
    }

    #[test]
    fn the_end_waits_for_reclaiming_clients_and_not_for_ever() {
        let a = known("a").owner;
        let mut grace = Grace::new(s(0), s(10), vec![known("a"), known("b")]);
        for now in 9..20 {
            assert!(grace.may_reclaim(&a, s(now)), "{now}");
            assert_eq!(grace.due(s(now)), None, "{now}");
        }
        assert_eq!((grace.remaining(s(19)), grace.due(s(20))), (Some(s(1)), Some(vec![a, known("b").owner])));

        let mut grace = Grace::new(s(0), s(10), vec![known("a")]);
        assert!(grace.may_reclaim(&known("a").owner, s(9)));
        assert_eq!(
            (grace.due(s(10)), grace.due(s(11))),
            (None, Some(vec![known("a").owner])),
            "it has ceased"
        );
    }
}
