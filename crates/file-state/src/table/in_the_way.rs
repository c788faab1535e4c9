//! Holders that stand in the way of a request, for a caller that can ask them to go.

use std::collections::BTreeSet;

use super::FileState;
use crate::{Holder, LockKind, Share};

use types::{ByteRange, FileId};

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An open, or I/O without one.
    Share(Share),
    Lock(ByteRange, LockKind),
}

impl FileState {
    /// Holders whose opens or locks conflict with the request. The caller may be among them, if it has such.
    pub fn in_the_way_of(&self, file: FileId, want: Want) -> BTreeSet<Holder> {
        let Some(known) = self.files.get(&file) else { return BTreeSet::new() };
        match want {
            Want::Share(share) => {
                let others = known.shares.all().filter(|(_, other)| share.conflicts(*other));
                others.map(|(owner, _)| owner.holder).collect()
            }
            Want::Lock(range, kind) => known.locks.conflicts(range, kind).map(|owner| owner.holder).collect(),
        }
    }

    /// Whether somebody waits in a file in which the holder has locks: perhaps for one of these.
    pub fn is_waited_for(&self, holder: Holder) -> bool {
        let Some(record) = self.holders.get(&holder).filter(|record| record.held.locks > 0) else {
            return false;
        };
        record.files.intersection(self.waiting.files()).any(|file| {
            let known = self.files.get(file);
            known.is_some_and(|known| {
                known.locks.has_locks_of(holder)
                    && known.locks.waiters().iter().any(|waiter| waiter.owner.holder != holder)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Door, Limits, Modes, Owner};

    const FILE: FileId = FileId(7);
    const DOOR: Door = Door::numbered(0);

    fn owner(number: u64) -> Owner {
        Owner { holder: Holder::of(DOOR, number), number: 1 }
    }

    fn range(offset: u64, end: u64) -> ByteRange {
        ByteRange::from_bounds(offset, end).unwrap()
    }

    fn opened(shares: &[(Modes, Modes)]) -> FileState {
        let mut state = FileState::new(Limits::default());
        for (number, (access, deny)) in (1..).zip(shares) {
            state.open(FILE, owner(number), Share::new(*access, *deny)).unwrap();
        }
        state
    }

    fn numbers(holders: BTreeSet<Holder>) -> Vec<u64> {
        holders.into_iter().map(|holder| holder.number).collect()
    }

    #[test]
    fn opens_that_deny_or_do_what_is_denied_are_in_the_way_and_no_others() {
        let state = opened(&[(Modes::READ, Modes::WRITE), (Modes::READ, Modes::NONE)]);
        let wanted = |access, deny| numbers(state.in_the_way_of(FILE, Want::Share(Share::new(access, deny))));
        assert_eq!(wanted(Modes::WRITE, Modes::NONE), [1]);
        assert_eq!(wanted(Modes::READ, Modes::READ), [1, 2]);
        assert_eq!(wanted(Modes::READ, Modes::WRITE), []);
        assert!(state.in_the_way_of(FileId(8), Want::Share(Share::default())).is_empty());
    }

    #[test]
    fn all_whose_locks_conflict_are_in_the_way() {
        let mut state = opened(&[(Modes::BOTH, Modes::NONE); 3]);
        state.lock(FILE, owner(1), range(0, 10), LockKind::Read).unwrap();
        state.lock(FILE, owner(2), range(5, 20), LockKind::Read).unwrap();
        state.lock(FILE, owner(3), range(20, 30), LockKind::Write).unwrap();
        let wanted = |range, kind| numbers(state.in_the_way_of(FILE, Want::Lock(range, kind)));
        assert_eq!(wanted(range(0, 20), LockKind::Write), [1, 2]);
        assert_eq!(wanted(range(0, 30), LockKind::Read), [3]);
        assert_eq!(wanted(range(30, 40), LockKind::Write), []);
    }

    #[test]
    fn a_holder_with_locks_in_a_file_with_waiters_is_waited_for() {
        let mut state = opened(&[(Modes::BOTH, Modes::NONE); 3]);
        state.lock(FILE, owner(1), range(0, 10), LockKind::Write).unwrap();
        assert!(!state.is_waited_for(owner(1).holder));
        assert!(state.wait(FILE, owner(2), range(0, 10), LockKind::Write));
        assert!(state.is_waited_for(owner(1).holder));
        assert!(!state.is_waited_for(owner(2).holder) && !state.is_waited_for(owner(3).holder));
        state.close(FILE, owner(2));
        assert!(!state.is_waited_for(owner(1).holder), "nobody waits any more");
    }
}
