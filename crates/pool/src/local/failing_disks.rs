//! Pools on disks that fail, as far as the kernel's part in it can be played.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use api::{ANSWER_TIME, Pool, PoolError, Presence, Stability, Ticket, TicketMode};
use bytes::Bytes;
use types::{ByteRange, Epoch, FileId, PoolId};

use super::tests::{pool, replica};
use super::{Claim, LocalPool};
use crate::layout::ReplicaPlace;

/// How long a sync that waits for the disk is held while another might overtake it.
const OVERTAKING: Duration = Duration::from_millis(200);

const FILE: FileId = FileId(1);

/// A COMMIT waits for the disk, which has lost the data, while something else syncs the same file.
async fn overtaken<F>(other: impl FnOnce(Arc<LocalPool>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let faults = &running.shared.store.faults;
    let lost = replica(&running, FILE.0).await;
    lost.write_at(0, Bytes::from("data"), Stability::FileSync).await.unwrap();
    lost.write_at(0, Bytes::from("lost"), Stability::Unstable).await.unwrap();
    let (waits, waiting) = tokio::sync::oneshot::channel();
    let (goes_on, go_on) = mpsc::channel::<()>();
    *faults.in_next_sync.lock() = Some(Box::new(move || {
        let _ = waits.send(());
        let _ = go_on.recv();
    }));
    let commit = lost.sync();
    waiting.await.unwrap();
    faults.fail_one_sync.store(true, Ordering::SeqCst);
    let mut other = tokio::spawn(other(Arc::clone(&running)));
    let is_through = tokio::time::timeout(OVERTAKING, &mut other).await.is_ok();
    drop(goes_on);
    assert!(commit.await.is_err(), "a COMMIT of data that the disk lost");
    if !is_through {
        other.await.unwrap();
    }
    assert!(!faults.fail_one_sync.load(Ordering::SeqCst));
    let later = Ticket {
        file: FILE,
        birth: api::Birth::UNKNOWN,
        pool: PoolId(1),
        mode: TicketMode::ReadWrite,
        epoch: Epoch(1),
        presence: Presence::Written,
        io: types::IoMode::Auto,
    };
    for _ in 0..2 {
        let sync = running.open(&later).await.unwrap().sync();
        assert!(matches!(sync.await, Err(PoolError::Io { .. })));
    }
}

#[tokio::test]
async fn a_fence_does_not_hear_of_lost_data_in_the_place_of_a_commit_that_waits() {
    overtaken(|running| async move {
        let _ = running.fence(&[(FILE, Epoch(1))], ANSWER_TIME).await.sole();
    })
    .await;
}

#[tokio::test]
async fn a_truncation_does_not_hear_of_lost_data_in_the_place_of_a_commit_that_waits() {
    overtaken(|running| async move {
        let _ = running.truncate(&[(FILE, 1)], ANSWER_TIME).await.sole();
    })
    .await;
}

#[tokio::test]
async fn a_replica_opened_while_its_disk_was_read_only_is_written_when_the_disk_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..4 {
        let written = replica(&running, file).await;
        written.write_at(0, Bytes::from("before"), Stability::FileSync).await.unwrap();
    }
    running.close();
    drop(running);
    let running = pool(&dir);
    let read_only = |is: bool| running.shared.store.faults.read_only.store(is, Ordering::SeqCst);
    read_only(true);
    let mut replicas = Vec::new();
    for file in 1..4 {
        let opened = replica(&running, file).await;
        assert_eq!(opened.read_at(0, 9).await.unwrap().data, "before");
        assert!(opened.write_at(0, Bytes::from("d"), Stability::Unstable).await.is_err());
        assert!(running.truncate(&[(FileId(file), 2)], ANSWER_TIME).await.sole().is_err());
        replicas.push(opened);
    }
    read_only(false);
    replicas[0].write_at(0, Bytes::from("after!"), Stability::FileSync).await.unwrap();
    assert_eq!(replicas[0].read_at(0, 9).await.unwrap().data, "after!");
    running.truncate(&[(FileId(2), 3)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(replicas[1].read_at(0, 9).await.unwrap().data, "bef");
    let range = ByteRange::from_bounds(0, 6).unwrap();
    replicas[2].ranges().unwrap().deallocate(range).await.unwrap();
    assert_eq!(replicas[2].read_at(0, 9).await.unwrap().data, [0; 6][..]);
}

#[tokio::test]
async fn a_replica_that_was_replaced_while_its_disk_was_read_only_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    replica(&running, 1).await.write_at(0, Bytes::from("one"), Stability::FileSync).await.unwrap();
    running.close();
    drop(running);
    let running = pool(&dir);
    running.shared.store.faults.read_only.store(true, Ordering::SeqCst);
    let opened = replica(&running, 1).await;
    assert_eq!(opened.read_at(0, 9).await.unwrap().data, "one");
    let path = dir.path().join(ReplicaPlace::of(FILE).path());
    std::fs::rename(&path, dir.path().join("aside")).unwrap();
    std::fs::write(&path, "two").unwrap();
    running.shared.store.faults.read_only.store(false, Ordering::SeqCst);
    assert!(opened.write_at(0, Bytes::from("x"), Stability::Unstable).await.is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
}

#[tokio::test]
async fn replicas_are_listed_while_the_index_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..4 {
        let written = replica(&running, file).await;
        written.write_at(0, Bytes::from("data"), Stability::FileSync).await.unwrap();
        if file == 2 {
            running.replicas(FileId(0), 9).await.unwrap();
            running.shared.index.refuse_writes();
        }
    }
    running.remove(&[FileId(1)], ANSWER_TIME).await.sole().unwrap();
    let listed = running.replicas(FileId(0), 9).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|facts| (facts.file.0, facts.size)).collect();
    assert_eq!(listed, [(2, 4), (3, 4)]);
}

/// A zero was written as the last byte, also over one that had come meanwhile.
#[tokio::test]
async fn a_replica_becomes_longer_where_no_blocks_are_reserved_and_keeps_what_came_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = replica(&running, 1).await;
    written.write_at(0, Bytes::from("0123456789"), Stability::Unstable).await.unwrap();
    let (found, claim) = (
        running.replica(FILE).await.unwrap(),
        Claim { epoch: Epoch(1), birth: api::Birth::UNKNOWN, presence: Presence::Written },
    );
    for (length, size) in [(4, 10), (10, 10), (20, 20)] {
        found.lengthen(&running.shared, claim, length).unwrap();
        let data = written.read_at(0, 99).await.unwrap().data;
        assert!(data.len() == size && data.starts_with(b"0123456789"), "{length}");
    }
}
