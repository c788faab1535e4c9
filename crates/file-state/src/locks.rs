//! Byte-range locks of one file, as POSIX has them: an owner has at most one lock on any byte; a new lock takes the place
//! of what the owner had on its range, splitting and merging as need be.
//!
//! Beside them stand the waiters: who was refused a lock and wants to hear when it might be had, in the order in which
//! they came. Nothing is kept free for them; they ask again as anybody does.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
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
    /// Where a lock went while somebody waited. It is looked at when those are done who were to be looked at before.
    released: Vec<ByteRange>,
}

/// The locks of a file, of which few have any: without them they take a pointer. To change them makes a place for them,
/// which goes when it is [tidied](FileLocks::tidy) and nothing is there.
#[derive(Debug, Default)]
pub(crate) struct FileLocks(Option<Box<Locks>>);

static NO_LOCKS: Locks =
    Locks { owners: BTreeMap::new(), count: 0, waiters: Vec::new(), released: Vec::new() };

impl FileLocks {
    pub const NONE: FileLocks = FileLocks(None);

    pub fn tidy(&mut self) {
        self.0.take_if(|locks| locks.is_empty());
    }

    #[cfg(test)]
    pub fn has_place(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for FileLocks {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        self.0.as_deref().unwrap_or(&NO_LOCKS)
    }
}

impl DerefMut for FileLocks {
    fn deref_mut(&mut self) -> &mut Locks {
        self.0.get_or_insert_default()
    }
}

/// Beyond it the last one grows to span what is released.
const RELEASED_MAX: usize = 16;

/// A lock that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub owner: Owner,
    pub range: ByteRange,
    pub kind: LockKind,
    /// It was told that it may come, and should have come by then.
    pub told: Option<Duration>,
    /// Something in its range was released since it was looked at.
    is_due: bool,
}

impl Waiter {
    pub fn is_in_the_way_of(&self, other: &Waiter) -> bool {
        self.owner != other.owner && self.range.overlaps(other.range) && self.kind.conflicts(other.kind)
    }
}

/// Bounds of one look through waiters: clients choose how many wait and how many locks there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub waiters: usize,
    /// Owners and their locks. The look at a waiter is always finished, and exceeds this by the locks of one file at
    /// most.
    pub locks: usize,
}

impl Budget {
    pub fn is_spent(&self) -> bool {
        self.waiters == 0 || self.locks == 0
    }

    fn spend_lock(&mut self) {
        self.locks = self.locks.saturating_sub(1);
    }
}

/// The locks of an owner as they would be after a change; not yet in force.
#[derive(Debug)]
pub(crate) struct Changed {
    owner: Owner,
    intervals: Vec<Interval>,
    /// Where others may have more than before.
    released: Option<ByteRange>,
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
            let found = overlapping(intervals, range).find(|interval| interval.kind.conflicts(kind))?;
            Some(Lock { owner: *other, range: found.range, kind: found.kind })
        });
        in_the_way.min_by_key(|lock| lock.range.offset())
    }

    /// The owners of locks that conflict with such a lock.
    pub fn conflicts(&self, range: ByteRange, kind: LockKind) -> impl Iterator<Item = Owner> {
        let in_the_way = self.owners.iter().filter(move |(_, intervals)| {
            overlapping(intervals, range).any(|interval| interval.kind.conflicts(kind))
        });
        in_the_way.map(|(owner, _)| *owner)
    }

    pub fn has_locks_of(&self, holder: Holder) -> bool {
        let (first, last) = (Owner { holder, number: 0 }, Owner { holder, number: u64::MAX });
        self.owners.range(first..=last).next().is_some()
    }

    /// Whether nothing stands in the way of a waiter: the first lock that does is enough.
    fn is_free_for(&self, waiter: &Waiter, budget: &mut Budget) -> bool {
        let mut others = self.owners.iter().filter(|(other, _)| **other != waiter.owner);
        !others.any(|(_, intervals)| {
            budget.spend_lock();
            overlapping(intervals, waiter.range).any(|interval| {
                budget.spend_lock();
                interval.kind.conflicts(waiter.kind)
            })
        })
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
        let released = (kind != Some(LockKind::Write)).then_some(range);
        Changed { owner, intervals, released, delta }
    }

    pub fn apply(&mut self, changed: Changed) {
        self.count = self.count.checked_add_signed(changed.delta).expect("no more locks go than there were");
        if changed.intervals.is_empty() {
            self.owners.remove(&changed.owner);
        } else {
            self.owners.insert(changed.owner, changed.intervals);
        }
        if let Some(range) = changed.released {
            self.stir(range);
        }
    }

    /// Drops all locks of an owner and says how many there were.
    pub fn release(&mut self, owner: Owner) -> usize {
        let Some(intervals) = self.owners.remove(&owner) else { return 0 };
        self.count -= intervals.len();
        if let (Some(first), Some(last)) = (intervals.first(), intervals.last()) {
            self.stir(span(first.range, last.range));
        }
        intervals.len()
    }

    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// A waiter that was refused again keeps its place; `false`: it is a new one.
    pub fn waits_on(&mut self, owner: Owner, range: ByteRange, kind: LockKind) -> bool {
        let known = self.waiters.iter_mut().find(|waiter| waiter.owner == owner && waiter.range == range);
        let Some(waiter) = known else { return false };
        waiter.kind = kind;
        if waiter.told.take().is_some() {
            // Others were kept waiting for it, and now something else is in its way.
            self.stir(range);
        }
        true
    }

    pub fn wait(&mut self, owner: Owner, range: ByteRange, kind: LockKind) {
        self.waiters.push(Waiter { owner, range, kind, told: None, is_due: false });
    }

    /// Those who wait for any of the range are to be looked at.
    fn stir(&mut self, range: ByteRange) {
        if self.waiters.is_empty() {
            return;
        }
        let is_full = self.released.len() >= RELEASED_MAX;
        match self.released.last_mut() {
            Some(last) if is_full || last.contains(range) => *last = span(*last, range),
            _ => self.released.push(range),
        }
    }

    /// Whether a waiter may have to be looked at.
    pub fn is_stirred(&self) -> bool {
        !self.released.is_empty() || self.waiters.iter().any(|waiter| waiter.is_due)
    }

    /// Waiters that could have their locks now, in order of arrival, and were not notified yet; from now on they count
    /// as notified. If the budget is spent, the next call looks at the other waiters first.
    pub fn let_through(&mut self, until: Duration, budget: &mut Budget) -> Vec<Owner> {
        let mut told = Vec::new();
        while !budget.is_spent() {
            let Some(at) = self.next_due() else { break };
            let waiter = self.waiters[at];
            self.waiters[at].is_due = false;
            budget.waiters -= 1;
            let mut before = self.waiters[..at].iter();
            let comes_later =
                before.any(|earlier| earlier.told.is_some() && earlier.is_in_the_way_of(&waiter));
            if waiter.told.is_none() && !comes_later && self.is_free_for(&waiter, budget) {
                self.waiters[at].told = Some(until);
                told.push(waiter.owner);
            }
        }
        told
    }

    /// The first waiter that is to be looked at. Releases count only when all are done of those before: a front that is
    /// stirred again and again would keep the turn from those behind it.
    fn next_due(&mut self) -> Option<usize> {
        let first = |waiters: &[Waiter]| waiters.iter().position(|waiter| waiter.is_due);
        first(&self.waiters).or_else(|| {
            let released = std::mem::take(&mut self.released);
            for waiter in &mut self.waiters {
                waiter.is_due = released.iter().any(|range| range.overlaps(waiter.range));
            }
            first(&self.waiters)
        })
    }

    /// Waiters will not come although they were told: whom they kept waiting is to be looked at.
    pub fn make_way(&mut self, which: impl Fn(&Waiter) -> bool) {
        let told = self.waiters.iter().filter(|waiter| waiter.told.is_some() && which(waiter));
        let ranges: Vec<ByteRange> = told.map(|waiter| waiter.range).collect();
        ranges.into_iter().for_each(|range| self.stir(range));
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
        if self.waiters.is_empty() {
            self.released.clear();
        }
        forgotten
    }
}

fn overlapping(intervals: &[Interval], range: ByteRange) -> impl Iterator<Item = &Interval> {
    let first = intervals.partition_point(|interval| interval.range.end() <= range.offset());
    intervals[first..].iter().take_while(move |interval| interval.range.offset() < range.end())
}

/// From the beginning of the one that begins first to the end of the one that ends last.
fn span(one: ByteRange, other: ByteRange) -> ByteRange {
    let (offset, end) = (one.offset().min(other.offset()), one.end().max(other.end()));
    ByteRange::from_bounds(offset, end).expect("it holds two that are not empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Door;

    const DOOR: Door = Door::numbered(0);
    const OWNER: Owner = owner(1);

    const fn owner(holder: u64) -> Owner {
        Owner { holder: Holder::of(DOOR, holder), number: 1 }
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
