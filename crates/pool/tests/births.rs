//! A replica of another file that had the same id is an error to a ticket's holder, and never bytes.

#![allow(clippy::unwrap_used)]

mod pools;

use std::sync::Arc;

use api::{ANSWER_TIME, Birth, OpenReplica, Pool, PoolError, Presence, Stability, Ticket, TicketMode};
use bytes::Bytes;
use forebay_pool::LocalPool;
use pools::open;
use types::{ByteRange, Epoch, FileId};

const FILE: FileId = FileId(5);
const OWN: Birth = Birth(1_700_000_000);
const OTHER: Birth = Birth(1_700_000_001);

async fn by(pool: &LocalPool, birth: Birth, mode: TicketMode) -> Result<Arc<dyn OpenReplica>, PoolError> {
    let presence = Presence::Unmade;
    pool.open(&Ticket {
        file: FILE,
        birth,
        pool: pools::ID,
        mode,
        epoch: Epoch(0),
        presence,
        io: types::IoMode::Auto,
    })
    .await
}

async fn write(pool: &LocalPool, birth: Birth) -> Result<Stability, PoolError> {
    let replica = by(pool, birth, TicketMode::ReadWrite).await?;
    replica.write_at(0, Bytes::from("data"), Stability::FileSync).await
}

async fn read(pool: &LocalPool, birth: Birth, mode: TicketMode) -> Result<Bytes, PoolError> {
    Ok(by(pool, birth, mode).await?.read_at(0, 9).await?.data)
}

fn refused<T>(result: Result<T, PoolError>) {
    match result {
        Err(PoolError::Io { operation: "find the data of the file", reason, .. }) => {
            assert!(reason.contains("of another file"), "{reason}");
        }
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it is taken for the file's"),
    }
}

async fn assert_is_refused_to_others(pool: &LocalPool) {
    for mode in [TicketMode::Read, TicketMode::ReadWrite] {
        refused(read(pool, OTHER, mode).await);
    }
    refused(write(pool, OTHER).await);
    refused(pool.make(&[(FILE, OTHER)], ANSWER_TIME).await.sole());
    if let Ok(replica) = by(pool, OTHER, TicketMode::ReadWrite).await {
        let ranges = replica.ranges().unwrap();
        refused(replica.sync().await);
        refused(ranges.allocate(ByteRange::from_bounds(0, 9).unwrap()).await);
        assert!(replica.local_range(types::ByteRange::ALL).is_none());
    }
    for birth in [OWN, Birth::UNKNOWN] {
        assert_eq!(read(pool, birth, TicketMode::Read).await.unwrap(), "data");
        pool.make(&[(FILE, birth)], ANSWER_TIME).await.sole().unwrap();
    }
    assert_eq!(pool.facts(&[FILE], ANSWER_TIME).await.sole().unwrap().unwrap().birth, OWN);
    assert_eq!(pool.replicas(FileId(0), 9).await.unwrap()[0].birth, OWN);
}

#[tokio::test]
async fn a_replica_of_another_birth_is_an_error_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    pool.make(&[(FILE, OWN)], ANSWER_TIME).await.sole().unwrap();
    write(&pool, OWN).await.unwrap();
    assert_is_refused_to_others(&pool).await;
    pool.close();
    drop(pool);
    let pool = open(dir.path());
    // Nobody has looked at it yet.
    refused(write(&pool, OTHER).await);
    assert_is_refused_to_others(&pool).await;
}

#[tokio::test]
async fn a_replica_without_a_birth_takes_that_of_its_next_writer() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, Birth::UNKNOWN).await.unwrap();
    pool.close();
    drop(pool);
    let pool = open(dir.path());
    assert_eq!(read(&pool, OTHER, TicketMode::Read).await.unwrap(), "data", "a reader settles nothing");
    let replica = by(&pool, OWN, TicketMode::ReadWrite).await.unwrap();
    replica.write_at(4, Bytes::from("more"), Stability::FileSync).await.unwrap();
    drop(replica);
    pool.close();
    drop(pool);
    let pool = open(dir.path());
    refused(read(&pool, OTHER, TicketMode::Read).await);
    assert_eq!(read(&pool, OWN, TicketMode::Read).await.unwrap(), "datamore");
}
