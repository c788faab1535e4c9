//! Delayed allocation: a pool whose writes are in memory behaves as one whose writes are in its files.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use api::{ANSWER_TIME, OpenReplica, Pool, PoolError, RangeKind, Source, Stability, Stretch};
use bytes::{Bytes, BytesMut};
use io_engine::gather::Bypass;
use rustix::io::Errno;
use types::{ByteRange, Epoch, FileId};

use super::tests::{config, replica};
use super::{Config, LocalPool};
use crate::gathering::{GatherPolicy, Gathering};
use crate::journal::JournalPlace;
use crate::layout::ReplicaPlace;
use crate::replica::Replica;

const FILE: FileId = FileId(1);
const RECORD: usize = 8192;
const MIB: u64 = 1 << 20;

fn pool(dir: &tempfile::TempDir) -> Arc<LocalPool> {
    open(Config { gather: GatherPolicy::Always, ..config(dir.path()) })
}

fn open(config: Config) -> Arc<LocalPool> {
    let pool = LocalPool::open(config).unwrap();
    pool.shared.gathering.hold_for_test(true);
    pool
}

fn pool_with_journal(dir: &tempfile::TempDir) -> Arc<LocalPool> {
    let journal = JournalPlace::Pool;
    open(Config { gather: GatherPolicy::Always, journal, ..config(dir.path()) })
}

/// The file as it should be read.
struct Written {
    replica: Arc<dyn OpenReplica>,
    expected: Vec<u8>,
}

impl Written {
    /// Out of order, so that from its third record on it is gathered: 0x11 at 2 MiB and 1 MiB, which are in the file, and
    /// 0x22 at 3 MiB, 64 KiB and 3 MiB + 16 KiB, which are not.
    async fn scattered(pool: &LocalPool, file: u64) -> Written {
        let mut written = Written { replica: replica(pool, file).await, expected: Vec::new() };
        let offsets = [(5 * MIB, 0x11), (2 * MIB, 0x11), (MIB, 0x11)];
        for (offset, byte) in
            offsets.into_iter().chain([(3 * MIB, 0x22), (64 << 10, 0x22), ((3 * MIB) + (16 << 10), 0x22)])
        {
            written.write(offset, &vec![byte; RECORD], Stability::Unstable).await;
        }
        assert!(found(pool, file).has_gathered());
        written
    }

    async fn write(&mut self, offset: u64, data: &[u8], stability: Stability) {
        self.note(offset, data);
        self.replica.write_at(offset, Bytes::copy_from_slice(data), stability).await.unwrap();
    }

    fn note(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        self.expected.resize(self.expected.len().max(end), 0);
        self.expected[offset as usize..end].copy_from_slice(data);
    }

    async fn check(&self) {
        check(&self.replica, &self.expected).await;
    }

    async fn check_again_in(&self, pool: &LocalPool) {
        check(&replica(pool, FILE.0).await, &self.expected).await;
    }
}

async fn check(replica: &Arc<dyn OpenReplica>, expected: &[u8]) {
    let mut at = 0;
    loop {
        let read = replica.read_at(at as u64, 1_000_000).await.unwrap();
        assert!(read.data == expected[at..at + read.data.len()], "at {at}");
        at += read.data.len();
        assert_eq!(read.end_of_file, at == expected.len(), "at {at}");
        if read.end_of_file {
            return;
        }
        assert!(!read.data.is_empty());
    }
}

fn found(pool: &LocalPool, file: u64) -> Arc<Replica> {
    pool.replicas.find(FileId(file)).unwrap()
}

fn on_disk(dir: &tempfile::TempDir) -> Vec<u8> {
    std::fs::read(dir.path().join(ReplicaPlace::of(FILE).path())).unwrap()
}

fn memory(pool: &LocalPool) -> usize {
    pool.shared.gathering.budget().unwrap().in_use().bytes
}

fn fail_flushes(pool: &LocalPool, errno: Option<Errno>) {
    *pool.shared.store.faults.flush.lock() = errno;
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).unwrap()
}

#[tokio::test]
async fn every_way_to_the_bytes_sees_gathered_ones() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    written.check().await;
    let there = &written.replica;
    assert_ne!(on_disk(&dir), written.expected, "otherwise nothing was tested");
    let middle = there.read_at(3 * MIB - 10, 30).await.unwrap();
    assert!(middle.data == [&[0; 10][..], &[0x22; 20]].concat() && !middle.end_of_file);
    let past = there.read_at(7 * MIB, 10).await.unwrap();
    assert!(past.data.is_empty() && past.end_of_file);
    assert!(!there.read_resident(64 << 10, 100, &mut BytesMut::new()), "the page cache has other bytes");
    assert!(there.local_range(range(64 << 10, 100)).is_none(), "a door would send other bytes");
    let size = written.expected.len() as u64;
    let facts = running.facts(&[FILE], ANSWER_TIME).await.sole().unwrap().unwrap();
    assert_eq!(facts.size, size);
    assert_eq!(running.replicas(FileId(0), 9).await.unwrap()[0].size, size);
    let ranges = there.ranges().unwrap();
    assert_eq!(ranges.seek(2 * MIB + (1 << 19), RangeKind::Data).await.unwrap(), Some(3 * MIB));
    assert_eq!(ranges.seek(3 * MIB, RangeKind::Hole).await.unwrap(), Some(3 * MIB + RECORD as u64));
    assert_eq!(ranges.seek(size, RangeKind::Data).await.unwrap(), None);
    assert!(memory(&running) > 0, "a search flushes nothing");
    written.check().await;
}

#[tokio::test]
async fn a_gathered_write_has_the_time_of_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    let path = dir.path().join(ReplicaPlace::of(FILE).path());
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    let modified = async || running.facts(&[FILE], ANSWER_TIME).await.sole().unwrap().unwrap().modified;
    let before = modified().await;
    // Coarser than the clock of any file system.
    std::thread::sleep(Duration::from_millis(20));
    written.write(70 << 10, &[1; 1000], Stability::Unstable).await;
    let after = modified().await.unwrap();
    let passed =
        after.total_nanoseconds() - (old.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128);
    assert!(passed > 50_000_000_000 && before.unwrap() < after);
    written.replica.sync().await.unwrap();
    let path = dir.path().join(ReplicaPlace::of(FILE).path());
    std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    assert!(modified().await.unwrap() < after, "a file without gathered bytes has its own time");
}

#[tokio::test]
async fn writes_that_overlap_gathered_ones_keep_their_order() {
    for with_journal in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let running = if with_journal { pool_with_journal(&dir) } else { pool(&dir) };
        let mut written = Written::scattered(&running, 1).await;
        // Each of these goes to the file, and some of the next ones over it into memory.
        written.write(3 * MIB + 100, &[0x44; 100], Stability::FileSync).await;
        written.check().await;
        written.write(3 * MIB + 8192, &[0x45; RECORD], Stability::Unstable).await;
        written.write(3 * MIB + 150, &[0x46; 100], Stability::Unstable).await;
        written.write(2 * MIB + 77, &vec![0x47; 1 << 20], Stability::Unstable).await;
        written.check().await;
        written.write(64 << 10, &[0x48; RECORD], Stability::Unstable).await;
        written.write(0, &vec![0x49; 1 << 20], Stability::FileSync).await;
        written.check().await;
        written.replica.sync().await.unwrap();
        assert_eq!(on_disk(&dir), written.expected);
    }
}

#[tokio::test]
async fn a_record_of_the_journal_does_not_go_over_a_gathered_write_that_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool_with_journal(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.replica.sync().await.unwrap();
    written.write(64 << 10, &[0x51; RECORD], Stability::FileSync).await;
    written.write(3 * MIB, &[0x52; RECORD], Stability::Unstable).await;
    written.write((64 << 10) + 100, &[0x53; RECORD], Stability::Unstable).await;
    assert!(running.shared.journal.newest(FILE).is_some() && found(&running, 1).has_gathered());
    written.replica.sync().await.unwrap();
    // And one that is stable over bytes in memory, which the kill takes.
    written.write(2 * MIB, &[0x54; RECORD], Stability::Unstable).await;
    written.write(MIB, &[0x54; RECORD], Stability::Unstable).await;
    written.write(MIB + 10, &[0x55; 100], Stability::FileSync).await;
    drop(running);
    let running = pool_with_journal(&dir);
    let again = replica(&running, 1).await;
    let read = |offset: u64, length: u32| again.read_at(offset, length);
    assert_eq!(read(64 << 10, 200).await.unwrap().data, [&[0x51; 100][..], &[0x53; 100]].concat());
    assert_eq!(read(MIB + 10, 100).await.unwrap().data, [0x55; 100][..]);
}

#[tokio::test]
async fn a_truncation_takes_gathered_bytes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    // To the length that the file itself has.
    let length = on_disk(&dir).len();
    assert_eq!(
        running.truncate(&[(FILE, length as u64)], ANSWER_TIME).await.sole().unwrap().size,
        length as u64
    );
    written.expected.truncate(length);
    written.check().await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    assert!(found(&running, 1).has_gathered() && written.expected.len() > on_disk(&dir).len());
    for size in [6 * MIB + 10, 3 * MIB + 10, 4 * MIB, (64 << 10) + 10, 0, 100] {
        let facts = running.truncate(&[(FILE, size)], ANSWER_TIME).await.sole().unwrap();
        written.expected.resize(size as usize, 0);
        assert_eq!(facts.size, size);
        written.check().await;
    }
    assert_eq!(memory(&running), 0);
}

#[tokio::test]
async fn a_file_on_a_full_disk_can_be_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    assert!(matches!(written.replica.sync().await, Err(PoolError::NoSpace(_))));
    assert_eq!(running.truncate(&[(FILE, 0)], ANSWER_TIME).await.sole().unwrap().size, 0);
    assert_eq!(memory(&running), 0);
    written.replica.sync().await.unwrap();
}

/// The file was cut, and the client told that the disk is full.
#[tokio::test]
async fn a_file_on_a_full_disk_can_be_cut_amid_gathered_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    let size = 2 * MIB + 100;
    assert_eq!(running.truncate(&[(FILE, size)], ANSWER_TIME).await.sole().unwrap().size, size);
    written.expected.truncate(size as usize);
    written.check().await;
    fail_flushes(&running, None);
    written.replica.sync().await.unwrap();
    written.check().await;
}

#[tokio::test]
async fn ranges_are_freed_and_copied_behind_gathered_writes() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    let ranges = written.replica.ranges().unwrap();
    ranges.deallocate(range(3 * MIB + 100, 4000)).await.unwrap();
    ranges.allocate(range(64 << 10, 100)).await.unwrap();
    written.note(3 * MIB + 100, &[0; 4000]);
    written.check().await;
    written.write(3 * MIB, &[0x61; RECORD], Stability::Unstable).await;
    written.write(64 << 10, &[0x62; RECORD], Stability::Unstable).await;
    assert!(found(&running, 1).has_gathered());
    let ranges = written.replica.ranges().unwrap();
    let source = || Source::Local(running.id(), FILE);
    // Within the file, over gathered bytes, and to another one.
    let stretch = Stretch { from: 3 * MIB, to: (64 << 10) + 1000, length: 4096 };
    assert_eq!(ranges.copy_from(source(), stretch).await.unwrap(), 4096);
    written.note((64 << 10) + 1000, &[0x61; 4096]);
    written.check().await;
    written.write(3 * MIB, &[0x63; RECORD], Stability::Unstable).await;
    let other = replica(&running, 2).await;
    let stretch = Stretch { from: 3 * MIB, to: 0, length: 4096 };
    other.ranges().unwrap().copy_from(source(), stretch).await.unwrap();
    assert_eq!(other.read_at(0, 4096).await.unwrap().data, [0x63; 4096][..]);
}

/// All of `source` up to `length`, to the beginning of another file.
async fn copy_all(pool: &LocalPool, source: FileId, target: &Arc<dyn OpenReplica>, length: u64) {
    let mut rest = Stretch { from: 0, to: 0, length };
    while rest.length > 0 {
        let copied =
            target.ranges().unwrap().copy_from(Source::Local(pool.id(), source), rest).await.unwrap();
        assert!(copied > 0);
        rest = rest.behind(copied);
    }
}

/// Each of these returned ENOSPC, for it flushed first.
#[tokio::test]
async fn a_full_disk_refuses_no_search_no_copy_of_gathered_bytes_and_no_free() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    let ranges = written.replica.ranges().unwrap();
    assert_eq!(ranges.seek(2 * MIB + (1 << 19), RangeKind::Data).await.unwrap(), Some(3 * MIB));
    assert_eq!(ranges.seek(3 * MIB, RangeKind::Hole).await.unwrap(), Some(3 * MIB + RECORD as u64));
    let other = replica(&running, 2).await;
    copy_all(&running, FILE, &other, written.expected.len() as u64).await;
    check(&other, &written.expected).await;
    ranges.deallocate(range(3 * MIB + 100, 4000)).await.unwrap();
    written.note(3 * MIB + 100, &[0; 4000]);
    written.check().await;
    assert!(found(&running, 1).has_gathered(), "otherwise nothing was tested");
    assert!(matches!(written.replica.sync().await, Err(PoolError::NoSpace(_))));
    fail_flushes(&running, None);
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn all_gathered_bytes_can_be_freed_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    assert!(matches!(written.replica.sync().await, Err(PoolError::NoSpace(_))));
    written.replica.ranges().unwrap().deallocate(range(0, u64::MAX)).await.unwrap();
    written.expected.fill(0);
    assert_eq!(memory(&running), 0);
    written.check().await;
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn freeing_gathered_bytes_at_the_end_keeps_the_length() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    assert!(on_disk(&dir).len() < written.expected.len());
    let facts = async || running.facts(&[FILE], ANSWER_TIME).await.sole().unwrap().unwrap();
    let before = facts().await;
    // Coarser than the clock of any file system.
    std::thread::sleep(Duration::from_millis(20));
    written.replica.ranges().unwrap().deallocate(range(6 * MIB + 10, 100 * MIB)).await.unwrap();
    written.note(6 * MIB + 10, &[0; RECORD - 10]);
    written.check().await;
    let after = facts().await;
    assert!(after.size == written.expected.len() as u64 && after.modified > before.modified);
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn a_copy_takes_pieces_from_memory_and_file_and_leaves_holes() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    // Over bytes of the file, behind its end, and in two extents.
    written.write(2 * MIB + 100, &[0x34; RECORD], Stability::Unstable).await;
    written.write(4 * MIB - 100, &[0x35; RECORD], Stability::Unstable).await;
    written.write(6 * MIB, &[0x36; RECORD], Stability::Unstable).await;
    let before = memory(&running);
    assert!(before > 0);
    let other = replica(&running, 2).await;
    copy_all(&running, FILE, &other, written.expected.len() as u64).await;
    check(&other, &written.expected).await;
    assert_eq!(memory(&running), before, "a copy flushes nothing of its source");
    written.check().await;
    let hole = other.ranges().unwrap().seek(4 * MIB + (1 << 19), RangeKind::Hole).await.unwrap();
    assert_eq!(hole, Some(4 * MIB + (1 << 19)));
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

/// A copy to a file with many gathered extents flushed them all, in a thread that reads wait for.
#[tokio::test]
async fn a_copy_flushes_no_more_of_its_target_than_it_copies_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let target = Written::scattered(&running, 1).await;
    for extent in (20..24).rev() {
        let data = Bytes::from(vec![0x66; RECORD]);
        target.replica.write_at(extent * MIB, data, Stability::Unstable).await.unwrap();
    }
    let before = memory(&running);
    let source = replica(&running, 2).await;
    source.write_at(30 * MIB, Bytes::from("end"), Stability::Unstable).await.unwrap();
    let stretch = Stretch { from: 0, to: 0, length: 30 * MIB };
    let copied = target.replica.ranges().unwrap().copy_from(Source::Local(running.id(), FileId(2)), stretch);
    assert!(copied.await.unwrap() <= io_engine::range::COPY_BYTES_MAX);
    assert!((1..before).contains(&memory(&running)));
}

/// The flush of such an extent was taken for one that runs, for ever.
#[tokio::test]
async fn a_panic_in_a_flush_leaves_its_bytes_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    running.shared.store.faults.panic_in_flush.store(true, std::sync::atomic::Ordering::SeqCst);
    written.replica.sync().await.unwrap_err();
    written.check().await;
    written.write(64 << 10, &[0x23; 100], Stability::Unstable).await;
    written.check().await;
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
    assert_eq!(memory(&running), 0);
    // Of one write that flushes several extents: none of them is lost.
    written.write(3 * MIB - 8192, &[0x24; RECORD], Stability::Unstable).await;
    written.write(3 * MIB, &[0x25; RECORD], Stability::Unstable).await;
    assert!(memory(&running) > 0);
    running.shared.store.faults.panic_in_flush.store(true, std::sync::atomic::Ordering::SeqCst);
    let over = Bytes::from(vec![0x26; 4096]);
    written.replica.write_at(3 * MIB - 2048, over.clone(), Stability::FileSync).await.unwrap_err();
    written.check().await;
    written.write(3 * MIB - 2048, &over, Stability::FileSync).await;
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

/// They told the length of before and the time of after.
#[tokio::test]
async fn facts_wait_for_a_truncation_that_has_cut_the_file_and_not_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    let (told, are_told) = std::sync::mpsc::channel();
    let other = Arc::clone(&running);
    *running.shared.store.faults.in_next_cut.lock() = Some(Box::new(move || {
        let mut facts = Box::pin(async move { other.facts(&[FILE], ANSWER_TIME).await.sole() });
        let at_once = facts.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        told.send((at_once.is_pending(), facts)).unwrap();
    }));
    running.truncate(&[(FILE, 100)], ANSWER_TIME).await.sole().unwrap();
    let (is_pending, facts) = are_told.recv().unwrap();
    assert!(is_pending);
    assert_eq!(facts.await.unwrap().unwrap().size, 100);
}

#[tokio::test]
async fn a_file_becomes_longer_behind_gathered_bytes_only() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.write(6 * MIB, &[0x33; RECORD], Stability::Unstable).await;
    written.replica.ranges().unwrap().extend(6 * MIB).await.unwrap();
    written.check().await;
    written.replica.ranges().unwrap().extend(7 * MIB).await.unwrap();
    written.expected.resize(7 << 20, 0);
    written.check().await;
}

#[tokio::test]
async fn a_removed_file_is_read_by_its_holders_and_leaves_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    running.remove(&[FILE], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(memory(&running), 0);
    written.check().await;
    written.write(3 * MIB, &[0x71; RECORD], Stability::Unstable).await;
    written.check().await;
    assert_eq!(memory(&running), 0, "no flush finds a removed replica");
    let full = Written::scattered(&running, 2).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    running.remove(&[FileId(2)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(memory(&running), 0);
    let told = full.replica.sync().await;
    assert!(matches!(told, Err(PoolError::Io { .. })), "bytes that were answered are gone: {told:?}");
}

/// Such bytes stayed in memory until somebody asked for a COMMIT.
#[tokio::test]
async fn bytes_that_a_full_disk_refused_are_tried_again_without_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    written.replica.sync().await.unwrap_err();
    fail_flushes(&running, None);
    running.shared.gathering.hold_for_test(false);
    Gathering::flush_due(&running.shared);
    running.shared.engine.stop();
    assert_eq!(memory(&running), 0);
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn a_file_that_its_file_system_cannot_hold_is_told_and_not_broken() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::FBIG));
    written.replica.sync().await.unwrap_err();
    fail_flushes(&running, None);
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn a_read_before_gathered_bytes_takes_the_way_of_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    let end = 5 * MIB + RECORD as u64;
    let is_lent = |offset, length| written.replica.local_range(range(offset, length)).is_some();
    assert!(is_lent(2 * MIB, RECORD as u64));
    assert!(!is_lent(MIB, 4 * MIB), "gathered bytes are among them");
    assert!(!is_lent(5 * MIB, RECORD as u64) && !is_lent(4 * MIB, 4 * MIB), "the file may end elsewhere");
    written.write(end + 100, &[0x33; RECORD], Stability::Unstable).await;
    written.check().await;
}

#[tokio::test]
async fn commit_brings_gathered_bytes_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let synced =
        || running.shared.store.faults.on_disk.lock().as_ref().unwrap().get(&FILE).map(|it| it.bytes.clone());
    *running.shared.store.faults.on_disk.lock() = Some(std::collections::HashMap::new());
    let mut written = Written::scattered(&running, 1).await;
    for round in 0..3 {
        written.replica.sync().await.unwrap();
        assert_eq!(synced(), Some(written.expected.clone()), "round {round}");
        // Into memory alone: without a look there, this COMMIT would have nothing to do.
        written.write(3 * MIB, &vec![0x80 + round; RECORD], Stability::Unstable).await;
        written.write(64 << 10, &vec![0x90 + round; RECORD], Stability::Unstable).await;
        assert!(found(&running, 1).has_gathered() && !found(&running, 1).is_stable());
    }
}

#[tokio::test]
async fn commit_syncs_what_was_flushed_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    written.replica.sync().await.unwrap();
    let there = found(&running, 1);
    assert!(there.may_be_given_up() && there.is_stable());
    written.write(3 * MIB, &[0x81; RECORD], Stability::Unstable).await;
    assert!(there.has_gathered() && !there.may_be_given_up() && !there.is_stable());
    *running.shared.store.faults.on_disk.lock() = Some(std::collections::HashMap::new());
    there.flush_opened_until(&running.shared, Instant::now()).unwrap();
    assert!(!there.has_gathered() && !there.may_be_given_up() && !there.is_stable());
    written.replica.sync().await.unwrap();
    let synced =
        running.shared.store.faults.on_disk.lock().as_ref().unwrap().get(&FILE).map(|it| it.bytes.clone());
    assert!(synced == Some(written.expected));
}

#[tokio::test]
async fn an_extent_is_written_once_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let mut written = Written::scattered(&running, 1).await;
    let before = memory(&running);
    for record in (0..16).rev() {
        let data = vec![record as u8 + 1; 64 << 10];
        written.write(7 * MIB + (record * (64 << 10)), &data, Stability::Unstable).await;
        assert_eq!(memory(&running) > before, record > 0, "record {record}");
    }
    assert!(on_disk(&dir)[7 << 20..] == written.expected[7 << 20..]);
    assert_eq!(running.shared.gathering.report().unwrap().counts.complete_extents, 1);
}

#[tokio::test]
async fn a_full_disk_is_told_to_every_commit_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::NOSPC));
    for _ in 0..3 {
        assert!(matches!(written.replica.sync().await, Err(PoolError::NoSpace(_))));
        written.check().await;
    }
    // One over bytes that cannot be flushed would be before them.
    let over = written.replica.write_at(3 * MIB, Bytes::from("over"), Stability::FileSync).await;
    assert!(matches!(over, Err(PoolError::NoSpace(_))));
    assert!(!found(&running, 1).may_be_given_up());
    fail_flushes(&running, None);
    written.replica.sync().await.unwrap();
    assert_eq!(on_disk(&dir), written.expected);
    assert_eq!(memory(&running), 0);
}

#[tokio::test]
async fn bytes_that_the_disk_refuses_break_the_replica_for_every_later_commit() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    fail_flushes(&running, Some(Errno::IO));
    // As by age: nobody waits for this one.
    assert!(found(&running, 1).flush_opened_until(&running.shared, Instant::now()).is_err());
    fail_flushes(&running, None);
    for _ in 0..2 {
        assert!(matches!(written.replica.sync().await, Err(PoolError::Io { .. })));
        let unstable = written.replica.write_at(0, Bytes::from("more"), Stability::Unstable).await;
        assert!(matches!(unstable, Err(PoolError::Io { .. })));
    }
    running.close();
    drop((written, running));
    let running = pool(&dir);
    assert!(matches!(replica(&running, 1).await.sync().await, Err(PoolError::Io { .. })));
}

#[tokio::test]
async fn a_stop_in_order_flushes_and_a_kill_keeps_what_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    running.close();
    assert_eq!(on_disk(&dir), written.expected);
    drop(running);
    let running = pool(&dir);
    let mut again = Written { replica: replica(&running, 1).await, expected: written.expected };
    for byte in [1, 2, 3] {
        again.write((4 - byte) * MIB, &vec![byte as u8; RECORD], Stability::Unstable).await;
    }
    again.replica.sync().await.unwrap();
    let kept = again.expected.clone();
    again.write(64 << 10, &[9; RECORD], Stability::Unstable).await;
    drop((again, running));
    let running = pool(&dir);
    let after = Written { replica: replica(&running, 1).await, expected: kept };
    after.check_again_in(&running).await;
}

#[tokio::test]
async fn extents_that_are_old_are_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    let budget = running.shared.gathering.budget().unwrap();
    assert!(budget.next_due().unwrap() <= Instant::now() + Duration::from_secs(1) && memory(&running) > 0);
    running.shared.gathering.hold_for_test(false);
    let deadline = Instant::now() + Duration::from_secs(30);
    while memory(&running) > 0 {
        assert!(Instant::now() < deadline);
        Gathering::flush_due(&running.shared);
        std::thread::sleep(Duration::from_millis(10));
    }
    running.shared.engine.stop();
    assert_eq!(memory(&running), 0);
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn memory_is_bounded_and_room_is_made_when_it_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let limits = running.shared.gathering.budget().unwrap().limits().clone();
    let mut writers = Vec::new();
    for file in 1..=10 {
        let mut written = Written { replica: replica(&running, file).await, expected: Vec::new() };
        for extent in (0..10).rev() {
            written.write(extent * MIB, &vec![file as u8; RECORD], Stability::Unstable).await;
            assert!(memory(&running) <= limits.pool_bytes_max);
        }
        writers.push(written);
    }
    for written in &writers {
        written.check().await;
    }
    let counts = running.shared.gathering.report().unwrap().counts;
    assert!(counts.gathered_writes > 40, "{counts:?}");
    assert!(counts.bypassed_writes[Bypass::NoMemory as usize] > 0, "{counts:?}");
    assert!(!running.shared.gathering.is_full(), "a writer has asked for a flush");
    running.shared.gathering.note_full();
    assert!(running.shared.gathering.is_full());
}

#[tokio::test]
async fn a_replica_with_gathered_writes_is_not_given_up_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let expected = Written::scattered(&running, 1).await.expected;
    for file in 2..80 {
        replica(&running, file).await.write_at(0, Bytes::from("x"), Stability::FileSync).await.unwrap();
    }
    check(&replica(&running, 1).await, &expected).await;
}

#[tokio::test]
async fn a_fence_keeps_what_was_gathered_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    running.fence(&[(FILE, Epoch(1))], ANSWER_TIME).await.sole().unwrap();
    let late = written.replica.write_at(64 << 10, Bytes::from("late"), Stability::Unstable).await;
    assert!(matches!(late, Err(PoolError::Fenced)));
    found(&running, 1).settle(&running.shared).unwrap();
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn no_flush_lands_while_a_scrub_compares() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let written = Written::scattered(&running, 1).await;
    let there = found(&running, 1);
    std::thread::scope(|scope| {
        let is_damaged = |_: std::os::fd::BorrowedFd<'_>| {
            let before = on_disk(&dir);
            let (told, is_told) = std::sync::mpsc::channel();
            let (there, running) = (&there, &running);
            scope.spawn(move || {
                there.flush(&running.shared).unwrap();
                // Nobody listens any more, if all is well.
                let _ = told.send(());
            });
            assert!(is_told.recv_timeout(Duration::from_millis(100)).is_err());
            on_disk(&dir) != before
        };
        assert!(!there.condemn(&running.shared, is_damaged).unwrap());
    });
    assert_eq!(on_disk(&dir), written.expected);
}

#[tokio::test]
async fn a_pool_that_does_not_gather_writes_to_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let running = LocalPool::open(Config { gather: GatherPolicy::Never, ..config(dir.path()) }).unwrap();
    let there = replica(&running, 1).await;
    for at in (0..6).rev() {
        there.write_at(at * MIB, Bytes::from(vec![1; RECORD]), Stability::Unstable).await.unwrap();
        assert!(!found(&running, 1).has_gathered());
    }
    assert_eq!(running.shared.gathering.report(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_commits_and_readers_at_once_lose_nothing() {
    const RECORDS: u64 = 24;
    const WRITERS: u64 = 8;
    const LENGTH: u64 = 47_008;
    let dir = tempfile::tempdir().unwrap();
    let gathering = Config { gather: GatherPolicy::Always, threads: 4, ..config(dir.path()) };
    let running = LocalPool::open(gathering).unwrap();
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let there = replica(&running, 1).await;
        tasks.push(tokio::spawn(async move {
            for record in 0..RECORDS {
                let offset = (record * WRITERS + writer) * LENGTH;
                let byte = (1 + record * WRITERS + writer) as u8;
                let stability = if record % 7 == 3 { Stability::FileSync } else { Stability::Unstable };
                let data = Bytes::from(vec![byte; LENGTH as usize]);
                there.write_at(offset, data, stability).await.unwrap();
                let read = there.read_at(offset, LENGTH as u32).await.unwrap();
                assert!(read.data.iter().all(|read| *read == byte) && read.data.len() == LENGTH as usize);
                if (record + writer) % 11 == 0 {
                    there.sync().await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let expected: Vec<u8> =
        (0..RECORDS * WRITERS).flat_map(|at| vec![(1 + at) as u8; LENGTH as usize]).collect();
    check(&replica(&running, 1).await, &expected).await;
    assert!(running.shared.gathering.report().unwrap().counts.gathered_writes > 0);
    replica(&running, 1).await.sync().await.unwrap();
    assert!(on_disk(&dir) == expected);
    assert_eq!(memory(&running), 0);
}
