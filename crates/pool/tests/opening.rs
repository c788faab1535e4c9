//! Opening a pool: what is refused, what is made, what is rebuilt.

#![allow(clippy::unwrap_used)]

mod pools;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{ANSWER_TIME, Pool, PoolError, RangeKind, Stability};
use bytes::Bytes;
use forebay_pool::mode::Mode;
use forebay_pool::{Found, LocalPool, OpenError, ProblemKind, scan};
use pools::{config, content, open, writer};
use types::{FileId, IoMode, PoolId};

fn refusal(config: forebay_pool::Config) -> OpenError {
    LocalPool::open(config).map(|_| ()).unwrap_err()
}

async fn fill(pool: &LocalPool, files: std::ops::Range<u64>) {
    for file in files {
        let data = Bytes::from(vec![1; file as usize]);
        writer(pool, file).await.write_at(0, data, Stability::Unstable).await.unwrap();
    }
}

fn replica_path(dir: &Path, file: u64) -> PathBuf {
    let name = format!("{file:016x}");
    let mut directories = vec![dir.join("data")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == *name {
                return entry.path();
            }
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            }
        }
    }
    panic!("no replica of {file}");
}

#[tokio::test]
async fn a_second_user_of_a_pool_is_refused_until_the_first_closes() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    assert!(matches!(refusal(config(dir.path())), OpenError::InUse { .. }));
    first.close();
    first.close();
    let late = first.facts(&[FileId(1)], ANSWER_TIME).await.sole();
    assert!(matches!(late, Err(PoolError::Busy(_))));
    assert!(first.status().offline.is_some());
    open(dir.path());
}

#[test]
fn the_wrong_pool_instance_or_version_is_refused_with_a_line_that_helps() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close();
    let mut other = config(dir.path());
    other.instance = [1; 16];
    assert!(refusal(other).to_string().contains("another instance"));
    let mut other = config(dir.path());
    other.id = PoolId(9);
    assert!(refusal(other).to_string().contains("is pool-3, not pool-9"));
    let identity = dir.path().join("pool.json");
    let newer = fs::read_to_string(&identity).unwrap().replace("\"version\": 4", "\"version\": 5");
    fs::write(&identity, newer).unwrap();
    assert!(refusal(config(dir.path())).to_string().contains("start a newer program"));
}

#[test]
fn a_directory_with_other_things_in_it_is_not_made_a_pool() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    assert!(matches!(refusal(config(dir.path())), OpenError::NotAPool { .. }));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was left in it");
}

#[test]
fn a_first_start_that_was_cut_off_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    fs::write(dir.path().join("pool.json.new"), "{\"ver").unwrap();
    open(dir.path()).close();
    assert_eq!(scan(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_index_that_is_gone_or_not_clean_is_made_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 1..200).await;
    pool.remove(&[FileId(5)], ANSWER_TIME).await.sole().unwrap();
    let listed = pool.replicas(FileId(0), 1000).await.unwrap();
    assert_eq!(listed.len(), 198);
    drop(pool);
    for round in 0..3 {
        open_again(dir.path(), round);
    }
    let pool = open(dir.path());
    assert_eq!(pool.replicas(FileId(0), 1000).await.unwrap(), listed);
    assert_eq!(pool.status().replicas, 198);
}

/// Closed properly, dropped without, and without an index.
fn open_again(dir: &Path, round: usize) {
    let pool = open(dir);
    match round {
        0 => pool.close(),
        1 => {}
        _ => {
            pool.close();
            for name in ["index.db", "index.db-wal", "index.db-shm"] {
                let _ = fs::remove_file(dir.join(name));
            }
        }
    }
}

#[tokio::test]
async fn problems_below_data_are_reported_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 1..4).await;
    pool.close();
    let stray = replica_path(dir.path(), 1).with_file_name("0000000000000001.bak");
    fs::write(&stray, "mine").unwrap();
    // As a copy that does not keep extended attributes leaves it.
    let bare = replica_path(dir.path(), 2);
    let data = fs::read(&bare).unwrap();
    fs::remove_file(&bare).unwrap();
    fs::write(&bare, data).unwrap();
    let kinds = || {
        let mut kinds: Vec<_> = scan(dir.path())
            .unwrap()
            .filter_map(|found| match found {
                Found::Problem(problem) => Some(problem.kind.to_string()),
                Found::Replica(_) => None,
            })
            .collect();
        kinds.sort_unstable();
        kinds
    };
    let mut expected = [ProblemKind::Stray.to_string(), ProblemKind::NoLabel.to_string()];
    expected.sort_unstable();
    assert_eq!(kinds(), expected);
    let pool = open(dir.path());
    let ticket = api::Ticket {
        file: FileId(2),
        birth: api::Birth::UNKNOWN,
        pool: pools::ID,
        mode: api::TicketMode::ReadWrite,
        epoch: types::Epoch(0),
        presence: api::Presence::Unmade,
        io: types::IoMode::Auto,
    };
    let opened = pool.open(&ticket).await.map(|_| ());
    assert!(matches!(opened, Err(PoolError::Io { .. })), "{opened:?}");
    assert_eq!(content(&pool, 3).await, [1; 3]);
    assert_eq!(fs::read(stray).unwrap(), b"mine");
    assert_eq!(kinds(), expected);
}

#[tokio::test]
async fn an_open_pins_the_mode_of_its_ticket_for_the_file_and_a_fenced_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let file = FileId(1);
    let ticket = |epoch, io| api::Ticket {
        file,
        birth: api::Birth::UNKNOWN,
        pool: pools::ID,
        mode: api::TicketMode::ReadWrite,
        epoch: types::Epoch(epoch),
        presence: api::Presence::Unmade,
        io,
    };
    let writer = pool.open(&ticket(0, IoMode::Uncached)).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"data"), Stability::Unstable).await.unwrap();
    let told = pool.file_io(file).unwrap();
    assert_eq!(told.pinned, Some(Mode::Uncached));
    assert_eq!(told.recorded.len(), 1, "a short request is decided too");
    pool.open(&ticket(0, IoMode::Direct)).await.unwrap();
    assert_eq!(pool.file_io(file).unwrap().pinned, Some(Mode::Direct));
    pool.fence(&[(file, types::Epoch(1))], ANSWER_TIME).await.sole().unwrap();
    assert!(pool.open(&ticket(0, IoMode::Auto)).await.is_err());
    assert_eq!(pool.file_io(file).unwrap().pinned, Some(Mode::Direct));
    pool.open(&ticket(1, IoMode::Auto)).await.unwrap();
    assert_eq!(pool.file_io(file).unwrap().pinned, None);
}

#[tokio::test]
async fn a_replica_that_was_made_and_not_labelled_is_finished_by_the_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 1..2).await;
    pool.close();
    let path = replica_path(dir.path(), 1);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    let pool = open(dir.path());
    assert_eq!(pool.facts(&[FileId(1)], ANSWER_TIME).await.sole().unwrap(), None);
    assert_eq!(content(&pool, 1).await, b"");
    fill(&pool, 1..2).await;
    pool.close();
    assert!(matches!(scan(dir.path()).unwrap().next(), Some(Found::Replica(_))));
}

/// Others may write to its file system, too.
#[test]
fn a_pool_looks_at_its_free_space_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let before = pool.status().free_bytes;
    let other = fs::File::create(dir.path().join("other")).unwrap();
    (&other).write_all(&vec![1; 8 << 20]).unwrap();
    other.sync_all().unwrap();
    let since = Instant::now();
    while pool.status().free_bytes == before {
        assert!(since.elapsed() < Duration::from_secs(60), "nobody looks");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn the_reserve_refuses_new_data_before_it_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 8..9).await;
    pool.close();
    let mut full = config(dir.path());
    full.reserve_bytes = u64::MAX;
    let pool = LocalPool::open(full).unwrap();
    assert_eq!(pool.status().free_bytes, 0);
    let replica = writer(&pool, 8).await;
    let write = |at, data: &'static str| replica.write_at(at, Bytes::from(data), Stability::FileSync);
    assert!(matches!(write(4095, "abc").await, Err(PoolError::NoSpace(_))), "a block behind its last");
    assert!(matches!(write(1 << 20, "a").await, Err(PoolError::NoSpace(_))));
    // Nor does a block that may be shared count as there.
    if pool.clone_granularity().is_none() {
        write(0, "in place").await.unwrap();
        assert_eq!(content(&pool, 8).await, b"in place");
    }
    let ranges = replica.ranges().unwrap();
    ranges.extend(1).await.unwrap();
    assert!(
        matches!(ranges.extend(1 << 20).await, Err(PoolError::NoSpace(_))),
        "its last byte takes a block"
    );
    let new = writer(&pool, 9).await.write_at(0, Bytes::from("x"), Stability::Unstable).await;
    assert!(matches!(new, Err(PoolError::NoSpace(_))));
    assert_eq!(pool.facts(&[FileId(9)], ANSWER_TIME).await.sole().unwrap(), None);
    pool.truncate(&[(FileId(8), 0)], ANSWER_TIME).await.sole().unwrap();
    pool.remove(&[FileId(8)], ANSWER_TIME).await.sole().unwrap();
}

#[tokio::test]
async fn a_write_into_a_hole_leaves_the_reserve_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 8..9).await;
    pool.truncate(&[(FileId(8), 1 << 20)], ANSWER_TIME).await.sole().unwrap();
    pool.close();
    let mut full = config(dir.path());
    full.reserve_bytes = u64::MAX;
    let pool = LocalPool::open(full).unwrap();
    let replica = writer(&pool, 8).await;
    let write = |at| replica.write_at(at, Bytes::from("hole"), Stability::Unstable);
    assert!(matches!(write(1 << 19).await, Err(PoolError::NoSpace(_))));
    assert_eq!(
        replica.ranges().unwrap().seek(4096, RangeKind::Data).await.unwrap(),
        None,
        "nothing was written"
    );
}

#[tokio::test]
async fn the_reserve_of_inodes_refuses_new_replicas_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    fill(&pool, 8..9).await;
    pool.close();
    let mut full = config(dir.path());
    full.reserve_files = u64::MAX - 1;
    let pool = LocalPool::open(full).unwrap();
    if pool.status().total_files == u64::MAX {
        // This file system has inodes without end.
        return;
    }
    writer(&pool, 8).await.write_at(100, Bytes::from("more"), Stability::Unstable).await.unwrap();
    let new = writer(&pool, 9).await.write_at(0, Bytes::from("x"), Stability::Unstable).await;
    assert!(matches!(new, Err(PoolError::NoSpace(_))));
    assert!(matches!(pool.truncate(&[(FileId(9), 5)], ANSWER_TIME).await.sole(), Err(PoolError::NoSpace(_))));
    assert_eq!(pool.facts(&[FileId(9)], ANSWER_TIME).await.sole().unwrap(), None);
}

#[tokio::test]
async fn far_more_replicas_than_may_be_open_are_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut few = config(dir.path());
    few.open_files_max = 4;
    let pool = LocalPool::open(few).unwrap();
    for file in 1..100 {
        let data = Bytes::from(file.to_string());
        writer(&pool, file).await.write_at(0, data, Stability::Unstable).await.unwrap();
    }
    let ours =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let open = ours.filter(|path| path.starts_with(dir.path().join("data"))).count();
    assert!(open <= 4, "{open} replica files are open");
    for file in 1..100 {
        assert_eq!(content(&pool, file).await, file.to_string().as_bytes());
    }
}
