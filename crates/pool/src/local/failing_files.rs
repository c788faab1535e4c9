//! Faults of one file, or of a disk that is full or read-only: who is told, and who goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use api::{OpenReplica, Pool, PoolError, Stability};
use bytes::Bytes;
use rustix::io::Errno;
use types::FileId;

use super::tests::{config, replica};
use super::{Config, LocalPool};
use crate::journal::JournalPlace;
use crate::store::Operation;

type NoFault = fn() -> Result<(), Errno>;

fn pools(dir: &tempfile::TempDir) -> [Arc<LocalPool>; 2] {
    let open = |name: &str, journal| {
        let dir = dir.path().join(name);
        LocalPool::open(Config { journal, threads: 2, ..config(&dir) }).unwrap()
    };
    [open("off", JournalPlace::Off), open("journal", JournalPlace::Pool)]
}

fn fail(pool: &LocalPool, file: u64, operation: Operation, errno: Errno) {
    pool.shared.store.faults.set(FileId(file), operation, Some(move || Err(errno)));
}

fn fail_once(pool: &LocalPool, file: u64, operation: Operation, errno: Errno) {
    let is_due = AtomicBool::new(true);
    let fault = move || if is_due.swap(false, Ordering::SeqCst) { Err(errno) } else { Ok(()) };
    pool.shared.store.faults.set(FileId(file), operation, Some(fault));
}

fn mend(pool: &LocalPool, file: u64, operation: Operation) {
    pool.shared.store.faults.set(FileId(file), operation, None::<NoFault>);
}

async fn write(replica: &Arc<dyn OpenReplica>, offset: u64, stability: Stability) -> Result<(), PoolError> {
    replica.write_at(offset, Bytes::from("data"), stability).await.map(drop)
}

/// All that a client does with a file.
async fn use_file(pool: &LocalPool, file: u64) {
    let there = replica(pool, file).await;
    write(&there, 0, Stability::Unstable).await.unwrap();
    there.sync().await.unwrap();
    write(&there, 4, Stability::FileSync).await.unwrap();
    assert_eq!(there.read_at(0, 99).await.unwrap().data, "datadata");
}

fn assert_io<T: std::fmt::Debug>(result: Result<T, PoolError>, about: &str) {
    assert!(matches!(result, Err(PoolError::Io { .. })), "{about}: {result:?}");
}

#[tokio::test]
async fn an_error_of_a_read_or_a_write_is_told_to_its_caller_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(&dir) {
        use_file(&pool, 1).await;
        let there = replica(&pool, 1).await;
        fail(&pool, 1, Operation::Read, Errno::IO);
        assert_io(there.read_at(0, 9).await, "a read");
        fail(&pool, 1, Operation::Write, Errno::IO);
        for stability in [Stability::Unstable, Stability::FileSync] {
            assert_io(write(&there, 0, stability).await, "a write");
        }
        assert_io(there.write_through(0, Bytes::from("data")).written.await, "a write through");
        assert!(pool.status().offline.is_none());
        mend(&pool, 1, Operation::Read);
        mend(&pool, 1, Operation::Write);
        use_file(&pool, 1).await;
        use_file(&pool, 2).await;
    }
}

/// ENOSPC comes from write-back where space is not reserved by the write.
#[tokio::test]
async fn a_sync_that_failed_once_is_told_to_every_later_commit_of_its_file_and_to_no_other() {
    for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ROFS] {
        let dir = tempfile::tempdir().unwrap();
        for pool in pools(&dir) {
            let there = replica(&pool, 1).await;
            write(&there, 0, Stability::Unstable).await.unwrap();
            fail_once(&pool, 1, Operation::Sync, errno);
            for _ in 0..2 {
                assert_io(there.sync().await, "a COMMIT");
                assert_io(replica(&pool, 1).await.sync().await, "a COMMIT of another holder");
                assert_io(write(&there, 0, Stability::FileSync).await, "a stable write");
            }
            let full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
            // A look at the disk may have ended the doubt.
            assert!(!full || pool.status().read_only.is_none(), "{errno}");
            use_file(&pool, 2).await;
        }
    }
}

#[tokio::test]
async fn a_disk_that_became_read_only_takes_no_new_files_says_why_and_goes_on_to_read() {
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(&dir) {
        use_file(&pool, 1).await;
        let there = replica(&pool, 1).await;
        pool.shared.store.faults.read_only.store(true, Ordering::SeqCst);
        fail(&pool, 1, Operation::Write, Errno::ROFS);
        assert_io(write(&there, 0, Stability::FileSync).await, "a write");
        let reason = pool.status().read_only.unwrap();
        assert!(reason.contains("Read-only file system"), "{reason}");
        assert_io(write(&replica(&pool, 2).await, 0, Stability::Unstable).await, "a new file");
        assert_eq!(there.read_at(0, 99).await.unwrap().data, "datadata");
        pool.shared.store.faults.read_only.store(false, Ordering::SeqCst);
        mend(&pool, 1, Operation::Write);
        pool.shared.writability.look(pool.id(), &pool.shared.store);
        assert_eq!(pool.status().read_only, None);
        use_file(&pool, 1).await;
        use_file(&pool, 2).await;
    }
}

/// Each such operation tells that it waits, and goes on once the sender is dropped.
fn slow_down(
    pool: &LocalPool,
    file: u64,
    operation: Operation,
) -> (tokio::sync::mpsc::UnboundedReceiver<()>, mpsc::Sender<()>) {
    let (waits, waiting) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let gate = move || {
        let _ = waits.send(());
        let _ = goes_on.lock().unwrap().recv();
        Ok(())
    };
    pool.shared.store.faults.set(FileId(file), operation, Some(gate));
    (waiting, go_on)
}

#[tokio::test]
async fn a_slow_write_or_sync_of_one_file_keeps_no_other_file_waiting() {
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(&dir) {
        for operation in [Operation::Write, Operation::Sync] {
            // Nobody may write it meanwhile.
            let file = 10 + operation as u64;
            let there = replica(&pool, file).await;
            let (mut waiting, go_on) = slow_down(&pool, file, operation);
            let writing = Arc::clone(&there);
            let slow = tokio::spawn(async move {
                write(&writing, 0, Stability::Unstable).await?;
                writing.sync().await.map(drop)
            });
            waiting.recv().await.unwrap();
            use_file(&pool, 2).await;
            use_file(&pool, 20 + operation as u64).await;
            assert!(!slow.is_finished());
            drop(go_on);
            slow.await.unwrap().unwrap();
            mend(&pool, file, operation);
        }
    }
}

/// Each COMMIT of a file took a thread of its own, and waited in it for the one before.
#[tokio::test]
async fn many_commits_of_a_slow_file_keep_no_other_file_waiting() {
    let dir = tempfile::tempdir().unwrap();
    for pool in pools(&dir) {
        let there = replica(&pool, 30).await;
        write(&there, 0, Stability::Unstable).await.unwrap();
        let (mut waiting, go_on) = slow_down(&pool, 30, Operation::Sync);
        let commit = || {
            let replica = Arc::clone(&there);
            tokio::spawn(async move { replica.sync().await.map(drop) })
        };
        let mut commits = vec![commit()];
        waiting.recv().await.unwrap();
        commits.extend((0..super::SYNC_THREADS + 1).map(|_| commit()));
        // They are asked for before the other file is.
        tokio::task::yield_now().await;
        use_file(&pool, 31).await;
        assert!(commits.iter().all(|commit| !commit.is_finished()));
        drop(go_on);
        for commit in commits {
            commit.await.unwrap().unwrap();
        }
        mend(&pool, 30, Operation::Sync);
    }
}
