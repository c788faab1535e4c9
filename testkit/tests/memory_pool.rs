//! The suite of the pool seam on a pool in memory, with and without a schedule of faults around it; and a crash.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use api::{Birth, OpenReplica, Pool, PoolError, Presence, Stability, Ticket, TicketMode};
use bytes::Bytes;
use forebay_testkit::clock::ManualClock;
use forebay_testkit::faulty::{Crash, Faulty};
use forebay_testkit::memory_pool::{Limits, MemoryPool};
use forebay_testkit::pool_suite::PoolUnderTest;
use types::{ByteRange, Epoch, FileId, PoolId, Timestamp};

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);
const OTHER: FileId = FileId(8);
const OWN: Birth = Birth(1_700_000_000);

struct Memory(MemoryPool);

impl PoolUnderTest for Memory {
    fn lends_files(&self) -> bool {
        false
    }

    fn start() -> Self {
        Memory(MemoryPool::new(POOL))
    }

    fn pool(&self) -> Arc<dyn Pool> {
        Arc::new(self.0.clone())
    }

    fn restart(&mut self) {
        self.0.restart();
    }
}

/// A pool with a schedule in which there are no faults.
struct Faultless(Arc<Faulty<MemoryPool>>);

impl PoolUnderTest for Faultless {
    fn lends_files(&self) -> bool {
        false
    }

    fn start() -> Self {
        Faultless(Arc::new(Faulty::new(MemoryPool::new(POOL))))
    }

    fn pool(&self) -> Arc<dyn Pool> {
        self.0.clone()
    }

    fn restart(&mut self) {
        self.0.pool().restart();
    }
}

mod plain {
    forebay_testkit::pool_suite!(super::Memory);
}

mod faultless {
    forebay_testkit::pool_suite!(super::Faultless);
}

async fn write(replica: &Arc<dyn OpenReplica>, offset: u64, data: &'static str, stability: Stability) {
    replica.write_at(offset, Bytes::from(data), stability).await.unwrap();
}

async fn bytes(pool: &MemoryPool, file: FileId) -> Bytes {
    pool.writer(file).read_at(0, 100).await.unwrap().data
}

#[tokio::test]
async fn a_crash_takes_bytes_and_names_that_no_sync_has_covered() {
    let pool = MemoryPool::new(POOL);
    let (synced, other) = (pool.writer(FILE), pool.writer(OTHER));
    write(&synced, 0, "kept", Stability::FileSync).await;
    write(&synced, 2, "lost", Stability::Unstable).await;
    write(&other, 0, "lost", Stability::Unstable).await;
    let verifier = synced.verifier();
    pool.crash();
    assert_ne!((synced.verifier(), other.verifier()), (verifier, verifier));
    assert_eq!(synced.read_at(0, 100).await.unwrap().data, "kept");
    assert_eq!(pool.facts(&[OTHER], api::ANSWER_TIME).await.sole().unwrap(), None);
    write(&other, 0, "again", Stability::Unstable).await;
    other.sync().await.unwrap();
    pool.crash();
    assert_eq!((bytes(&pool, FILE).await, bytes(&pool, OTHER).await), ("kept".into(), "again".into()));
}

#[tokio::test]
async fn a_crash_brings_back_a_replica_whose_removal_is_not_on_disk() {
    let pool = MemoryPool::new(POOL);
    for file in [FILE, OTHER] {
        pool.put(file, OWN, "data");
        pool.remove(&[file], api::ANSWER_TIME).await.sole().unwrap();
    }
    pool.sync_removals(&[OTHER], api::ANSWER_TIME).await.unwrap();
    pool.crash();
    assert_eq!(bytes(&pool, FILE).await, "data");
    assert!(matches!(
        pool.make(&[(OTHER, OWN)], api::ANSWER_TIME).await.sole(),
        Err(PoolError::NoReplica(POOL))
    ));
}

#[tokio::test]
async fn a_restart_in_order_loses_nothing() {
    let pool = MemoryPool::new(POOL);
    write(&pool.writer(FILE), 0, "kept", Stability::Unstable).await;
    pool.restart();
    pool.crash();
    assert_eq!(bytes(&pool, FILE).await, "kept");
}

#[tokio::test]
async fn a_replica_of_another_birth_is_an_error() {
    let pool = MemoryPool::new(POOL);
    pool.make(&[(FILE, OWN)], api::ANSWER_TIME).await.sole().unwrap();
    let ticket = |birth| Ticket {
        file: FILE,
        birth,
        pool: POOL,
        mode: TicketMode::ReadWrite,
        epoch: Epoch(0),
        presence: Presence::Unmade,
        io: types::IoMode::Auto,
    };
    let is_other = |error| matches!(error, PoolError::Io { operation: "find the data of the file", .. });
    assert!(pool.make(&[(FILE, Birth(9))], api::ANSWER_TIME).await.sole().is_err_and(is_other));
    assert!(pool.open(&ticket(Birth(9))).await.err().is_some_and(is_other));
    for birth in [OWN, Birth::UNKNOWN] {
        assert!(pool.open(&ticket(birth)).await.is_ok());
    }
    assert_eq!(pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap().unwrap().birth, OWN);
    // A replica of unknown birth takes that of its next writer.
    write(&pool.writer(OTHER), 0, "data", Stability::Unstable).await;
    let writer = pool.open(&Ticket { file: OTHER, ..ticket(OWN) }).await.unwrap();
    write(&writer, 4, "more", Stability::Unstable).await;
    assert_eq!(pool.facts(&[OTHER], api::ANSWER_TIME).await.sole().unwrap().unwrap().birth, OWN);
}

#[tokio::test]
async fn a_missing_replica_is_what_the_ticket_says() {
    let pool = MemoryPool::new(POOL);
    let ticket = |mode, presence| Ticket {
        file: FILE,
        birth: OWN,
        pool: POOL,
        mode,
        epoch: Epoch(0),
        presence,
        io: types::IoMode::Auto,
    };
    let read = async |mode, presence| pool.open(&ticket(mode, presence)).await?.read_at(0, 9).await;
    for mode in [TicketMode::Read, TicketMode::ReadWrite] {
        assert!(read(mode, Presence::Unmade).await.is_ok());
        assert!(matches!(read(mode, Presence::Made).await, Err(PoolError::NoReplica(POOL))));
        assert!(matches!(read(mode, Presence::Written).await, Err(PoolError::Io { .. })));
    }
    let writer = pool.open(&ticket(TicketMode::ReadWrite, Presence::Made)).await.unwrap();
    let written = writer.write_at(0, Bytes::from("x"), Stability::Unstable).await;
    assert!(matches!(written, Err(PoolError::NoReplica(POOL))));
}

#[tokio::test]
async fn limits_hold_for_writes_truncations_and_reserved_space() {
    let pool = MemoryPool::with_limits(POOL, Limits { capacity_bytes: 10, replica_bytes_max: 20 });
    let writer = pool.writer(FILE);
    let ranges = writer.ranges().unwrap();
    let put = async |offset, data| writer.write_at(offset, Bytes::from(data), Stability::Unstable).await;
    put(8, "0123").await.unwrap();
    assert!(matches!(put(0, "0123456").await, Err(PoolError::NoSpace(POOL))));
    put(6, "012345").await.unwrap();
    assert!(matches!(put(18, "012").await, Err(PoolError::TooLarge)));
    let reserve = |from, to| ranges.allocate(ByteRange::from_bounds(from, to).unwrap());
    assert!(matches!(reserve(0, 6).await, Err(PoolError::NoSpace(POOL))));
    assert!(matches!(reserve(18, 21).await, Err(PoolError::TooLarge)));
    reserve(0, 4).await.unwrap();
    assert_eq!(pool.status().free_bytes, 0);
    assert!(matches!(pool.truncate(&[(FILE, 21)], api::ANSWER_TIME).await.sole(), Err(PoolError::TooLarge)));
    assert_eq!(pool.truncate(&[(FILE, 20)], api::ANSWER_TIME).await.sole().unwrap().space_used, 10);
}

#[tokio::test]
async fn a_change_is_stamped_by_the_clock_and_a_listing_leaves_the_time_out() {
    let clock = Arc::new(ManualClock::new(100));
    let pool = MemoryPool::with_clock(POOL, clock.clone());
    write(&pool.writer(FILE), 0, "data", Stability::Unstable).await;
    clock.advance(5);
    let modified = async || pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap().unwrap().modified;
    assert_eq!(modified().await, Timestamp::new(100, 0));
    pool.truncate(&[(FILE, 4)], api::ANSWER_TIME).await.sole().unwrap();
    assert_eq!(modified().await, Timestamp::new(100, 0), "nothing changed");
    pool.truncate(&[(FILE, 3)], api::ANSWER_TIME).await.sole().unwrap();
    assert_eq!(modified().await, Timestamp::new(105, 0));
    assert_eq!(pool.replicas(FileId(0), 9).await.unwrap()[0].modified, None);
}

#[tokio::test]
async fn a_cleared_pool_has_forgotten_what_was_removed() {
    let pool = MemoryPool::new(POOL);
    pool.put(FILE, OWN, "data");
    pool.remove(&[FILE], api::ANSWER_TIME).await.sole().unwrap();
    pool.clear();
    pool.make(&[(FILE, OWN)], api::ANSWER_TIME).await.sole().unwrap();
    assert_eq!(pool.status().replicas, 1);
}

#[tokio::test]
async fn a_pool_without_ranges_reads_and_writes() {
    let pool = MemoryPool::without_ranges(POOL);
    let writer = pool.writer(FILE);
    write(&writer, 0, "data", Stability::Unstable).await;
    assert!(writer.ranges().is_none());
    assert_eq!(bytes(&pool, FILE).await, "data");
}
