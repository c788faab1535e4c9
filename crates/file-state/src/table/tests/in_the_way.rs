//! Holders that stand in the way of a request.

use std::collections::BTreeSet;

use super::*;

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
    let wanted =
        |access, deny| numbers(state.file(FILE).in_the_way_of(Want::Share(Share::new(access, deny))));
    assert_eq!(wanted(Modes::WRITE, Modes::NONE), [1]);
    assert_eq!(wanted(Modes::READ, Modes::READ), [1, 2]);
    assert_eq!(wanted(Modes::READ, Modes::WRITE), []);
    assert!(state.file(FileId(8)).in_the_way_of(Want::Share(Share::default())).is_empty());
}

#[test]
fn all_whose_locks_conflict_are_in_the_way() {
    let mut state = opened(&[(Modes::BOTH, Modes::NONE); 3]);
    state.locks().lock(FILE, owner(1), range(0, 10), LockKind::Read).unwrap();
    state.locks().lock(FILE, owner(2), range(5, 20), LockKind::Read).unwrap();
    state.locks().lock(FILE, owner(3), range(20, 30), LockKind::Write).unwrap();
    let wanted = |range, kind| numbers(state.file(FILE).in_the_way_of(Want::Lock(range, kind)));
    assert_eq!(wanted(range(0, 20), LockKind::Write), [1, 2]);
    assert_eq!(wanted(range(0, 30), LockKind::Read), [3]);
    assert_eq!(wanted(range(30, 40), LockKind::Write), []);
}

#[test]
fn a_holder_with_locks_in_a_file_with_waiters_is_waited_for() {
    let mut state = opened(&[(Modes::BOTH, Modes::NONE); 3]);
    state.locks().lock(FILE, owner(1), range(0, 10), LockKind::Write).unwrap();
    assert!(!state.is_waited_for(owner(1).holder));
    assert!(state.waiters().wait(FILE, owner(2), range(0, 10), LockKind::Write));
    assert!(state.is_waited_for(owner(1).holder));
    assert!(!state.is_waited_for(owner(2).holder) && !state.is_waited_for(owner(3).holder));
    state.close(FILE, owner(2));
    assert!(!state.is_waited_for(owner(1).holder), "nobody waits any more");
}
