//! Reads and copies of replicas that have block sums, on disks that lose bits.

use api::{ReadData, ReplicaRanges, Source, Stretch};
use bytes::BytesMut;

use super::*;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A pool with one replica of so many blocks and a part of one, which has sums.
async fn scrubbed(dir: &tempfile::TempDir, blocks: u64) -> Arc<LocalPool> {
    let running = pool(dir);
    write_blocks(dir, &running, 1, blocks).await;
    assert_eq!(scrub_well(&running).summed, 1);
    running
}

async fn reader(pool: &LocalPool) -> Arc<dyn OpenReplica> {
    open(pool, 1, TicketMode::Read).await.unwrap()
}

fn content(dir: &tempfile::TempDir) -> Vec<u8> {
    fs::read(path(dir, 1)).unwrap()
}

/// As found after a start of the server.
async fn reopened(dir: &tempfile::TempDir, running: Arc<LocalPool>) -> Arc<LocalPool> {
    running.close();
    drop(running);
    pool(dir)
}

#[tokio::test]
async fn a_read_of_a_bad_block_is_an_error_and_marks_the_replica_as_a_scrub_does() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 40).await;
    let at = 17 * BLOCK_BYTES;
    flip(&dir, 1, at + 5);
    // Also after a start.
    let running = reopened(&dir, running).await;
    let replica = reader(&running).await;
    assert_eq!(replica.read_at(0, 17 * BLOCK as u32).await.unwrap().data.len(), 17 * BLOCK);
    assert_eq!(running.scrub_report().verified_bytes, at);
    assert!(is_io_error(replica.read_at(16 * BLOCK_BYTES, 4 * BLOCK as u32).await));
    let report = running.scrub_report();
    assert_eq!((report.bad.len(), report.bad_blocks, report.verified_bytes), (1, 1, at));
    assert!(report.bad[0].is_damaged && report.bad[0].offsets == [at]);
    assert!(is_io_error(replica.read_at(0, 9).await), "also of blocks that are good");
    assert!(!replica.read_resident(0, 9, &mut BytesMut::new()));
    assert!(is_io_error(open(&running, 1, TicketMode::ReadWrite).await));
    let running = reopened(&dir, running).await;
    assert!(is_io_error(open(&running, 1, TicketMode::Read).await));
    assert_eq!(running.scrub_report().bad, report.bad);
    let watch = Watch::default();
    assert_eq!(scrub(&running, &watch).damaged_replicas, 1);
    assert_eq!(watch.kinds(), [(1, DAMAGED, vec![at])]);
}

#[tokio::test]
async fn each_way_of_a_read_through_memory_is_compared() {
    for is_resident in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let running = scrubbed(&dir, 4).await;
        let replica = reader(&running).await;
        if is_resident {
            // The sums are in memory before the bit is lost.
            assert_eq!(replica.read_at(0, 1 << 20).await.unwrap().data.len(), 4 * BLOCK + 100);
        }
        flip(&dir, 1, 4 * BLOCK_BYTES + 99);
        let mut into = BytesMut::new();
        assert!(!replica.read_resident(4 * BLOCK_BYTES, 100, &mut into) || !is_resident);
        assert!(is_io_error(replica.read_at(2 * BLOCK_BYTES, 1 << 20).await), "to the end");
        assert_eq!(running.scrub_report().bad[0].offsets, [4 * BLOCK_BYTES]);
    }
}

#[tokio::test]
async fn a_read_of_a_part_of_a_block_is_not_compared_and_reads_no_more_than_that() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 4).await;
    flip(&dir, 1, BLOCK_BYTES + 5);
    let replica = reader(&running).await;
    replica.read_at(0, BLOCK as u32).await.unwrap();
    assert!(replica.read_at(BLOCK_BYTES + 1, BLOCK as u32).await.is_ok());
    assert!(replica.read_at(BLOCK_BYTES, 4096).await.is_ok());
    assert_eq!(running.scrub_report().verified_bytes, BLOCK_BYTES);
}

#[tokio::test]
async fn a_write_since_the_sums_is_read_back_and_never_taken_for_damage() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 4).await;
    let replica = reader(&running).await;
    let length = 1 << 20;
    replica.read_at(0, length).await.unwrap();
    for change in 0..3 {
        match change {
            0 => drop(write(&running, 1, BLOCK_BYTES + 5, vec![9; 10]).await),
            1 => drop(running.truncate(&[(FileId(1), BLOCK_BYTES - 7)], ANSWER_TIME).await.sole().unwrap()),
            _ => drop(write(&running, 1, 9 * BLOCK_BYTES, vec![1]).await),
        }
        assert_eq!(replica.read_at(0, length).await.unwrap().data, content(&dir));
        set_modified(&dir, 1, SystemTime::now() - Duration::from_secs(70 + change));
        assert_eq!(scrub_well(&running).summed, 1);
        let before = running.scrub_report().verified_bytes;
        assert_eq!(replica.read_at(0, length).await.unwrap().data, content(&dir));
        let compared = running.scrub_report().verified_bytes - before;
        assert_eq!(compared, content(&dir).len() as u64, "the new sums are taken");
    }
    assert_eq!(running.scrub_report().bad, []);
}

#[tokio::test]
async fn bytes_that_were_read_wrong_from_a_disk_that_is_right_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    let replica = reader(&running).await;
    let good = replica.read_at(0, 2 * BLOCK as u32).await.unwrap();
    let mut wrong = good.data.to_vec();
    wrong[BLOCK + 3] ^= 1;
    let inner = running.table().find(FileId(1)).unwrap();
    assert!(!inner.agrees(running.parts(), &wrong, 0));
    let read = ReadData { data: wrong.into(), end_of_file: false };
    let again = inner.reread(running.parts(), read, 0).unwrap();
    assert_eq!((again.data, again.end_of_file), (good.data, false));
    assert_eq!(running.scrub_report().bad, []);
}

/// A disk without direct I/O. A wrong page in memory confirmed itself, and a good replica was marked.
#[tokio::test]
async fn bytes_that_may_come_from_memory_mark_no_replica_and_are_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    flip(&dir, 1, 3);
    let hide_disk = &running.parts().store.faults.hide_disk;
    hide_disk.store(true, Ordering::SeqCst);
    let replica = reader(&running).await;
    assert!(is_io_error(replica.read_at(0, BLOCK as u32).await));
    let totals = scrub_well(&running);
    assert_eq!((totals.damaged_replicas, totals.left_out), (0, 1));
    assert_eq!(running.scrub_report().bad, []);
    hide_disk.store(false, Ordering::SeqCst);
    assert!(is_io_error(replica.read_at(0, BLOCK as u32).await));
    assert_eq!(running.scrub_report().bad.len(), 1);
}

/// The wrong bytes were served.
#[tokio::test]
async fn sums_that_leave_memory_after_a_difference_are_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    let good = reader(&running).await.read_at(0, BLOCK as u32).await.unwrap().data;
    let inner = running.table().find(FileId(1)).unwrap();
    let wrong = [&[good[0] ^ 1], &good[1..]].concat();
    assert!(!inner.agrees(running.parts(), &wrong, 0));
    inner.evict_sums(Instant::now());
    assert_eq!(inner.reread(running.parts(), read_data(wrong), 0).unwrap().data, good);
}

#[tokio::test]
async fn a_difference_from_sums_of_before_a_crash_is_no_reason_to_refuse_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    drop(running);
    boot_anew(&dir);
    flip(&dir, 1, 3);
    let running = pool(&dir);
    assert_eq!(reader(&running).await.read_at(0, 1 << 20).await.unwrap().data, content(&dir));
    assert_eq!((running.scrub_report().verified_bytes, running.scrub_report().bad), (0, vec![]));
}

fn read_data(data: Vec<u8>) -> ReadData {
    ReadData { data: data.into(), end_of_file: false }
}

/// All of them waited for the writers' lock, each read the disk, and each counted as a replica that was marked.
#[tokio::test]
async fn one_reader_finds_the_verdict_and_the_others_hear_at_once_that_they_are_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    let replica = reader(&running).await;
    replica.read_at(0, BLOCK as u32).await.unwrap();
    flip(&dir, 1, 3);
    let (wrong, inner) = (content(&dir), running.table().find(FileId(1)).unwrap());
    let (told, answer) = std::sync::mpsc::channel();
    let other = (Arc::clone(&running), Arc::clone(&inner), wrong.clone());
    *running.parts().store.faults.in_next_verdict.lock() = Some(Box::new(move || {
        std::thread::scope(|scope| {
            let (running, inner, wrong) = other;
            let second = scope.spawn(move || inner.reread(running.parts(), read_data(wrong), 0));
            told.send(second.join().unwrap().map(drop)).unwrap();
        });
    }));
    assert!(is_io_error(inner.reread(running.parts(), read_data(wrong.clone()), 0)));
    assert!(matches!(answer.recv().unwrap(), Err(PoolError::Busy(PoolId(1)))));
    assert!(is_io_error(inner.reread(running.parts(), read_data(wrong), 0)));
    let report = running.scrub_report();
    assert_eq!((report.bad.len(), report.bad_blocks), (1, 1));
    assert_eq!(running.parts().scrubbing.marked_by_reads.load(Ordering::Relaxed), 1);
}

/// A scrub that marked the replica meanwhile has told of it.
#[tokio::test]
async fn a_replica_that_is_marked_already_is_no_further_mark_of_reads() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    reader(&running).await.read_at(0, BLOCK as u32).await.unwrap();
    flip(&dir, 1, 3);
    let (wrong, inner) = (content(&dir), running.table().find(FileId(1)).unwrap());
    assert_eq!(scrub(&running, &Watch::default()).damaged_replicas, 1);
    assert!(is_io_error(inner.reread(running.parts(), read_data(wrong), 0)));
    assert_eq!(running.scrub_report().bad_blocks, 1);
    assert_eq!(running.parts().scrubbing.marked_by_reads.load(Ordering::Relaxed), 0);
}

/// The new bytes were an error.
#[tokio::test]
async fn a_write_between_the_verdict_and_the_second_read_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 2).await;
    reader(&running).await.read_at(0, BLOCK as u32).await.unwrap();
    let inner = running.table().find(FileId(1)).unwrap();
    let (sums, file) = (inner.sums().unwrap(), inner.file().open().unwrap());
    write(&running, 1, 5, vec![9; 10]).await;
    let again = inner.read_past_memory(running.parts(), file, &sums, (read_data(vec![0; BLOCK]), 0)).unwrap();
    assert_eq!((&again.data[..], again.end_of_file), (&content(&dir)[..BLOCK], false));
    assert!(!inner.has_sums());
    running.truncate(&[(FileId(1), 20)], ANSWER_TIME).await.sole().unwrap();
    let again = inner.read_past_memory(running.parts(), file, &sums, (read_data(vec![0; BLOCK]), 0)).unwrap();
    assert_eq!((&again.data[..], again.end_of_file), (&content(&dir)[..], true));
}

/// A path to the disk that gave wrong bytes for a while cost the users a whole pool.
#[tokio::test]
async fn reads_stop_to_mark_replicas_after_some_and_give_no_wrong_byte_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    for file in 1..=22 {
        write_blocks(&dir, &running, file, 1).await;
    }
    assert_eq!(scrub_well(&running).summed, 22);
    (1..=22).for_each(|file| flip(&dir, file, 3));
    for file in 1..=22 {
        let replica = open(&running, file, TicketMode::Read).await.unwrap();
        assert!(is_io_error(replica.read_at(0, BLOCK as u32).await), "file {file}");
    }
    assert_eq!(running.scrub_report().bad.len(), 20);
    let last = open(&running, 22, TicketMode::Read).await.unwrap();
    let in_next_verdict = &running.parts().store.faults.in_next_verdict;
    *in_next_verdict.lock() = Some(Box::new(|| ()));
    assert!(is_io_error(last.read_at(0, BLOCK as u32).await));
    assert!(in_next_verdict.lock().take().is_some(), "the verdict is remembered");
    assert!(last.read_at(BLOCK_BYTES, BLOCK as u32).await.is_ok(), "it is not marked");
}

#[tokio::test]
async fn a_copy_of_a_bad_block_is_an_error_and_marks_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 20).await;
    let target = open(&running, 2, TicketMode::ReadWrite).await.unwrap();
    let ranges: &dyn ReplicaRanges = target.ranges().unwrap();
    let length = 20 * BLOCK_BYTES + 100;
    let source = || Source::Local(PoolId(1), FileId(1));
    let copied = ranges.copy_from(source(), Stretch { from: 0, to: 0, length }).await.unwrap();
    assert_eq!((copied, running.scrub_report().verified_bytes), (length, length));
    flip(&dir, 1, 18 * BLOCK_BYTES);
    let stretch = Stretch { from: BLOCK_BYTES, to: 0, length: length - BLOCK_BYTES };
    assert!(is_io_error(ranges.copy_from(source(), stretch).await));
    assert_eq!(running.scrub_report().bad[0].offsets, [18 * BLOCK_BYTES]);
    assert!(is_io_error(open(&running, 1, TicketMode::Read).await));
    let copy = target.read_at(0, 1).await.unwrap();
    assert_eq!(copy.data[..], content(&dir)[..1], "the target is as it was");
}

/// Each call read 8 MiB, and copied one run of data or one hole.
#[tokio::test]
async fn a_copy_of_a_sparse_file_compares_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool(&dir);
    let blocks = 64;
    for block in (0..blocks).step_by(4) {
        write(&running, 1, block * BLOCK_BYTES, vec![block as u8 + 1; BLOCK]).await;
    }
    rest(&dir, 1);
    assert_eq!(scrub_well(&running).summed, 1);
    let length = content(&dir).len() as u64;
    let target = open(&running, 2, TicketMode::ReadWrite).await.unwrap();
    let ranges: &dyn ReplicaRanges = target.ranges().unwrap();
    let source = || Source::Local(PoolId(1), FileId(1));
    let (mut done, mut calls) = (0, 0);
    while done < length {
        let stretch = Stretch { from: done, to: done, length: length - done };
        done += ranges.copy_from(source(), stretch).await.unwrap();
        calls += 1;
    }
    assert_eq!(fs::read(path(&dir, 2)).unwrap(), content(&dir));
    let compared = running.scrub_report().verified_bytes;
    // A file system without holes has one run.
    let runs = if calls > 1 { blocks / 4 } else { blocks };
    assert!((runs * BLOCK_BYTES..=length).contains(&compared), "{compared} of {length} in {calls} calls");
    flip(&dir, 1, 8 * BLOCK_BYTES);
    let stretch = Stretch { from: 8 * BLOCK_BYTES, to: 0, length: BLOCK_BYTES };
    assert!(is_io_error(ranges.copy_from(source(), stretch).await));
}

#[tokio::test]
async fn a_copy_to_a_replica_that_may_not_be_changed_reads_no_source() {
    let dir = tempfile::tempdir().unwrap();
    let running = scrubbed(&dir, 4).await;
    let target = write(&running, 2, 0, vec![1]).await;
    let inner = running.table().find(FileId(2)).unwrap();
    inner.file().record().faults.note_broken();
    let stretch = Stretch { from: 0, to: 0, length: 4 * BLOCK_BYTES };
    let copied = target.ranges().unwrap().copy_from(Source::Local(PoolId(1), FileId(1)), stretch).await;
    assert!(is_io_error(copied));
    assert_eq!(running.scrub_report().verified_bytes, 0);
}
