//! The files in which owners wait for byte ranges: what to look at next, and counts of the waiters.
//!
//! The waiters themselves stand with the locks of their file. Invariant: a file is in `files` while anybody waits in it,
//! and the count of a holder is the sum over its waiters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use types::FileId;

use crate::locks::{FileLocks, Waiter};
use crate::{Holder, Owner};

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Files with waiters in which something was released that nobody was told of yet.
    stirred: BTreeSet<FileId>,
    /// Of those the one that was looked at last.
    turn: Option<FileId>,
    /// Files whose waiters were told, by when those should have come.
    told: BTreeSet<(Duration, FileId)>,
    counts: BTreeMap<Holder, usize>,
    /// Those in which anybody waits.
    files: BTreeSet<FileId>,
    /// Owners of waiters that are none any more, until somebody asks.
    forgotten: Vec<Owner>,
}

impl Waiting {
    /// Those in which anybody waits.
    pub fn files(&self) -> &BTreeSet<FileId> {
        &self.files
    }

    /// The number of waiters of all files.
    pub fn count(&self) -> usize {
        self.counts.values().sum()
    }

    pub fn of_holder(&self, holder: Holder) -> usize {
        self.counts.get(&holder).copied().unwrap_or(0)
    }

    /// But for times to come, which pass by themselves.
    pub fn is_empty(&self) -> bool {
        self.stirred.is_empty() && self.counts.is_empty() && self.files.is_empty()
    }

    /// The holder waits for one lock more in the file.
    pub fn add(&mut self, file: FileId, holder: Holder) {
        self.files.insert(file);
        *self.counts.entry(holder).or_default() += 1;
    }

    /// Something may have been released in the file: those who wait for it are to be looked at.
    pub fn stir(&mut self, file: FileId, locks: &FileLocks) {
        if locks.is_stirred() {
            self.stirred.insert(file);
        }
    }

    /// Waiters of the file were told, and should have come by then.
    pub fn told(&mut self, until: Duration, file: FileId) {
        self.told.insert((until, file));
    }

    /// Takes a file whose waiters should have come by now.
    pub fn next_overdue(&mut self, now: Duration) -> Option<FileId> {
        let (until, file) = self.told.first().copied().filter(|(until, _)| *until <= now)?;
        self.told.remove(&(until, file));
        Some(file)
    }

    /// Takes the stirred file whose turn it is.
    pub fn next_stirred(&mut self) -> Option<FileId> {
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.stirred.range((after, Bound::Unbounded)).next().or_else(|| self.stirred.first());
        self.turn = next.copied();
        self.turn.inspect(|file| {
            self.stirred.remove(file);
        })
    }

    #[cfg(test)]
    pub fn is_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// Forgets who will not come. If it was told it was in the way of others.
    pub fn give_up(&mut self, file: FileId, locks: &mut FileLocks, which: impl Fn(&Waiter) -> bool) {
        if locks.waiters().is_empty() {
            return;
        }
        locks.make_way(&which);
        self.forget(file, locks, which);
        self.stir(file, locks);
    }

    pub fn forget(&mut self, file: FileId, locks: &mut FileLocks, which: impl Fn(&Waiter) -> bool) {
        if locks.waiters().is_empty() {
            return;
        }
        for owner in locks.forget_waiters(which) {
            let count = self.counts.get_mut(&owner.holder).expect("a waiter was counted when it came");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&owner.holder);
            }
            self.forgotten.push(owner);
        }
        if locks.waiters().is_empty() {
            self.stirred.remove(&file);
            self.files.remove(&file);
        }
    }

    pub fn take_forgotten(&mut self) -> Vec<Owner> {
        std::mem::take(&mut self.forgotten)
    }
}
