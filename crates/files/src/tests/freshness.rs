//! Attributes while a file is written at the pools.

use api::{Birth, PoolError, Stability, Written};
use file_state::LayoutMode::{Read, ReadWrite};
use testkit::faulty::{Call, Fault};

use super::fakes::{POOL, at};
use super::*;

#[tokio::test]
async fn a_pool_is_asked_only_while_a_layout_to_write_is_out() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 99, 200);
    assert_eq!(files.fresh_attributes(FILE).await.unwrap().size, 10);
    granted(&files, A, Read);
    assert_eq!(files.fresh_attributes(FILE).await.unwrap().size, 10);
    assert_eq!(fakes.pool.schedule().count(Call::Facts), 0);
    granted(&files, A, ReadWrite);
    assert_eq!(files.fresh_attributes(FILE).await.unwrap().size, 99);
    let written = Written {
        size_at_least: Some(99),
        mtime: Some(at(200)),
        space_used: Some(99),
        stability: Stability::Unstable,
    };
    assert_eq!(*fakes.recorded_writes.lock(), [written]);
}

#[tokio::test]
async fn bytes_that_were_overwritten_count_though_the_size_is_the_same() {
    let (fakes, files) = Fakes::files();
    granted(&files, A, ReadWrite);
    // The attributes changed at 100 s.
    fakes.put_replica(Birth::UNKNOWN, 10, 101);
    files.fresh_attributes(FILE).await.unwrap();
    assert_eq!(fakes.recorded_writes.lock().len(), 1);
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    files.fresh_attributes(FILE).await.unwrap();
    assert_eq!(fakes.recorded_writes.lock().len(), 1, "nothing was written since");
}

#[tokio::test]
async fn a_pool_that_does_not_answer_leaves_the_known_attributes() {
    let (fakes, files) = Fakes::files();
    granted(&files, A, ReadWrite);
    for refusal in [PoolError::Offline(POOL), PoolError::Unknown(POOL)] {
        fakes.pool.schedule().on(Call::Facts, .., Fault::Fail(refusal));
        assert_eq!(files.fresh_attributes(FILE).await.unwrap().size, 10);
        assert!(matches!(files.replica_facts(&attributes(FILE, 10)).await, Err(FilesError::Pool(_))));
        fakes.pool.schedule().lift(Call::Facts);
    }
    assert_eq!(files.replica_facts(&attributes(FILE, 10)).await.unwrap(), None, "never written");
}

/// Linux takes a file to be as short as it is told, and appends in the wrong place.
#[tokio::test]
async fn a_writer_is_not_told_a_size_behind_its_own_writes() {
    let (fakes, files) = Fakes::files();
    granted(&files, A, ReadWrite);
    fakes.put_replica(Birth::UNKNOWN, 99, 200);
    fakes.pool.schedule().on(Call::Facts, .., Fault::Fail(PoolError::Unknown(POOL)));
    let found = files.attributes(FILE).await.unwrap();
    let unknown = files.seen_by(found, Some(A), SHORT).await;
    assert!(matches!(unknown, Err(FilesError::Pool(PoolError::Unknown(POOL)))), "{unknown:?}");
    assert_eq!(files.seen_by(found, Some(B), SHORT).await.unwrap().size, 10, "it was told nothing else");
    fakes.pool.schedule().lift(Call::Facts);
    assert_eq!(files.seen_by(found, Some(A), SHORT).await.unwrap().size, 99);
}

#[tokio::test]
async fn a_file_that_is_gone_is_stale() {
    let (_fakes, files) = Fakes::files();
    let gone = files.fresh_attributes(FileId(8)).await;
    assert!(matches!(gone, Err(FilesError::Namespace(api::NamespaceError::Stale(FileId(8))))));
}
