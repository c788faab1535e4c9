//! COMMIT of a few small writes by the journal.

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Waker};

use api::Advice;
use rustix::io::Errno;

use super::*;

/// The replica has been synced since the pool was opened.
fn is_synced(pool: &LocalPool, file: u64) -> bool {
    pool.parts().store.faults.on_disk.lock().as_ref().unwrap().contains_key(&FileId(file))
}

async fn commit(pool: &LocalPool, file: u64) {
    replica(pool, file).await.sync().await.unwrap();
}

#[tokio::test]
async fn a_commit_of_a_few_small_writes_is_one_sync_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"first ", Stability::Unstable).await;
    write(&pool, 1, 6, b"second", Stability::Unstable).await;
    write(&pool, 1, 20, b"far", Stability::Unstable).await;
    let before = pool.io().journal.unwrap();
    commit(&pool, 1).await;
    let after = pool.io().journal.unwrap();
    assert_eq!(
        (after.syncs - before.syncs, after.records - before.records),
        (1, 3),
        "creation and two ranges"
    );
    commit(&pool, 1).await;
    assert_eq!(pool.io().journal.unwrap(), after, "there is nothing left to do");
    assert!(!is_synced(&pool, 1));
    for (offset, bytes) in [(6, b"third!"), (22, b"ther. ")] {
        write(&pool, 1, offset, bytes, Stability::Unstable).await;
    }
    commit(&pool, 1).await;
    write(&pool, 1, 6, b"unstable", Stability::Unstable).await;
    assert!(!is_synced(&pool, 1));
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"first third!\0\0\0\0\0\0\0\0father. ");
    assert_eq!(labelled(dir.path(), 1), 28);
}

/// Its sync is one flush of the disk as well.
#[tokio::test]
async fn a_commit_of_a_file_that_has_become_no_longer_syncs_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"recorded", Stability::Unstable).await;
    commit(&pool, 1).await;
    write(&pool, 1, 0, b"in ", Stability::Unstable).await;
    assert!(!is_synced(&pool, 1));
    commit(&pool, 1).await;
    assert!(is_synced(&pool, 1));
    write(&pool, 1, 3, b"place", Stability::Unstable).await;
    let before = pool.io().journal.unwrap();
    commit(&pool, 1).await;
    assert_eq!(pool.io().journal.unwrap(), before);
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"in place");
}

#[tokio::test]
async fn a_commit_of_much_or_of_something_else_than_small_writes_syncs_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    for offset in 0..5 {
        write(&pool, 1, offset * 10, b"five ranges", Stability::Unstable).await;
        write(&pool, 2, offset * 100, b"five ranges", Stability::Unstable).await;
    }
    write(&pool, 3, 0, &vec![7; (128 << 10) + 1], Stability::Unstable).await;
    write(&pool, 4, 0, b"small", Stability::Unstable).await;
    let range = ByteRange::new(0, 2).unwrap();
    replica(&pool, 4).await.ranges().unwrap().deallocate(range).await.unwrap();
    for file in 1..=4 {
        commit(&pool, file).await;
    }
    assert_eq!([1, 2, 3, 4].map(|file| is_synced(&pool, file)), [false, true, true, true]);
    // After that it is little again.
    let before = pool.io().journal.unwrap().records;
    write(&pool, 4, 0, b"smaller", Stability::Unstable).await;
    commit(&pool, 4).await;
    assert_eq!(pool.io().journal.unwrap().records, before + 1);
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 4).await, b"smaller");
}

#[tokio::test]
async fn a_large_change_that_is_synced_is_not_undone_by_the_record_of_an_older_commit() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"recorded", Stability::Unstable).await;
    commit(&pool, 1).await;
    let range = ByteRange::new(2, 4).unwrap();
    replica(&pool, 1).await.ranges().unwrap().deallocate(range).await.unwrap();
    commit(&pool, 1).await;
    assert!(is_synced(&pool, 1));
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"re\0\0\0\0ed");
}

#[tokio::test]
async fn bytes_of_a_commit_and_a_fence_after_it_outlive_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"recorded", Stability::Unstable).await;
    commit(&pool, 1).await;
    pool.fence(&[(FileId(1), Epoch(3))], ANSWER_TIME).await.sole().unwrap();
    cut_power(pool);
    let pool = open(dir.path());
    let ticket = |epoch| Ticket {
        file: FileId(1),
        birth: Birth::UNKNOWN,
        pool: PoolId(1),
        mode: TicketMode::Read,
        epoch: Epoch(epoch),
        presence: Presence::Written,
        io: types::IoMode::Auto,
    };
    assert!(matches!(pool.open(&ticket(2)).await.map(drop), Err(PoolError::Fenced)));
    let read = pool.open(&ticket(3)).await.unwrap().read_at(0, 99).await.unwrap();
    assert_eq!(read.data, "recorded");
}

#[tokio::test]
async fn the_last_of_the_commits_that_run_waits_for_the_records_of_the_first() {
    for journal_fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let pool = open(dir.path());
        let there = replica(&pool, 1).await;
        write(&pool, 1, 0, b"bytes", Stability::Unstable).await;
        let faults = Arc::clone(&pool.parts().store.faults);
        let (waits, waiting) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        *faults.in_next_record.lock() = Some(Box::new(move || {
            waits.send(()).unwrap();
            let _ = goes_on.recv();
            if journal_fails { Err(Errno::IO) } else { Ok(()) }
        }));
        let first = there.sync();
        waiting.await.unwrap();
        let mut second = there.sync();
        while pool.io().journal.unwrap().records < 3 {
            tokio::task::yield_now().await;
        }
        let polled = Pin::new(&mut second).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "no record is on disk");
        drop(go_on);
        first.await.unwrap();
        second.await.unwrap();
        assert_eq!(is_synced(&pool, 1), journal_fails);
        cut_power(pool);
        assert_eq!(read(&open(dir.path()), 1).await, b"bytes");
    }
}

/// The kernel takes pages that it could not write for clean, and may read them again as they were before.
#[tokio::test]
async fn a_commit_does_not_record_bytes_of_which_the_disk_has_lost_some() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"bytes", Stability::Unstable).await;
    commit(&pool, 1).await;
    write(&pool, 1, 0, b"lost bytes", Stability::Unstable).await;
    pool.parts().store.faults.fail_one_sync.store(true, Ordering::SeqCst);
    let before = pool.io().journal.unwrap().records;
    for _ in 0..2 {
        let committed = replica(&pool, 1).await.sync().await;
        assert!(matches!(committed, Err(PoolError::Io { .. })), "{committed:?}");
    }
    assert_eq!(pool.io().journal.unwrap().records, before);
}

#[tokio::test]
async fn a_commit_of_a_replica_that_somebody_took_away_fails() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let there = replica(&pool, 1).await;
    write(&pool, 1, 0, b"bytes", Stability::Unstable).await;
    fs::remove_file(dir.path().join(ReplicaPlace::of(FileId(1)).path())).unwrap();
    assert!(matches!(there.sync().await, Err(PoolError::Io { .. })));
    assert_eq!(pool.io().journal.unwrap().records, 0);
}

#[tokio::test]
async fn bytes_that_left_memory_are_read_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"bytes", Stability::Unstable).await;
    File::open(dir.path().join(ReplicaPlace::of(FileId(1)).path())).unwrap().sync_all().unwrap();
    let all = ByteRange::new(0, 4096).unwrap();
    replica(&pool, 1).await.ranges().unwrap().advise(all, Advice::DontNeed).await.unwrap();
    commit(&pool, 1).await;
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"bytes");
}
