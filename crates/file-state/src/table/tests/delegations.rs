//! Delegations: who gets one, what brings it back; and a reference that knows all rules of all kinds of state.

use super::*;
use DelegationKind::{Read, Write};

const READING: Change = Change::Access(Share { access: Modes::READ, deny: Modes::NONE });
const WRITING: Change = Change::Access(Share { access: Modes::WRITE, deny: Modes::NONE });

fn delegated(holders: &[Holder], kind: DelegationKind) -> FileState {
    let mut state = FileState::default();
    for holder in holders {
        state.delegations().grant(FILE, *holder, kind, s(0)).unwrap();
    }
    state
}

fn recall_of(holder: Holder, kind: DelegationKind) -> Recall {
    Recall { file: FILE, holder, granted: Granted::Delegation(kind), is_repeated: false }
}

#[test]
fn readers_share_a_delegation_and_a_writer_is_alone_with_one() {
    let mut state = delegated(&[A, B], Read);
    assert_eq!(state.delegations().grant(FILE, holder(3), Write, s(0)), Err(FileStateError::InUse));
    assert_eq!(
        state.delegations().grant(FILE, A, Read, s(0)),
        Err(FileStateError::InUse),
        "one of a file is enough"
    );
    let mut state = delegated(&[A], Write);
    for kind in [Read, Write] {
        assert_eq!(state.delegations().grant(FILE, B, kind, s(0)), Err(FileStateError::InUse));
    }
}

#[test]
fn the_only_reader_gets_a_write_delegation_in_place_of_its_read_delegation() {
    let mut state = delegated(&[A, B], Read);
    assert_eq!(
        state.delegations().grant(FILE, A, Write, s(0)),
        Err(FileStateError::InUse),
        "another one reads"
    );
    state.delegations().give_back(FILE, B);
    state.delegations().grant(FILE, A, Write, s(0)).unwrap();
    assert_eq!((state.file(FILE).delegation_of(A), state.holders().held(A).delegations), (Some(Write), 1));
    for less in [Read, Write] {
        assert_eq!(
            state.delegations().grant(FILE, A, less, s(0)),
            Err(FileStateError::InUse),
            "it has as much already"
        );
    }
    assert_eq!(
        (state.file(FILE).writer_beside(None), state.file(FILE).writer_beside(Some(B))),
        (Some(A), Some(A))
    );
    assert_eq!(state.file(FILE).writer_beside(Some(A)), None, "nobody is asked what he has written himself");
    assert_eq!(state.delegations().give_back(FILE, A), Some(Write));
    assert!(state.is_empty());
}

#[test]
fn a_delegation_that_is_recalled_does_not_become_one_to_write() {
    let mut state = delegated(&[A], Read);
    let _ = state.changes().ask(FILE, Some(B), WRITING, s(10));
    assert_eq!(state.delegations().grant(FILE, A, Write, s(1)), Err(FileStateError::RecallConflict));
    assert_eq!(state.file(FILE).delegation_of(A), Some(Read));
}

#[test]
fn a_file_that_others_write_or_deny_is_not_delegated() {
    for (access, deny, reads, writes) in [
        (1, 0, true, false),
        (2, 0, false, false),
        (3, 0, false, false),
        (1, 1, false, false),
        (1, 2, true, false),
    ] {
        let mut state = FileState::default();
        state.open(FILE, owner(A, 1), share(access, deny)).unwrap();
        assert_eq!(state.delegations().grant(FILE, B, Write, s(0)).is_ok(), writes, "{access} {deny}");
        assert_eq!(state.delegations().grant(FILE, B, Read, s(0)).is_ok(), reads, "{access} {deny}");
    }
    let mut state = FileState::default();
    state.layouts().grant(FILE, A, LayoutMode::ReadWrite, s(0)).unwrap();
    assert_eq!(
        state.delegations().grant(FILE, B, Read, s(0)),
        Err(FileStateError::InUse),
        "it writes at the pools"
    );
    assert!(
        state.delegations().grant(FILE, A, Write, s(0)).is_ok(),
        "its own opens and layouts are no matter"
    );
}

#[test]
fn a_writer_waits_for_read_delegations_of_others_and_a_reader_does_not() {
    let mut state = delegated(&[A, B], Read);
    assert_eq!(state.open(FILE, owner(B, 2), share(1, 1)), Err(FileStateError::RecallConflict));
    assert_eq!(state.open(FILE, owner(B, 2), share(2, 0)), Err(FileStateError::RecallConflict));
    assert!(state.open(FILE, owner(B, 1), share(1, 0)).is_ok());
    assert_eq!(state.changes().ask(FILE, Some(B), READING, s(9)), ChangeVerdict::Proceed);
    let waiting = ChangeVerdict::Wait { recalls: vec![recall_of(A, Read)] };
    assert_eq!(state.changes().ask(FILE, Some(B), WRITING, s(9)), waiting);
    assert_eq!(state.delegations().give_back(FILE, A), Some(Read));
    assert_eq!(state.changes().ask(FILE, Some(B), WRITING, s(9)), ChangeVerdict::Proceed);
    assert!(state.open(FILE, owner(B, 2), share(2, 0)).is_ok());
    assert_eq!(state.file(FILE).delegation_of(B), Some(Read), "nobody waits for himself");
}

#[test]
fn every_change_brings_a_delegation_home_and_a_write_delegation_every_access_too() {
    let changes = [
        Change::Truncate,
        Change::Replace,
        Change::Remove,
        Change::Rename,
        Change::Link,
        Change::SetAttributes,
    ];
    for change in changes {
        for kind in [Read, Write] {
            let mut state = delegated(&[A], kind);
            let waiting = ChangeVerdict::Wait { recalls: vec![recall_of(A, kind)] };
            assert_eq!(state.changes().ask(FILE, Some(A), change, s(9)), ChangeVerdict::Proceed);
            assert_eq!(state.changes().ask(FILE, Some(B), change, s(9)), waiting, "{change:?}");
            let mut state = delegated(&[A], kind);
            assert_eq!(state.changes().ask(FILE, None, change, s(9)), waiting, "{change:?}");
        }
    }
    let mut state = delegated(&[A], Write);
    assert_eq!(state.open(FILE, owner(B, 1), share(1, 0)), Err(FileStateError::RecallConflict));
    assert_eq!(state.file(FILE).check_io(B, Modes::READ), Err(FileStateError::RecallConflict));
    assert!(state.file(FILE).check_io(A, Modes::BOTH).is_ok());
}

#[test]
fn a_delegation_is_in_the_way_of_io_before_a_denial_is() {
    let mut state = delegated(&[A], Write);
    state.open(FILE, owner(A, 1), share(3, 3)).unwrap();
    assert_eq!(state.file(FILE).check_io(B, Modes::READ), Err(FileStateError::RecallConflict));
    state.delegations().give_back(FILE, A);
    assert_eq!(state.file(FILE).check_io(B, Modes::READ), Err(FileStateError::ShareDenied));
}

#[test]
fn nobody_is_delegated_what_a_change_waits_for_or_is_under_way_for() {
    let mut state = delegated(&[A], Read);
    let _ = state.changes().ask(FILE, Some(B), WRITING, s(10));
    assert_eq!(state.delegations().grant(FILE, holder(3), Read, s(1)), Err(FileStateError::RecallConflict));
    state.delegations().give_back(FILE, A);
    assert_eq!(
        state.delegations().grant(FILE, A, Read, s(1)),
        Err(FileStateError::RecallConflict),
        "the change comes first"
    );
    assert!(state.layouts().grant(FILE, A, LayoutMode::Read, s(1)).is_ok(), "a writer minds no layouts");
    assert_eq!(state.changes().ask(FILE, Some(B), WRITING, s(10)), ChangeVerdict::Proceed);
    state.changes().begin(FILE);
    assert_eq!(state.delegations().grant(FILE, A, Read, s(1)), Err(FileStateError::RecallConflict));
    state.changes().end(FILE);
    assert!(state.delegations().grant(FILE, A, Read, s(1)).is_ok());
}

#[test]
fn a_change_under_way_is_forgotten_with_its_end() {
    let mut state = FileState::default();
    state.changes().begin(FILE);
    state.changes().begin(FILE);
    state.changes().end(FILE);
    assert!(state.delegations().grant(FILE, A, Read, s(0)).is_err());
    state.changes().end(FILE);
    assert!(state.is_empty());
}

#[test]
fn a_truncation_recalls_a_delegation_before_the_layout_it_covers() {
    let mut state = delegated(&[A], Read);
    state.layouts().grant(FILE, A, LayoutMode::Read, s(0)).unwrap();
    let ChangeVerdict::Wait { recalls } = state.changes().ask(FILE, Some(B), Change::Truncate, s(9)) else {
        panic!()
    };
    let granted: Vec<_> = recalls.iter().map(|recall| recall.granted).collect();
    assert_eq!(granted, [Granted::Delegation(Read), Granted::Layout(READ_LAYOUT)]);
    assert_eq!(state.expired_recalls(s(9), s(10)).len(), 2);
    state.release_holder(A);
    assert!(state.expired_recalls(s(99), s(100)).is_empty());
    assert!(state.is_empty());
}

#[test]
fn a_delegation_that_is_not_given_back_is_due_at_its_deadline_and_again_until_it_is_taken() {
    let mut state = delegated(&[A], Read);
    let _ = state.changes().ask(FILE, Some(B), Change::Remove, s(10));
    assert!(state.expired_recalls(s(9), s(10)).is_empty());
    let revoke = Revoke { file: FILE, holder: A, granted: Granted::Delegation(Read), is_overdue: true };
    assert_eq!(state.expired_recalls(s(10), s(12)), [revoke]);
    assert_eq!(state.expired_recalls(s(12), s(14)), [revoke]);
    state.recalls().expire(FILE, A, GrantKind::Delegation);
    assert_eq!(state.expired_recalls(s(12), s(14)), [revoke], "its time had passed before");
    state.delegations().give_back(FILE, A);
    assert!(state.expired_recalls(s(99), s(100)).is_empty());
    assert!(state.is_empty());
}

#[test]
fn a_delegation_that_its_holder_does_not_know_is_not_overdue_however_often_its_fence_fails() {
    let mut state = delegated(&[A], Read);
    let _ = state.changes().ask(FILE, Some(B), Change::Remove, s(10));
    state.recalls().expire(FILE, A, GrantKind::Delegation);
    let revoke = Revoke { file: FILE, holder: A, granted: Granted::Delegation(Read), is_overdue: false };
    for now in [1, 3, 20] {
        assert_eq!(state.expired_recalls(s(now), s(now + 2)), [revoke]);
    }
    state.delegations().give_back(FILE, A);
    assert!(state.expired_recalls(s(99), s(100)).is_empty());
    assert!(state.is_empty());
}

#[test]
fn a_holder_whose_delegation_is_being_taken_gets_no_layout_by_it() {
    let mut state = delegated(&[A], Write);
    let _ = state.changes().ask(FILE, Some(B), Change::Remove, s(10));
    assert!(state.expired_recalls(s(9), s(11)).is_empty());
    assert_eq!(state.layouts().grant(FILE, A, LayoutMode::ReadWrite, s(9)), Ok(()), "it has its time");
    state.layouts().give_back(FILE, A, LayoutModes::ALL);
    assert_eq!(state.expired_recalls(s(10), s(12)).len(), 1, "it has no layout to fence off");
    for mode in [LayoutMode::Read, LayoutMode::ReadWrite] {
        assert_eq!(state.layouts().grant(FILE, A, mode, s(10)), Err(FileStateError::RecallConflict));
    }
    state.delegations().give_back(FILE, A);
    assert!(state.expired_recalls(s(99), s(100)).is_empty());
    assert!(state.is_empty());
}

#[test]
fn a_delegation_is_an_open_of_its_holder() {
    let mut state = delegated(&[A], Read);
    assert_eq!((state.file(FILE).access_of(A), state.file(FILE).access_of(B)), (Modes::READ, Modes::NONE));
    assert!(state.file(FILE).is_in_use(), "a file without a name keeps its data for it");
    assert!(!state.file(FILE).is_open_for_writing());
    assert!(
        state.holders().has_delegations_of_others(Some(B))
            && !state.holders().has_delegations_of_others(Some(A))
    );
    state.release_holder(A);
    assert!(state.is_empty());
    let state = delegated(&[A], Write);
    assert!(state.file(FILE).is_open_for_writing());
}

#[test]
fn at_the_bound_a_client_gets_no_delegation() {
    let mut state = FileState::new(Limits { delegations_per_holder: 1, ..Limits::default() });
    state.delegations().grant(FILE, A, Read, s(0)).unwrap();
    let refused = state.delegations().grant(FileId(8), A, Read, s(0));
    assert_eq!(refused, Err(FileStateError::Limit("delegations of a client")));
    assert!(state.delegations().grant(FileId(8), B, Read, s(0)).is_ok());
}

#[test]
fn a_client_that_never_hears_its_recalls_keeps_nobody_elses_from_being_told_again() {
    let mut state = FileState::default();
    let recalled = |state: &mut FileState, holder, file| {
        state.delegations().grant(file, holder, Read, s(0)).unwrap();
        let _ = state.changes().ask(file, None, Change::Remove, s(10));
        state.recalls().note_unheard(file, holder, GrantKind::Delegation);
    };
    (1..=9).for_each(|file| recalled(&mut state, A, FileId(file)));
    (11..=12).for_each(|file| recalled(&mut state, B, FileId(file)));
    let mut round = |each, max| {
        let again = state.recalls().repeat_unheard(DOOR, each, max);
        // Nobody hears of them this time either.
        again.iter().for_each(|recall| {
            state.recalls().note_unheard(recall.file, recall.holder, GrantKind::Delegation)
        });
        again.iter().map(|recall| recall.file.0).collect::<Vec<_>>()
    };
    assert_eq!(round(2, 3), [1, 2, 11], "some of each");
    assert_eq!(round(2, 3), [3, 4, 12], "and then the next");
    assert_eq!(round(2, 3), [5, 6, 11]);
    assert_eq!(round(4, 4), [7, 8, 9, 1]);
    assert_eq!(round(9, 9), [12, 11, 2, 3, 4, 5, 6, 7, 8], "each once");
    state.release_holder(A);
    state.release_holder(B);
    state.expired_recalls(s(99), s(100));
    assert!(state.is_empty());
}

#[test]
fn a_recall_that_nobody_could_be_told_of_is_told_again_under_its_first_deadline() {
    let mut state = delegated(&[A], Read);
    state.recalls().note_unheard(FILE, A, GrantKind::Delegation);
    assert_eq!(state.recalls().repeat_unheard(DOOR, 9, 9), [], "nothing is under way");
    let _ = state.changes().ask(FILE, Some(B), Change::Remove, s(10));
    state.recalls().note_unheard(FILE, A, GrantKind::Delegation);
    assert_eq!(state.recalls().repeat_unheard(OTHER_DOOR, 9, 9), []);
    assert_eq!(state.recalls().repeat_unheard(DOOR, 9, 0), []);
    let again = Recall { is_repeated: true, ..recall_of(A, Read) };
    assert_eq!(state.recalls().repeat_unheard(DOOR, 9, 9), [again]);
    assert_eq!(state.recalls().repeat_unheard(DOOR, 9, 9), [], "once");
    state.recalls().note_unheard(FILE, A, GrantKind::Delegation);
    assert_eq!(state.expired_recalls(s(10), s(11)).len(), 1);
    state.delegations().give_back(FILE, A);
    state.expired_recalls(s(99), s(100));
    assert!(state.is_empty());
}

#[test]
fn another_change_that_proceeds_takes_nothing_from_one_that_waits() {
    let mut state = delegated(&[A], Read);
    state.layouts().grant(FILE, A, LayoutMode::Read, s(0)).unwrap();
    let _ = state.changes().ask(FILE, Some(B), Change::Truncate, s(20));
    // A third client waits for the delegation too, and somebody reads.
    let _ = state.changes().ask(FILE, Some(holder(3)), WRITING, s(10));
    assert_eq!(state.changes().ask(FILE, Some(holder(4)), READING, s(10)), ChangeVerdict::Proceed);
    state.release_holder(A);
    let refused = state.layouts().grant(FILE, A, LayoutMode::Read, s(15));
    assert_eq!(refused, Err(FileStateError::RecallConflict), "the truncation has not had its turn");
    assert_eq!(state.changes().ask(FILE, Some(holder(3)), WRITING, s(10)), ChangeVerdict::Proceed);
    assert!(state.layouts().grant(FILE, A, LayoutMode::Read, s(15)).is_ok());
}

mod model {
    //! Random steps of several holders on a few files; after each no grants conflict, and a holder without state is not
    //! known.

    use super::*;

    const HOLDERS: u64 = 3;
    const FILES: u64 = 2;
    /// A million steps in all.
    const RUNS: usize = 10_000;
    const STEPS: usize = 100;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Open(u32, u32),
        Close,
        Delegate(DelegationKind),
        Return,
        Layout(LayoutMode),
        ReturnLayout,
        Change(Change),
        EndChange,
        Expire(u64),
        Release,
        /// Nothing but time.
        Renew,
    }

    trait Throws {
        fn step(&mut self) -> Step;
    }

    impl Throws for Dice {
        fn step(&mut self) -> Step {
            match self.below(22) {
                0..4 => Step::Open(1 + self.below(3) as u32, self.of(&[0, 0, 1, 2])),
                4..6 => Step::Close,
                6..10 => Step::Delegate(self.of(&[Read, Write])),
                10..12 => Step::Return,
                12 => Step::Layout(self.of(&[LayoutMode::Read, LayoutMode::ReadWrite])),
                13 => Step::ReturnLayout,
                14..17 => Step::Change(self.of(&[
                    READING,
                    WRITING,
                    Change::Truncate,
                    Change::Remove,
                    Change::SetAttributes,
                ])),
                17..19 => Step::EndChange,
                19 => Step::Expire(1 + self.below(19)),
                20 => Step::Release,
                _ => Step::Renew,
            }
        }
    }

    /// All that was answered with success, as lists: each pair is compared.
    #[derive(Default)]
    struct Model {
        opens: Vec<(FileId, Holder, Share)>,
        layouts: Vec<(FileId, Holder, LayoutMode)>,
        delegations: Vec<(FileId, Holder, DelegationKind)>,
        changing: Vec<(FileId, Holder)>,
    }

    impl Model {
        fn check(&self, state: &FileState) {
            for (file, holder, kind) in &self.delegations {
                assert_eq!(state.file(*file).delegation_of(*holder), Some(*kind));
                let others = self.delegations.iter().filter(|(of, other, _)| of == file && other != holder);
                for (_, _, other) in others {
                    assert!(*kind == Read && *other == Read);
                }
                for (_, _, share) in self.opens.iter().filter(|(of, other, _)| of == file && other != holder)
                {
                    assert!(*kind == Read && !share.access.contains(Modes::WRITE));
                }
                assert!(!self.changing.iter().any(|(of, by)| of == file && by != holder));
                let layouts = self.layouts.iter().filter(|(of, other, _)| of == file && other != holder);
                for (_, _, mode) in layouts {
                    assert!(*kind == Read && *mode == LayoutMode::Read, "it writes at the pools");
                }
                if *kind == Write {
                    assert_eq!(state.file(*file).writer_beside(None), Some(*holder));
                    assert_eq!(state.file(*file).writer_beside(Some(*holder)), None);
                }
            }
            assert_eq!(state.holders().delegations, self.delegations.len());
            assert_eq!(state.holders().delegations, self.delegations.len());
        }

        fn delegation(&self, file: FileId, holder: Holder) -> Option<DelegationKind> {
            let of_holder = self.delegations.iter().find(|(of, who, _)| (*of, *who) == (file, holder));
            of_holder.map(|(_, _, kind)| *kind)
        }

        fn forget(&mut self, holder: Holder) {
            self.layouts.retain(|(_, who, _)| *who != holder);
            self.opens.retain(|(_, who, _)| *who != holder);
            self.delegations.retain(|(_, who, _)| *who != holder);
        }
    }

    fn run(dice: &mut Dice) {
        let (mut state, mut model, mut now) = (FileState::default(), Model::default(), 0);
        for _ in 0..STEPS {
            let (who, file) = (holder(1 + dice.below(HOLDERS)), FileId(1 + dice.below(FILES)));
            match dice.step() {
                Step::Open(access, deny) => {
                    let share = share(access, deny);
                    if let Ok(all) = state.open(file, owner(who, 1), share) {
                        model.opens.retain(|(of, other, _)| (*of, *other) != (file, who));
                        model.opens.push((file, who, all));
                    }
                }
                Step::Close => {
                    state.close(file, owner(who, 1));
                    model.opens.retain(|(of, other, _)| (*of, *other) != (file, who));
                }
                Step::Delegate(kind) => {
                    if state.delegations().grant(file, who, kind, s(now)).is_ok() {
                        assert!(!model.changing.iter().any(|(of, _)| *of == file), "a change is under way");
                        let before = model.delegation(file, who);
                        assert!(before.is_none_or(|before| before == Read && kind == Write), "{before:?}");
                        model.delegations.retain(|(of, other, _)| (*of, *other) != (file, who));
                        model.delegations.push((file, who, kind));
                    }
                }
                Step::Return => {
                    let returned = state.delegations().give_back(file, who).is_some();
                    let before = model.delegations.len();
                    model.delegations.retain(|(of, other, _)| (*of, *other) != (file, who));
                    assert_eq!(returned, model.delegations.len() < before);
                }
                Step::Layout(mode) => {
                    if state.layouts().grant(file, who, mode, s(now)).is_ok() {
                        model.layouts.push((file, who, mode));
                    }
                }
                Step::ReturnLayout => {
                    state.layouts().give_back(file, who, LayoutModes::ALL);
                    model.layouts.retain(|(of, other, _)| (*of, *other) != (file, who));
                }
                Step::Change(change) => {
                    if state.changes().ask(file, Some(who), change, s(now + 10)) == ChangeVerdict::Proceed
                        && !matches!(change, READING)
                    {
                        state.changes().begin(file);
                        model.changing.push((file, who));
                    }
                }
                Step::EndChange => {
                    if let Some((file, _)) = model.changing.pop() {
                        state.changes().end(file);
                    }
                }
                Step::Expire(later) => {
                    now += later;
                    for revoke in state.expired_recalls(s(now), s(now + 2)) {
                        if let Granted::Delegation(_) = revoke.granted {
                            state.delegations().give_back(revoke.file, revoke.holder);
                            let gone = (revoke.file, revoke.holder);
                            model.delegations.retain(|(of, other, _)| (*of, *other) != gone);
                        }
                    }
                }
                Step::Release => {
                    state.release_holder(who);
                    model.forget(who);
                }
                Step::Renew => now += 1,
            }
            model.check(&state);
        }
        for (file, _) in std::mem::take(&mut model.changing) {
            state.changes().end(file);
        }
        for number in 0..HOLDERS {
            state.release_holder(holder(number + 1));
        }
        state.expired_recalls(s(now + 100), s(now + 200));
        assert!(state.is_empty(), "state outlives its holders: {state:?}");
    }

    #[test]
    fn no_two_conflicting_grants_and_nothing_outlives_its_holder() {
        let mut dice = Dice::seeded(0x9e37_79b9_7f4a_7c15);
        for _ in 0..RUNS {
            run(&mut dice);
        }
    }
}
