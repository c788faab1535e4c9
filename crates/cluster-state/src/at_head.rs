//! A pool as the head sees it.
//!
//! A pool that was passed over gets no lease before it has made up for it: it has confirmed the fences that it missed, and it
//! has settled its writes below the floor of terms. The lease is all that a pool needs to write, so this order is all that the
//! head needs to go on without it.

use std::time::Duration;

use api::Term;
use types::{Epoch, FileId};

use crate::{Arrival, Full, HeadLease, HeldTerms, LeaseRules, Refusal, Standing, Terms};

/// A session of a pool with this head: from a HELLO to the next one, or to the loss of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

/// The head's answer to a pool that asks for its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// From the moment at which the pool asked.
    Lease(Duration),
    /// Not now: the pool has missed something, which it is told.
    NotYet {
        /// Fences, which are to be delivered.
        has_missed: bool,
    },
    /// The session is over: the pool is to say hello again.
    Unknown,
}

#[derive(Debug)]
pub struct PoolAtHead {
    lease: HeadLease,
    sessions: u64,
    session: Option<SessionId>,
    /// The pool said in its HELLO that it holds a lease.
    had_lease: bool,
    /// Of the head, as the pool was told it last.
    term: Term,
    /// The pool gets a lease when it has settled its writes below this floor. It does not go back.
    due: Term,
    /// The highest floor below which the pool has settled its writes; never above [`due`](Self::due).
    ///
    /// It outlives the session, and is not asked for again. The process that told it admits no ticket below it as long as it
    /// runs. Another process, on this directory or on a copy of it, gets no lease before it has settled its writes below `due`.
    /// A disk that was put back changes nothing: the floor is in the memory of the process, and a process begins without a
    /// lease. A head that starts anew asks again.
    settled: Term,
}

impl PoolAtHead {
    /// Of a pool that may have a lease of an earlier start, which was no longer than `longest`.
    pub fn new(rules: LeaseRules, longest: Duration, now: Duration) -> PoolAtHead {
        PoolAtHead {
            lease: HeadLease::new(rules, longest, now),
            sessions: 0,
            session: None,
            had_lease: false,
            term: Term::UNCOUNTED,
            due: Term::UNCOUNTED,
            settled: Term::UNCOUNTED,
        }
    }

    /// A HELLO has come: a session begins, and the one before is over.
    pub fn connect(&mut self, arrival: Arrival, now: Duration) -> Result<SessionId, Refusal> {
        self.lease.connect(arrival, now)?;
        self.sessions += 1;
        let session = SessionId(self.sessions);
        (self.session, self.had_lease) = (Some(session), arrival.has_lease);
        Ok(session)
    }

    /// The answer to the HELLO. `terms` are looked up after [`connect`](PoolAtHead::connect): a floor that is raised later is
    /// waited for.
    pub fn welcome(&mut self, terms: Terms) -> Terms {
        // A pool without a lease may have been passed over by a head of before, whose fences are forgotten.
        let floor = if self.had_lease { terms.floor } else { terms.term };
        (self.term, self.due) = (terms.term, self.due.max(floor));
        Terms { floor: self.due, ..terms }
    }

    pub fn renew(&mut self, session: SessionId, held: HeldTerms, now: Duration) -> Renewal {
        if self.session != Some(session) {
            return Renewal::Unknown;
        }
        self.note_settled(held);
        self.lease.hear(now);
        // A write below the floor may be under way as long as it is not settled, and be that of a client that was fenced off.
        if !held.have_settled(self.due) {
            return Renewal::NotYet { has_missed: false };
        }
        match self.lease.renew(now) {
            Some(lease) => Renewal::Lease(lease),
            None => Renewal::NotYet { has_missed: true },
        }
    }

    fn note_settled(&mut self, held: HeldTerms) {
        // A pool that has seen later terms, of a head whose directory was put back since, is to take the tickets of this one.
        let floor = held.terms.floor.min(self.term);
        if held.have_settled(floor) {
            self.settled = self.settled.max(floor);
            self.due = self.due.max(floor);
        }
    }

    /// The pool has said that it takes no writes any more. `false`: a process of before said so.
    pub fn end(&mut self, session: SessionId, now: Duration) -> bool {
        let is_of_now = self.session == Some(session);
        if is_of_now {
            self.lease.end(now);
        }
        is_of_now
    }

    /// A connection of the session is lost.
    pub fn disconnect(&mut self, session: SessionId) {
        if self.session == Some(session) {
            self.session = None;
            self.lease.disconnect();
        }
    }

    /// The pool refuses tickets to write below the floor, and no write by one of them is under way there; or it has no lease,
    /// and gets none before that is so. It stays so.
    pub fn has_floor(&mut self, floor: Term, now: Duration) -> bool {
        if self.settled >= floor {
            return true;
        }
        let is_passed_over = self.lease.is_over(now);
        if is_passed_over {
            // Its session may be as old as its tickets: a write that waits there for a lease is not to get one.
            self.due = self.due.max(floor);
        }
        is_passed_over
    }

    /// Before the pool is told: from here on it is delivered before the pool gets a lease again.
    pub fn fence(&mut self, files: &[(FileId, Epoch)], now: Duration) -> Result<(), Full> {
        self.lease.fence(files, now)
    }

    /// The head may go on: the pool has confirmed the fences, or its lease is over.
    pub fn is_fenced(&self, files: &[(FileId, Epoch)], now: Duration) -> bool {
        self.lease.is_over(now) || files.iter().all(|(file, epoch)| !self.lease.misses(*file, *epoch))
    }

    /// The pool has these on disk.
    pub fn confirm(&mut self, files: &[(FileId, Epoch)]) {
        self.lease.confirm(files);
    }

    /// The head may change data at the pool. Where the head went on without the pool, a write that it went past may be under way
    /// there until the pool has made up for it, and is not to come after a change of the head.
    pub fn takes_changes(&self, now: Duration) -> bool {
        !self.lease.is_over(now) || (self.settled >= self.due && self.lease.missed_count() == 0)
    }

    pub fn standing(&self, now: Duration) -> Standing {
        self.lease.standing(now)
    }

    pub fn lease(&self) -> &HeadLease {
        &self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;

    const RULES: LeaseRules = LeaseRules { lease: Duration::from_secs(10), suspect: Duration::from_secs(3) };
    const FILE: FileId = FileId(7);
    const TERMS: Terms = Terms { term: Term(2), floor: Term(1) };
    const LEASE: Renewal = Renewal::Lease(RULES.lease);
    const NOT_SETTLED: Renewal = Renewal::NotYet { has_missed: false };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn arrival(starts: u64, has_lease: bool) -> Arrival {
        Arrival { process: Process { starts, draw: starts }, has_lease }
    }

    fn held(floor: u64, is_settled: bool) -> HeldTerms {
        HeldTerms { terms: Terms { term: Term(2), floor: Term(floor) }, is_settled }
    }

    fn pool() -> PoolAtHead {
        PoolAtHead::new(RULES, RULES.lease, s(0))
    }

    #[test]
    fn a_pool_without_a_lease_takes_the_floor_of_the_new_term_first() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, false), s(0)).unwrap();
        assert_eq!(pool.welcome(TERMS).floor, Term(2));
        assert_eq!(pool.renew(session, held(1, true), s(0)), NOT_SETTLED);
        assert_eq!(pool.renew(session, held(2, false), s(0)), NOT_SETTLED, "a write of term 1 is under way");
        assert_eq!(pool.renew(session, held(2, true), s(0)), LEASE);
    }

    #[test]
    fn a_pool_with_a_lease_keeps_tickets_of_the_former_term() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, true), s(1)).unwrap();
        assert_eq!(pool.welcome(TERMS).floor, Term(1));
        assert_eq!(pool.renew(session, held(1, true), s(1)), LEASE);
        assert!(!pool.has_floor(Term(2), s(2)));
        assert_eq!(pool.renew(session, held(2, false), s(2)), NOT_SETTLED, "a write of term 1 is under way");
        assert!(!pool.has_floor(Term(2), s(2)));
        assert_eq!(pool.renew(session, held(2, true), s(3)), LEASE);
        assert!(pool.has_floor(Term(2), s(3)));
    }

    /// A write of term 1 waits at the pool for a lease: with one it would be done after the head has gone on.
    #[test]
    fn a_pool_that_was_passed_over_for_a_floor_gets_no_lease_before_it_has_settled_it() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, true), s(1)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(1, true), s(1)), LEASE);
        pool.fence(&[(FILE, Epoch(5))], s(2)).unwrap();
        assert_eq!(pool.renew(session, held(1, true), s(8)), Renewal::NotYet { has_missed: true });
        assert!(!pool.has_floor(Term(2), s(11)));
        assert!(pool.has_floor(Term(2), s(12)), "its lease is over");
        pool.confirm(&[(FILE, Epoch(5))]);
        assert_eq!(pool.renew(session, held(1, true), s(13)), NOT_SETTLED);
        assert_eq!(pool.renew(session, held(2, false), s(13)), NOT_SETTLED);
        assert_eq!(pool.renew(session, held(2, true), s(14)), LEASE);
    }

    #[test]
    fn a_pool_that_was_passed_over_is_told_the_floor_by_its_next_welcome() {
        let mut pool = pool();
        assert!(pool.has_floor(Term(2), s(11)));
        pool.connect(arrival(1, true), s(12)).unwrap();
        assert_eq!(pool.welcome(TERMS).floor, Term(2));
    }

    /// Pools that connect anew in turn do not put off the end of the grace period.
    #[test]
    fn a_pool_that_has_settled_a_floor_is_not_waited_for_again_when_it_connects_anew() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, true), s(1)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(2, false), s(1)), NOT_SETTLED);
        assert!(!pool.has_floor(Term(2), s(1)), "a write of term 1 is under way");
        assert_eq!(pool.renew(session, held(2, true), s(1)), LEASE);
        pool.disconnect(session);
        assert!(pool.has_floor(Term(2), s(2)));
        let session = pool.connect(arrival(1, true), s(2)).unwrap();
        assert!(pool.has_floor(Term(2), s(2)));
        assert_eq!(pool.welcome(TERMS).floor, Term(2));
        assert!(pool.has_floor(Term(2), s(2)));
        assert_eq!(pool.renew(session, held(1, true), s(2)), NOT_SETTLED);
        assert!(pool.has_floor(Term(2), s(2)), "it does not go back");
        assert_eq!(pool.renew(session, held(2, true), s(2)), LEASE);
        // Another process, or one on a copy of the directory, says wrongly that it has a lease.
        let other = pool.connect(arrival(2, true), s(3)).unwrap();
        assert!(pool.has_floor(Term(2), s(3)));
        assert_eq!(pool.welcome(TERMS).floor, Term(2));
        assert_eq!(pool.renew(other, held(1, true), s(3)), NOT_SETTLED);
        assert!(pool.has_floor(Term(2), s(3)));
    }

    /// The head's directory was put back: its terms begin again below those that the pool has seen.
    #[test]
    fn a_floor_above_the_term_of_the_head_is_required_of_no_other_process() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, true), s(1)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(9, true), s(1)), LEASE);
        assert!(pool.has_floor(Term(2), s(1)) && !pool.has_floor(Term(3), s(1)));
        pool.connect(arrival(2, false), s(2)).unwrap();
        assert_eq!(pool.welcome(TERMS).floor, Term(2), "it admits tickets of the head");
    }

    #[test]
    fn requests_of_an_earlier_session_change_nothing() {
        let mut pool = pool();
        let earlier = pool.connect(arrival(1, false), s(0)).unwrap();
        pool.welcome(TERMS);
        let later = pool.connect(arrival(2, false), s(1)).unwrap();
        assert!(earlier < later);
        assert_eq!(pool.renew(earlier, held(2, true), s(1)), Renewal::Unknown);
        assert_eq!(pool.renew(later, held(2, true), s(1)), LEASE);
        assert!(!pool.end(earlier, s(2)) && !pool.lease().is_over(s(2)));
        pool.disconnect(earlier);
        assert_eq!(pool.standing(s(2)), Standing::Ready);
        pool.disconnect(later);
        assert_eq!(pool.standing(s(2)), Standing::Suspect);
        assert_eq!(pool.renew(later, held(2, true), s(2)), Renewal::Unknown);
    }

    /// Files that are fenced again and again hold up no earlier call.
    #[test]
    fn the_head_goes_on_after_fences_that_were_confirmed_one_after_the_other() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, false), s(0)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(2, true), s(0)), LEASE);
        let (first, second) = ((FILE, Epoch(5)), (FileId(8), Epoch(5)));
        pool.fence(&[first, second], s(1)).unwrap();
        pool.confirm(&[first]);
        pool.fence(&[(FILE, Epoch(6))], s(2)).unwrap();
        assert!(!pool.is_fenced(&[first, second], s(2)), "the second is not confirmed");
        pool.confirm(&[second]);
        assert!(pool.is_fenced(&[first, second], s(2)) && !pool.is_fenced(&[(FILE, Epoch(6))], s(2)));
        pool.fence(&[(FILE, Epoch(7))], s(3)).unwrap();
        pool.confirm(&[(FILE, Epoch(6))]);
        assert!(pool.is_fenced(&[(FILE, Epoch(6))], s(3)) && !pool.is_fenced(&[(FILE, Epoch(7))], s(3)));
    }

    /// Calls overtake each other.
    #[test]
    fn a_fence_that_comes_behind_a_later_one_of_its_file_is_waited_for() {
        let mut pool = pool();
        pool.fence(&[(FILE, Epoch(6))], s(1)).unwrap();
        pool.fence(&[(FILE, Epoch(5))], s(1)).unwrap();
        assert!(!pool.is_fenced(&[(FILE, Epoch(5))], s(1)));
        pool.confirm(&[(FILE, Epoch(5))]);
        assert!(pool.is_fenced(&[(FILE, Epoch(5))], s(1)) && !pool.is_fenced(&[(FILE, Epoch(6))], s(1)));
        pool.confirm(&[(FILE, Epoch(6))]);
        assert!(pool.is_fenced(&[(FILE, Epoch(6))], s(1)));
    }

    /// A client's write hangs at the pool: the head may have gone past it by the fence or by the floor.
    #[test]
    fn changes_of_the_head_wait_until_a_pool_that_was_passed_over_has_made_up_for_it() {
        let mut pool = pool();
        let fence = [(FILE, Epoch(5))];
        let session = pool.connect(arrival(1, true), s(1)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(1, true), s(1)), LEASE);
        pool.fence(&fence, s(2)).unwrap();
        assert!(pool.takes_changes(s(11)), "the fence is waited for");
        assert!(pool.is_fenced(&fence, s(12)) && !pool.takes_changes(s(12)));
        pool.confirm(&fence);
        assert!(pool.takes_changes(s(12)));
        assert!(pool.has_floor(Term(2), s(13)) && !pool.takes_changes(s(13)));
        assert_eq!(pool.renew(session, held(2, false), s(13)), NOT_SETTLED);
        assert!(!pool.takes_changes(s(13)));
        assert_eq!(pool.renew(session, held(2, true), s(14)), LEASE);
        assert!(pool.takes_changes(s(14)));
    }

    #[test]
    fn the_head_goes_on_after_a_fence_when_it_is_confirmed_or_the_lease_is_over() {
        let mut pool = pool();
        let session = pool.connect(arrival(1, false), s(0)).unwrap();
        pool.welcome(TERMS);
        assert_eq!(pool.renew(session, held(2, true), s(0)), LEASE);
        let fence = [(FILE, Epoch(5))];
        pool.fence(&fence, s(1)).unwrap();
        assert!(!pool.is_fenced(&fence, s(10)) && pool.is_fenced(&fence, s(11)));
        pool.confirm(&fence);
        assert!(pool.is_fenced(&fence, s(1)));
    }
}
