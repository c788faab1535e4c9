//! Lost clients lose their state to a request that conflicts with it; other clients keep theirs.

use super::fakes::FakeRecaller;
use super::*;

fn denies(files: &Files, holder: Holder) {
    files.table().open(FILE, Owner { holder, number: 1 }, Share::new(Modes::BOTH, Modes::BOTH)).unwrap();
}

fn reading() -> Share {
    Share::new(Modes::READ, Modes::NONE)
}

#[tokio::test]
async fn an_open_and_a_change_go_through_where_only_lost_clients_deny_them() {
    let (_fakes, files) = Fakes::files();
    FakeRecaller::attach_with(&files, DOOR, false, &[A], true);
    denies(&files, A);
    drop(files.open(FILE, FOREIGN, reading()).await.unwrap());
    denies(&files, A);
    drop(files.before_change(FILE, Some(FOREIGN), Change::Replace, LONG).await.unwrap());
    denies(&files, B);
    assert!(matches!(files.open(FILE, FOREIGN, reading()).await.map(drop), Err(FilesError::Denied)));
    let refused = files.before_change(FILE, Some(FOREIGN), Change::Replace, LONG).await;
    assert!(matches!(refused.map(drop), Err(FilesError::Denied)), "B is there");
}

#[tokio::test]
async fn a_request_waits_for_a_departing_client_or_may_be_retried() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach_with(&files, DOOR, false, &[A], false);
    denies(&files, A);
    let refused = files.before_change(FILE, Some(FOREIGN), Change::Replace, SHORT).await.map(drop);
    assert!(matches!(refused, Err(FilesError::Recalled)), "{refused:?}");
    let opening = files.open(FILE, FOREIGN, reading());
    tokio::pin!(opening);
    tokio::select! {
        biased;
        _ = &mut opening => panic!("what A had is not released"),
        () = async {} => {}
    }
    clients.release(A);
    assert!(opening.await.is_ok());
}
