//! Each mode of a request, the reason that is counted for it, and the facts that it was chosen by.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::*;
use crate::buffer::Buffers;
use crate::mode::{Crossover, Policy};
use crate::read::{Reader, Started};

struct Bench {
    path: DataPath,
    file: File,
    io: FileIo,
}

impl Bench {
    fn new(policy: Policy) -> Bench {
        let directory = File::open(std::env::temp_dir()).unwrap();
        let capabilities = Capabilities::probe(directory.as_fd()).unwrap();
        Bench::with(policy, capabilities)
    }

    fn with(policy: Policy, capabilities: Capabilities) -> Bench {
        let file = tempfile::tempfile().unwrap();
        Bench { path: DataPath::new(policy, capabilities, 1), file, io: FileIo::default() }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let size = self.file.metadata().unwrap().len();
        self.path.write(self.file.as_fd(), &self.io, size, offset, data, false).unwrap();
    }

    /// As the engine does it.
    fn read(&self, offset: u64, length: u32) -> Vec<u8> {
        let reader = Reader::new(Buffers::new(0));
        let file = self.file.as_fd();
        let timer = self.path.time_hot();
        let started = match self.path.before_read(file, &self.io, offset, length.into()) {
            BeforeRead::TryCache => reader.start(file, offset, length),
            BeforeRead::Cold(pages) => reader.start_cold(file, offset, length, pages),
        };
        match started.unwrap() {
            Started::Done(read) => {
                self.path.note_hot(&self.io, offset, read.data.len() as u64, timer);
                read.data.to_vec()
            }
            Started::Rest(rest) => self.path.read(self.file.as_fd(), &self.io, rest).unwrap().0.data.to_vec(),
        }
    }

    /// From the page cache.
    fn forget(&self) {
        self.file.sync_all().unwrap();
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// Operations and bytes.
    fn counted(&self, kind: Kind, mode: Mode, reason: Reason) -> (u64, u64) {
        let count = self.path.counts().count(kind, Decision { mode, reason });
        (count.operations, count.bytes)
    }

    fn has(&self, mode: Mode) -> bool {
        match mode {
            Mode::Buffered => true,
            Mode::Uncached => self.path.capabilities().uncached,
            Mode::Direct => self.path.capabilities().direct.is_some(),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_forced_mode_runs_and_is_counted_and_gives_the_same_bytes() {
    for (policy, mode) in [
        (Policy::Buffered, Mode::Buffered),
        (Policy::Uncached, Mode::Uncached),
        (Policy::Direct, Mode::Direct),
    ] {
        let bench = Bench::new(policy);
        if !bench.has(mode) {
            println!("skipped: no {mode:?} here");
            continue;
        }
        let content = pattern(300_000);
        bench.write(0, &content);
        bench.forget();
        assert!(bench.read(1000, 200_000) == content[1000..201_000], "{mode:?}");
        // A policy of buffered I/O alone asks nothing.
        let reason = if mode == Mode::Buffered { Reason::Small } else { Reason::Forced };
        assert_eq!(bench.counted(Kind::Write, mode, reason), (1, 300_000));
        let read = bench.path.counts().iter().find(|count| count.kind == Kind::Read).unwrap();
        assert_eq!((read.decision.mode, read.count.bytes), (mode, 200_000));
    }
}

#[test]
fn a_mode_that_is_missing_here_is_replaced_and_the_reason_says_so() {
    let bench = Bench::with(Policy::Direct, Capabilities::NONE);
    bench.write(0, &pattern(8192));
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::DirectUnavailable), (1, 8192));
    assert_eq!(bench.io.recorded().len(), 1);
}

#[test]
fn without_a_calibration_requests_of_a_mebibyte_are_buffered_and_ask_nothing() {
    let bench = Bench::new(Policy::Auto);
    bench.write(0, &pattern(1 << 20));
    bench.forget();
    bench.read(0, 1 << 20);
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::Small), (1, 1 << 20));
    assert!(bench.path.suits_page_cache(bench.file.as_fd(), &bench.io, ByteRange::ALL));
    assert!(bench.io.recorded().is_empty());
}

fn direct_from(bytes: u64) -> Thresholds {
    let crossover = Crossover { small_bytes: bytes, uncached_bytes_min: None, direct_bytes_min: Some(bytes) };
    Thresholds::calibrated(crossover, crossover, crossover)
}

#[test]
fn a_calibration_takes_large_writes_past_the_cache_and_leaves_hot_reads_in_it() {
    let bench = Bench::new(Policy::Auto);
    if !bench.has(Mode::Direct) {
        println!("skipped: no direct I/O here");
        return;
    }
    bench.path.set_thresholds(direct_from(64 << 10));
    bench.write(0, &pattern(4096));
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::Small), (1, 4096));
    bench.write(1 << 20, &pattern(1 << 20));
    let direct = bench.path.counts().iter().find(|count| count.decision.mode == Mode::Direct).unwrap();
    assert_eq!((direct.kind, direct.count.bytes), (Kind::Write, 1 << 20));
    let mut page = vec![0; 256 << 10];
    bench.file.read_exact_at(&mut page, 1 << 20).unwrap();
    assert!(bench.read(1 << 20, 256 << 10) == page);
    assert_eq!(bench.counted(Kind::Read, Mode::Buffered, Reason::HotRead), (1, 256 << 10));
}

#[test]
fn pages_that_unaligned_neighbours_share_keep_no_write_in_the_cache() {
    let bench = Bench::new(Policy::Auto);
    if !bench.has(Mode::Direct) || !bench.path.capabilities().cachestat {
        println!("skipped: no direct I/O here, or pages are not counted");
        return;
    }
    let thresholds = Thresholds { unaligned_direct_bytes_min: 64 << 10, ..direct_from(64 << 10) };
    bench.path.set_thresholds(thresholds);
    let block = pattern(128 << 10);
    for number in 0..4 {
        bench.write(2104 + number * (128 << 10), &block);
    }
    // Of a file that has them already, as well.
    for number in 0..4 {
        bench.write(2104 + number * (128 << 10), &block);
    }
    assert_eq!(bench.counted(Kind::Write, Mode::Direct, Reason::LargeWrite).0, 8);
    assert!(bench.read(2104, 512 << 10) == block.repeat(4));
}

/// A try of the page cache that misses starts read-ahead, whose pages count as resident.
#[test]
fn a_cold_read_of_a_large_file_that_is_used_once_is_not_taken_for_a_hot_one() {
    let bench = Bench::new(Policy::Auto);
    if !bench.has(Mode::Direct) || !bench.path.capabilities().cachestat {
        println!("skipped: no direct I/O or no count of pages here");
        return;
    }
    let cached_file_bytes_max = 0;
    bench.path.set_thresholds(Thresholds { cached_file_bytes_max, ..direct_from(64 << 10) });
    let content = pattern(4 << 20);
    bench.file.write_all_at(&content, 0).unwrap();
    bench.forget();
    for at in (0..4 << 20).step_by(1 << 20) {
        assert!(bench.read(at, 1 << 20) == content[at as usize..][..1 << 20]);
    }
    let modes: Vec<_> =
        bench.path.counts().iter().map(|count| (count.decision.mode, count.count.bytes)).collect();
    assert_eq!(
        modes.iter().filter(|(mode, _)| *mode == Mode::Direct).map(|(_, bytes)| bytes).sum::<u64>(),
        4 << 20,
        "{modes:?}"
    );
    assert_eq!(
        splice::cachestat(bench.file.as_fd(), 0, 4 << 20).unwrap().cached,
        0,
        "nothing was read ahead"
    );
}

#[test]
fn streams_of_buffered_reads_are_read_ahead_and_others_are_not() {
    for (policy, mode) in [
        (Policy::Buffered, Mode::Buffered),
        (Policy::Uncached, Mode::Uncached),
        (Policy::Direct, Mode::Direct),
    ] {
        let bench = Bench::new(policy);
        bench.file.write_all_at(&pattern(16 << 20), 0).unwrap();
        bench.forget();
        if count_pages(bench.file.as_fd(), ByteRange::ALL).is_ok_and(|counts| counts.resident > 0) {
            println!("skipped: pages stay in memory here");
            return;
        }
        for at in (1_u64..16).rev() {
            bench.read(at << 20, 64 << 10);
        }
        let is_buffered = mode == Mode::Buffered || !bench.has(mode);
        assert_eq!(bench.path.read_ahead().issued_bytes > 0, is_buffered, "{policy:?}");
        assert_eq!(bench.path.read_ahead().outstanding_bytes(), 0, "the bench follows no advice");
    }
}

#[test]
fn tight_memory_ends_read_ahead() {
    let bench = Bench::with(Policy::Buffered, Capabilities::NONE);
    bench.file.write_all_at(&pattern(16 << 20), 0).unwrap();
    bench.forget();
    bench.path.set_pressure(true, None);
    for at in (1_u64..16).rev() {
        bench.read(at << 20, 64 << 10);
    }
    assert_eq!(bench.path.read_ahead(), ReadAheadCounts::default());
    assert!(bench.path.needs_pressure(), "or it would never know that memory is free again");
    bench.path.set_pressure(false, None);
    assert!(!bench.path.needs_pressure());
}

#[test]
fn a_door_that_asks_often_leaves_no_trace_in_the_history() {
    let bench = Bench::new(Policy::Direct);
    bench.write(0, &pattern(8192));
    for _ in 0..100 {
        bench.path.suits_page_cache(bench.file.as_fd(), &bench.io, ByteRange::new(0, 8192).unwrap());
    }
    bench.read(0, 8192);
    let reuse = bench.io.recorded().last().unwrap().inputs.file.reuse;
    assert_ne!(reuse, Reuse::Reused);
    assert_eq!(bench.io.recorded().len(), 2);
}

#[test]
fn a_write_past_the_largest_offset_is_refused_before_it_is_recorded() {
    let bench = Bench::with(Policy::Direct, Capabilities::NONE);
    for offset in [OFFSET_MAX, u64::MAX] {
        let refused = bench.path.write(bench.file.as_fd(), &bench.io, 0, offset, b"ab", false);
        assert_eq!(refused, Err(WriteFailure::Write(Errno::FBIG)));
    }
    assert!(bench.io.recorded().is_empty() && bench.path.counts().iter().next().is_none());
}

#[test]
fn a_pinned_mode_holds_for_the_file_alone() {
    let bench = Bench::new(Policy::Auto);
    if !bench.has(Mode::Direct) {
        println!("skipped: no direct I/O here");
        return;
    }
    bench.io.pin(Some(Mode::Direct));
    bench.write(0, &pattern(8192));
    assert_eq!(bench.counted(Kind::Write, Mode::Direct, Reason::Pinned), (1, 8192));
    let range = ByteRange::new(0, 8192).unwrap();
    assert!(!bench.path.suits_page_cache(bench.file.as_fd(), &bench.io, range));
    assert!(bench.path.suits_page_cache(bench.file.as_fd(), &FileIo::default(), range));
    bench.io.pin(None);
    bench.write(0, &pattern(8192));
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::Small), (1, 8192));
}

#[test]
fn a_file_that_is_pinned_to_the_page_cache_is_served_from_it_and_its_misses_name_the_pin() {
    let bench = Bench::with(Policy::Direct, Capabilities::NONE);
    bench.io.pin(Some(Mode::Buffered));
    bench.write(0, &pattern(8192));
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::Pinned), (1, 8192));
    assert_eq!(bench.io.recorded().len(), 1);
    let before = bench.path.before_read(bench.file.as_fd(), &bench.io, 0, 8192);
    assert_eq!(before, BeforeRead::TryCache);
    assert_eq!(bench.read(0, 8192), pattern(8192));
    let whole = bench.counted(Kind::Read, Mode::Buffered, Reason::HotRead);
    let missed = bench.counted(Kind::Read, Mode::Buffered, Reason::Pinned);
    assert_eq!(whole.1 + missed.1, 8192, "{whole:?} {missed:?}");
}

#[test]
fn a_mode_that_was_pinned_again_is_the_last_one() {
    let io = FileIo::default();
    for mode in [None, Some(Mode::Direct), Some(Mode::Direct), Some(Mode::Uncached), None] {
        io.pin(mode);
        assert_eq!(io.pinned(), mode);
    }
}

#[test]
fn descriptors_for_direct_io_are_bounded_and_a_file_without_one_is_buffered() {
    let bench = Bench::new(Policy::Direct);
    if !bench.has(Mode::Direct) {
        println!("skipped: no direct I/O here");
        return;
    }
    bench.write(0, &pattern(8192));
    let other = (tempfile::tempfile().unwrap(), FileIo::default());
    let write_other = || {
        bench.path.write(other.0.as_fd(), &other.1, 0, 0, &pattern(8192), false).unwrap();
    };
    write_other();
    assert_eq!(bench.counted(Kind::Write, Mode::Direct, Reason::Forced), (1, 8192));
    assert_eq!(bench.counted(Kind::Write, Mode::Buffered, Reason::Forced), (1, 8192));
    // The first file is closed.
    let Bench { path, io, .. } = bench;
    drop(io);
    path.write(other.0.as_fd(), &other.1, 0, 0, &pattern(8192), false).unwrap();
    assert_eq!(
        path.counts().count(Kind::Write, Decision { mode: Mode::Direct, reason: Reason::Forced }).operations,
        2
    );
}

#[test]
fn a_file_remembers_its_last_decisions_and_no_more() {
    let bench = Bench::with(Policy::Direct, Capabilities::NONE);
    for at in 0..40 {
        bench.write(at * 4096, &pattern(4096));
    }
    let recorded = bench.io.recorded();
    assert_eq!(recorded.len(), 16);
    assert_eq!(recorded[15].inputs.request.offset, 39 * 4096);
    assert_eq!(recorded[15].ran, Mode::Buffered);
    assert_eq!(decide(&recorded[15].inputs, &bench.path.thresholds()), recorded[15].decision);
}

#[test]
fn writers_of_the_same_pages_wait_for_each_other_and_make_the_file_contended() {
    for policy in [Policy::Direct, Policy::Buffered] {
        contend(policy);
    }
}

/// Also where requests are too short to leave the page cache.
fn contend(policy: Policy) {
    let bench = Bench::with(policy, Capabilities::NONE);
    bench.write(0, &pattern(4096));
    for _ in 0..16 {
        assert!(!bench.io.is_contended(Instant::now()));
        wait_once(&bench);
    }
    assert!(bench.io.is_contended(Instant::now()));
    bench.write(1 << 20, &pattern(4096));
    assert!(bench.io.recorded().last().is_none_or(|recorded| recorded.inputs.file.is_contended));
    assert_eq!(bench.io.recorded().is_empty(), policy == Policy::Buffered);
}

/// A write waits for another one of the same page.
fn wait_once(bench: &Bench) {
    std::thread::scope(|scope| {
        let held = bench.io.lock(0, 1, Instant::now(), Default::default).unwrap();
        // Another byte of the page.
        let waits = bench.io.waits();
        let waiter = scope.spawn(|| bench.write(100, b"x"));
        while bench.io.waits() == waits {
            std::thread::yield_now();
        }
        drop(held);
        waiter.join().unwrap();
    });
}

#[test]
fn the_numbers_of_contention_outlive_a_calibration_and_count_for_each_file() {
    let once = ContentionThresholds { conflicts_min: 1, window: Duration::from_secs(3600) };
    let mut bench = Bench::with(Policy::Auto, Capabilities::NONE);
    bench.path = bench.path.with_contention(once);
    bench.path.set_thresholds(Thresholds::uncalibrated());
    assert_eq!(bench.path.thresholds().contention, once);
    wait_once(&bench);
    assert!(bench.io.is_contended(Instant::now()));
}

#[test]
fn memory_pressure_is_a_fact_of_the_next_request() {
    let bench = Bench::with(Policy::Direct, Capabilities::NONE);
    bench.path.set_pressure(true, Some(7));
    bench.write(0, &pattern(4096));
    let pool = bench.io.recorded()[0].inputs.pool;
    assert!(pool.is_memory_tight);
    assert_eq!(pool.dirty_headroom_bytes, Some(7));
}

#[test]
fn each_request_is_timed_under_the_mode_that_ran() {
    for policy in [Policy::Buffered, Policy::Uncached, Policy::Direct] {
        let bench = Bench::new(policy);
        bench.write(0, &pattern(1 << 20));
        bench.forget();
        bench.read(0, 1 << 20);
        let timed = |kind, mode| bench.path.latencies().times(kind, mode).count();
        for kind in Kind::ALL {
            for mode in Mode::ALL {
                let counts = bench.path.counts();
                let counted =
                    Reason::ALL.map(|reason| counts.count(kind, Decision { mode, reason }).operations);
                assert_eq!(timed(kind, mode), counted.iter().sum::<u64>(), "{policy} {kind:?} {mode:?}");
            }
        }
        assert_eq!(Mode::ALL.map(|mode| timed(Kind::Write, mode)).iter().sum::<u64>(), 1, "{policy}");
    }
}

#[test]
fn reads_from_memory_are_timed_one_by_one_at_first_and_then_by_samples_that_stand_for_all() {
    let bench = Bench::new(Policy::Buffered);
    bench.write(0, &pattern(100));
    let timed = || bench.path.latencies().times(Kind::Read, Mode::Buffered).count();
    (0..64).for_each(|_| _ = bench.read(0, 100));
    assert_eq!((timed(), bench.counted(Kind::Read, Mode::Buffered, Reason::HotRead).0), (64, 64));
    (64..127).for_each(|_| _ = bench.read(0, 100));
    assert_eq!(timed(), 64);
    bench.read(0, 100);
    assert_eq!(timed(), 128);
}

#[test]
fn a_write_by_the_holder_of_its_lock_does_not_wait_for_it() {
    for policy in [Policy::Buffered, Policy::Direct] {
        let bench = Bench::new(policy);
        let _range = bench.io.lock(0, 1 << 20, Instant::now(), Default::default).unwrap();
        let data = pattern(8192);
        let file = bench.file.as_fd();
        bench.path.write_locked(file, &bench.io, 0, 100, &data, false).unwrap();
        let mut read = vec![0; data.len()];
        rustix::io::pread(file, &mut read, 100).unwrap();
        assert!(read == data);
        let far = bench.path.write_locked(file, &bench.io, 0, u64::MAX - 1, &data, false);
        assert_eq!(far, Err(Errno::FBIG));
    }
}

#[test]
fn bytes_that_were_read_are_counted_by_their_residency() {
    const PART: u64 = 256 << 10;
    for policy in [Policy::Buffered, Policy::Auto, Policy::Direct] {
        let bench = Bench::new(policy);
        bench.path.set_thresholds(direct_from(64 << 10));
        bench.file.write_all_at(&pattern(8 * PART as usize), 0).unwrap();
        bench.forget();
        let is_cold =
            count_pages(bench.file.as_fd(), ByteRange::ALL).is_ok_and(|counts| counts.resident == 0);
        if !is_cold {
            println!("skipped: pages stay in memory, or are not counted here");
            return;
        }
        bench.read(0, PART as u32);
        assert_eq!(bench.path.residency(), ResidencyBytes { missing: PART, ..ResidencyBytes::default() });
        // Three quarters of the next read, which the rule then takes for hot.
        bench.forget();
        let mut page = vec![0; page_size()];
        for at in (4 * PART..4 * PART + PART * 3 / 4).step_by(page_size()) {
            bench.file.read_exact_at(&mut page, at).unwrap();
        }
        bench.read(4 * PART, PART as u32);
        bench.read(4 * PART, PART as u32);
        bench.path.note_sent(&bench.io, 1000);
        let ResidencyBytes { resident, missing, unknown } = bench.path.residency();
        assert!(resident > PART && missing >= PART, "{policy}: {resident} {missing}");
        assert_eq!((resident + missing, unknown), (3 * PART, 1000), "{policy}");
    }
}

#[test]
fn the_cpu_time_of_requests_is_counted_under_the_mode_that_ran() {
    for policy in [Policy::Buffered, Policy::Uncached, Policy::Direct] {
        let bench = Bench::new(policy);
        bench.write(0, &pattern(2 << 20));
        bench.forget();
        bench.read(0, 2 << 20);
        let counts = bench.path.counts();
        for (kind, mode) in Kind::ALL.into_iter().flat_map(|kind| Mode::ALL.map(|mode| (kind, mode))) {
            let counted = Reason::ALL.map(|reason| counts.count(kind, Decision { mode, reason }).bytes);
            let cpu = bench.path.cpu().time(kind, mode);
            assert_eq!(cpu.bytes, counted.iter().sum::<u64>(), "{policy} {kind:?} {mode:?}");
            assert_eq!(cpu.time > Duration::ZERO, cpu.bytes > 0, "{policy} {kind:?} {mode:?}");
        }
    }
}
