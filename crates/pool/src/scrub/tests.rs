//! Pools whose disks lose bits, writers beside a scrub, and interruptions.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use api::{ANSWER_TIME, Birth, OpenReplica, Pool, PoolError, Presence, Stability, Ticket, TicketMode};
use bytes::Bytes;
use types::{Epoch, PoolId, Random};

use super::sums::BLOCK_BYTES;
use super::*;
use crate::journal::JournalPlace;
use crate::layout::ReplicaPlace;
use crate::local::Config;
use crate::local::tests::config;

/// Journals of two starts differ.
struct Count(AtomicU64);

impl Random for Count {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.fetch_add(1, Ordering::Relaxed) as u8);
    }
}

fn pool(dir: &tempfile::TempDir) -> Arc<LocalPool> {
    let random = Arc::new(Count(AtomicU64::new(now_s())));
    LocalPool::open(Config { journal: JournalPlace::Pool, random, ..config(dir.path()) }).unwrap()
}

async fn open(pool: &LocalPool, file: u64, mode: TicketMode) -> Result<Arc<dyn OpenReplica>, PoolError> {
    let (file, epoch, birth) = (FileId(file), Epoch(0), Birth::UNKNOWN);
    pool.open(&Ticket {
        file,
        birth,
        pool: PoolId(1),
        mode,
        epoch,
        presence: Presence::Unmade,
        io: types::IoMode::Auto,
    })
    .await
}

async fn write(pool: &LocalPool, file: u64, offset: u64, bytes: Vec<u8>) -> Arc<dyn OpenReplica> {
    let replica = open(pool, file, TicketMode::ReadWrite).await.unwrap();
    replica.write_at(offset, Bytes::from(bytes), Stability::FileSync).await.unwrap();
    replica
}

/// Of so many blocks and a part of one, at rest.
async fn write_blocks(dir: &tempfile::TempDir, pool: &LocalPool, file: u64, blocks: u64) {
    let bytes = (0..blocks * BLOCK_BYTES + 100).map(|at| (at / 7 % 251) as u8).collect();
    write(pool, file, 0, bytes).await;
    rest(dir, file);
}

fn path(dir: &tempfile::TempDir, file: u64) -> PathBuf {
    dir.path().join(ReplicaPlace::of(FileId(file)).path())
}

fn sums_path(dir: &tempfile::TempDir, file: u64) -> PathBuf {
    let [.., path] = ReplicaPlace::of(FileId(file)).sums_paths();
    dir.path().join(path)
}

fn set_modified(dir: &tempfile::TempDir, file: u64, modified: SystemTime) {
    let opened = File::options().write(true).open(path(dir, file)).unwrap();
    opened.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// As if the last write were a while ago.
fn rest(dir: &tempfile::TempDir, file: u64) {
    set_modified(dir, file, SystemTime::now() - Duration::from_secs(60));
}

/// As a disk does it: the time of the last write stays.
fn flip(dir: &tempfile::TempDir, file: u64, at: u64) {
    let opened = File::options().read(true).write(true).open(path(dir, file)).unwrap();
    let modified = opened.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    opened.read_exact_at(&mut byte, at).unwrap();
    opened.write_all_at(&[byte[0] ^ 1], at).unwrap();
    opened.set_times(FileTimes::new().set_modified(modified)).unwrap();
    opened.sync_all().unwrap();
}

/// The pool is found after a boot.
fn boot_anew(dir: &tempfile::TempDir) {
    let path = dir.path().join(record::FILE_NAME);
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(record["mount"].is_string());
    record["mount"] = "another boot".into();
    fs::write(&path, record.to_string()).unwrap();
}

type Step<'a> = Box<dyn FnMut(u64) + 'a>;

/// Notes findings; acts when blocks were read.
#[derive(Default)]
struct Watch<'a> {
    found: Mutex<Vec<ScrubFinding>>,
    begun: Mutex<(u64, u64)>,
    step: Option<Mutex<Step<'a>>>,
}

impl<'a> Watch<'a> {
    fn acting(step: impl FnMut(u64) + 'a) -> Watch<'a> {
        Watch { step: Some(Mutex::new(Box::new(step))), ..Watch::default() }
    }

    fn kinds(&self) -> Vec<(u64, ScrubFindingKind, Vec<u64>)> {
        let found = self.found.lock();
        found.iter().map(|found| (found.file.0, found.kind, found.offsets.clone())).collect()
    }
}

impl ScrubWatch for Watch<'_> {
    fn begin(&self, done_bytes: u64, total_bytes: u64) {
        *self.begun.lock() = (done_bytes, total_bytes);
    }

    fn advance(&self, done_bytes: u64) {
        if let Some(step) = &self.step {
            (step.lock())(done_bytes);
        }
    }

    fn found(&self, finding: &ScrubFinding) {
        self.found.lock().push(finding.clone());
    }
}

const FAST: ScrubRequest = ScrubRequest { bytes_per_s: 1 << 40, start_over: false };
/// Each replica takes hours.
const STUCK: ScrubRequest = ScrubRequest { bytes_per_s: 1, start_over: false };

fn scrub(pool: &LocalPool, watch: &Watch<'_>) -> ScrubTotals {
    pool.scrub(FAST, &Cancel::default(), watch).unwrap().totals
}

fn scrub_well(pool: &LocalPool) -> ScrubTotals {
    let watch = Watch::default();
    let totals = scrub(pool, &watch);
    assert_eq!(watch.kinds(), []);
    totals
}

fn is_io_error<T>(result: Result<T, PoolError>) -> bool {
    matches!(result, Err(PoolError::Io { .. }))
}

const DAMAGED: ScrubFindingKind = ScrubFindingKind::Damaged;

#[tokio::test]
async fn a_flipped_byte_is_found_and_the_replica_is_not_read_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in [1, 2] {
        write_blocks(&dir, &running, file, 40).await;
    }
    let reader = open(&running, 1, TicketMode::Read).await.unwrap();
    assert_eq!((scrub_well(&running).summed, scrub_well(&running).verified), (2, 2));
    let at = 17 * BLOCK_BYTES;
    flip(&dir, 1, at + 5);
    let watch = Watch::default();
    let totals = scrub(&running, &watch);
    assert_eq!((totals.verified, totals.damaged_replicas, totals.bad_blocks), (1, 1, 1));
    assert_eq!(watch.kinds(), [(1, DAMAGED, vec![at])]);
    assert!(is_io_error(reader.read_at(0, 9).await), "also of blocks that are good");
    assert!(!reader.read_resident(0, 9, &mut bytes::BytesMut::new()));
    assert!(reader.local_range(types::ByteRange::from_bounds(0, 9).unwrap()).is_none());
    let after = async |running: &LocalPool| {
        assert!(is_io_error(open(running, 1, TicketMode::Read).await));
        assert!(is_io_error(running.truncate(&[(FileId(1), 0)], ANSWER_TIME).await.sole()));
        let good = open(running, 2, TicketMode::Read).await.unwrap();
        assert_eq!(good.read_at(0, 100).await.unwrap().data.len(), 100);
        let report = running.scrub_report();
        assert_eq!((report.bad[0].file(), report.bad[0].offsets.clone()), (FileId(1), vec![at]));
    };
    after(&running).await;
    running.close();
    drop((running, reader));
    let running = pool(&dir);
    after(&running).await;
    let watch = Watch::default();
    assert_eq!(scrub(&running, &watch).damaged_replicas, 1, "each scrub tells of it");
    running.remove(&[FileId(1)], ANSWER_TIME).await.sole().unwrap();
    running.parts().scrubbing.forget_gone(running.parts());
    assert_eq!(running.scrub_report().bad, []);
    assert_eq!(scrub_well(&running).replicas, 1);
    assert!(!sums_path(&dir, 1).exists() && sums_path(&dir, 2).exists());
}

#[tokio::test]
async fn a_replica_that_was_written_since_is_never_taken_for_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 3).await;
    scrub_well(&running);
    for change in 0..3 {
        match change {
            0 => drop(write(&running, 1, 5, vec![9; 10]).await),
            1 => drop(running.truncate(&[(FileId(1), BLOCK_BYTES)], ANSWER_TIME).await.sole().unwrap()),
            _ => drop(write(&running, 1, 9 * BLOCK_BYTES, vec![1]).await),
        }
        assert_eq!(scrub_well(&running).left_out, 1, "it is not at rest");
        rest(&dir, 1);
        set_modified(&dir, 1, SystemTime::now() - Duration::from_secs(70 + change));
        assert_eq!(scrub_well(&running).summed, 1);
        assert_eq!(scrub_well(&running).verified, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_beside_a_scrub_makes_no_false_alarm_and_no_wrong_sums() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 40).await;
    let runtime = tokio::runtime::Handle::current();
    // Behind the first 16 blocks are read: once while sums are made, once while they are compared.
    let scrub_beside_a_writer = |byte: u8| {
        let mut is_written = false;
        let watch = Watch::acting(|_| {
            if !std::mem::replace(&mut is_written, true) {
                for block in [0, 39] {
                    runtime.block_on(write(&running, 1, block * BLOCK_BYTES, vec![byte; 100]));
                }
            }
        });
        let totals = scrub(&running, &watch);
        assert_eq!((watch.kinds(), totals.left_out), (vec![], 1));
    };
    tokio::task::block_in_place(|| scrub_beside_a_writer(1));
    assert!(!sums_path(&dir, 1).exists());
    rest(&dir, 1);
    assert_eq!(scrub_well(&running).summed, 1);
    tokio::task::block_in_place(|| scrub_beside_a_writer(2));
    let reader = open(&running, 1, TicketMode::Read).await.unwrap();
    assert_eq!(reader.read_at(0, 1).await.unwrap().data[..], [2]);
}

#[tokio::test]
async fn after_a_crash_of_the_system_a_difference_is_no_damage_until_sums_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in [1, 2] {
        write_blocks(&dir, &running, file, 2).await;
    }
    scrub_well(&running);
    drop(running);
    boot_anew(&dir);
    flip(&dir, 1, 3);
    let running = pool(&dir);
    let watch = Watch::default();
    let totals = scrub(&running, &watch);
    assert_eq!((totals.doubted_replicas, totals.damaged_replicas, totals.verified), (1, 0, 1));
    assert_eq!(watch.kinds(), [(1, ScrubFindingKind::Doubted, vec![0])]);
    assert!(open(&running, 1, TicketMode::Read).await.unwrap().read_at(0, 9).await.is_ok());
    assert_eq!(running.scrub_report().bad, []);
    for file in [1, 2] {
        flip(&dir, file, BLOCK_BYTES + 1);
    }
    let watch = Watch::default();
    assert_eq!(scrub(&running, &watch).damaged_replicas, 2, "both have sums of this generation");
}

/// The power cut took the time of a write whose bytes had come to the disk. The sums are of the same generation here.
#[tokio::test]
async fn a_start_that_applies_records_makes_the_sums_of_their_replicas_stale() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 1).await;
    // Too long for the journal.
    write_blocks(&dir, &running, 2, 3).await;
    assert_eq!(scrub_well(&running).summed, 2);
    let modified = fs::metadata(path(&dir, 1)).unwrap().modified().unwrap();
    write(&running, 1, 3, b"new".to_vec()).await;
    assert!(running.io().journal.unwrap().live_files > 0);
    drop(running);
    set_modified(&dir, 1, modified);
    let running = pool(&dir);
    let totals = scrub_well(&running);
    assert_eq!((totals.left_out, totals.verified), (1, 1), "{totals:?}");
    rest(&dir, 1);
    assert_eq!(scrub_well(&running).summed, 1);
}

/// Sums may be made of bytes that only the journal has brought to the disk.
#[tokio::test]
async fn a_replica_with_records_gets_sums_and_is_compared_with_them_after_they_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 1).await;
    assert!(running.io().journal.unwrap().live_files > 0);
    assert_eq!(scrub_well(&running).summed, 1);
    running.close();
    drop(running);
    let running = pool(&dir);
    assert!(!running.is_rebuilt());
    assert_eq!(scrub_well(&running).verified, 1);
    write(&running, 1, 0, vec![1]).await;
    rest(&dir, 1);
    assert_eq!(scrub_well(&running).summed, 1);
    flip(&dir, 1, 3);
    let watch = Watch::default();
    assert_eq!(scrub(&running, &watch).damaged_replicas, 1);
    // Its records are kept for the next start, which applies them, and it stays damaged.
    running.close();
    drop(running);
    let running = pool(&dir);
    assert!(running.is_rebuilt() && is_io_error(open(&running, 1, TicketMode::Read).await));
}

#[tokio::test]
async fn an_interrupted_scrub_continues_behind_its_last_replica_and_keeps_its_counts() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..=5 {
        write_blocks(&dir, &running, file, 1).await;
    }
    let each = BLOCK_BYTES + 100;
    let cancel = Cancel::default();
    let watch = Watch::acting(|done| {
        if done == 3 * each {
            cancel.cancel();
        }
    });
    assert_eq!(running.scrub(FAST, &cancel, &watch), Err(ScrubStopped::Cancelled));
    assert!(sums_path(&dir, 2).exists() && !sums_path(&dir, 3).exists() && !sums_path(&dir, 4).exists());
    running.close();
    drop(running);
    let running = pool(&dir);
    let mut read = Vec::new();
    let watch = Watch::acting(|done| read.push(done));
    let totals = scrub(&running, &watch);
    assert_eq!((totals.replicas, totals.summed, totals.read_bytes), (5, 5, 5 * each));
    let (done, total) = *watch.begun.lock();
    assert!(done == 2 * each && total >= 5 * each, "{done} of {total}");
    drop(watch);
    assert_eq!(read, [3 * each, 4 * each, 5 * each]);
    let cancel = Cancel::default();
    cancel.cancel();
    running.scrub(FAST, &cancel, &Watch::default()).unwrap_err();
    let over = ScrubRequest { start_over: true, ..FAST };
    let complete = running.scrub(over, &Cancel::default(), &Watch::default()).unwrap();
    assert_eq!((complete.totals.verified, running.scrub_report().last), (5, Some(complete)));
}

#[tokio::test]
async fn the_progress_of_a_scrub_is_reported_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in [1, 2] {
        write_blocks(&dir, &running, file, 4).await;
    }
    let mut seen = Vec::new();
    let watch = Watch::acting(|done| {
        let report = running.scrub_report();
        seen.push((report.is_running, report.done_bytes == done, report.total_bytes));
    });
    scrub(&running, &watch);
    let total = watch.begun.lock().1;
    drop(watch);
    assert!(total > 0 && !seen.is_empty());
    assert!(seen.iter().all(|seen| *seen == (true, true, total)), "{seen:?} of {total}");
    let report = running.scrub_report();
    assert_eq!((report.is_running, report.done_bytes, report.total_bytes), (false, 0, 0));
}

#[tokio::test]
async fn one_scrub_runs_at_a_time_and_the_end_of_the_pool_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 1).await;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| running.scrub(STUCK, &Cancel::default(), &Watch::default()));
        while !running.scrub_report().is_running {
            std::thread::yield_now();
        }
        let second = running.scrub(FAST, &Cancel::default(), &Watch::default());
        assert_eq!(second, Err(ScrubStopped::Running));
        running.close();
        assert_eq!(first.join().unwrap(), Err(ScrubStopped::Cancelled));
    });
    assert!(!running.scrub_report().is_running);
    assert_eq!(running.scrub(FAST, &Cancel::default(), &Watch::default()), Err(ScrubStopped::Cancelled));
}

#[tokio::test]
async fn a_long_hole_costs_neither_time_nor_sums_and_bytes_in_it_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let end = 1 << 40;
    write(&running, 1, 0, vec![1; 10]).await;
    write(&running, 1, end, vec![2; 10]).await;
    rest(&dir, 1);
    let totals = scrub_well(&running);
    assert!(totals.summed == 1 && totals.read_bytes <= 4 * BLOCK_BYTES, "{totals:?}");
    assert!(fs::metadata(sums_path(&dir, 1)).unwrap().len() < 200);
    assert_eq!(scrub_well(&running).verified, 1);
    flip(&dir, 1, 1 << 30);
    let watch = Watch::default();
    scrub(&running, &watch);
    assert_eq!(watch.kinds(), [(1, DAMAGED, vec![1 << 30])]);
}

#[tokio::test]
async fn a_hole_that_a_copy_of_the_pool_has_filled_with_zeros_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write(&running, 1, 30 * BLOCK_BYTES, vec![1; 10]).await;
    rest(&dir, 1);
    scrub_well(&running);
    let copy = dir.path().join("copy");
    let bytes = fs::read(path(&dir, 1)).unwrap();
    fs::write(&copy, bytes).unwrap();
    let modified = fs::metadata(path(&dir, 1)).unwrap().modified().unwrap();
    fs::write(path(&dir, 1), fs::read(copy).unwrap()).unwrap();
    set_modified(&dir, 1, modified);
    assert_eq!(scrub_well(&running).verified, 1);
}

#[tokio::test]
async fn a_block_that_the_disk_cannot_read_is_told_and_readers_of_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 20).await;
    scrub_well(&running);
    *running.parts().store.faults.bad_block.lock() = Some(18);
    let watch = Watch::default();
    let totals = scrub(&running, &watch);
    assert_eq!((totals.unreadable_replicas, totals.bad_blocks, totals.damaged_replicas), (1, 1, 0));
    assert_eq!(watch.kinds(), [(1, ScrubFindingKind::Unreadable, vec![18 * BLOCK_BYTES])]);
    assert!(open(&running, 1, TicketMode::Read).await.unwrap().read_at(0, 9).await.is_ok());
    assert!(!running.scrub_report().bad[0].is_damaged);
    *running.parts().store.faults.bad_block.lock() = None;
    assert_eq!(scrub_well(&running).verified, 1);
    assert_eq!(running.scrub_report().bad, []);
}

#[tokio::test]
async fn sums_that_are_damaged_are_made_anew_and_accuse_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 2).await;
    scrub_well(&running);
    let whole = fs::read(sums_path(&dir, 1)).unwrap();
    for at in [20, whole.len() - 6] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(sums_path(&dir, 1), damaged).unwrap();
        assert_eq!(scrub_well(&running).summed, 1);
        assert_eq!(fs::read(sums_path(&dir, 1)).unwrap(), whole);
    }
}

#[tokio::test]
async fn a_scrub_is_due_once_the_last_complete_one_or_the_first_question_is_long_ago() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 1).await;
    assert_eq!(running.scrub_report().due_s, None);
    let (every, began_s) = (Duration::from_secs(1000), 2_000_000_000_000);
    assert!(!running.scrub_is_due(every, began_s));
    assert!(!running.scrub_is_due(every, began_s + 999) && running.scrub_is_due(every, began_s + 1000));
    running.close();
    drop(running);
    let running = pool(&dir);
    assert!(!running.scrub_is_due(every, began_s + 999), "it is kept with the pool");
    assert_eq!(running.scrub_report().due_s, Some(began_s + 1000));
    fs::remove_file(dir.path().join(record::FILE_NAME)).unwrap();
    running.close();
    drop(running);
    let running = pool(&dir);
    let cancelled = Cancel::default();
    cancelled.cancel();
    assert_eq!(running.scrub(FAST, &cancelled, &Watch::default()), Err(ScrubStopped::Cancelled));
    assert_eq!(running.scrub_report().interrupted, Some(0));
    scrub_well(&running);
    let report = running.scrub_report();
    let ended_s = report.last.unwrap().ended_s;
    assert_eq!(report.interrupted, None);
    assert!(!running.scrub_is_due(every, ended_s + 999) && running.scrub_is_due(every, ended_s + 1000));
}

/// The clock was in 2040 before it was set right, and no scrub started by itself until then.
#[tokio::test]
async fn a_clock_that_was_wrong_once_does_not_switch_scrubs_off() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let (every, wrong_s, right_s) = (Duration::from_secs(1000), 2_208_988_800, 1_800_000_000);
    assert!(!running.scrub_is_due(every, wrong_s));
    assert!(!running.scrub_is_due(every, 5), "the clock is not set");
    assert!(!running.scrub_is_due(every, right_s) && !running.scrub_is_due(every, right_s + 999));
    assert!(running.scrub_is_due(every, right_s + 1000));
    running.close();
    drop(running);
    assert_eq!(pool(&dir).parts().scrubbing.record.lock().watched_s, Some(right_s));
}

/// A path to the disk that gave wrong bytes for a while cost the users a whole pool.
#[tokio::test]
async fn a_scrub_ends_before_it_marks_a_whole_pool() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..=30 {
        write_blocks(&dir, &running, file, 1).await;
    }
    assert_eq!(scrub_well(&running).summed, 30);
    (1..=30).for_each(|file| flip(&dir, file, 3));
    let watch = Watch::default();
    let ended = running.scrub(FAST, &Cancel::default(), &watch).unwrap_err();
    assert!(ended.to_string().contains("in a row"), "{ended}");
    assert_eq!(watch.kinds().len(), 20);
    // None does so by itself at once.
    let (every, failed_s) = (Duration::from_secs(1000), now_s());
    assert!(!running.scrub_is_due(every, failed_s) && running.scrub_is_due(every, failed_s + 1000));
    // The next scrub goes on, and marks the others.
    let watch = Watch::default();
    assert_eq!(scrub(&running, &watch).damaged_replicas, 30);
    assert_eq!(watch.kinds().len(), 10);
}

/// It was told as unreadable, whose other blocks are served, and its offsets were forgotten.
#[tokio::test]
async fn a_damaged_replica_with_a_block_that_cannot_be_read_stays_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    write_blocks(&dir, &running, 1, 2).await;
    assert_eq!(scrub_well(&running).summed, 1);
    flip(&dir, 1, 3);
    assert_eq!(scrub(&running, &Watch::default()).damaged_replicas, 1);
    *running.parts().store.faults.bad_block.lock() = Some(0);
    let totals = scrub(&running, &Watch::default());
    assert_eq!((totals.damaged_replicas, totals.unreadable_replicas), (1, 0));
    let bad = running.scrub_report().bad;
    assert!(bad[0].is_damaged && bad[0].offsets == [0], "{bad:?}");
}

mod digests;
mod reads;
