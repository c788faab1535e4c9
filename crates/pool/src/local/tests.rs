//! Errors that a pool remembers and reports, and removals.

use api::{ANSWER_TIME, Presence, Stability, TicketMode};
use bytes::Bytes;

use super::*;

struct Fixed;

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// Of pool 1, without a journal.
pub fn config(dir: &Path) -> Config {
    Config {
        id: PoolId(1),
        dir: dir.to_owned(),
        instance: [1; 16],
        reserve_bytes: 0,
        reserve_files: 0,
        open_files_max: 16,
        queue_len_max: 64,
        threads: 1,
        io: Policy::default(),
        contention: ContentionThresholds::default(),
        journal: JournalPlace::Off,
        gather: GatherPolicy::Auto,
        digests: vec![types::ChecksumKind::Adler32],
        random: Arc::new(Fixed),
    }
}

pub fn pool(dir: &tempfile::TempDir) -> Arc<LocalPool> {
    LocalPool::open(config(dir.path())).unwrap()
}

pub async fn replica(pool: &LocalPool, file: u64) -> Arc<dyn OpenReplica> {
    let (file, epoch) = (FileId(file), Epoch(0));
    let ticket = Ticket {
        file,
        birth: Birth::UNKNOWN,
        pool: PoolId(1),
        mode: TicketMode::ReadWrite,
        epoch,
        presence: Presence::Unmade,
        io: types::IoMode::Auto,
    };
    pool.open(&ticket).await.unwrap()
}

async fn write(replica: &Arc<dyn OpenReplica>, stability: Stability) -> Result<Stability, PoolError> {
    replica.write_at(0, Bytes::from("data"), stability).await
}

fn fail_syncs(pool: &LocalPool, fail: bool) {
    pool.shared.store.faults.fail_syncs.store(fail, Ordering::SeqCst);
}

#[tokio::test]
async fn a_failed_write_back_is_told_to_every_later_sync_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let broken = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::Io { .. })));
    let running = pool(&dir);
    let lost = replica(&running, 1).await;
    write(&lost, Stability::Unstable).await.unwrap();
    fail_syncs(&running, true);
    broken(lost.sync().await.map(drop));
    fail_syncs(&running, false);
    for _ in 0..2 {
        broken(lost.sync().await.map(drop));
        broken(replica(&running, 1).await.sync().await.map(drop));
        broken(write(&lost, Stability::Unstable).await.map(drop));
        broken(running.truncate(&[(FileId(1), 0)], ANSWER_TIME).await.sole().map(drop));
    }
    running.close();
    let running = pool(&dir);
    let lost = replica(&running, 1).await;
    broken(lost.sync().await.map(drop));
    broken(write(&lost, Stability::FileSync).await.map(drop));
    assert_eq!(lost.read_at(0, 9).await.unwrap().data, "data");
    let other = replica(&running, 2).await;
    write(&other, Stability::FileSync).await.unwrap();
    running.remove(&[FileId(1)], ANSWER_TIME).await.sole().unwrap();
}

/// As `open` leaves it to a writer when the disk would have to be asked.
fn unloaded(pool: &LocalPool, file: u64, epoch: u32) -> Handle {
    let (replica, shared) = (Arc::new(Replica::new(FileId(file))), Arc::clone(&pool.shared));
    Handle {
        shared,
        replicas: Arc::clone(&pool.replicas),
        replica,
        claim: Claim { epoch: Epoch(epoch), birth: Birth::UNKNOWN, presence: Presence::Unmade },
        mode: TicketMode::ReadWrite,
    }
}

#[tokio::test]
async fn a_writer_whose_replica_was_not_looked_at_yet_finds_it_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..4 {
        write(&replica(&running, file).await, Stability::FileSync).await.unwrap();
    }
    running.fence(&[(FileId(2), Epoch(3))], ANSWER_TIME).await.sole().unwrap();
    fail_syncs(&running, true);
    let lost = replica(&running, 3).await;
    write(&lost, Stability::FileSync).await.unwrap_err();
    drop(lost);
    fail_syncs(&running, false);
    running.close();
    drop(running);
    let running = pool(&dir);
    assert_eq!(unloaded(&running, 1, 0).read_at(1, 9).await.unwrap().data, "ata");
    assert!(unloaded(&running, 1, 0).sync().await.is_ok());
    let more = || Bytes::from("more");
    unloaded(&running, 1, 0).write_through(4, more()).synced.await.unwrap();
    assert_eq!(unloaded(&running, 1, 0).read_at(0, 9).await.unwrap().data, "datamore");
    let fenced = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::Fenced)));
    fenced(unloaded(&running, 2, 2).read_at(0, 1).await.map(drop));
    fenced(unloaded(&running, 2, 2).sync().await.map(drop));
    fenced(unloaded(&running, 2, 2).write_through(0, more()).written.await.map(drop));
    fenced(unloaded(&running, 2, 2).write_at(0, more(), Stability::Unstable).await.map(drop));
    assert!(matches!(unloaded(&running, 3, 0).sync().await, Err(PoolError::Io { .. })));
    assert!(matches!(
        unloaded(&running, 3, 0).write_through(0, more()).synced.await,
        Err(PoolError::Io { .. })
    ));
    assert!(unloaded(&running, 9, 0).read_at(0, 9).await.unwrap().data.is_empty());
    running.remove(&[FileId(1)], ANSWER_TIME).await.sole().unwrap();
    let gone = unloaded(&running, 1, 0).write_through(0, more()).written.await;
    assert!(matches!(gone, Err(PoolError::NoReplica(_))));
}

#[tokio::test]
async fn a_write_that_was_to_be_stable_fails_with_its_sync() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    fail_syncs(&running, true);
    let lost = replica(&running, 1).await;
    assert!(matches!(write(&lost, Stability::DataSync).await, Err(PoolError::Io { .. })));
    assert!(matches!(
        running.truncate(&[(FileId(2), 10)], ANSWER_TIME).await.sole(),
        Err(PoolError::Io { .. })
    ));
}

#[tokio::test]
async fn a_broken_replica_is_remembered_though_far_more_are_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let lost = replica(&running, 1).await;
    write(&lost, Stability::Unstable).await.unwrap();
    fail_syncs(&running, true);
    assert!(lost.sync().await.is_err());
    fail_syncs(&running, false);
    drop(lost);
    for file in 2..200 {
        write(&replica(&running, file).await, Stability::FileSync).await.unwrap();
    }
    assert!(replica(&running, 1).await.sync().await.is_err());
}

#[tokio::test]
async fn data_that_the_disk_loses_while_a_fence_is_written_is_missed_by_every_later_sync() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let lost = replica(&running, 1).await;
    write(&lost, Stability::Unstable).await.unwrap();
    fail_syncs(&running, true);
    assert!(running.fence(&[(FileId(1), Epoch(2))], ANSWER_TIME).await.sole().is_err());
    fail_syncs(&running, false);
    running.fence(&[(FileId(1), Epoch(2))], ANSWER_TIME).await.sole().unwrap();
    let ticket = Ticket {
        file: FileId(1),
        birth: Birth::UNKNOWN,
        pool: PoolId(1),
        mode: TicketMode::ReadWrite,
        epoch: Epoch(2),
        presence: Presence::Written,
        io: types::IoMode::Auto,
    };
    for _ in 0..2 {
        assert!(running.open(&ticket).await.unwrap().sync().await.is_err());
    }
    running.close();
    let running = pool(&dir);
    assert!(running.open(&ticket).await.unwrap().sync().await.is_err());
}

#[tokio::test]
async fn a_fence_that_cannot_be_written_down_holds_and_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let fenced = replica(&running, 1).await;
    write(&fenced, Stability::FileSync).await.unwrap();
    fail_syncs(&running, true);
    assert!(running.fence(&[(FileId(1), Epoch(2))], ANSWER_TIME).await.sole().is_err());
    assert!(matches!(write(&fenced, Stability::Unstable).await, Err(PoolError::Fenced)));
    assert!(running.fence(&[(FileId(1), Epoch(2))], ANSWER_TIME).await.sole().is_err());
    fail_syncs(&running, false);
    running.fence(&[(FileId(1), Epoch(2))], ANSWER_TIME).await.sole().unwrap();
}

#[tokio::test]
async fn a_ticket_of_a_removed_file_makes_no_replica_when_the_removal_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let (file, epoch) = (FileId(1), Epoch(0));
    running.make(&[(file, Birth::UNKNOWN)], ANSWER_TIME).await.sole().unwrap();
    running.remove(&[file], ANSWER_TIME).await.sole().unwrap();
    for other in 0..=REMOVED_LEN_MAX as u64 {
        running.shared.removed.add(FileId(2 + other));
    }
    assert!(!running.shared.removed.contains(file));
    let (mode, presence) = (TicketMode::ReadWrite, Presence::Made);
    let late = running
        .open(&Ticket {
            file,
            birth: Birth::UNKNOWN,
            pool: PoolId(1),
            mode,
            epoch,
            presence,
            io: types::IoMode::Auto,
        })
        .await
        .unwrap();
    for stability in [Stability::Unstable, Stability::FileSync] {
        assert!(matches!(write(&late, stability).await, Err(PoolError::NoReplica(_))));
    }
    assert_eq!(running.shared.store.look(file), Ok(None));
}

#[tokio::test]
async fn the_busiest_files_are_those_with_the_most_bytes_and_no_more_than_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for (file, bytes) in [(1, 10), (2, 4000), (3, 300), (4, 0)] {
        let written = replica(&running, file).await;
        written.write_at(0, Bytes::from(vec![7; bytes]), Stability::Unstable).await.unwrap();
    }
    let found = |top| running.busiest(top).into_iter().map(|counts| counts.file.0).collect::<Vec<_>>();
    assert_eq!(found(2), [2, 3]);
    assert_eq!(found(10), [2, 3, 1]);
}

#[tokio::test]
async fn a_file_whose_writers_wait_for_each_other_is_listed_as_contended() {
    let dir = tempfile::tempdir().unwrap();
    let contention = ContentionThresholds { conflicts_min: 3, window: Duration::from_secs(3600) };
    let setting = Config { contention, gather: GatherPolicy::Never, ..config(dir.path()) };
    let running = LocalPool::open(setting).unwrap();
    let (contended, other) = (replica(&running, 1).await, replica(&running, 2).await);
    for replica in [&contended, &other] {
        write(replica, Stability::Unstable).await.unwrap();
    }
    let found = running.replicas.find(FileId(1)).unwrap();
    for _ in 0..3 {
        assert_eq!(running.status().contended, []);
        let held = found.io().lock(0, 1, Instant::now(), Default::default).unwrap();
        let waits = found.io().waits();
        let written = contended.write_at(0, Bytes::from("data"), Stability::Unstable);
        while found.io().waits() == waits {
            std::thread::yield_now();
        }
        drop(held);
        written.await.unwrap();
    }
    assert_eq!(running.status().contended, [FileId(1)]);
    assert_eq!(running.io().contended_files, 1);
}
