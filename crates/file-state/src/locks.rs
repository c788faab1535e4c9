//! Byte-range locks of one file, as POSIX has them: an owner has at most one lock on any byte; a new lock takes the place
//! of what the owner had on its range, splitting and merging as need be.
//!
//! Beside them stand the waiters: who was refused a lock and wants to hear when it might be had, in the order in which
//! they came. Nothing is kept free for them; they ask again as anybody does.

use std::collections::BTreeMap;
use std::time::Duration;

use types::ByteRange;

use crate::{Holder, Owner};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    Read,
    Write,
}

impl LockKind {
    fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Write || other == LockKind::Write
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub owner: Owner,
    pub range: ByteRange,
    pub kind: LockKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    range: ByteRange,
    kind: LockKind,
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Of each owner that has any: ascending, disjoint, and neighbours that touch differ in kind.
    owners: BTreeMap<Owner, Vec<Interval>>,
    count: usize,
    waiters: Vec<Waiter>,
}

/// A lock that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub owner: Owner,
    pub range: ByteRange,
    pub kind: LockKind,
    /// It was told that it may come, and should have come by then.
    pub told: Option<Duration>,
}

impl Waiter {
    fn is_in_the_way_of(&self, other: &Waiter) -> bool {
        self.owner != other.owner && self.range.overlaps(other.range) && self.kind.conflicts(other.kind)
    }
}

/// The locks of an owner as they would be after a change; not yet in force.
#[derive(Debug)]
pub(crate) struct Changed {
    owner: Owner,
    intervals: Vec<Interval>,
    /// By how many locks the owner has more or less.
    pub delta: isize,
}

impl Locks {
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.waiters.is_empty()
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn of(&self, owner: Owner) -> usize {
        self.owners.get(&owner).map_or(0, Vec::len)
    }

    pub fn owners_of(&self, holder: Holder) -> Vec<Owner> {
        let first = Owner { holder, number: 0 };
        let last = Owner { holder, number: u64::MAX };
        self.owners.range(first..=last).map(|(owner, _)| *owner).collect()
    }

    /// A lock of somebody else that stands in the way: of those that do the one that begins first.
    pub fn conflict(&self, owner: Option<Owner>, range: ByteRange, kind: LockKind) -> Option<Lock> {
        let others = self.owners.iter().filter(|(other, _)| Some(**other) != owner);
        let in_the_way = others.filter_map(|(other, intervals)| {
            let first = intervals.partition_point(|interval| interval.range.end() <= range.offset());
            let found = intervals[first..]
                .iter()
                .take_while(|interval| interval.range.offset() < range.end())
                .find(|interval| interval.kind.conflicts(kind))?;
            Some(Lock { owner: *other, range: found.range, kind: found.kind })
        });
        in_the_way.min_by_key(|lock| lock.range.offset())
    }

    /// The owner's locks with `kind` on all of `range`, or with none there. Others' locks are not looked at.
    pub fn change(&self, owner: Owner, range: ByteRange, kind: Option<LockKind>) -> Changed {
        let before = self.owners.get(&owner).map_or(&[][..], Vec::as_slice);
        let mut intervals = Vec::with_capacity(before.len() + 2);
        let mut push = |offset: u64, end: u64, kind: LockKind| {
            let Some(range) = ByteRange::from_bounds(offset, end) else { return };
            match intervals.last_mut() {
                Some(Interval { range: last, kind: same }) if *same == kind && last.end() == offset => {
                    *last = ByteRange::from_bounds(last.offset(), end).expect("two neighbours are not empty");
                }
                _ => intervals.push(Interval { range, kind }),
            }
        };
        let is_before = |interval: &&Interval| interval.range.offset() < range.offset();
        for interval in before.iter().take_while(is_before) {
            push(interval.range.offset(), interval.range.end().min(range.offset()), interval.kind);
        }
        if let Some(kind) = kind {
            push(range.offset(), range.end(), kind);
        }
        for interval in before.iter().filter(|interval| interval.range.end() > range.end()) {
            push(interval.range.offset().max(range.end()), interval.range.end(), interval.kind);
        }
        let delta = intervals.len() as isize - before.len() as isize;
        Changed { owner, intervals, delta }
    }

    pub fn apply(&mut self, changed: Changed) {
        self.count = self.count.checked_add_signed(changed.delta).expect("no more locks go than there were");
        if changed.intervals.is_empty() {
            self.owners.remove(&changed.owner);
        } else {
            self.owners.insert(changed.owner, changed.intervals);
        }
    }

    /// Drops all locks of an owner and says how many there were.
    pub fn release(&mut self, owner: Owner) -> usize {
        let released = self.owners.remove(&owner).map_or(0, |intervals| intervals.len());
        self.count -= released;
        released
    }

    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// A waiter that was refused again keeps its place; `false`: it is a new one.
    pub fn waits_on(&mut self, owner: Owner, range: ByteRange, kind: LockKind) -> bool {
        let known = self.waiters.iter_mut().find(|waiter| waiter.owner == owner && waiter.range == range);
        known.is_some_and(|waiter| {
            (waiter.kind, waiter.told) = (kind, None);
            true
        })
    }

    pub fn wait(&mut self, owner: Owner, range: ByteRange, kind: LockKind) {
        self.waiters.push(Waiter { owner, range, kind, told: None });
    }

    /// Those that could have their locks now, the first before those behind it, and were not told yet. They are told
    /// hereby.
    pub fn let_through(&mut self, until: Duration) -> Vec<Owner> {
        let mut through: Vec<Waiter> = Vec::new();
        let mut told = Vec::new();
        let mut waiters = std::mem::take(&mut self.waiters);
        for waiter in &mut waiters {
            let comes_later = through.iter().any(|earlier| earlier.is_in_the_way_of(waiter));
            if comes_later || self.conflict(Some(waiter.owner), waiter.range, waiter.kind).is_some() {
                continue;
            }
            through.push(*waiter);
            if waiter.told.is_none() {
                waiter.told = Some(until);
                told.push(waiter.owner);
            }
        }
        self.waiters = waiters;
        told
    }

    /// Forgets waiters and says whose they were.
    pub fn forget_waiters(&mut self, which: impl Fn(&Waiter) -> bool) -> Vec<Owner> {
        let mut forgotten = Vec::new();
        self.waiters.retain(|waiter| {
            let goes = which(waiter);
            if goes {
                forgotten.push(waiter.owner);
            }
            !goes
        });
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Door;

    const OWNER: Owner = owner(1);

    const fn owner(holder: u64) -> Owner {
        Owner { holder: Holder::of(Door::Nfs, holder), number: 1 }
    }

    fn range(offset: u64, end: u64) -> ByteRange {
        ByteRange::from_bounds(offset, end).unwrap()
    }

    fn locks(steps: &[(u64, u64, Option<LockKind>)]) -> Vec<(u64, u64, LockKind)> {
        let mut locks = Locks::default();
        for (offset, end, kind) in steps {
            locks.apply(locks.change(OWNER, range(*offset, *end), *kind));
        }
        let intervals = locks.owners.get(&OWNER).cloned().unwrap_or_default();
        assert_eq!(locks.count, intervals.len());
        intervals.iter().map(|i| (i.range.offset(), i.range.end(), i.kind)).collect()
    }

    use LockKind::{Read, Write};

    #[test]
    fn unlocking_the_middle_splits() {
        assert_eq!(locks(&[(0, 30, Some(Read)), (10, 20, None)]), [(0, 10, Read), (20, 30, Read)]);
    }

    #[test]
    fn neighbours_of_one_kind_merge() {
        assert_eq!(
            locks(&[(0, 10, Some(Read)), (20, 30, Some(Read)), (10, 20, Some(Read))]),
            [(0, 30, Read)]
        );
        assert_eq!(locks(&[(10, 20, Some(Read)), (0, 10, Some(Write))]), [(0, 10, Write), (10, 20, Read)]);
    }

    #[test]
    fn upgrading_the_middle_leaves_the_rest() {
        assert_eq!(
            locks(&[(0, u64::MAX, Some(Read)), (5, 6, Some(Write))]),
            [(0, 5, Read), (5, 6, Write), (6, u64::MAX, Read)]
        );
    }

    #[test]
    fn the_conflict_that_begins_first_is_told() {
        let mut locks = Locks::default();
        let other = owner(2);
        locks.apply(locks.change(other, range(20, 30), Some(Write)));
        locks.apply(locks.change(OWNER, range(5, 10), Some(Read)));
        let third = Some(owner(3));
        assert_eq!(locks.conflict(third, range(0, 100), Write).unwrap().range, range(5, 10));
        assert_eq!(locks.conflict(third, range(0, 100), Read).unwrap().range, range(20, 30));
        assert_eq!(locks.conflict(third, range(10, 20), Write), None);
        assert_eq!(locks.conflict(Some(other), range(10, 100), Write), None);
        assert_eq!(locks.conflict(None, range(0, 6), Write).unwrap().owner, OWNER);
    }
}
