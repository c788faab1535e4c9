//! Replicas through the head.

use api::{Birth, Locality, NamespaceError, Presence, ReplicaRef, ReplicaState, Ticket, TicketMode};
use file_state::LayoutMode::ReadWrite;
use testkit::faulty::Request;
use testkit::memory_pool::MemoryPool;
use types::{Epoch, Identity, PoolId, Timestamp};

use super::fakes::{FakeRecaller, POOL};
use super::*;

async fn truncate(files: &Arc<Files>, file: FileId, size: u64) -> Result<u64, FilesError> {
    let attributes = attributes(file, 10);
    files.begin_resizing(&attributes, size, Some(FOREIGN), SHORT).await?.set_at_replicas().await
}

#[tokio::test]
async fn a_file_is_not_made_smaller_under_a_layout_of_somebody_else() {
    let (fakes, files) = Fakes::files();
    FakeRecaller::attach(&files, DOOR, false);
    granted(&files, A, ReadWrite);
    for size in [0, 10] {
        assert!(matches!(truncate(&files, FILE, size).await, Err(FilesError::Recalled)));
    }
    assert!(fakes.truncated().is_empty());
    let is_lost = |error| matches!(error, FilesError::Pool(api::PoolError::Io { .. }));
    assert!(
        truncate(&files, FILE, 11).await.is_err_and(is_lost),
        "a replica of zeros for the one that is gone"
    );
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    assert_eq!(truncate(&files, FILE, 11).await.unwrap(), 10, "what grows takes no bytes away");
    given_back(&files, A);
    assert_eq!(truncate(&files, FILE, 5).await.unwrap(), 5);
    assert_eq!(fakes.truncated(), [11, 5]);
}

/// A SETATTR of the size without an open, and the reaper between its look at the locations and at the pool.
#[tokio::test]
async fn a_cut_of_a_file_that_is_removed_meanwhile_finds_it_stale_and_not_lost() {
    let (fakes, files) = Fakes::files();
    let is_stale = |error| matches!(error, FilesError::Namespace(NamespaceError::Stale(FILE)));
    let is_lost = |error| matches!(error, FilesError::Pool(api::PoolError::Io { .. }));
    *fakes.looks_until_unlinked.lock() = Some(0);
    assert!(truncate(&files, FILE, 5).await.is_err_and(is_stale));
    granted(&files, A, LayoutMode::Read);
    assert!(truncate(&files, FILE, 11).await.is_err_and(is_lost), "the replica of a file in use stays");
    given_back(&files, A);
    fakes.files.lock().remove(&FILE);
    assert!(truncate(&files, FILE, 5).await.is_err_and(is_stale));
    assert!(fakes.truncated().is_empty());
}

#[tokio::test]
async fn a_read_takes_another_replica_when_a_pool_cannot_be_reached_and_a_write_does_not() {
    const OTHER: PoolId = PoolId(POOL.0 + 1);
    let (fakes, files) = Fakes::files();
    let other = MemoryPool::new(OTHER);
    other.put(FILE, Birth::UNKNOWN, vec![8; 10]);
    fakes.pools.list().add(Arc::new(other)).unwrap();
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    fakes.locations.lock().insert(FILE, vec![POOL, OTHER]);
    let opened = async |mode| {
        let located = files.open_located(&attributes(FILE, 10), mode).await;
        located.map(|located| located.unwrap().ticket.pool)
    };
    assert_eq!(opened(TicketMode::Read).await.unwrap(), POOL);
    fakes.pools.lose(POOL);
    assert_eq!(opened(TicketMode::Read).await.unwrap(), OTHER);
    let is_offline = |error| matches!(error, FilesError::Pool(api::PoolError::Offline(POOL)));
    assert!(opened(TicketMode::ReadWrite).await.is_err_and(is_offline), "the other would miss the write");
    fakes.pools.lose(OTHER);
    assert!(opened(TicketMode::Read).await.is_err(), "nothing is left to try");
}

#[tokio::test]
async fn a_file_without_a_location_gets_one_when_it_needs_bytes() {
    let (fakes, files) = Fakes::files();
    let file = FileId(8);
    assert_eq!(truncate(&files, file, 0).await.unwrap(), 0);
    assert!(files.locate(&attributes(file, 0), TicketMode::Read, None).await.unwrap().is_none());
    assert!(files.open_replica(&attributes(file, 0), TicketMode::Read).await.unwrap().is_none());
    assert!(fakes.locations.lock().get(&file).is_none());
    let empty = attributes(file, 0);
    files.begin_resizing(&empty, 1, Some(FOREIGN), SHORT).await.unwrap().set_at_replicas().await.unwrap();
    assert_eq!(fakes.locations.lock()[&file], [POOL]);
}

#[tokio::test]
async fn a_file_with_bytes_and_no_location_is_an_error_until_it_is_made_empty_or_replaced() {
    let (fakes, files) = Fakes::files();
    let lost = attributes(FileId(8), 10);
    let is_lost = |error| matches!(error, FilesError::Select(api::SelectError::NoLocation));
    for mode in [TicketMode::Read, TicketMode::ReadWrite] {
        assert!(files.open_replica(&lost, mode).await.err().is_some_and(is_lost));
        assert!(files.locate(&lost, mode, Some(1)).await.is_err_and(is_lost));
    }
    assert!(files.open_for_writing(&lost).await.err().is_some_and(is_lost));
    for size in [5, 10, 11] {
        assert!(truncate(&files, lost.file, size).await.is_err_and(is_lost));
    }
    assert!(fakes.locations.lock().get(&lost.file).is_none(), "it is not taken for one of zeros");
    assert_eq!(truncate(&files, lost.file, 0).await.unwrap(), 0);
    files.open_located_for_replacing(&lost).await.unwrap();
    assert_eq!(fakes.locations.lock()[&lost.file], [POOL]);
}

/// Of which the namespace notes that the data is lost, or that no replica has it.
#[tokio::test]
async fn a_file_whose_replicas_are_not_good_is_an_error_to_readers_and_writers() {
    let (fakes, files) = Fakes::files();
    let file = attributes(FILE, 10);
    let is_lost = |error| matches!(error, FilesError::Select(api::SelectError::NoLocation));
    let mut spoilt = vec![Locality::Lost, Locality::Empty];
    for state in ReplicaState::ALL.into_iter().filter(|state| *state != ReplicaState::Good) {
        let replica = ReplicaRef { pool: POOL, state, since: Timestamp::EPOCH };
        spoilt.push(Locality::Replicas(Arc::new([replica])));
    }
    for locality in spoilt {
        *fakes.spoilt.lock() = Some(locality.clone());
        for mode in [TicketMode::Read, TicketMode::ReadWrite] {
            assert!(files.locate(&file, mode, Some(1)).await.is_err_and(is_lost), "{locality:?}");
        }
        assert!(files.open_replica(&file, TicketMode::Read).await.err().is_some_and(is_lost), "{locality:?}");
        assert!(files.open_for_writing(&file).await.err().is_some_and(is_lost), "{locality:?}");
        assert!(truncate(&files, FILE, 5).await.is_err_and(is_lost), "{locality:?}");
        assert!(files.replica_facts(&file).await.unwrap().is_none(), "{locality:?}");
    }
    assert_eq!(fakes.pool.schedule().passed(), []);
}

#[tokio::test]
async fn a_file_is_read_at_the_good_one_of_its_replicas() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth(100), 10, 100);
    let stale = ReplicaRef { pool: PoolId(9), state: ReplicaState::Stale, since: Timestamp::EPOCH };
    let replicas = [stale, ReplicaRef::good(POOL, Timestamp::EPOCH)];
    *fakes.spoilt.lock() = Some(Locality::Replicas(Arc::new(replicas)));
    assert!(files.open_replica(&attributes(FILE, 10), TicketMode::Read).await.is_ok());
    assert_eq!(files.place(FILE, None).await.unwrap(), POOL);
}

#[tokio::test]
async fn concurrent_placements_of_a_file_place_it_once() {
    let (fakes, files) = Fakes::files();
    let file = FileId(8);
    let (first, second) = tokio::join!(files.place(file, None), files.place(file, Some(1)));
    assert_eq!((first.unwrap(), second.unwrap()), (POOL, POOL));
    assert_eq!(fakes.locations.lock()[&file], [POOL]);
}

#[tokio::test]
async fn a_ticket_of_the_head_itself_is_fenced_by_nothing_and_tells_whether_the_file_has_data() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth(100), 10, 100);
    let file = attributes(FILE, 10);
    assert!(files.open_replica(&file, TicketMode::Read).await.unwrap().is_some());
    files.open_for_writing(&file).await.unwrap();
    files.open_for_writing(&attributes(FileId(8), 0)).await.unwrap();
    let ticket = |file, mode| Ticket {
        file,
        birth: Birth(100),
        pool: POOL,
        mode,
        epoch: Epoch::OF_HEAD,
        presence: if file == FILE { Presence::Written } else { Presence::Unmade },
        io: types::IoMode::Auto,
    };
    let expected = [
        ticket(FILE, TicketMode::Read),
        ticket(FILE, TicketMode::ReadWrite),
        ticket(FileId(8), TicketMode::ReadWrite),
    ];
    let opened = fakes.asked(|request| match request {
        Request::Open(ticket) => Some(ticket),
        _ => None,
    });
    assert_eq!(opened, expected);
}

#[tokio::test]
async fn a_replica_is_made_before_a_client_is_sent_to_it_and_not_of_a_file_that_has_data() {
    let (fakes, files) = Fakes::files();
    files.make_replica(&attributes(FILE, 10), POOL).await.unwrap();
    assert_eq!(fakes.pool.schedule().passed(), []);
    files.make_replica(&attributes(FILE, 0), POOL).await.unwrap();
    assert_eq!(fakes.pool.schedule().passed(), [Request::Make(FILE, Birth(100))]);
}

#[tokio::test]
async fn a_replica_of_another_file_is_neither_believed_nor_cut() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth(99), 30, 100);
    let file = attributes(FILE, 10);
    let is_lost = |error| matches!(error, FilesError::Pool(api::PoolError::Io { .. }));
    for size in [0, 5, 20] {
        assert!(truncate(&files, FILE, size).await.is_err_and(is_lost));
    }
    assert!(files.replica_facts(&file).await.is_err_and(is_lost));
    granted(&files, A, ReadWrite);
    assert_eq!(files.freshen(file).await.unwrap().size, 10);
    assert!(fakes.truncated().is_empty());
    fakes.put_replica(Birth(100), 30, 100);
    assert_eq!(files.freshen(file).await.unwrap().size, 30);
}

#[tokio::test]
async fn a_size_that_no_file_can_have_is_refused_before_anybody_is_asked() {
    let (_fakes, files) = Fakes::files();
    let clients = FakeRecaller::attach(&files, DOOR, true);
    granted(&files, A, ReadWrite);
    let by = By { identity: &Identity::root(), holder: Some(FOREIGN), patience: SHORT };
    assert!(matches!(
        files.set_length(by, &attributes(FILE, 10), 1 << 63, false).await,
        Err(FilesError::TooLarge)
    ));
    assert_eq!(clients.holders(), []);
}
