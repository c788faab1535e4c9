//! Before a change.

use file_state::DelegationKind;
use file_state::LayoutMode::{Read, ReadWrite};

use super::fakes::FakeRecaller;
use super::*;

async fn replace(
    access: &Arc<FileAccess>,
    by: Option<Holder>,
    patience: Duration,
) -> Result<(), AccessError> {
    access.before_change(FILE, by, Change::Replace, patience).await.map(drop)
}

#[tokio::test]
async fn layouts_of_all_others_are_recalled_and_the_change_goes_on_when_they_are_back() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, true);
    granted(&access, A, ReadWrite);
    granted(&access, B, Read);
    replace(&access, Some(WEB), LONG).await.unwrap();
    assert_eq!(clients.holders(), [A, B]);
    assert!(!access.is_in_use(FILE));
    granted(&access, A, ReadWrite);
    replace(&access, Some(A), LONG).await.unwrap();
    assert_eq!(clients.holders(), [A, B], "nobody is asked for its own");
}

#[tokio::test]
async fn a_change_whose_recall_is_unanswered_may_be_retried_and_the_recall_is_sent_once() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, false);
    granted(&access, A, ReadWrite);
    for _ in 0..2 {
        let refused = replace(&access, Some(WEB), SHORT).await;
        assert!(
            matches!(&refused, Err(error @ AccessError::Recalled) if error.is_retryable()),
            "{refused:?}"
        );
    }
    assert_eq!(clients.holders(), [A]);
    given_back(&access, A);
    replace(&access, Some(WEB), Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_return_wakes_the_call_that_waits_for_it() {
    let (_fakes, access) = Fakes::access();
    FakeRecaller::register(&access, Door::Nfs, false);
    granted(&access, A, ReadWrite);
    let waiting = replace(&access, Some(WEB), LONG);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    // Of another file: it looks again, and waits on.
    access.returned();
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    given_back(&access, A);
    waiting.await.unwrap();
}

#[tokio::test]
async fn the_holder_has_the_time_to_give_back_that_was_said() {
    let (fakes, access) = Fakes::access();
    granted(&access, A, ReadWrite);
    let _ = replace(&access, Some(WEB), SHORT).await;
    let due_at = fakes.clock.monotonic() + LEASE;
    assert_eq!(access.table().expired_recalls(due_at - SHORT, due_at), []);
    assert_eq!(access.table().expired_recalls(due_at, due_at + LEASE).len(), 1);
}

#[tokio::test]
async fn a_door_is_asked_for_grants_of_its_own_clients() {
    let (_fakes, access) = Fakes::access();
    let nfs = FakeRecaller::register(&access, Door::Nfs, true);
    let http = FakeRecaller::register(&access, Door::Http, true);
    granted(&access, A, Read);
    granted(&access, WEB, Read);
    replace(&access, None, LONG).await.unwrap();
    assert_eq!((nfs.holders(), http.holders()), (vec![A], vec![WEB]));
}

#[tokio::test]
async fn a_file_locked_by_another_door_is_not_changed_and_nothing_is_recalled_for_it() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, true);
    granted(&access, A, Read);
    let owner = access.owner(WEB);
    access.table().open(FILE, owner, deny_writing()).unwrap();
    for change in [Change::Truncate, Change::Replace, Change::Remove, Change::Rename] {
        for by in [Some(B), None] {
            let refused = access.before_change(FILE, by, change, LONG).await.map(drop);
            assert!(matches!(refused, Err(AccessError::Denied)), "{change:?} {by:?} {refused:?}");
        }
    }
    assert_eq!(access.table().judge_change(FILE, Some(B)), Err(file_state::FileStateError::ShareDenied));
    assert_eq!(clients.holders(), []);
    drop(access.before_change(FILE, Some(B), Change::SetAttributes, LONG).await.unwrap());
    replace(&access, Some(Holder::of(Door::Http, 2)), LONG).await.unwrap();
    access.table().close(FILE, owner);
    replace(&access, Some(B), LONG).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_comes_while_a_change_waits_stops_it() {
    let (_fakes, access) = Fakes::access();
    FakeRecaller::register(&access, Door::Nfs, false);
    granted(&access, A, Read);
    let waiting = replace(&access, Some(B), LONG);
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the layout is still out"),
        () = async {} => {}
    }
    let owner = access.owner(WEB);
    access.table().open(FILE, owner, deny_writing()).unwrap();
    access.returned();
    assert!(matches!(waiting.await, Err(AccessError::Denied)));
}

fn delegated(access: &FileAccess, holder: Holder) {
    access.table().delegate(FILE, holder, DelegationKind::Read, Duration::ZERO).unwrap();
}

fn writing() -> Change {
    Change::Access(Share::new(Modes::WRITE, Modes::NONE))
}

#[tokio::test]
async fn delegations_of_others_come_home_before_a_change_and_none_is_given_while_it_is_made() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, true);
    delegated(&access, A);
    delegated(&access, B);
    let changing = access.before_change(FILE, Some(A), Change::SetAttributes, LONG).await.unwrap();
    assert_eq!(clients.holders(), [B]);
    assert!(access.table().delegate(FILE, B, DelegationKind::Read, Duration::ZERO).is_err());
    drop(changing);
    delegated(&access, B);
}

#[tokio::test]
async fn a_reader_of_another_door_waits_for_a_writers_delegation() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, true);
    access.table().delegate(FILE, A, DelegationKind::Write, Duration::ZERO).unwrap();
    let (open, _) = access.open(FILE, WEB, Share::new(Modes::READ, Modes::NONE)).await.unwrap();
    assert_eq!(clients.holders(), [A]);
    drop(open);
    delegated(&access, A);
    access.open(FILE, WEB, Share::new(Modes::READ, Modes::NONE)).await.map(drop).unwrap();
    assert_eq!(clients.holders(), [A], "readers do not disturb each other");
}

#[tokio::test]
async fn a_delegation_that_came_between_is_asked_for_after_the_change() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, false);
    access.call_back(FILE, Some(B), writing());
    delegated(&access, A);
    access.call_back(FILE, Some(A), writing());
    assert_eq!(clients.holders(), []);
    access.call_back(FILE, Some(B), writing());
    access.call_back(FILE, Some(B), writing());
    assert_eq!(clients.holders(), [A], "once");
}
