//! Reads of a file are told to the pool, and the pages that are in memory afterwards are counted.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::*;
use crate::residency::count_pages;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 16 * MIB;
const RECORD: u64 = 64 * KIB;

struct Bench {
    pool: PoolReadAhead,
    place: OnceLock<Arc<FileReadAhead>>,
    file: File,
}

impl Bench {
    /// With a file of which no page is in memory.
    fn new() -> Bench {
        let file = tempfile::tempfile().unwrap();
        for at in 0..FILE_BYTES / MIB {
            file.write_all_at(&vec![7; MIB as usize], at * MIB).unwrap();
        }
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let limits = ReadAheadLimits { is_kernel_trusted: false, ..ReadAheadLimits::for_memory(4 * MIB) };
        let pool = PoolReadAhead::new(limits);
        Bench { pool, place: OnceLock::new(), file }
    }

    fn miss(&self, read: ByteRange) -> Option<Advising> {
        self.pool.note_miss(&self.place, read, FILE_BYTES, Instant::now())
    }

    fn miss_and_follow(&self, read: ByteRange) {
        if let Some(advising) = self.miss(read) {
            advising.follow(self.file.as_fd());
        }
    }

    fn resident(&self, range: ByteRange) -> u64 {
        count_pages(self.file.as_fd(), range).unwrap().resident
    }

    fn is_resident(&self, range: ByteRange) -> bool {
        self.resident(range) == count_pages(self.file.as_fd(), range).unwrap().pages
    }

    fn can_count(&self) -> bool {
        count_pages(self.file.as_fd(), ByteRange::ALL).is_ok()
    }

    /// Whether pages can be dropped and counted here.
    fn can_tell(&self) -> bool {
        let counts = count_pages(self.file.as_fd(), ByteRange::ALL);
        let can_tell = counts.is_ok_and(|counts| counts.resident == 0);
        if !can_tell {
            println!("skipped: pages are not counted here, or stay in memory");
        }
        can_tell
    }
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).unwrap()
}

fn record(at: u64) -> ByteRange {
    range(at * MIB, RECORD)
}

#[test]
fn the_records_of_a_strided_stream_come_into_memory_and_the_gaps_do_not() {
    let bench = Bench::new();
    if !bench.can_tell() {
        return;
    }
    for at in 0..4 {
        bench.miss_and_follow(record(at));
    }
    assert_eq!(bench.resident(range(0, 4 * MIB)), 0, "the reads themselves are only told here");
    assert!(bench.is_resident(record(4)) && bench.is_resident(record(5)));
    assert_eq!(bench.resident(range(4 * MIB + RECORD, MIB - RECORD)), 0);
    assert_eq!(bench.pool.counts().issued_bytes, bench.resident(ByteRange::ALL) * 4 * KIB);
}

#[test]
fn a_backward_stream_comes_into_memory_before_it_is_read() {
    let bench = Bench::new();
    if !bench.can_tell() {
        return;
    }
    for at in (200..=202).rev() {
        bench.miss_and_follow(range(at * RECORD, RECORD));
    }
    assert!(bench.is_resident(range(198 * RECORD, 2 * RECORD)));
    assert_eq!(bench.resident(range(203 * RECORD, RECORD)), 0);
}

#[test]
fn two_interleaved_streams_come_into_memory_each() {
    let bench = Bench::new();
    if !bench.can_tell() {
        return;
    }
    for at in 0..3 {
        bench.miss_and_follow(range(MIB + at * RECORD, RECORD));
        bench.miss_and_follow(range(9 * MIB + at * RECORD, RECORD));
    }
    assert!(bench.is_resident(range(MIB + 3 * RECORD, RECORD)));
    assert!(bench.is_resident(range(9 * MIB + 3 * RECORD, RECORD)));
    assert_eq!(bench.resident(range(5 * MIB, MIB)), 0);
}

#[test]
fn one_range_that_is_longer_than_a_call_comes_whole() {
    let bench = Bench::new();
    if !bench.can_tell() {
        return;
    }
    for at in 0..3 {
        bench.miss_and_follow(range(at * MIB, MIB));
    }
    assert!(bench.is_resident(range(3 * MIB, 3 * MIB)));
}

#[test]
fn random_reads_bring_nothing_into_memory() {
    let bench = Bench::new();
    // No four squares have equal distances.
    for at in [9_u64, 2, 11, 5, 8, 1, 6, 12, 3, 10, 4, 7] {
        assert!(bench.miss(range(at * at * 100 * KIB, RECORD)).is_none());
    }
    assert_eq!(bench.pool.counts(), ReadAheadCounts::default());
}

#[test]
fn pages_that_are_in_memory_already_end_the_advice_until_a_read_misses() {
    let bench = Bench::new();
    if !bench.can_tell() {
        return;
    }
    let mut all = vec![0; FILE_BYTES as usize];
    bench.file.read_exact_at(&mut all, 0).unwrap();
    for at in 0..2 {
        bench.miss_and_follow(range(at * RECORD, RECORD));
    }
    let counts = bench.pool.counts();
    assert!(counts.dropped_bytes > 0);
    assert_eq!((counts.issued_bytes, counts.outstanding_bytes()), (counts.dropped_bytes, 0));
    for at in 2..20 {
        assert!(bench.pool.note_hit(&bench.place, range(at * RECORD, RECORD)).is_none());
    }
    assert!(!bench.place.get().unwrap().follows_hits());
    assert_eq!(bench.pool.counts(), counts);
    assert!((20..23).any(|at| bench.miss(range(at * RECORD, RECORD)).is_some()));
}

#[test]
fn reads_that_hit_are_followed_once_a_read_has_missed() {
    let bench = Bench::new();
    assert!(bench.pool.note_hit(&bench.place, range(0, RECORD)).is_none());
    assert!(bench.place.get().is_none(), "a file that is all in memory has no read-ahead");
    bench.miss_and_follow(range(0, RECORD));
    let mut advised = 0;
    for at in 1..40 {
        if let Some(advising) = bench.pool.note_hit(&bench.place, range(at * RECORD, RECORD)) {
            advised += 1;
            advising.follow(bench.file.as_fd());
        }
    }
    assert!(advised > 1, "{advised}");
    assert!(bench.pool.counts().used_bytes > 0);
}

#[test]
fn nothing_is_read_ahead_while_memory_is_tight_and_the_pool_goes_on_to_look_at_it() {
    let bench = Bench::new();
    assert!(!bench.pool.needs_pressure());
    bench.pool.set_tight(true);
    for at in 0..8 {
        assert!(bench.miss(record(at)).is_none());
    }
    assert!(bench.pool.needs_pressure());
    bench.pool.set_tight(false);
    assert!((8..12).any(|at| bench.miss(record(at)).is_some()));
}

#[test]
fn advice_that_no_thread_takes_is_given_again() {
    let bench = Bench::new();
    let advice = |at: u64| bench.miss(range(at * RECORD, RECORD));
    assert!(advice(0).is_none());
    drop(advice(1).expect("two reads that adjoin are a stream"));
    let dropped = bench.pool.counts().dropped_bytes;
    assert!(dropped > 0);
    assert_eq!(bench.pool.counts().outstanding_bytes(), 0);
    let again = advice(2).expect("it is given again");
    again.follow(bench.file.as_fd());
    assert_eq!(bench.pool.counts().dropped_bytes, dropped);
    if bench.can_count() {
        assert!(bench.is_resident(range(3 * RECORD, RECORD)));
    }
}

#[test]
fn two_threads_read_ahead_at_most_and_a_stream_waits_for_one() {
    let bench = Bench::new();
    let files: [OnceLock<_>; 3] = Default::default();
    let read = |file: usize, at: u64| {
        bench.pool.note_miss(&files[file], range(at * RECORD, RECORD), FILE_BYTES, Instant::now())
    };
    (0..3).for_each(|file| assert!(read(file, 0).is_none()));
    let running = [read(0, 1).unwrap(), read(1, 1).unwrap()];
    assert!(read(2, 1).is_none());
    let issued = bench.pool.counts().issued_bytes;
    drop(running);
    assert!(read(2, 2).is_some());
    assert!(bench.pool.counts().issued_bytes > issued);
}

#[test]
fn advice_of_a_file_that_is_not_read_any_more_is_wasted_in_time_and_gives_its_memory_back() {
    let bench = Bench::new();
    for at in 0..4 {
        bench.miss_and_follow(range(at * RECORD, RECORD));
    }
    let outstanding = bench.pool.counts().outstanding_bytes();
    assert!(outstanding > 0 && bench.pool.needs_pressure());
    bench.pool.expire(Instant::now());
    assert!(bench.pool.needs_pressure());
    bench.pool.expire(Instant::now() + Duration::from_secs(60));
    assert_eq!(bench.pool.counts().wasted_bytes, outstanding);
    assert!(!bench.pool.needs_pressure());
}

#[test]
fn advice_of_a_file_that_is_closed_is_wasted() {
    let Bench { pool, place, file } = Bench::new();
    for at in 0..4 {
        let advising = pool.note_miss(&place, range(at * RECORD, RECORD), FILE_BYTES, Instant::now());
        advising.into_iter().for_each(|advising| advising.follow(file.as_fd()));
    }
    let outstanding = pool.counts().outstanding_bytes();
    drop(place);
    assert_eq!((pool.counts().wasted_bytes, pool.counts().outstanding_bytes()), (outstanding, 0));
    pool.expire(Instant::now());
    assert!(!pool.needs_pressure(), "the list forgets it");
}
