//! The lowest term whose tickets to write a pool honours.
//!
//! A client that stays away while the head starts anew may keep a ticket to write that the new head knows nothing of, so
//! that it cannot be fenced off when the client's lease ends. So when the time to reclaim is over the floor is raised to the
//! term of the new head, and writes by older tickets that are under way are waited for: what is granted after that is
//! not overwritten by them. Tickets to read are not judged by their term: with one replica of a file they show what is there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Term, TicketError};

/// Ends the tickets to write that clients got before this start of the head.
#[async_trait]
pub trait FormerTickets: Send + Sync {
    /// From now on every pool refuses them, also after a restart, and no write by one of them is under way. An error says
    /// why it cannot be done now; a repetition may succeed.
    async fn void(&self) -> Result<(), String>;
}

#[derive(Debug)]
pub struct TermFloor {
    floor: AtomicU64,
    /// Of the head of now.
    newest: AtomicU64,
    /// Writes under way by tickets of former terms. Held while the floor is raised. Leaf lock.
    writes: Mutex<BTreeMap<Term, usize>>,
    /// Writes of the newest term are counted too: another term may begin while they are under way.
    outlives_terms: bool,
}

/// A write under way by a ticket of a former term. It is over when the last of the bytes that it goes with is dropped: a pool
/// may write them when nobody waits for its answer any more.
#[derive(Debug)]
#[must_use = "the write is over when this is dropped"]
pub struct WritePass {
    floor: Arc<TermFloor>,
    term: Term,
}

impl WritePass {
    pub fn go_with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Passed { bytes, _pass: self })
    }
}

struct Passed {
    bytes: Bytes,
    _pass: WritePass,
}

impl AsRef<[u8]> for Passed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl TermFloor {
    /// Of a pool whose process ends with the head. Tickets whose term was not counted are below it.
    pub fn new() -> Arc<TermFloor> {
        TermFloor::of(false)
    }

    /// Of a pool that goes on while heads come and go.
    pub fn outliving_terms() -> Arc<TermFloor> {
        TermFloor::of(true)
    }

    fn of(outlives_terms: bool) -> Arc<TermFloor> {
        let first = || AtomicU64::new(Term::FIRST.0);
        let writes = Mutex::default();
        Arc::new(TermFloor { floor: first(), newest: first(), writes, outlives_terms })
    }

    pub fn admits(&self, term: Term) -> bool {
        term.0 >= self.floor.load(Ordering::Acquire)
    }

    /// The lowest term that is admitted.
    pub fn lowest(&self) -> Term {
        Term(self.floor.load(Ordering::Acquire))
    }

    /// The term in which the head seals, as far as it is known here.
    pub fn newest(&self) -> Term {
        Term(self.newest.load(Ordering::Acquire))
    }

    /// The term in which the head seals from now on.
    pub fn begin_term(&self, term: Term) {
        self.newest.fetch_max(term.0, Ordering::AcqRel);
    }

    /// `None`: the ticket is of the term of now, and its writes are not waited for.
    pub fn begin_write(self: &Arc<Self>, term: Term) -> Result<Option<WritePass>, TicketError> {
        let is_former = term.0 < self.newest.load(Ordering::Acquire);
        let mut writes = (is_former || self.outlives_terms).then(|| self.writes());
        if !self.admits(term) {
            return Err(TicketError::FormerTerm);
        }
        Ok(writes.as_mut().map(|writes| {
            *writes.entry(term).or_default() += 1;
            WritePass { floor: Arc::clone(self), term }
        }))
    }

    /// It does not go back.
    pub fn raise(&self, term: Term) {
        let _writes = self.writes();
        self.floor.fetch_max(term.0, Ordering::AcqRel);
    }

    /// Whether no write by a ticket below the floor is under way.
    pub fn is_settled(&self) -> bool {
        self.writes().keys().all(|term| self.admits(*term))
    }

    fn writes(&self) -> MutexGuard<'_, BTreeMap<Term, usize>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WritePass {
    fn drop(&mut self) {
        let mut writes = self.floor.writes();
        let Some(count) = writes.get_mut(&self.term) else { return };
        *count -= 1;
        if *count == 0 {
            writes.remove(&self.term);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its process does not end with the head, as that of a pool of the head's own does.
    #[test]
    fn a_write_of_a_term_that_ends_while_it_is_under_way_is_waited_for() {
        let floor = TermFloor::outliving_terms();
        let under_way = floor.begin_write(Term(1)).unwrap();
        floor.begin_term(Term(2));
        floor.raise(Term(2));
        assert!(!floor.is_settled());
        drop(under_way);
        assert!(floor.is_settled());
    }

    #[test]
    fn a_write_below_the_floor_is_refused_and_one_under_way_is_waited_for() {
        let floor = TermFloor::new();
        assert!(!floor.admits(Term::UNCOUNTED) && floor.admits(Term(1)));
        floor.begin_term(Term(2));
        let former = floor.begin_write(Term(1)).unwrap().expect("it is waited for");
        assert!(floor.begin_write(Term(2)).unwrap().is_none());
        floor.raise(Term(2));
        assert!(!floor.is_settled(), "a write of term 1 is under way");
        assert_eq!(floor.begin_write(Term(1)).unwrap_err(), TicketError::FormerTerm);
        drop(former);
        assert!(floor.is_settled());
        floor.raise(Term(1));
        assert!(!floor.admits(Term(1)) && floor.admits(Term(2)), "it does not go back");
    }
}
