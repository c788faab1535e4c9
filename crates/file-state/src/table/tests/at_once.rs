//! Recalls of all layouts of a holder by one question.

use super::*;

const OTHER: FileId = FileId(8);
const ELSEWHERE: FileId = FileId(9);

/// A has layouts of all three files, and B of the first.
fn held() -> FileState {
    let mut state = FileState::default();
    for file in [FILE, OTHER, ELSEWHERE] {
        state.layouts().grant(file, A, LayoutMode::ReadWrite, s(0)).unwrap();
    }
    state.layouts().grant(FILE, B, LayoutMode::Read, s(0)).unwrap();
    state
}

fn asked() -> FileState {
    let mut state = held();
    assert_eq!(state.recalls().begin_at_once(A, &[FILE, OTHER, FileId(10)], s(10)), 2);
    state
}

fn get(state: &mut FileState, file: FileId, holder: Holder) -> Result<(), FileStateError> {
    state.layouts().grant(file, holder, LayoutMode::ReadWrite, s(1))
}

#[test]
fn a_holder_asked_for_all_layouts_gets_no_new_one_until_the_recalled_ones_are_back() {
    let mut state = asked();
    assert!(state.under_way.at_once.has(A) && !state.under_way.at_once.has(B));
    assert_eq!(get(&mut state, FileId(11), A), Err(FileStateError::RecallConflict), "of no file");
    assert_eq!(get(&mut state, FileId(11), B), Ok(()), "others do");
    state.layouts().give_back(FILE, A, LayoutModes::ALL);
    assert_eq!(get(&mut state, ELSEWHERE, A), Err(FileStateError::RecallConflict));
    state.layouts().give_back(OTHER, A, LayoutModes::ALL);
    assert!(!state.under_way.at_once.has(A));
    assert_eq!(get(&mut state, ELSEWHERE, A), Ok(()), "what is elsewhere was not waited for");
}

#[test]
fn each_of_the_layouts_has_its_own_recall_and_is_taken_in_time() {
    let mut state = asked();
    assert!(state.changes().recall_layouts(OTHER, s(20)).is_empty(), "it was asked for");
    assert_eq!(state.file(FILE).layout_holders_to_recall().collect::<Vec<_>>(), [B]);
    assert!(state.expired_recalls(s(9), s(11)).is_empty());
    let due: Vec<_> = state.expired_recalls(s(10), s(12)).iter().map(|due| (due.file, due.holder)).collect();
    assert_eq!(due, [(FILE, A), (OTHER, A)], "and not what is elsewhere");
}

#[test]
fn after_its_deadline_a_holder_gets_layouts_elsewhere_while_the_fence_is_waited_for() {
    let mut state = asked();
    let _ = state.expired_recalls(s(10), s(12));
    assert!(!state.under_way.at_once.has(A));
    assert_eq!(get(&mut state, FILE, A), Err(FileStateError::RecallConflict));
    assert_eq!(get(&mut state, ELSEWHERE, A), Ok(()));
}

#[test]
fn a_recall_of_one_layout_meanwhile_does_not_end_the_question() {
    let mut state = asked();
    let _ = state.changes().ask(ELSEWHERE, Some(B), Change::Truncate, s(20));
    state.recalls().expire(ELSEWHERE, A, GrantKind::Layout);
    assert_eq!(state.expired_recalls(s(1), s(3)).len(), 1);
    assert!(state.under_way.at_once.has(A));
    state.recalls().expire_at_once(A);
    assert_eq!(state.expired_recalls(s(2), s(4)).len(), 2, "what it was asked for at once");
}

#[test]
fn a_question_ends_with_its_holder() {
    let mut state = asked();
    state.release_holder(A);
    assert!(!state.under_way.at_once.has(A));
}

#[test]
fn a_holder_that_denies_having_layouts_is_fenced_off_at_once_and_gets_others() {
    let mut state = asked();
    state.recalls().expire_at_once(A);
    assert_eq!(get(&mut state, FILE, A), Err(FileStateError::RecallConflict), "before the fence");
    assert_eq!(get(&mut state, ELSEWHERE, A), Ok(()));
    let due = state.expired_recalls(s(1), s(3));
    assert_eq!(
        due.iter().map(|due| (due.file, due.is_overdue)).collect::<Vec<_>>(),
        [(FILE, false), (OTHER, false)]
    );
}

#[test]
fn a_holder_that_rejects_the_question_is_asked_for_each_layout_as_if_for_the_first_time() {
    let mut state = asked();
    state.recalls().forget_at_once(A);
    assert!(!state.under_way.at_once.has(A) && state.expired_recalls(s(10), s(12)).is_empty());
    let recalls = state.changes().recall_layouts(OTHER, s(20));
    assert_eq!(recalls.iter().map(|recall| recall.is_repeated).collect::<Vec<_>>(), [false]);
    assert_eq!(state.expired_recalls(s(20), s(22)).len(), 1);
}

#[test]
fn a_late_answer_does_not_stop_a_revocation_that_has_begun() {
    let mut state = asked();
    assert_eq!(state.expired_recalls(s(10), s(12)).len(), 2);
    state.recalls().forget_at_once(A);
    assert_eq!(get(&mut state, FILE, A), Err(FileStateError::RecallConflict));
    assert_eq!(state.expired_recalls(s(12), s(14)).len(), 2);
}

#[test]
fn while_one_layout_of_a_holder_is_asked_for_alone_it_is_not_asked_for_all() {
    let mut state = held();
    let _ = state.changes().ask(ELSEWHERE, Some(B), Change::Truncate, s(10));
    assert_eq!(state.recalls().begin_at_once(A, &[FILE, OTHER], s(10)), 0);
    assert!(!state.under_way.at_once.has(A) && !state.file(FILE).is_recalled(A, GrantKind::Layout));
    state.layouts().give_back(ELSEWHERE, A, LayoutModes::ALL);
    assert_eq!(state.recalls().begin_at_once(A, &[FILE, OTHER], s(10)), 2);
    assert_eq!(state.recalls().begin_at_once(A, &[FILE, OTHER], s(10)), 0, "once");
}
