//! Replicas that lost bytes behind the pool's back: an error to any reader of the file, and never zeros.

#![allow(clippy::unwrap_used)]

mod pools;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{
    ANSWER_TIME, OpenReplica, Pool, PoolError, Presence, ReplicaRanges, Stability, Ticket, TicketMode,
};
use bytes::Bytes;
use forebay_pool::{LocalPool, accept_length, look};
use pools::{open, writer};
use types::{ByteRange, Epoch, FileId};

const FILE: u64 = 5;

fn path(dir: &Path) -> PathBuf {
    let mut directories = vec![dir.join("data")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(format!("{FILE:016x}")) {
                return path;
            }
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    panic!("no replica");
}

async fn with(
    pool: &LocalPool,
    mode: TicketMode,
    presence: Presence,
) -> Result<Arc<dyn OpenReplica>, PoolError> {
    pool.open(&Ticket {
        file: FileId(FILE),
        birth: api::Birth::UNKNOWN,
        pool: pools::ID,
        mode,
        epoch: Epoch(0),
        presence,
        io: types::IoMode::Auto,
    })
    .await
}

fn lost<T>(result: Result<T, PoolError>) {
    match result {
        Err(PoolError::Io { operation: "find the data of the file", .. }) => {}
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("nothing is said to be missing"),
    }
}

/// A thousand bytes that are on disk; then what the caller does to the file while the pool is closed.
async fn harmed(dir: &Path, harm: impl FnOnce(&Path)) -> Arc<LocalPool> {
    let pool = open(dir);
    let data = Bytes::from(vec![1; 1000]);
    writer(&pool, FILE).await.write_at(0, data, Stability::FileSync).await.unwrap();
    pool.close();
    drop(pool);
    harm(&path(dir));
    open(dir)
}

fn shorten(path: &Path) {
    fs::File::options().write(true).open(path).unwrap().set_len(10).unwrap();
}

#[tokio::test]
async fn a_shortened_replica_is_an_error_and_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), shorten).await;
    lost(with(&pool, TicketMode::Read, Presence::Written).await);
    let replica = with(&pool, TicketMode::ReadWrite, Presence::Written).await.unwrap();
    lost(replica.read_at(0, 1000).await);
    lost(replica.read_at(500, 10).await);
    assert!(replica.local_range(types::ByteRange::ALL).is_none());
    assert_eq!(replica.read_at(2, 5).await.unwrap().data, [1; 5][..]);
}

#[tokio::test]
async fn a_shortened_replica_does_not_become_whole_by_a_write_behind_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), shorten).await;
    let replica = writer(&pool, FILE).await;
    for stability in [Stability::Unstable, Stability::FileSync] {
        lost(replica.write_at(1000, Bytes::from("more"), stability).await);
    }
    let ranges: &dyn ReplicaRanges = replica.ranges().unwrap();
    lost(ranges.extend(2000).await);
    lost(ranges.allocate(ByteRange::from_bounds(0, 2000).unwrap()).await);
    lost(pool.truncate(&[(FileId(FILE), 2000)], ANSWER_TIME).await.sole());
    // Bytes that a truncation cuts off are not missing.
    pool.truncate(&[(FileId(FILE), 4)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(pools::content(&pool, FILE).await, [1; 4]);
}

#[tokio::test]
async fn a_shortened_replica_becomes_whole_by_a_write_of_all_that_is_missing() {
    for (offset, length) in [(0, 1000), (10, 990), (4, 2000)] {
        let dir = tempfile::tempdir().unwrap();
        let pool = harmed(dir.path(), shorten).await;
        let replica = writer(&pool, FILE).await;
        for (offset, length) in [(11, 2000), (0, 999), (0, 1)] {
            lost(replica.write_at(offset, Bytes::from(vec![3; length]), Stability::FileSync).await);
        }
        let data = Bytes::from(vec![2; length]);
        replica.write_at(offset, data, Stability::FileSync).await.unwrap();
        let before = usize::try_from(offset).unwrap();
        assert_eq!(pools::content(&pool, FILE).await, [vec![1; before], vec![2; length]].concat());
    }
}

#[tokio::test]
async fn the_rest_of_a_replica_is_read_once_it_was_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), shorten).await;
    pool.close();
    drop(pool);
    accept_length(dir.path(), FileId(FILE)).unwrap();
    let pool = open(dir.path());
    let replica = with(&pool, TicketMode::Read, Presence::Written).await.unwrap();
    assert_eq!(replica.read_at(0, 1000).await.unwrap().data, [1; 10][..]);
}

#[tokio::test]
async fn a_replica_that_is_gone_is_an_error_where_the_ticket_says_that_there_is_data() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), |path| fs::remove_file(path).unwrap()).await;
    lost(with(&pool, TicketMode::Read, Presence::Written).await);
    let replica = with(&pool, TicketMode::ReadWrite, Presence::Written).await.unwrap();
    lost(replica.read_at(0, 10).await);
    lost(replica.write_at(0, Bytes::from("x"), Stability::Unstable).await);
    assert_eq!(pool.facts(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap(), None, "none was made");
    assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
    // A file without data reads as one, and its first write makes the replica.
    let replica = with(&pool, TicketMode::ReadWrite, Presence::Unmade).await.unwrap();
    assert!(replica.read_at(0, 10).await.unwrap().data.is_empty());
    replica.write_at(0, Bytes::from("x"), Stability::Unstable).await.unwrap();
    assert_eq!(replica.read_at(0, 10).await.unwrap().data, "x");
}

#[tokio::test]
async fn a_ticket_makes_no_replica_of_a_file_that_is_gone_whether_the_pool_remembers_it_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let running = open(dir.path());
    running.make(&[(FileId(FILE), api::Birth::UNKNOWN)], ANSWER_TIME).await.sole().unwrap();
    running.make(&[(FileId(FILE), api::Birth::UNKNOWN)], ANSWER_TIME).await.sole().unwrap();
    let facts = running.facts(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap().unwrap();
    assert_eq!((facts.file, facts.size), (FileId(FILE), 0));
    let is_gone = |error| matches!(error, PoolError::NoReplica(_));
    let assert_makes_none = async |pool: &LocalPool| {
        assert!(with(pool, TicketMode::Read, Presence::Made).await.err().is_some_and(is_gone));
        match with(pool, TicketMode::ReadWrite, Presence::Made).await {
            Ok(replica) => {
                let ranges = replica.ranges().unwrap();
                let bytes = ByteRange::from_bounds(0, 5).unwrap();
                assert!(replica.read_at(0, 5).await.is_err_and(is_gone));
                assert!(
                    replica.write_at(0, Bytes::from("late"), Stability::Unstable).await.is_err_and(is_gone)
                );
                assert!(ranges.allocate(bytes).await.is_err_and(is_gone));
                assert!(ranges.extend(5).await.is_err_and(is_gone));
            }
            Err(error) => assert!(is_gone(error)),
        }
        assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
    };
    let held = with(&running, TicketMode::ReadWrite, Presence::Made).await.unwrap();
    held.write_at(0, Bytes::from("data"), Stability::FileSync).await.unwrap();
    drop(held);
    running.remove(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap();
    assert_makes_none(&running).await;
    assert!(
        running.make(&[(FileId(FILE), api::Birth::UNKNOWN)], ANSWER_TIME).await.sole().is_err_and(is_gone)
    );
    running.close();
    drop(running);
    assert_makes_none(&open(dir.path())).await;
}

#[tokio::test]
async fn a_link_or_a_fifo_in_place_of_a_replica_is_refused_and_not_listed() {
    let as_link = |path: &Path| {
        let elsewhere = path.with_file_name("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path).unwrap();
    };
    let as_fifo = |path: &Path| {
        fs::remove_file(path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    };
    let as_directory = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    let harms: [&dyn Fn(&Path); 3] = [&as_link, &as_fifo, &as_directory];
    for harm in harms {
        let dir = tempfile::tempdir().unwrap();
        let pool = harmed(dir.path(), harm).await;
        for presence in [Presence::Written, Presence::Made, Presence::Unmade] {
            let opened = with(&pool, TicketMode::Read, presence).await;
            assert!(matches!(opened, Err(PoolError::Io { .. })));
        }
        assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
    }
}

/// Harm that an operator may do to a replica while the pool has it open.
const HARMS: [fn(&Path); 4] = [
    |path| fs::remove_file(path).unwrap(),
    |path| {
        fs::write(path.with_file_name("other"), [2; 5000]).unwrap();
        fs::rename(path.with_file_name("other"), path).unwrap();
    },
    |path| {
        std::os::unix::fs::symlink("/etc/passwd", path.with_file_name("link")).unwrap();
        fs::rename(path.with_file_name("link"), path).unwrap();
    },
    |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    },
];

#[tokio::test]
async fn a_replica_that_loses_its_name_while_it_is_open_takes_no_writes_and_is_not_listed() {
    for harm in HARMS {
        let dir = tempfile::tempdir().unwrap();
        let pool = open(dir.path());
        let replica = writer(&pool, FILE).await;
        replica.write_at(0, Bytes::from(vec![1; 1000]), Stability::FileSync).await.unwrap();
        replica.write_at(0, Bytes::from("x"), Stability::Unstable).await.unwrap();
        harm(&path(dir.path()));
        assert_eq!(pool.facts(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap(), None);
        assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
        for _ in 0..2 {
            lost(replica.sync().await);
            for stability in [Stability::Unstable, Stability::FileSync] {
                lost(replica.write_at(1000, Bytes::from("more"), stability).await);
            }
            lost(pool.truncate(&[(FileId(FILE), 10)], ANSWER_TIME).await.sole());
            let ranges: &dyn ReplicaRanges = replica.ranges().unwrap();
            lost(ranges.extend(2000).await);
        }
        assert_eq!(replica.read_at(1, 999).await.unwrap().data, [1; 999][..], "it can still be saved");
    }
}

#[tokio::test]
async fn a_replica_whose_name_was_moved_takes_writes_while_it_is_open_and_is_not_listed() {
    let ways: [fn(&Path); 2] = [
        |path| fs::rename(path, path.with_file_name("moved")).unwrap(),
        |path| {
            fs::hard_link(path, path.with_file_name("moved")).unwrap();
            fs::remove_file(path).unwrap();
        },
    ];
    for move_away in ways {
        let dir = tempfile::tempdir().unwrap();
        let pool = open(dir.path());
        let replica = writer(&pool, FILE).await;
        replica.write_at(0, Bytes::from("before"), Stability::FileSync).await.unwrap();
        let path = path(dir.path());
        move_away(&path);
        replica.write_at(0, Bytes::from("after!"), Stability::FileSync).await.unwrap();
        replica.sync().await.unwrap();
        assert_eq!(fs::read(path.with_file_name("moved")).unwrap(), b"after!");
        assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
    }
}

/// It stayed, and every write of the whole file and every cut failed, until the head removed it or was restarted.
#[tokio::test]
async fn a_replica_that_lost_its_name_with_unsynced_writes_is_made_anew_by_a_full_replacement() {
    for way in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let pool = open(dir.path());
        let replica = writer(&pool, FILE).await;
        replica.write_at(0, Bytes::from("lost"), Stability::Unstable).await.unwrap();
        fs::remove_file(path(dir.path())).unwrap();
        lost(replica.sync().await);
        match way {
            0 => {}
            1 => assert_eq!(pool.truncate(&[(FileId(FILE), 0)], ANSWER_TIME).await.sole().unwrap().size, 0),
            _ => pool.make(&[(FileId(FILE), api::Birth::UNKNOWN)], ANSWER_TIME).await.sole().unwrap(),
        }
        let anew = with(&pool, TicketMode::ReadWrite, Presence::Unmade).await.unwrap();
        anew.write_at(0, Bytes::from("anew"), Stability::FileSync).await.unwrap();
        assert_eq!(fs::read(path(dir.path())).unwrap(), b"anew");
        assert_eq!(pool.facts(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap().unwrap().size, 4);
        assert_eq!(pool.status().replicas, 1);
        lost(replica.sync().await);
        lost(replica.write_at(0, Bytes::from("more"), Stability::Unstable).await);
        assert_eq!(replica.read_at(0, 9).await.unwrap().data, "lost", "it can still be saved");
    }
}

#[tokio::test]
async fn a_replica_that_lost_its_name_with_unsynced_writes_gives_its_room_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let pool =
        LocalPool::open(forebay_pool::Config { open_files_max: 1, ..pools::config(dir.path()) }).unwrap();
    writer(&pool, FILE).await.write_at(0, Bytes::from("lost"), Stability::Unstable).await.unwrap();
    fs::remove_file(path(dir.path())).unwrap();
    writer(&pool, FILE + 1).await.write_at(0, Bytes::from("data"), Stability::FileSync).await.unwrap();
    // The sync reports the lost write all the same.
    lost(with(&pool, TicketMode::ReadWrite, Presence::Written).await.unwrap().sync().await);
}

#[tokio::test]
async fn a_sync_of_a_replica_that_is_gone_is_an_error_where_the_ticket_says_that_there_is_data() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), |path| fs::remove_file(path).unwrap()).await;
    for _ in 0..2 {
        lost(with(&pool, TicketMode::ReadWrite, Presence::Written).await.unwrap().sync().await);
    }
    with(&pool, TicketMode::ReadWrite, Presence::Unmade).await.unwrap().sync().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_the_head_removed_goes_on_for_those_who_have_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let replica = writer(&pool, FILE).await;
    replica.write_at(0, Bytes::from("before"), Stability::Unstable).await.unwrap();
    pool.remove(&[FileId(FILE)], ANSWER_TIME).await.sole().unwrap();
    replica.write_at(0, Bytes::from("after!"), Stability::FileSync).await.unwrap();
    replica.sync().await.unwrap();
    assert_eq!(replica.read_at(0, 9).await.unwrap().data, "after!");
}

#[tokio::test]
async fn another_file_in_place_of_a_replica_is_not_listed_as_it() {
    let dir = tempfile::tempdir().unwrap();
    let replace = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::write(path, [2; 5000]).unwrap();
    };
    let pool = harmed(dir.path(), replace).await;
    assert_eq!(pool.replicas(FileId(0), 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_cut_is_no_loss_and_a_hole_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), |_| {}).await;
    pool.truncate(&[(FileId(FILE), 10)], ANSWER_TIME).await.sole().unwrap();
    pool.truncate(&[(FileId(FILE), 5000)], ANSWER_TIME).await.sole().unwrap();
    writer(&pool, FILE).await.write_at(9000, Bytes::from("end"), Stability::Unstable).await.unwrap();
    drop(pool);
    let pool = open(dir.path());
    let replica = with(&pool, TicketMode::Read, Presence::Written).await.unwrap();
    let read = replica.read_at(0, 20_000).await.unwrap().data;
    assert!(read[..10] == [1; 10] && read[10..9000].iter().all(|byte| *byte == 0) && read[9000..] == *b"end");
}

fn known(dir: &Path) -> Option<u64> {
    look(dir, FileId(FILE)).unwrap().unwrap().length
}

/// A start after a power cut may take what is not known to be on disk for what nobody was promised.
#[tokio::test]
async fn a_length_that_is_set_is_known_to_be_on_disk_also_where_an_earlier_process_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    writer(&pool, FILE).await.write_at(0, Bytes::from("data"), Stability::Unstable).await.unwrap();
    drop(pool);
    let pool = open(dir.path());
    assert_eq!(known(dir.path()), Some(0));
    pool.truncate(&[(FileId(FILE), 4)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(known(dir.path()), Some(4));
    pool.truncate(&[(FileId(FILE), 3000)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(known(dir.path()), Some(3000));
}

/// A read that begins before a cut and ends behind it finds a shorter file than was known, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_while_a_file_is_cut_and_grows_say_nothing_of_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let replica = writer(&pool, FILE).await;
    let data = || Bytes::from(vec![1; 100_000]);
    replica.write_at(0, data(), Stability::FileSync).await.unwrap();
    let changing = {
        let (pool, replica) = (Arc::clone(&pool), Arc::clone(&replica));
        tokio::spawn(async move {
            for turn in 0..300 {
                pool.truncate(&[(FileId(FILE), turn % 7)], ANSWER_TIME).await.sole().unwrap();
                replica.write_at(0, data(), Stability::FileSync).await.unwrap();
            }
        })
    };
    while !changing.is_finished() {
        replica.read_at(50_000, 100_000).await.unwrap();
        let _open = with(&pool, TicketMode::Read, Presence::Written).await.unwrap();
    }
    changing.await.unwrap();
}

fn label_as_first_version(path: &Path) {
    let text = format!("1 {FILE:016x} {} 0", "5a".repeat(16));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.forebay.id", text.as_bytes(), flags).unwrap();
}

#[tokio::test]
async fn a_cut_of_a_replica_of_the_first_version_is_told_from_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), label_as_first_version).await;
    assert_eq!(known(dir.path()), None);
    pool.truncate(&[(FileId(FILE), 0)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(known(dir.path()), Some(0));
}

/// As a pool of the first version has it: its replicas tell no length, and get one with their next sync.
#[tokio::test]
async fn a_pool_of_the_first_version_is_brought_to_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let pool = harmed(dir.path(), |path| {
        label_as_first_version(path);
        let identity = dir.path().join("pool.json");
        let old = fs::read_to_string(&identity).unwrap().replace("\"version\": 4", "\"version\": 1");
        assert!(old.contains("\"version\": 1"));
        fs::write(identity, old).unwrap();
    })
    .await;
    let identity = fs::read_to_string(dir.path().join("pool.json")).unwrap();
    assert!(identity.contains("\"version\": 4"), "an older binary refuses it now: {identity}");
    assert_eq!(pools::content(&pool, FILE).await, [1; 1000]);
    writer(&pool, FILE).await.write_at(1000, Bytes::from("x"), Stability::FileSync).await.unwrap();
    pool.close();
    drop(pool);
    shorten(&path(dir.path()));
    lost(with(&open(dir.path()), TicketMode::Read, Presence::Written).await);
}
