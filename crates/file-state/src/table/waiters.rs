//! Waiters for byte ranges, over all files: those that a release lets through, and when they are notified.
//!
//! A waiter is notified once and then has a time to come. If it is refused again it keeps its place in the queue; if it
//! does not come it is forgotten and the next are notified, so a client that went away keeps no others waiting.
//!
//! All callers wait while the table is locked, so the cost of one look through waiters has a bound. The others are
//! looked at the next time: files in turn, and of a file all waiters that are due before any a second time.

use std::collections::BTreeSet;
use std::time::Duration;

use types::{ByteRange, FileId};

use super::entries::Entries;
use crate::limits::Limits;
use crate::locks::Budget;
use crate::{LockKind, Owner};

/// Files looked at in one go, and waiters of all of them.
pub(super) const LOOKS: usize = 64;
/// So much looking at locks is done in a fraction of a millisecond; LOCK itself looks at all of a file's.
pub(super) const LOCKS_LOOKED_AT: usize = 1 << 14;

/// An owner that may have the lock now that it was refused, if it comes soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockNotice {
    pub file: FileId,
    pub owner: Owner,
}

/// Owners that were refused a lock and wait for it.
pub struct Waiters<'a> {
    pub(super) limits: &'a Limits,
    pub(super) entries: &'a mut Entries,
}

impl Waiters<'_> {
    /// Remembers an owner that was refused a lock just now. `false`: nothing new to remember, or no place for it.
    pub fn wait(&mut self, file: FileId, owner: Owner, range: ByteRange, kind: LockKind) -> bool {
        let of_holder = self.entries.waiting.of_holder(owner.holder);
        let Some(known) = self.entries.get_mut(file) else { return false };
        if known.locks.waits_on(owner, range, kind) {
            self.entries.stir(file);
            return false;
        }
        if known.locks.waiters().len() >= self.limits.waiters_per_file
            || of_holder >= self.limits.waiters_per_holder
        {
            return false;
        }
        known.locks.wait(owner, range, kind);
        self.entries.waiting.add(file, owner.holder);
        true
    }

    /// The waiters that releases since the last call let through, in the order in which they were refused. They have
    /// `patience` to come. If there are very many, later calls return the rest: it is to be called periodically.
    pub fn notices(&mut self, now: Duration, patience: Duration) -> Vec<LockNotice> {
        self.notices_within(Budget { waiters: LOOKS, locks: LOCKS_LOOKED_AT }, now, patience)
    }

    pub(super) fn notices_within(
        &mut self,
        mut budget: Budget,
        now: Duration,
        patience: Duration,
    ) -> Vec<LockNotice> {
        for _ in 0..LOOKS {
            let Some(file) = self.entries.waiting.next_overdue(now) else { break };
            self.entries.give_up(file, |waiter| waiter.told.is_some_and(|told| told <= now));
        }
        let mut notices: Vec<LockNotice> = Vec::new();
        for _ in 0..LOOKS {
            if budget.is_spent() {
                break;
            }
            let Some(file) = self.entries.waiting.next_stirred() else { break };
            let Some(known) = self.entries.get_mut(file) else { continue };
            let mut through = known.locks.let_through(now + patience, &mut budget);
            self.entries.stir(file);
            if through.is_empty() {
                continue;
            }
            self.entries.waiting.told(now + patience, file);
            // Once for all that an owner waits for.
            let mut seen = BTreeSet::new();
            through.retain(|owner| seen.insert(*owner));
            notices.extend(through.into_iter().map(|owner| LockNotice { file, owner }));
        }
        notices
    }

    /// The owner could not be told: it will ask by itself, and others come first.
    pub fn notice_unheard(&mut self, notice: LockNotice) {
        self.entries.give_up(notice.file, |waiter| waiter.owner == notice.owner && waiter.told.is_some());
    }

    /// Owners of waiters that were forgotten since, one for each `true` of [`Waiters::wait`].
    pub fn take_forgotten(&mut self) -> Vec<Owner> {
        self.entries.waiting.take_forgotten()
    }
}
