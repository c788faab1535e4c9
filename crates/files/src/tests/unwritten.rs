//! Reports of a holder of a delegation to write, and the attributes that other clients see.

use file_state::DelegationKind;
use file_state::LayoutMode::ReadWrite;

use super::fakes::{FakeRecaller, at};
use super::*;

const TOLD: Told = Told { is_modified: true, size: 50, accessed: None, modified: None };

/// A has the file delegated to write.
fn scene(gives_back: bool, told: Option<Told>) -> (Arc<Fakes>, Arc<Files>, Arc<FakeRecaller>) {
    let (fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, gives_back);
    *clients.told.lock() = told;
    files.table().delegations().grant(FILE, A, DelegationKind::Write, Duration::ZERO).unwrap();
    (fakes, files, clients)
}

async fn seen(files: &Arc<Files>, by: Option<Holder>) -> Result<types::Attributes, FilesError> {
    files.seen_by(files.attributes(FILE).await.unwrap(), by, SHORT).await
}

#[tokio::test]
async fn others_see_what_the_writer_says_and_the_writer_is_not_asked_by_himself() {
    let (_fakes, files, clients) = scene(false, Some(TOLD));
    for by in [Some(B), Some(FOREIGN), None] {
        assert_eq!(seen(&files, by).await.unwrap().size, 50);
    }
    assert_eq!(seen(&files, Some(A)).await.unwrap().size, 10);
    assert_eq!(*clients.asked.lock(), [A, A, A]);
    assert!(clients.holders().is_empty(), "nothing is called back for a look");
}

#[tokio::test]
async fn a_file_being_modified_is_never_shown_twice_with_one_change_attribute() {
    let (_fakes, files, clients) = scene(true, Some(TOLD));
    let before = files.attributes(FILE).await.unwrap();
    let first = seen(&files, Some(B)).await.unwrap();
    let second = seen(&files, Some(B)).await.unwrap();
    assert!(before.change < first.change && first.change < second.change);
    // The writer is lost with what it had.
    files.table().release_holder(A);
    *clients.told.lock() = None;
    let after = seen(&files, Some(B)).await.unwrap();
    assert!(after.size == 10 && after.change > second.change, "{after:?}");
}

#[tokio::test]
async fn of_a_file_that_is_not_modified_the_pool_and_the_namespace_know_all() {
    let (fakes, files, _) = scene(false, Some(Told { is_modified: false, size: 10, ..TOLD }));
    let known = files.attributes(FILE).await.unwrap();
    assert_eq!(seen(&files, Some(B)).await.unwrap(), known);
    assert!(fakes.recorded_writes.lock().is_empty());
    granted(&files, A, ReadWrite);
    fakes.put_replica(api::Birth::UNKNOWN, 30, 200);
    assert_eq!(seen(&files, Some(B)).await.unwrap().size, 30, "written at the pool since it answered");
}

#[tokio::test]
async fn a_size_that_nobody_else_knows_counts_as_modified() {
    let (_fakes, files, _) = scene(false, Some(Told { is_modified: false, size: 11, ..TOLD }));
    let before = files.attributes(FILE).await.unwrap();
    let shown = seen(&files, Some(B)).await.unwrap();
    assert!(shown.size == 11 && shown.change > before.change);
}

#[tokio::test]
async fn times_that_the_writer_keeps_are_shown() {
    let told = Told { is_modified: false, size: 10, accessed: Some(at(300)), modified: Some(at(200)) };
    let (_fakes, files, _) = scene(false, Some(told));
    let shown = seen(&files, Some(B)).await.unwrap();
    assert_eq!((shown.atime, shown.mtime), (at(300), at(200)));
}

#[tokio::test]
async fn a_writer_that_does_not_say_gives_back_or_the_caller_comes_again() {
    let (_fakes, files, clients) = scene(false, None);
    for _ in 0..2 {
        assert!(matches!(seen(&files, Some(B)).await, Err(FilesError::Recalled)));
    }
    assert_eq!(
        (clients.holders(), clients.asked.lock().len()),
        (vec![A], 1),
        "it was asked, and recalled, once"
    );
    files.table().delegations().give_back(FILE, A);
    assert_eq!(seen(&files, Some(B)).await.unwrap().size, 10);
    let (_fakes, files, _) = scene(true, None);
    assert_eq!(seen(&files, Some(B)).await.unwrap().size, 10, "it gave back at once");
}

#[tokio::test]
async fn a_list_waits_for_no_recall_and_asks_a_silent_writer_once() {
    let (_fakes, files, clients) = scene(false, None);
    let other = FileId(9);
    files.table().delegations().grant(other, A, DelegationKind::Write, Duration::ZERO).unwrap();
    let mut patience = Patience::default();
    for file in [FILE, other] {
        let found = fakes::attributes(file, 10);
        assert_eq!(files.listed_for(found, Some(B), &mut patience).await.unwrap().size, 10);
    }
    assert_eq!(*clients.asked.lock(), [A]);
    assert_eq!(clients.holders(), [A, A], "it says by giving back");
}

#[tokio::test]
async fn a_list_has_one_patience_for_all_writers_that_it_asks() {
    let (_fakes, files, clients) = scene(false, Some(TOLD));
    let found = fakes::attributes(FILE, 10);
    let (mut patience, whole) = (Patience::default(), Patience::default());
    assert_eq!(files.listed_for(found, Some(B), &mut patience).await.unwrap().size, 50);
    assert!(patience.left < whole.left, "an answer takes its time");
    // If no time is left for an answer, the holder is neither asked nor recalled.
    let mut patience = Patience { left: Duration::ZERO, ..whole };
    assert_eq!(files.listed_for(found, Some(B), &mut patience).await.unwrap().size, 10);
    assert_eq!(clients.asked.lock().len(), 1);
    // A holder that had less time than others does not count as silent.
    *clients.told.lock() = None;
    let mut patience = Patience { left: whole.left / 2, ..whole };
    assert_eq!(files.listed_for(found, Some(B), &mut patience).await.unwrap().size, 10);
    assert!(clients.asked.lock().len() == 2 && clients.holders().is_empty());
    *clients.told.lock() = Some(TOLD);
    assert_eq!(seen(&files, Some(B)).await.unwrap().size, 50, "it is asked again");
}

#[tokio::test]
async fn each_list_of_a_walk_has_its_patience_until_that_of_the_walk_is_at_its_end() {
    let (_fakes, files, _clients) = scene(false, Some(TOLD));
    let found = fakes::attributes(FILE, 10);
    let mut patience = Patience::of_walk();
    let mut lists = 0;
    loop {
        let size = files.listed_for(found, Some(B), &mut patience).await.unwrap().size;
        if size != 50 {
            break;
        }
        lists += 1;
        // All of it was needed.
        patience.left = Duration::ZERO;
        patience.begin_list();
    }
    assert_eq!(lists, 31, "a minute, and the first");
    // One that has waited for nobody takes nothing from the others.
    let mut patience = Patience::of_walk();
    let whole = patience.in_reserve;
    patience.begin_list();
    assert_eq!(patience.in_reserve, whole);
    let mut alone = Patience { left: Duration::ZERO, ..Patience::default() };
    alone.begin_list();
    assert!(alone.left.is_zero());
}
