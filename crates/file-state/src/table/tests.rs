//! One module per kind of state; each rule beside a reference model where the cases are too many to list.

use std::collections::BTreeMap;

use proptest::prelude::*;
use testkit::dice::Dice;
use types::ByteRange;

use super::*;
use crate::grants::Grants;
use crate::{ChangeVerdict, DelegationKind, Door, GrantKind, Granted, LayoutMode, LockKind, Modes, Recall};

const FILE: FileId = FileId(7);
const DOOR: Door = Door::numbered(0);
const OTHER_DOOR: Door = Door::numbered(1);
const READ_LAYOUT: LayoutModes = LayoutModes { read: true, read_write: false };
const A: Holder = holder(1);
const B: Holder = holder(2);

const fn holder(number: u64) -> Holder {
    Holder::of(DOOR, number)
}

fn owner(holder: Holder, number: u64) -> Owner {
    Owner { holder, number }
}

fn share(access: u32, deny: u32) -> Share {
    Share::new(Modes::from_bits(access).unwrap(), Modes::from_bits(deny).unwrap())
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// There may be hundreds of thousands of each: what is rare has a place of its own.
#[test]
fn a_file_and_a_grant_take_little_memory() {
    assert!(size_of::<FileEntry>() <= 112, "{}", size_of::<FileEntry>());
    let grant = Grants::<LayoutModes>::ENTRY_BYTES;
    assert!(grant <= 48, "{grant}");
}

#[test]
fn a_file_whose_locks_are_gone_keeps_no_place_for_them() {
    let mut state = FileState::default();
    state.open(FILE, owner(A, 1), share(3, 0)).unwrap();
    let range = ByteRange::from_bounds(0, 10).unwrap();
    let has_place = |state: &FileState| state.file(FILE).locks.has_place();
    state.locks().unlock(FILE, owner(A, 1), range).unwrap();
    assert!(!has_place(&state));
    state.locks().lock(FILE, owner(A, 1), range, LockKind::Write).unwrap();
    assert!(has_place(&state));
    state.locks().unlock(FILE, owner(A, 1), range).unwrap();
    assert!(!has_place(&state));
}

mod opens {
    use super::*;

    #[test]
    fn a_denial_keeps_others_out_and_an_access_keeps_a_denial_out() {
        let mut state = FileState::default();
        state.open(FILE, owner(A, 1), share(1, 2)).unwrap();
        assert_eq!(state.open(FILE, owner(B, 1), share(2, 0)), Err(FileStateError::ShareDenied));
        assert_eq!(state.open(FILE, owner(B, 1), share(1, 1)), Err(FileStateError::ShareDenied));
        assert!(state.open(FILE, owner(B, 1), share(1, 0)).is_ok());
        assert!(state.open(FileId(8), owner(B, 1), share(3, 3)).is_ok());
    }

    #[test]
    fn an_owner_upgrades_past_its_own_denial() {
        let mut state = FileState::default();
        state.open(FILE, owner(A, 1), share(1, 3)).unwrap();
        assert_eq!(state.open(FILE, owner(A, 1), share(2, 0)), Ok(share(3, 3)));
        assert_eq!(state.open(FILE, owner(A, 2), share(1, 0)), Err(FileStateError::ShareDenied));
        assert_eq!(state.holders().held(A).opens, 1);
    }

    #[test]
    fn io_without_an_open_is_denied_too() {
        let mut state = FileState::default();
        state.open(FILE, owner(A, 1), share(1, 2)).unwrap();
        assert!(state.file(FILE).check_io(B, Modes::READ).is_ok());
        assert_eq!(state.file(FILE).check_io(B, Modes::WRITE), Err(FileStateError::ShareDenied));
    }

    #[test]
    fn a_downgrade_must_be_part_of_what_is_open() {
        let mut state = FileState::default();
        state.open(FILE, owner(A, 1), share(3, 2)).unwrap();
        assert!(!state.downgrade(FILE, owner(A, 1), share(1, 1)));
        assert!(state.downgrade(FILE, owner(A, 1), share(1, 0)));
        assert!(state.open(FILE, owner(B, 1), share(2, 0)).is_ok());
    }

    #[test]
    fn a_client_at_its_bound_may_still_upgrade() {
        let mut state = FileState::new(Limits { opens_per_holder: 1, ..Limits::default() });
        state.open(FILE, owner(A, 1), share(1, 0)).unwrap();
        let refused = state.open(FileId(8), owner(A, 1), share(1, 0));
        assert_eq!(refused, Err(FileStateError::Limit("opens of a client")));
        assert!(state.open(FILE, owner(A, 1), share(2, 0)).is_ok());
        assert!(state.open(FileId(8), owner(B, 1), share(1, 0)).is_ok());
    }

    #[test]
    fn a_name_stays_while_another_door_denies_writing_and_each_door_judges_its_own_clients() {
        let mut state = FileState::default();
        let foreign = Holder::of(OTHER_DOOR, 1);
        state.open(FILE, owner(foreign, 1), share(0, 2)).unwrap();
        assert_eq!(state.file(FILE).judge_change(Some(A)), Err(FileStateError::ShareDenied));
        assert_eq!(state.file(FILE).judge_change(None), Err(FileStateError::ShareDenied));
        assert_eq!(state.file(FILE).judge_change(Some(Holder::of(OTHER_DOOR, 2))), Ok(()));
        assert_eq!(state.file(FileId(8)).judge_change(Some(A)), Ok(()));
        assert!(state.has_denials_of_others(Some(A)) && !state.has_denials_of_others(Some(foreign)));
        assert!(state.has_denials_of_others(None), "to the server itself every door is another");
        state.release_holder(foreign);
        assert!(!state.has_denials_of_others(None));
        assert_eq!(state.file(FILE).judge_change(Some(A)), Ok(()));
        assert!(state.is_empty());
    }

    #[test]
    fn one_number_at_two_doors_is_two_holders() {
        let mut state = FileState::default();
        let foreign = Holder::of(OTHER_DOOR, A.number);
        state.open(FILE, owner(A, 1), share(1, 2)).unwrap();
        assert_eq!(state.open(FILE, owner(foreign, 1), share(2, 0)), Err(FileStateError::ShareDenied));
        state.open(FILE, owner(foreign, 1), share(1, 0)).unwrap();
        assert_eq!((state.holders().held(A).opens, state.holders().held(foreign).opens), (1, 1));
        state.release_holder(A);
        assert_eq!(state.file(FILE).share_of(owner(foreign, 1)), Some(share(1, 0)));
    }

    #[test]
    fn an_unlinked_file_can_be_opened_only_while_it_is_held() {
        let mut state = FileState::default();
        assert_eq!(state.open_unlinked(FILE, owner(B, 1), share(1, 0)), Err(FileStateError::Gone));
        assert!(state.is_empty());
        state.open(FILE, owner(A, 1), share(1, 0)).unwrap();
        assert_eq!(state.open_unlinked(FILE, owner(B, 1), share(1, 0)), Ok(share(1, 0)));
        state.close(FILE, owner(A, 1));
        assert!(state.file(FILE).is_in_use());
    }

    /// The reference: a list of opens, each pair compared.
    #[derive(Default)]
    struct Model(Vec<(Owner, Share)>);

    impl Model {
        fn open(&mut self, owner: Owner, share: Share) -> bool {
            let clash =
                |other: &Share| other.deny.intersects(share.access) || other.access.intersects(share.deny);
            if self.0.iter().any(|(other, held)| *other != owner && clash(held)) {
                return false;
            }
            match self.0.iter_mut().find(|(other, _)| *other == owner) {
                Some((_, held)) => *held = held.union(share),
                None => self.0.push((owner, share)),
            }
            true
        }

        fn denies_change(&self, by: Option<Holder>) -> bool {
            let is_other = |owner: &Owner| by.is_none_or(|by| by.door != owner.holder.door);
            self.0.iter().any(|(owner, held)| is_other(owner) && held.deny.intersects(Modes::WRITE))
        }
    }

    /// The first two come through one door, the third through another.
    fn of_some_door(number: u64) -> Holder {
        Holder::of(if number < 3 { DOOR } else { OTHER_DOOR }, number)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(u64, u64, u32, u32),
        Downgrade(u64, u64, u32, u32),
        Close(u64, u64),
        Io(u32),
        Release(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..4u64, 1..3u64, 1..4u32, 0..4u32).prop_map(|(h, n, a, d)| Step::Open(h, n, a, d)),
            2 => (1..4u64, 1..3u64, 1..4u32, 0..4u32).prop_map(|(h, n, a, d)| Step::Downgrade(h, n, a, d)),
            3 => (1..4u64, 1..3u64).prop_map(|(h, n)| Step::Close(h, n)),
            2 => (1..4u32).prop_map(Step::Io),
            1 => (1..4u64).prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn opens_are_judged_as_if_every_pair_were_compared(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut state, mut model) = (FileState::default(), Model::default());
            for step in steps {
                match step {
                    Step::Open(h, n, a, d) => {
                        let owner = owner(of_some_door(h), n);
                        prop_assert_eq!(state.open(FILE, owner, share(a, d)).is_ok(), model.open(owner, share(a, d)));
                    }
                    Step::Downgrade(h, n, a, d) => {
                        let owner = owner(of_some_door(h), n);
                        let held = model.0.iter_mut().find(|(other, held)| *other == owner && held.contains(share(a, d)));
                        prop_assert_eq!(state.downgrade(FILE, owner, share(a, d)), held.is_some());
                        if let Some((_, held)) = held { *held = share(a, d); }
                    }
                    Step::Close(h, n) => {
                        let owner = owner(of_some_door(h), n);
                        let at = model.0.iter().position(|(other, _)| *other == owner);
                        prop_assert_eq!(state.close(FILE, owner), at.map(|at| model.0.remove(at).1));
                    }
                    Step::Io(access) => {
                        let access = Modes::from_bits(access).unwrap();
                        let denied = model.0.iter().any(|(_, held)| held.deny.intersects(access));
                        prop_assert_eq!(state.file(FILE).check_io(holder(99), access).is_err(), denied);
                    }
                    Step::Release(h) => {
                        state.release_holder(of_some_door(h));
                        model.0.retain(|(owner, _)| owner.holder != of_some_door(h));
                    }
                }
                prop_assert_eq!(state.holders().total().opens, model.0.len());
                prop_assert_eq!(state.file(FILE).is_in_use(), !model.0.is_empty());
                let has_writers = model.0.iter().any(|(_, held)| held.access.intersects(Modes::WRITE));
                prop_assert_eq!(state.file(FILE).is_open_for_writing(), has_writers);
                for by in [None, Some(of_some_door(1)), Some(of_some_door(3))] {
                    let denied = model.denies_change(by);
                    prop_assert_eq!(state.file(FILE).judge_change(by).is_err(), denied);
                    prop_assert_eq!(state.has_denials_of_others(by), denied);
                }
            }
            (1..4).for_each(|h| state.release_holder(of_some_door(h)));
            prop_assert!(state.is_empty());
        }
    }
}

mod locks {
    use super::*;

    const BYTES: u64 = 12;

    #[test]
    fn at_the_bound_a_lock_that_would_split_is_refused_and_nothing_changes() {
        let mut state = FileState::new(Limits { locks_per_file: 2, ..Limits::default() });
        let range = |from, to| ByteRange::from_bounds(from, to).unwrap();
        state.locks().lock(FILE, owner(A, 1), range(0, 10), LockKind::Read).unwrap();
        let refused = state.locks().lock(FILE, owner(A, 1), range(4, 5), LockKind::Write);
        assert_eq!(refused, Err(FileStateError::Limit("locks of a file")));
        assert!(state.locks().lock(FILE, owner(B, 1), range(4, 5), LockKind::Read).is_ok());
        assert_eq!(
            state.locks().unlock(FILE, owner(A, 1), range(4, 5)),
            Err(FileStateError::Limit("locks of a file"))
        );
        assert!(state.locks().unlock(FILE, owner(A, 1), range(0, 5)).is_ok());
        assert_eq!((state.holders().held(A).locks, state.holders().held(B).locks), (1, 1));
    }

    /// The reference: for every byte who has locked it and how.
    #[derive(Default)]
    struct Model(BTreeMap<(Owner, u64), LockKind>);

    impl Model {
        fn conflicts(&self, owner: Owner, range: ByteRange, kind: LockKind) -> bool {
            self.0.iter().any(|((other, byte), held)| {
                *other != owner
                    && (range.offset()..range.end()).contains(byte)
                    && (kind == LockKind::Write || *held == LockKind::Write)
            })
        }

        fn set(&mut self, owner: Owner, range: ByteRange, kind: Option<LockKind>) {
            for byte in range.offset()..range.end().min(BYTES) {
                match kind {
                    Some(kind) => self.0.insert((owner, byte), kind),
                    None => self.0.remove(&(owner, byte)),
                };
            }
        }

        /// Runs of equal bytes of one owner: what a POSIX lock table would list.
        fn count(&self) -> usize {
            let begins = |owner: Owner, byte: u64, kind: LockKind| {
                byte == 0 || self.0.get(&(owner, byte - 1)) != Some(&kind)
            };
            self.0.iter().filter(|((owner, byte), kind)| begins(*owner, *byte, **kind)).count()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lock(Owner, ByteRange, LockKind),
        Unlock(Owner, ByteRange),
        Test(Owner, ByteRange, LockKind),
        Release(Owner),
    }

    fn step() -> impl Strategy<Value = Step> {
        let owners = || (1..3u64, 1..3u64).prop_map(|(h, n)| owner(holder(h), n));
        let ranges = || {
            (0..BYTES, 1..=BYTES)
                .prop_map(|(from, len)| ByteRange::from_bounds(from, (from + len).min(BYTES)).unwrap())
        };
        let kinds = || prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
        prop_oneof![
            5 => (owners(), ranges(), kinds()).prop_map(|(o, r, k)| Step::Lock(o, r, k)),
            3 => (owners(), ranges()).prop_map(|(o, r)| Step::Unlock(o, r)),
            1 => (owners(), ranges(), kinds()).prop_map(|(o, r, k)| Step::Test(o, r, k)),
            1 => owners().prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn locks_are_what_a_map_of_bytes_says(steps in proptest::collection::vec(step(), 0..80)) {
            let (mut state, mut model) = (FileState::default(), Model::default());
            for step in steps {
                match step {
                    Step::Lock(owner, range, kind) => {
                        let outcome = state.locks().lock(FILE, owner, range, kind);
                        prop_assert_eq!(outcome.is_err(), model.conflicts(owner, range, kind));
                        match outcome {
                            Ok(()) => model.set(owner, range, Some(kind)),
                            Err(FileStateError::Locked(lock)) => {
                                prop_assert!(lock.owner != owner && lock.range.overlaps(range));
                                let byte = (lock.owner, lock.range.offset());
                                prop_assert_eq!(model.0.get(&byte), Some(&lock.kind));
                            }
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                    }
                    Step::Unlock(owner, range) => {
                        state.locks().unlock(FILE, owner, range).unwrap();
                        model.set(owner, range, None);
                    }
                    Step::Test(owner, range, kind) => {
                        let found = state.file(FILE).test_lock(Some(owner), range, kind);
                        prop_assert_eq!(found.is_some(), model.conflicts(owner, range, kind));
                    }
                    Step::Release(owner) => {
                        state.locks().release(FILE, owner);
                        model.0.retain(|(other, _), _| *other != owner);
                    }
                }
                prop_assert_eq!(state.holders().total().locks, model.count());
            }
            (1..3).for_each(|h| state.release_holder(holder(h)));
            prop_assert!(state.is_empty());
        }
    }
}

mod layouts {
    use super::*;

    fn granted(holders: &[(Holder, LayoutMode)]) -> FileState {
        let mut state = FileState::default();
        for (holder, mode) in holders {
            state.layouts().grant(FILE, *holder, *mode, s(0)).unwrap();
        }
        state
    }

    #[test]
    fn a_truncation_recalls_the_layouts_of_others_once() {
        let mut state = granted(&[(A, LayoutMode::ReadWrite), (B, LayoutMode::Read)]);
        let recall =
            Recall { file: FILE, holder: B, granted: Granted::Layout(READ_LAYOUT), is_repeated: false };
        let verdict = state.changes().ask(FILE, Some(A), Change::Truncate, s(10));
        assert_eq!(verdict, ChangeVerdict::Wait { recalls: vec![recall] });
        let again = state.changes().ask(FILE, Some(A), Change::Truncate, s(11));
        assert_eq!(again, ChangeVerdict::Wait { recalls: vec![] });
        assert!(state.layouts().give_back(FILE, B, LayoutModes::ALL).is_empty());
        assert_eq!(state.changes().ask(FILE, Some(A), Change::Truncate, s(12)), ChangeVerdict::Proceed);
    }

    #[test]
    fn another_door_recalls_everybody() {
        let mut state = granted(&[(A, LayoutMode::ReadWrite), (B, LayoutMode::Read)]);
        let ChangeVerdict::Wait { recalls } = state.changes().ask(FILE, None, Change::Truncate, s(10)) else {
            panic!()
        };
        assert_eq!(recalls.iter().map(|recall| recall.holder).collect::<Vec<_>>(), [A, B]);
    }

    #[test]
    fn names_and_attributes_do_not_disturb_layouts() {
        let mut state = granted(&[(A, LayoutMode::ReadWrite)]);
        for change in [Change::Remove, Change::Rename, Change::SetAttributes] {
            assert_eq!(state.changes().ask(FILE, Some(B), change, s(10)), ChangeVerdict::Proceed);
        }
    }

    #[test]
    fn a_replacement_by_another_door_recalls_as_a_truncation_does() {
        let mut state = granted(&[(A, LayoutMode::ReadWrite)]);
        let by = Some(Holder::of(OTHER_DOOR, A.number));
        assert!(!state.file(FILE).is_recalled(A, GrantKind::Layout));
        let ChangeVerdict::Wait { recalls } = state.changes().ask(FILE, by, Change::Replace, s(10)) else {
            panic!()
        };
        assert_eq!(recalls.iter().map(|recall| recall.holder).collect::<Vec<_>>(), [A]);
        assert!(
            state.file(FILE).is_recalled(A, GrantKind::Layout)
                && !state.file(FILE).is_recalled(B, GrantKind::Layout)
        );
        state.layouts().give_back(FILE, A, LayoutModes::ALL);
        assert!(!state.file(FILE).is_recalled(A, GrantKind::Layout));
        assert_eq!(state.changes().ask(FILE, by, Change::Replace, s(10)), ChangeVerdict::Proceed);
        assert!(state.is_empty());
    }

    #[test]
    fn nobody_gets_a_layout_while_one_is_recalled_nor_before_the_change_had_its_turn() {
        let mut state = granted(&[(B, LayoutMode::Read)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Truncate, s(10));
        for holder in [A, B] {
            let refused = state.layouts().grant(FILE, holder, LayoutMode::ReadWrite, s(1));
            assert_eq!(refused, Err(FileStateError::RecallConflict));
        }
        state.layouts().give_back(FILE, B, LayoutModes::ALL);
        let refused = state.layouts().grant(FILE, B, LayoutMode::Read, s(1));
        assert_eq!(refused, Err(FileStateError::RecallConflict), "the change comes first");
        assert_eq!(state.changes().ask(FILE, Some(A), Change::Truncate, s(12)), ChangeVerdict::Proceed);
        assert!(state.layouts().grant(FILE, B, LayoutMode::Read, s(1)).is_ok());
    }

    #[test]
    fn a_change_that_never_comes_back_blocks_until_the_deadline_only() {
        let mut state = granted(&[(B, LayoutMode::Read)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Truncate, s(10));
        state.layouts().give_back(FILE, B, LayoutModes::ALL);
        assert!(state.expired_recalls(s(9), s(19)).is_empty());
        assert!(state.layouts().grant(FILE, B, LayoutMode::Read, s(9)).is_err());
        assert!(state.expired_recalls(s(10), s(20)).is_empty());
        assert!(state.is_empty());
    }

    #[test]
    fn a_change_that_its_holder_withdraws_keeps_layouts_from_nobody() {
        let mut state = granted(&[(B, LayoutMode::Read)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Replace, s(10));
        state.layouts().give_back(FILE, B, LayoutModes::ALL);
        state.changes().withdraw(FILE, B);
        assert!(state.layouts().grant(FILE, B, LayoutMode::Read, s(1)).is_err(), "it is A that waits");
        state.changes().withdraw(FILE, A);
        assert!(state.is_empty());
        assert!(state.layouts().grant(FILE, B, LayoutMode::Read, s(1)).is_ok());
        state.changes().withdraw(FILE, A);
    }

    #[test]
    fn a_recall_goes_on_after_its_change_is_withdrawn() {
        let mut state = granted(&[(B, LayoutMode::Read)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Replace, s(10));
        state.changes().withdraw(FILE, A);
        let refused = state.layouts().grant(FILE, B, LayoutMode::ReadWrite, s(1));
        assert_eq!(refused, Err(FileStateError::RecallConflict));
        assert_eq!(state.expired_recalls(s(10), s(11)).len(), 1);
        state.layouts().give_back(FILE, B, LayoutModes::ALL);
        assert!(state.layouts().grant(FILE, B, LayoutMode::ReadWrite, s(11)).is_ok());
    }

    #[test]
    fn a_recall_that_is_not_answered_is_revoked_again_and_again_until_the_layout_is_gone() {
        let mut state = granted(&[(B, LayoutMode::ReadWrite)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Truncate, s(10));
        assert!(state.expired_recalls(s(9), s(10)).is_empty());
        let granted = Granted::Layout(LayoutModes::only(LayoutMode::ReadWrite));
        let revoke = Revoke { file: FILE, holder: B, granted, is_overdue: true };
        assert_eq!(state.expired_recalls(s(10), s(11)), [revoke]);
        assert_eq!(state.expired_recalls(s(10), s(11)), []);
        assert_eq!(state.expired_recalls(s(11), s(12)), [revoke]);
        state.layouts().give_back(FILE, B, LayoutModes::ALL);
        assert_eq!(state.expired_recalls(s(99), s(100)), []);
        assert!(state.is_empty());
    }

    #[test]
    fn a_recall_without_a_path_is_due_at_once() {
        let mut state = granted(&[(B, LayoutMode::ReadWrite)]);
        let _ = state.changes().ask(FILE, None, Change::Truncate, s(10));
        state.recalls().expire(FILE, B, GrantKind::Layout);
        assert_eq!(state.expired_recalls(s(1), s(2)).len(), 1);
        state.recalls().expire(FILE, A, GrantKind::Layout);
    }

    #[test]
    fn a_recall_that_was_not_heard_is_told_again_under_its_first_deadline() {
        let mut state = granted(&[(B, LayoutMode::ReadWrite)]);
        let _ = state.changes().ask(FILE, Some(A), Change::Truncate, s(10));
        state.recalls().note_unheard(FILE, B, GrantKind::Layout);
        let ChangeVerdict::Wait { recalls } = state.changes().ask(FILE, Some(A), Change::Truncate, s(15))
        else {
            panic!()
        };
        assert!(recalls.len() == 1 && recalls[0].is_repeated);
        let again = state.changes().ask(FILE, Some(A), Change::Truncate, s(15));
        assert_eq!(again, ChangeVerdict::Wait { recalls: vec![] });
        assert_eq!(state.expired_recalls(s(10), s(11)).len(), 1);
    }

    #[test]
    fn a_holder_can_be_released_of_one_file() {
        let mut state = granted(&[(A, LayoutMode::ReadWrite)]);
        state.open(FILE, owner(A, 1), share(1, 0)).unwrap();
        state.open(FileId(8), owner(A, 1), share(1, 0)).unwrap();
        state.release(FILE, A);
        assert_eq!(
            (state.holders().files_of(A).collect::<Vec<_>>(), state.holders().iter().collect::<Vec<_>>()),
            (vec![FileId(8)], vec![A])
        );
        state.release(FileId(8), A);
        assert!(state.is_empty());
    }

    #[test]
    fn returning_one_mode_keeps_the_other_and_the_recall() {
        let mut state = granted(&[(B, LayoutMode::ReadWrite), (B, LayoutMode::Read)]);
        assert_eq!(state.holders().held(B).layouts, 1);
        let _ = state.changes().ask(FILE, None, Change::Truncate, s(10));
        let left = state.layouts().give_back(FILE, B, LayoutModes::only(LayoutMode::Read));
        assert_eq!(left, LayoutModes::only(LayoutMode::ReadWrite));
        assert_eq!(state.expired_recalls(s(10), s(11)).len(), 1);
    }

    #[test]
    fn at_the_bound_a_client_gets_no_layout_of_another_file() {
        let mut state = FileState::new(Limits { layouts_per_holder: 1, ..Limits::default() });
        state.layouts().grant(FILE, A, LayoutMode::Read, s(0)).unwrap();
        let refused = state.layouts().grant(FileId(8), A, LayoutMode::Read, s(0));
        assert_eq!(refused, Err(FileStateError::Limit("layouts of a client")));
        assert!(state.layouts().grant(FILE, A, LayoutMode::ReadWrite, s(0)).is_ok());
    }

    #[test]
    fn a_layout_keeps_an_unlinked_file_in_use() {
        let mut state = granted(&[(A, LayoutMode::Read)]);
        assert!(state.file(FILE).is_in_use());
        state.release_holder(A);
        assert!(!state.file(FILE).is_in_use() && state.is_empty());
    }

    #[test]
    fn a_closed_pool_recalls_the_layouts_of_all_and_delegations_of_nobody() {
        let mut state = granted(&[(A, LayoutMode::Read), (B, LayoutMode::Read)]);
        state.delegations().grant(FILE, A, DelegationKind::Read, s(0)).unwrap();
        let recalled: Vec<_> = state
            .changes()
            .recall_layouts(FILE, s(9))
            .iter()
            .map(|recall| (recall.holder, recall.granted))
            .collect();
        assert_eq!(recalled, [(A, Granted::Layout(READ_LAYOUT)), (B, Granted::Layout(READ_LAYOUT))]);
        assert!(state.changes().recall_layouts(FILE, s(9)).is_empty(), "they were asked");
        assert_eq!(state.expired_recalls(s(9), s(10)).len(), 2);
    }

    #[test]
    fn it_is_known_when_a_layout_was_granted_last() {
        let mut state = granted(&[(A, LayoutMode::Read)]);
        state.layouts().grant(FILE, A, LayoutMode::ReadWrite, s(4)).unwrap();
        state.layouts().give_back(FILE, A, LayoutModes::only(LayoutMode::Read));
        assert_eq!(state.file(FILE).layout_granted(A), Some(s(4)));
        assert_eq!(state.file(FILE).layout_granted(B), None);
    }

    #[test]
    fn layouts_are_listed_by_holder_and_altogether() {
        let mut state = granted(&[(A, LayoutMode::Read), (B, LayoutMode::ReadWrite)]);
        state.open(FileId(8), owner(A, 1), share(1, 0)).unwrap();
        assert_eq!(state.layouts_of(A).collect::<Vec<_>>(), [(FILE, LayoutModes::only(LayoutMode::Read))]);
        assert_eq!(state.all_layouts().count(), 2);
    }
}

mod at_once;
mod delegations;
mod in_the_way;
mod together;
mod waiters;
