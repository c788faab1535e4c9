//! Replicas through the head.

use api::{Ticket, TicketMode};
use file_state::LayoutMode::ReadWrite;
use types::Epoch;

use super::fakes::{FakeRecaller, POOL};
use super::*;

async fn truncate(access: &Arc<FileAccess>, file: FileId, size: u64) -> Result<u64, AccessError> {
    let truncated = access.truncate(&attributes(file, 10), size, Some(WEB), SHORT).await;
    truncated.map(|(space_used, _)| space_used)
}

#[tokio::test]
async fn a_file_is_not_made_smaller_under_a_layout_of_somebody_else() {
    let (fakes, access) = Fakes::access();
    FakeRecaller::register(&access, Door::Nfs, false);
    granted(&access, A, ReadWrite);
    for size in [0, 10] {
        assert!(matches!(truncate(&access, FILE, size).await, Err(AccessError::Recalled)));
    }
    assert!(fakes.pool.truncated.lock().is_empty());
    assert_eq!(truncate(&access, FILE, 11).await.unwrap(), 22, "what grows takes no bytes away");
    given_back(&access, A);
    assert_eq!(truncate(&access, FILE, 5).await.unwrap(), 10);
    assert_eq!(*fakes.pool.truncated.lock(), [11, 5]);
}

#[tokio::test]
async fn a_file_without_a_location_gets_one_when_it_needs_bytes() {
    let (fakes, access) = Fakes::access();
    let file = FileId(8);
    assert_eq!(truncate(&access, file, 0).await.unwrap(), 0);
    assert!(access.locate(file, TicketMode::Read, None).await.unwrap().is_none());
    assert!(access.open_replica(&attributes(file, 10), TicketMode::Read).await.unwrap().is_none());
    assert!(fakes.locations.lock().get(&file).is_none());
    truncate(&access, file, 1).await.unwrap();
    assert_eq!(fakes.locations.lock()[&file], [POOL]);
}

#[tokio::test]
async fn whoever_places_a_file_at_the_same_time_places_it_once() {
    let (fakes, access) = Fakes::access();
    let file = FileId(8);
    let (first, second) = tokio::join!(access.place(file, None), access.place(file, Some(1)));
    assert_eq!((first.unwrap(), second.unwrap()), (POOL, POOL));
    assert_eq!(fakes.locations.lock()[&file], [POOL]);
}

#[tokio::test]
async fn a_replica_is_opened_by_a_ticket_of_the_files_epoch() {
    let (fakes, access) = Fakes::access();
    let file = attributes(FILE, 10);
    assert!(access.open_replica(&file, TicketMode::Read).await.unwrap().is_some());
    access.open_for_writing(&file).await.unwrap();
    access.open_for_writing(&attributes(FileId(8), 0)).await.unwrap();
    let ticket = |file, mode| Ticket { file, pool: POOL, mode, epoch: Epoch(4) };
    let expected = [
        ticket(FILE, TicketMode::Read),
        ticket(FILE, TicketMode::ReadWrite),
        ticket(FileId(8), TicketMode::ReadWrite),
    ];
    assert_eq!(*fakes.pool.opened.lock(), expected);
}

#[tokio::test]
async fn a_pool_that_is_not_there_is_an_error() {
    let (fakes, access) = Fakes::access();
    *fakes.has_pool.lock() = false;
    let is_offline = |error| matches!(error, AccessError::Pool(api::PoolError::Offline(POOL)));
    assert!(truncate(&access, FILE, 5).await.is_err_and(is_offline));
    assert!(access.open_for_writing(&attributes(FILE, 10)).await.is_err_and(is_offline));
}

#[tokio::test]
async fn a_size_that_no_file_can_have_is_refused_before_anybody_is_asked() {
    let (_fakes, access) = Fakes::access();
    let clients = FakeRecaller::register(&access, Door::Nfs, true);
    granted(&access, A, ReadWrite);
    assert!(matches!(truncate(&access, FILE, 1 << 63).await, Err(AccessError::TooLarge)));
    assert_eq!(clients.holders(), []);
}
