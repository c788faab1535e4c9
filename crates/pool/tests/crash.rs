//! A process that is killed in the middle of its work: what it acknowledged is there, and the pool agrees with itself.

#![allow(clippy::unwrap_used)]

mod pools;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use api::{ANSWER_TIME, Pool, PoolError, Stability, Ticket, TicketMode};
use bytes::Bytes;
use forebay_pool::{Found, scan};
use types::{Epoch, FileId};

const DIR: &str = "FOREBAY_CRASH_TEST_DIR";
const ROUNDS: usize = 5;

fn pattern(file: u64) -> Vec<u8> {
    (0..5000 + file % 777).map(|at| (at ^ file) as u8).collect()
}

/// Not a test: the process that is killed. It says what was acknowledged, one line each.
#[tokio::test]
#[ignore = "run by the test below"]
async fn the_process_that_is_killed() {
    let dir = std::env::var_os(DIR).expect("run by the test below");
    let pool = pools::open_with_journal(dir.as_ref());
    let last = pool.replicas(FileId(0), usize::MAX).await.unwrap().last().map_or(0, |facts| facts.file.0);
    let mut out = std::io::stdout();
    for file in last + 1.. {
        let replica = pools::writer(&pool, file).await;
        let data = Bytes::from(pattern(file));
        if file % 2 == 0 {
            replica.write_at(0, data, Stability::FileSync).await.unwrap();
        } else {
            replica.write_at(0, data, Stability::Unstable).await.unwrap();
            replica.sync().await.unwrap();
        }
        let mut said = format!("written {file}\n");
        if file % 5 == 0 {
            pool.fence(&[(FileId(file), Epoch(2))], ANSWER_TIME).await.sole().unwrap();
            said += &format!("fenced {file}\n");
        }
        if file % 7 == 3 {
            pool.remove(&[FileId(file - 2)], ANSWER_TIME).await.sole().unwrap();
            pool.sync_removals(&[FileId(file - 2)], ANSWER_TIME).await.unwrap();
            said += &format!("removed {}\n", file - 2);
        }
        out.write_all(said.as_bytes()).unwrap();
    }
}

/// Lets it work for `lines` lines and kills it.
fn run_and_kill(dir: &std::path::Path, lines: usize) -> Vec<(String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "the_process_that_is_killed", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let acknowledged = out.lines().map(Result::unwrap).filter_map(|line| {
        let (what, file) = line.split_once(' ')?;
        let known = ["written", "fenced", "removed"].contains(&what);
        known.then(|| (what.to_owned(), file.parse().unwrap()))
    });
    let acknowledged: Vec<_> = acknowledged.take(lines).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged
}

#[tokio::test]
async fn acknowledged_writes_fences_and_removals_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (mut written, mut removed) = (HashMap::new(), Vec::new());
    for round in 0..ROUNDS {
        for (what, file) in run_and_kill(dir.path(), 40 + 13 * round) {
            match what.as_str() {
                // Such a file may have been removed later, when we did not listen any more.
                "written" if (file + 2) % 7 == 3 => {}
                "written" => {
                    written.insert(file, 0);
                }
                "fenced" => {
                    written.entry(file).and_modify(|epoch| *epoch = 2);
                }
                _ => removed.push(file),
            }
        }
        let pool = pools::open_with_journal(dir.path());
        for (file, epoch) in &written {
            let ticket = |epoch| Ticket {
                file: FileId(*file),
                birth: api::Birth::UNKNOWN,
                pool: pools::ID,
                mode: TicketMode::Read,
                epoch: Epoch(epoch),
                presence: api::Presence::Written,
                io: types::IoMode::Auto,
            };
            let replica = pool.open(&ticket(2)).await.unwrap();
            let read = replica.read_at(0, u32::MAX).await.unwrap();
            assert!(read.data == pattern(*file) && read.end_of_file, "file {file}");
            if *epoch > 0 {
                assert!(matches!(pool.open(&ticket(1)).await.map(|_| ()), Err(PoolError::Fenced)));
            }
        }
        let listed = pool.replicas(FileId(0), usize::MAX).await.unwrap();
        assert!(written.keys().all(|file| listed.iter().any(|facts| facts.file.0 == *file)));
        assert!(!listed.iter().any(|facts| removed.contains(&facts.file.0)));
        let mut scanned: Vec<_> = scan(dir.path())
            .unwrap()
            .filter_map(|found| match found {
                Found::Replica(replica) => Some(replica.facts),
                Found::Problem(_) => None,
            })
            .collect();
        scanned.sort_unstable_by_key(|facts| facts.file);
        assert_eq!(listed, scanned);
        // Every other time the next process finds a pool that was not closed, twice over.
        if round % 2 == 0 {
            pool.close();
        }
    }
}

fn files_below(place: &std::path::Path) -> Vec<std::path::PathBuf> {
    match std::fs::read_dir(place) {
        Ok(entries) => entries.flat_map(|entry| files_below(&entry.unwrap().path())).collect(),
        Err(_) => vec![place.to_owned()],
    }
}

/// A removal that was answered before its sync, and then undone by a power cut: the pool that starts again must not say that it
/// is on disk.
#[tokio::test]
async fn a_replica_that_a_power_cut_brings_back_is_removed_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileId(7);
    let pool = pools::open(dir.path());
    let replica = pools::writer(&pool, file.0).await;
    replica.write_at(0, Bytes::from_static(b"data"), Stability::FileSync).await.unwrap();
    drop(replica);
    let (place, kept) =
        (files_below(&dir.path().join("data")).remove(0), dir.path().join("as-the-disk-has-it"));
    std::fs::hard_link(&place, &kept).unwrap();
    pool.remove(&[file], ANSWER_TIME).await.sole().unwrap();
    drop(pool);
    std::fs::rename(&kept, &place).unwrap();
    let pool = pools::open(dir.path());
    let synced = pool.sync_removals(&[file], ANSWER_TIME).await;
    assert!(matches!(&synced, Err(PoolError::Io { .. })), "{synced:?}");
    pool.remove(&[file], ANSWER_TIME).await.sole().unwrap();
    pool.sync_removals(&[file], ANSWER_TIME).await.unwrap();
    assert!(pool.replicas(FileId(0), 9).await.unwrap().is_empty());
}
