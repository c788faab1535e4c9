//! Before a change.

use file_state::DelegationKind;
use file_state::LayoutMode::{Read, ReadWrite};

use super::fakes::FakeRecaller;
use super::*;

async fn replace(files: &Arc<Files>, by: Option<Holder>, patience: Duration) -> Result<(), FilesError> {
    files.before_change(FILE, by, Change::Replace, patience).await.map(drop)
}

#[tokio::test]
async fn layouts_of_all_others_are_recalled_and_the_change_goes_on_when_they_are_back() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, true);
    granted(&files, A, ReadWrite);
    granted(&files, B, Read);
    replace(&files, Some(FOREIGN), LONG).await.unwrap();
    assert_eq!(clients.holders(), [A, B]);
    assert!(!files.is_in_use(FILE));
    granted(&files, A, ReadWrite);
    replace(&files, Some(A), LONG).await.unwrap();
    assert_eq!(clients.holders(), [A, B], "nobody is asked for its own");
}

#[tokio::test]
async fn a_change_whose_recall_is_unanswered_may_be_retried_and_the_recall_is_sent_once() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, false);
    granted(&files, A, ReadWrite);
    for _ in 0..2 {
        let refused = replace(&files, Some(FOREIGN), SHORT).await;
        assert!(matches!(&refused, Err(error @ FilesError::Recalled) if error.is_retryable()), "{refused:?}");
    }
    assert_eq!(clients.holders(), [A]);
    given_back(&files, A);
    replace(&files, Some(FOREIGN), Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_return_wakes_the_call_that_waits_for_it() {
    let (_fakes, files) = Fakes::files();
    FakeRecaller::attach(&files, DOOR, false);
    granted(&files, A, ReadWrite);
    let waiting = replace(&files, Some(FOREIGN), LONG);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    // Of another file: it looks again, and waits on.
    files.returned();
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    given_back(&files, A);
    waiting.await.unwrap();
}

#[tokio::test]
async fn the_holder_has_the_time_to_give_back_that_was_said() {
    let (fakes, files) = Fakes::files();
    granted(&files, A, ReadWrite);
    let _ = replace(&files, Some(FOREIGN), SHORT).await;
    let due_at = fakes.clock.monotonic() + LEASE;
    assert_eq!(files.table().expired_recalls(due_at - SHORT, due_at), []);
    assert_eq!(files.table().expired_recalls(due_at, due_at + LEASE).len(), 1);
}

#[tokio::test]
async fn a_door_is_asked_for_grants_of_its_own_clients() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, true);
    let of_other = FakeRecaller::attach(&files, OTHER_DOOR, true);
    granted(&files, A, Read);
    granted(&files, FOREIGN, Read);
    replace(&files, None, LONG).await.unwrap();
    assert_eq!((clients.holders(), of_other.holders()), (vec![A], vec![FOREIGN]));
}

#[tokio::test]
async fn a_file_locked_by_another_door_is_not_changed_and_nothing_is_recalled_for_it() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, true);
    granted(&files, A, Read);
    let owner = files.owner(FOREIGN);
    files.table().open(FILE, owner, deny_writing()).unwrap();
    for change in [Change::Truncate, Change::Replace, Change::Remove, Change::Rename] {
        for by in [Some(B), None] {
            let refused = files.before_change(FILE, by, change, LONG).await.map(drop);
            assert!(matches!(refused, Err(FilesError::Denied)), "{change:?} {by:?} {refused:?}");
        }
    }
    assert_eq!(files.table().file(FILE).judge_change(Some(B)), Err(file_state::FileStateError::ShareDenied));
    assert_eq!(clients.holders(), []);
    drop(files.before_change(FILE, Some(B), Change::SetAttributes, LONG).await.unwrap());
    replace(&files, Some(Holder::of(OTHER_DOOR, 2)), LONG).await.unwrap();
    files.table().close(FILE, owner);
    replace(&files, Some(B), LONG).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_comes_while_a_change_waits_stops_it() {
    let (_fakes, files) = Fakes::files();
    FakeRecaller::attach(&files, DOOR, false);
    granted(&files, A, Read);
    let waiting = replace(&files, Some(B), LONG);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    let owner = files.owner(FOREIGN);
    files.table().open(FILE, owner, deny_writing()).unwrap();
    files.returned();
    assert!(matches!(waiting.await, Err(FilesError::Denied)));
}

fn delegated(files: &Files, holder: Holder) {
    files.table().delegations().grant(FILE, holder, DelegationKind::Read, Duration::ZERO).unwrap();
}

fn writing() -> Change {
    Change::Access(Share::new(Modes::WRITE, Modes::NONE))
}

#[tokio::test]
async fn delegations_of_others_come_home_before_a_change_and_none_is_given_while_it_is_made() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, true);
    delegated(&files, A);
    delegated(&files, B);
    let changing = files.before_change(FILE, Some(A), Change::SetAttributes, LONG).await.unwrap();
    assert_eq!(clients.holders(), [B]);
    assert!(files.table().delegations().grant(FILE, B, DelegationKind::Read, Duration::ZERO).is_err());
    drop(changing);
    delegated(&files, B);
}

#[tokio::test]
async fn a_delegation_that_came_between_is_asked_for_after_the_change() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, false);
    files.call_back(FILE, Some(B), writing());
    delegated(&files, A);
    files.call_back(FILE, Some(A), writing());
    assert_eq!(clients.holders(), []);
    files.call_back(FILE, Some(B), writing());
    files.call_back(FILE, Some(B), writing());
    assert_eq!(clients.holders(), [A], "once");
}
