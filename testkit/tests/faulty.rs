//! Each fault of a schedule as the caller sees it.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api::{
    Birth, IoHandle, OpenReplica, Pool, PoolError, Presence, RangeKind, Stability, Ticket, TicketMode,
    Verifier,
};
use bytes::Bytes;
use forebay_testkit::dice::Dice;
use forebay_testkit::faulty::{Call, Fault, Faulty, Gate, Request};
use forebay_testkit::memory_pool::MemoryPool;
use types::{ByteRange, Epoch, FileId, PoolId};

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);

fn faulty() -> Faulty<MemoryPool> {
    Faulty::new(MemoryPool::new(POOL))
}

fn busy() -> Fault {
    Fault::Fail(PoolError::Busy(POOL))
}

async fn open(pool: &Faulty<MemoryPool>) -> Result<Arc<dyn OpenReplica>, PoolError> {
    let (mode, presence) = (TicketMode::ReadWrite, Presence::Unmade);
    pool.open(&Ticket {
        file: FILE,
        birth: Birth::UNKNOWN,
        pool: POOL,
        mode,
        epoch: Epoch(0),
        presence,
        io: types::IoMode::Auto,
    })
    .await
}

fn write(replica: &Arc<dyn OpenReplica>, data: &'static str) -> IoHandle<Stability> {
    replica.write_at(0, Bytes::from(data), Stability::Unstable)
}

async fn bytes(pool: &Faulty<MemoryPool>) -> Bytes {
    pool.pool().writer(FILE).read_at(0, 100).await.unwrap().data
}

/// `None`: it waits.
async fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    tokio::select! {
        biased;
        answer = future => Some(answer),
        () = async {} => None,
    }
}

fn is_busy<T>(answer: Result<T, PoolError>) -> bool {
    matches!(answer, Err(PoolError::Busy(POOL)))
}

/// Makes one call of a kind.
async fn call(
    pool: &Faulty<MemoryPool>,
    replica: &Arc<dyn OpenReplica>,
    kind: Call,
) -> Result<(), PoolError> {
    match kind {
        Call::Open => open(pool).await.map(drop),
        Call::Make => pool.make(&[(FILE, Birth::UNKNOWN)], api::ANSWER_TIME).await.sole(),
        Call::Truncate => pool.truncate(&[(FILE, 5)], api::ANSWER_TIME).await.sole().map(drop),
        Call::Remove => pool.remove(&[FileId(99)], api::ANSWER_TIME).await.sole(),
        Call::SyncRemovals => pool.sync_removals(&[FileId(99)], api::ANSWER_TIME).await,
        Call::Fence => pool.fence(&[(FILE, Epoch(0))], api::ANSWER_TIME).await.sole(),
        Call::Facts => pool.facts(&[FILE], api::ANSWER_TIME).await.sole().map(drop),
        Call::List => pool.replicas(FileId(0), 9).await.map(drop),
        Call::Describe => pool.describe(FileId(0), FILE, Vec::new()).await,
        Call::Read => replica.read_at(0, 1).await.map(drop),
        Call::Write => write(replica, "x").await.map(drop),
        Call::Sync => replica.sync().await.map(drop),
        Call::Range => replica.ranges().unwrap().seek(0, RangeKind::Data).await.map(drop),
    }
}

const CALLS: [Call; 13] = [
    Call::Open,
    Call::Make,
    Call::Truncate,
    Call::Remove,
    Call::SyncRemovals,
    Call::Fence,
    Call::Facts,
    Call::List,
    Call::Describe,
    Call::Read,
    Call::Write,
    Call::Sync,
    Call::Range,
];

#[tokio::test]
async fn every_kind_of_call_meets_its_own_failures_and_no_others() {
    for failing in CALLS {
        let pool = faulty();
        let replica = open(&pool).await.unwrap();
        pool.schedule().on(failing, .., busy());
        for kind in CALLS {
            assert_eq!(is_busy(call(&pool, &replica, kind).await), kind == failing, "{kind:?} {failing:?}");
        }
        pool.schedule().lift(failing);
        assert!(call(&pool, &replica, failing).await.is_ok(), "{failing:?}");
    }
}

#[tokio::test]
async fn calls_are_failed_by_their_number_and_counted_from_the_next() {
    let pool = faulty();
    pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap();
    pool.schedule().on(Call::Facts, 1..3, busy());
    pool.schedule().on(Call::Facts, 5..=5, Fault::Fail(PoolError::Fenced));
    pool.schedule().on(Call::Facts, 7.., busy());
    let mut failed = Vec::new();
    for number in 0..9 {
        failed.extend(pool.facts(&[FILE], api::ANSWER_TIME).await.sole().is_err().then_some(number));
    }
    assert_eq!(failed, [1, 2, 5, 7, 8]);
    assert_eq!(pool.schedule().count(Call::Facts), 10);
    assert_eq!(pool.schedule().passed(), vec![Request::Facts(FILE); 5]);
}

#[tokio::test]
async fn a_call_that_fails_changes_nothing_at_the_pool() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    pool.schedule().on(Call::Write, 0..1, busy());
    pool.schedule().on(Call::Truncate, 0..1, busy());
    assert!(
        is_busy(write(&replica, "lost").await)
            && is_busy(pool.truncate(&[(FILE, 9)], api::ANSWER_TIME).await.sole())
    );
    assert_eq!(pool.pool().facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap(), None);
    write(&replica, "kept").await.unwrap();
    assert_eq!(bytes(&pool).await, "kept");
}

#[tokio::test]
async fn a_delayed_write_is_made_when_the_gate_lets_it_pass() {
    let (pool, gate) = (faulty(), Gate::shut());
    let replica = open(&pool).await.unwrap();
    pool.schedule().on(Call::Write, .., Fault::Delay(gate.clone()));
    let (mut first, mut second) = (write(&replica, "first"), write(&replica, "second"));
    assert!(poll(&mut first).await.is_none() && gate.waiting() == 2);
    assert_eq!(pool.pool().facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap(), None);
    gate.let_pass(1);
    assert_eq!(first.await.unwrap(), Stability::Unstable);
    assert!(poll(&mut second).await.is_none() && bytes(&pool).await == "first");
    // A caller that gives up has its write made all the same.
    drop(second);
    gate.let_all_pass();
    assert_eq!((bytes(&pool).await, gate.passed(), gate.waiting()), ("second".into(), 2, 0));
    write(&replica, "third!").await.unwrap();
}

#[tokio::test]
async fn a_delayed_answer_comes_after_the_call_was_made() {
    let (pool, gate) = (faulty(), Gate::shut());
    let replica = open(&pool).await.unwrap();
    for kind in [Call::Write, Call::Truncate, Call::Sync] {
        pool.schedule().on(kind, .., Fault::DelayAnswer(gate.clone()));
    }
    let mut written = write(&replica, "bytes");
    assert!(poll(&mut written).await.is_none() && bytes(&pool).await == "bytes");
    let mut truncated = pool.truncate(&[(FILE, 2)], api::ANSWER_TIME);
    assert!(poll(&mut truncated).await.is_none() && bytes(&pool).await == "by");
    let mut synced = replica.sync();
    assert!(poll(&mut synced).await.is_none());
    gate.let_waiting_pass();
    assert!(written.await.is_ok() && synced.await.unwrap() == replica.verifier());
    assert_eq!(truncated.await.sole().unwrap().size, 2);
    let mut late = pool.truncate(&[(FILE, 1)], api::ANSWER_TIME);
    assert!(poll(&mut late).await.is_none(), "the gate is shut for those that came later");
}

#[tokio::test]
async fn a_delayed_call_of_the_pool_is_made_when_the_gate_lets_it_pass() {
    let (pool, gate) = (faulty(), Gate::shut());
    pool.schedule().on(Call::Make, .., Fault::Delay(gate.clone()));
    let mut made: Pin<Box<_>> = pool.make(&[(FILE, Birth(5))], api::ANSWER_TIME);
    assert!(
        poll(&mut made).await.is_none()
            && pool.pool().facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap().is_none()
    );
    gate.let_pass(1);
    made.await.sole().unwrap();
    assert_eq!(pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap().unwrap().birth, Birth(5));
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_was_made() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    pool.schedule().on(Call::Write, .., Fault::LoseAnswer);
    pool.schedule().on(Call::Truncate, 1..2, Fault::LoseAnswer);
    assert!(matches!(write(&replica, "bytes").await, Err(PoolError::Unknown(POOL))));
    assert_eq!(bytes(&pool).await, "bytes");
    let sizes = [7, 8, 9].map(|file| (FileId(file), file));
    let truncated = pool.truncate(&sizes, api::ANSWER_TIME).await.into_iter();
    let unknown: Vec<_> = truncated.map(|answer| matches!(answer, Err(PoolError::Unknown(POOL)))).collect();
    assert_eq!(unknown, [false, true, false]);
    let facts = pool.pool().facts(&[FileId(8)], api::ANSWER_TIME).await.sole().unwrap();
    assert_eq!(facts.unwrap().size, 8);
}

#[tokio::test]
async fn a_torn_write_leaves_its_first_bytes_and_an_error() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    let error = PoolError::Io { pool: POOL, operation: "write data", reason: "torn".to_owned() };
    pool.schedule().on(Call::Write, 1..2, Fault::Tear { bytes: 3, error });
    write(&replica, "before").await.unwrap();
    assert!(matches!(write(&replica, "after!").await, Err(PoolError::Io { .. })));
    assert_eq!(bytes(&pool).await, "aftore");
    write(&replica, "after!").await.unwrap();
}

#[tokio::test]
async fn unsynced_bytes_are_lost_before_the_call_and_the_verifier_says_so() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    write(&replica, "synced").await.unwrap();
    let before = replica.sync().await.unwrap();
    pool.schedule().on(Call::Sync, 0..1, Fault::LoseUnsynced);
    write(&replica, "UNSYNCED").await.unwrap();
    let after: Verifier = replica.sync().await.unwrap();
    assert_ne!(before, after);
    assert_eq!(bytes(&pool).await, "synced");
}

#[tokio::test]
async fn a_pool_that_disappears_is_offline_to_every_call_until_it_reappears() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    write(&replica, "kept").await.unwrap();
    pool.schedule().on(Call::Facts, 1..2, Fault::Disappear);
    assert!(pool.facts(&[FILE], api::ANSWER_TIME).await.sole().is_ok() && pool.status().offline.is_none());
    for kind in [Call::Facts].into_iter().chain(CALLS) {
        let answer = call(&pool, &replica, kind).await;
        assert!(matches!(answer, Err(PoolError::Offline(POOL))), "{kind:?} {answer:?}");
    }
    assert!(pool.status().offline.is_some());
    pool.schedule().reappear();
    assert!(pool.status().offline.is_none());
    assert_eq!(replica.read_at(0, 9).await.unwrap().data, "kept");
}

#[tokio::test]
async fn dice_give_the_same_faults_in_every_run_and_only_to_calls_that_are_named() {
    async fn run(seed: u64) -> Vec<bool> {
        let pool = faulty();
        let replica = open(&pool).await.unwrap();
        pool.schedule().roll(
            Dice::seeded(seed),
            3,
            &[Call::Write],
            &[busy(), Fault::Fail(PoolError::Fenced)],
        );
        let mut failed = Vec::new();
        for _ in 0..100 {
            failed.push(write(&replica, "x").await.is_err());
            replica.sync().await.unwrap();
        }
        failed
    }
    let (one, again, other) = (run(5).await, run(5).await, run(6).await);
    assert!(one == again && one != other);
    let failures = one.iter().filter(|failed| **failed).count();
    assert!((20..=50).contains(&failures), "{failures} of 100");
}

#[tokio::test]
async fn every_range_operation_reaches_the_replica() {
    let pool = faulty();
    let replica = open(&pool).await.unwrap();
    let ranges = replica.ranges().unwrap();
    let range = |from, to| ByteRange::from_bounds(from, to).unwrap();
    ranges.allocate(range(0, 10)).await.unwrap();
    ranges.deallocate(range(5, 10)).await.unwrap();
    ranges.extend(20).await.unwrap();
    let facts = pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap().unwrap();
    assert_eq!((facts.size, facts.space_used), (20, 5));
    assert_eq!(pool.schedule().count(Call::Range), 3);
}

#[tokio::test]
async fn a_pool_of_any_kind_meets_faults() {
    let pool = Faulty::around(Arc::new(faulty()));
    pool.schedule().on(Call::Facts, 0..1, busy());
    assert!(is_busy(pool.facts(&[FILE], api::ANSWER_TIME).await.sole()));
    assert_eq!(pool.facts(&[FILE], api::ANSWER_TIME).await.sole().unwrap(), None);
}
