//! Waiters for byte ranges, beside a model and at the bounds of one look.

use proptest::prelude::*;

use super::super::waiters::{LOCKS_LOOKED_AT, LOOKS};
use super::*;
use crate::locks::Budget;

const PATIENCE: Duration = Duration::from_secs(2);
use LockKind::{Read, Write};

fn owner(number: u64) -> Owner {
    Owner { holder: Holder::of(DOOR, number), number: 1 }
}

fn range(offset: u64, end: u64) -> ByteRange {
    ByteRange::from_bounds(offset, end).unwrap()
}

/// Owners 1 to 5, each of a holder of its own, have the file open.
fn table(limits: Limits) -> FileState {
    let mut state = FileState::new(limits);
    for number in 1..=5 {
        state.open(FILE, owner(number), Share::new(Modes::BOTH, Modes::NONE)).unwrap();
    }
    state
}

/// Asks as a client does that would wait; whether it has the lock.
fn ask(state: &mut FileState, number: u64, range: ByteRange, kind: LockKind) -> bool {
    let has = state.locks().lock(FILE, owner(number), range, kind).is_ok();
    if !has {
        state.waiters().wait(FILE, owner(number), range, kind);
    }
    has
}

fn told(state: &mut FileState, now: Duration) -> Vec<u64> {
    state.waiters().notices(now, PATIENCE).iter().map(|notice| notice.owner.holder.number).collect()
}

#[test]
fn a_release_tells_the_first_and_with_it_all_that_can_have_their_locks_beside_it() {
    let mut state = table(Limits::default());
    assert!(ask(&mut state, 1, range(0, 100), Write));
    assert!(!ask(&mut state, 2, range(0, 10), Write));
    assert!(!ask(&mut state, 3, range(5, 20), Write));
    assert!(!ask(&mut state, 4, range(50, 60), Read));
    assert!(!ask(&mut state, 5, range(50, 70), Read));
    assert_eq!(told(&mut state, s(0)), []);
    state.locks().unlock(FILE, owner(1), range(0, 100)).unwrap();
    assert_eq!(told(&mut state, s(0)), [2, 4, 5], "3 comes after 2");
    assert_eq!(told(&mut state, s(0)), [], "once");
    assert!(ask(&mut state, 2, range(0, 10), Write));
    assert_eq!(told(&mut state, s(0)), []);
    state.locks().unlock(FILE, owner(2), range(0, 10)).unwrap();
    assert_eq!(told(&mut state, s(0)), [3]);
}

#[test]
fn a_partial_release_notifies_the_waiter_for_that_part() {
    let mut state = table(Limits::default());
    assert!(ask(&mut state, 1, range(0, 100), Write));
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(40, 50), Write);
    state.locks().unlock(FILE, owner(1), range(40, 60)).unwrap();
    assert_eq!(told(&mut state, s(0)), [3]);
}

#[test]
fn a_lock_that_only_reads_from_now_on_lets_readers_through() {
    let mut state = table(Limits::default());
    assert!(ask(&mut state, 1, range(0, 100), Write));
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(0, 100), Read);
    assert!(ask(&mut state, 1, range(0, 100), Read));
    assert_eq!(told(&mut state, s(0)), [3]);
}

#[test]
fn a_waiter_refused_again_keeps_its_place_and_is_queued_once() {
    let mut state = table(Limits::default());
    ask(&mut state, 1, range(0, 100), Write);
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(0, 100), Write);
    for _ in 0..5 {
        ask(&mut state, 2, range(0, 100), Write);
    }
    state.locks().unlock(FILE, owner(1), range(0, 100)).unwrap();
    assert_eq!(told(&mut state, s(0)), [2]);
    // Another is quicker.
    assert!(ask(&mut state, 4, range(0, 100), Write));
    assert!(!ask(&mut state, 2, range(0, 100), Write));
    state.locks().unlock(FILE, owner(4), range(0, 100)).unwrap();
    assert_eq!(told(&mut state, s(1)), [2], "before 3 all the same");
}

#[test]
fn a_notified_waiter_that_does_not_come_is_forgotten_for_the_next() {
    let mut state = table(Limits::default());
    ask(&mut state, 1, range(0, 100), Write);
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(0, 100), Write);
    ask(&mut state, 4, range(0, 100), Write);
    state.locks().release(FILE, owner(1));
    assert_eq!(told(&mut state, s(10)), [2]);
    assert_eq!(told(&mut state, s(11)), []);
    assert_eq!(told(&mut state, s(12)), [3]);
    assert_eq!(state.waiters().take_forgotten(), [owner(2)]);
    state.waiters().notice_unheard(LockNotice { file: FILE, owner: owner(3) });
    assert_eq!(told(&mut state, s(12)), [4], "an unreachable waiter keeps nobody waiting");
}

#[test]
fn a_close_removes_waiters_and_the_end_of_a_holder_releases_its_locks() {
    let mut state = table(Limits::default());
    ask(&mut state, 1, range(0, 100), Write);
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(0, 100), Write);
    state.close(FILE, owner(2));
    assert_eq!(state.waiters().take_forgotten(), [owner(2)]);
    state.release_holder(owner(1).holder);
    assert_eq!(told(&mut state, s(0)), [3]);
    state.close(FILE, owner(3));
    assert_eq!(told(&mut state, s(9)), []);
}

#[test]
fn at_a_bound_a_waiter_is_not_remembered_and_its_lock_is_still_refused() {
    let mut state = table(Limits { waiters_per_file: 2, waiters_per_holder: 1, ..Limits::default() });
    ask(&mut state, 1, range(0, 100), Write);
    assert!(state.waiters().wait(FILE, owner(2), range(0, 1), Write));
    assert!(!state.waiters().wait(FILE, owner(2), range(1, 2), Write), "of a holder");
    assert!(state.waiters().wait(FILE, owner(3), range(0, 1), Write));
    assert!(!state.waiters().wait(FILE, owner(4), range(0, 1), Write), "of a file");
    assert!(!state.waiters().wait(FileId(8), owner(4), range(0, 1), Write), "nobody has it open");
}

/// Takes what is released bit by bit.
fn told_at_last(state: &mut FileState, budget: Budget) -> Vec<LockNotice> {
    let mut notices = Vec::new();
    while state.entries.waiting.is_stirred() {
        notices.extend(state.waiters().notices_within(budget, s(0), PATIENCE));
    }
    notices
}

/// Owner 1 has all of the file locked, and owner 2 waits under `count` numbers, each for a byte of its own.
fn crowd(state: &mut FileState, count: u64) {
    assert!(ask(state, 1, range(0, 1 << 20), Write));
    for number in 0..count {
        let waiter = Owner { number, ..owner(2) };
        assert!(state.waiters().wait(FILE, waiter, range(number, number + 1), Write));
    }
}

fn numbers(notices: &[LockNotice]) -> Vec<u64> {
    notices.iter().map(|notice| notice.owner.number).collect()
}

#[test]
fn one_look_is_at_so_many_waiters_and_the_rest_are_told_in_turn() {
    let mut state = table(Limits::default());
    crowd(&mut state, 1000);
    state.locks().unlock(FILE, owner(1), range(0, 1 << 20)).unwrap();
    let first = state.waiters().notices(s(0), PATIENCE);
    assert_eq!(numbers(&first), (0..LOOKS as u64).collect::<Vec<_>>());
    // It is housekeeping that goes on, without another release.
    let mut all = numbers(&first);
    for _ in 0..1000_usize.div_ceil(LOOKS) {
        all.extend(numbers(&state.waiters().notices(s(0), PATIENCE)));
    }
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
    assert!(!state.entries.waiting.is_stirred());
}

#[test]
fn one_look_is_at_so_many_locks_however_many_owners_have_some() {
    let mut state = table(Limits::default());
    let far = 1 << 30;
    let owners = LOCKS_LOOKED_AT as u64 / 8;
    for number in 0..owners {
        let other = Owner { number, ..owner(3) };
        state.locks().lock(FILE, other, range(far + number, far + number + 1), Read).unwrap();
    }
    crowd(&mut state, 20);
    state.locks().unlock(FILE, owner(1), range(0, 1 << 20)).unwrap();
    for first in [0, 8] {
        let told = numbers(&state.waiters().notices(s(0), PATIENCE));
        assert_eq!(told, (first..first + 8).collect::<Vec<_>>(), "each is looked for among all owners");
    }
    let rest = told_at_last(&mut state, Budget { waiters: LOOKS, locks: 1 });
    assert_eq!(numbers(&rest), [16, 17, 18, 19], "one at least, whatever it costs");
}

#[test]
fn the_first_lock_in_the_way_is_enough() {
    let mut state = table(Limits::default());
    for number in 0..1000 {
        state.locks().lock(FILE, Owner { number, ..owner(3) }, range(0, 10), Read).unwrap();
    }
    assert!(!ask(&mut state, 4, range(0, 10), Write));
    state.locks().unlock(FILE, Owner { number: 999, ..owner(3) }, range(0, 10)).unwrap();
    let mut budget = Budget { waiters: LOOKS, locks: LOCKS_LOOKED_AT };
    let locks = &mut state.entries.get_mut(FILE).unwrap().locks;
    assert_eq!(locks.let_through(s(0), &mut budget), []);
    assert_eq!((LOOKS - budget.waiters, LOCKS_LOOKED_AT - budget.locks), (1, 2), "an owner and its lock");
}

#[test]
fn waiters_for_other_ranges_are_not_looked_at() {
    let mut state = table(Limits::default());
    crowd(&mut state, 1000);
    state.locks().unlock(FILE, owner(1), range(500, 502)).unwrap();
    let mut budget = Budget { waiters: LOOKS, locks: LOCKS_LOOKED_AT };
    let told = state.entries.get_mut(FILE).unwrap().locks.let_through(s(0), &mut budget);
    assert_eq!(told.iter().map(|owner| owner.number).collect::<Vec<_>>(), [500, 501]);
    assert_eq!(LOOKS - budget.waiters, 2);
}

#[test]
fn a_front_that_is_stirred_again_and_again_does_not_keep_the_turn_from_those_behind_it() {
    let mut state = table(Limits::default());
    // Owner 3 keeps those before the last from their locks, and owner 1 the last too.
    let front = range(0, 10);
    state.locks().lock(FILE, owner(3), front, Read).unwrap();
    state.locks().lock(FILE, owner(1), front, Read).unwrap();
    state.locks().lock(FILE, owner(1), range(10, 20), Write).unwrap();
    for number in 0..2 * LOOKS as u64 {
        assert!(state.waiters().wait(FILE, Owner { number, ..owner(2) }, front, Write));
    }
    assert!(!ask(&mut state, 4, range(10, 20), Write));
    state.locks().unlock(FILE, owner(1), range(0, 20)).unwrap();
    let mut notices = Vec::new();
    for _ in 0..3 {
        notices.extend(state.waiters().notices(s(0), PATIENCE));
        state.locks().lock(FILE, owner(1), front, Read).unwrap();
        state.locks().unlock(FILE, owner(1), front).unwrap();
    }
    assert_eq!(notices, [LockNotice { file: FILE, owner: owner(4) }]);
}

#[test]
fn files_are_looked_at_in_turn() {
    let mut state = table(Limits::default());
    let files = [FileId(7), FileId(8), FileId(9)];
    for file in files {
        for number in 1..=3 {
            state.open(file, owner(number), Share::new(Modes::BOTH, Modes::NONE)).unwrap();
        }
        state.locks().lock(file, owner(1), range(0, 10), Write).unwrap();
        for place in [range(0, 1), range(1, 2)] {
            assert!(state.waiters().wait(file, owner(2), place, Write));
        }
        state.locks().unlock(file, owner(1), range(0, 10)).unwrap();
    }
    let budget = Budget { waiters: 1, locks: 100 };
    let mut next = || state.waiters().notices_within(budget, s(0), PATIENCE).remove(0).file;
    assert_eq!([next(), next(), next(), next(), next(), next()], [files, files].concat()[..]);
}

#[test]
fn a_notified_waiter_that_is_refused_again_lets_those_behind_it_through() {
    let mut state = table(Limits::default());
    ask(&mut state, 1, range(0, 100), Write);
    ask(&mut state, 2, range(0, 100), Write);
    ask(&mut state, 3, range(50, 60), Write);
    state.locks().unlock(FILE, owner(1), range(0, 100)).unwrap();
    assert_eq!(told(&mut state, s(0)), [2]);
    assert!(ask(&mut state, 4, range(0, 10), Write));
    assert!(!ask(&mut state, 2, range(0, 100), Write));
    assert_eq!(told(&mut state, s(0)), [3]);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64, ByteRange, LockKind),
    Unlock(u64, ByteRange),
    Reopen(u64),
    Tell,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 1..=5_u64;
    let ranges = (0..8_u64, 1..6_u64).prop_map(|(offset, length)| range(offset, offset + length));
    let kinds = prop_oneof![Just(Read), Just(Write)];
    let step = prop_oneof![
        4 => (number.clone(), ranges.clone(), kinds).prop_map(|(n, range, kind)| Step::Ask(n, range, kind)),
        3 => (number.clone(), ranges).prop_map(|(n, range)| Step::Unlock(n, range)),
        1 => number.prop_map(Step::Reopen),
        2 => Just(Step::Tell),
        1 => Just(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// After notices were taken nobody waits untold for what could be had, and at the end nothing is left.
    #[test]
    fn no_waiter_sleeps_through_a_release(steps in steps(), waiters in 1..4_usize, locks in 1..8_usize) {
        let budget = Budget { waiters, locks };
        let mut state = table(Limits::default());
        let (mut now, mut remembered, mut forgotten) = (s(0), 0, 0);
        for step in steps {
            match step {
                Step::Ask(number, range, kind) => {
                    if state.locks().lock(FILE, owner(number), range, kind).is_err() {
                        remembered += usize::from(state.waiters().wait(FILE, owner(number), range, kind));
                    }
                }
                Step::Unlock(number, range) => state.locks().unlock(FILE, owner(number), range).unwrap(),
                Step::Reopen(number) => {
                    state.release(FILE, owner(number).holder);
                    state.open(FILE, owner(number), Share::new(Modes::BOTH, Modes::NONE)).unwrap();
                }
                Step::Tell => {
                    state.waiters().notices_within(budget, now, PATIENCE);
                    while state.entries.waiting.is_stirred() {
                        state.waiters().notices_within(budget, now, PATIENCE);
                    }
                    let locks = &state.file(FILE).locks;
                    let waiters = locks.waiters();
                    for (at, waiter) in waiters.iter().enumerate().filter(|(_, waiter)| waiter.told.is_none()) {
                        let is_free = locks.conflict(Some(waiter.owner), waiter.range, waiter.kind).is_none();
                        let told_before = waiters[..at]
                            .iter()
                            .any(|earlier| earlier.told.is_some() && earlier.is_in_the_way_of(waiter));
                        prop_assert!(!is_free || told_before, "{:?}", waiter);
                    }
                }
                Step::Wait => now += s(1),
            }
            forgotten += state.waiters().take_forgotten().len();
            prop_assert_eq!(remembered, forgotten + state.file(FILE).locks.waiters().len());
        }
        for number in 1..=5 {
            state.release_holder(owner(number).holder);
        }
        forgotten += state.waiters().take_forgotten().len();
        prop_assert_eq!(remembered, forgotten);
        prop_assert!(state.is_empty());
    }
}
