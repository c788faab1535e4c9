//! Traces of requests, and what the history tells about them.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A history with its time, which goes on by a millisecond a request.
struct Trace {
    history: History,
    now: Instant,
}

impl Trace {
    fn new() -> Trace {
        Trace { history: History::default(), now: Instant::now() }
    }

    fn record(&mut self, kind: Kind, offset: u64, length_bytes: u64) -> Observed {
        self.now += Duration::from_millis(1);
        self.history.record(kind, offset, length_bytes, self.now)
    }

    fn read(&mut self, offset: u64, length_bytes: u64) -> Observed {
        self.record(Kind::Read, offset, length_bytes)
    }

    fn write(&mut self, offset: u64, length_bytes: u64) -> Observed {
        self.record(Kind::Write, offset, length_bytes)
    }
}

/// The patterns that reads of 64 KiB at these units get.
fn patterns(units: impl IntoIterator<Item = u64>) -> Vec<Pattern> {
    let mut trace = Trace::new();
    units.into_iter().map(|unit| trace.read(unit * 64 * KIB, 64 * KIB).pattern).collect()
}

/// Asserts that reads at these units have one pattern from the given request on.
fn assert_pattern(units: impl IntoIterator<Item = u64>, from_request: usize, pattern: Pattern) {
    let patterns = patterns(units);
    assert!(patterns.len() > from_request);
    for (at, found) in patterns.iter().enumerate().skip(from_request) {
        assert_eq!(*found, pattern, "request {at} of {patterns:?}");
    }
}

/// Numbers without an order that a stream would follow (xorshift).
fn scattered(count: usize, below: u64) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    (0..count).map(|_| next()).collect()
}

fn share(patterns: &[Pattern], pattern: Pattern) -> f64 {
    patterns.iter().filter(|found| **found == pattern).count() as f64 / patterns.len() as f64
}

#[test]
fn a_sequential_stream_is_known_at_its_third_request() {
    assert_eq!(patterns(0..2), [Pattern::Unknown; 2]);
    assert_pattern(0..100, 2, Pattern::Sequential);
    assert_pattern(1000..1100, 2, Pattern::Sequential);
}

#[test]
fn requests_of_several_lengths_that_follow_each_other_are_sequential() {
    let mut trace = Trace::new();
    let mut offset = 0;
    for (at, length) in [100, MIB, 5, 64 * KIB, 64 * KIB + 1, MIB, 3].into_iter().enumerate() {
        let pattern = trace.read(offset, length).pattern;
        assert!(at < 2 || pattern == Pattern::Sequential, "request {at}");
        offset += length;
    }
}

#[test]
fn eight_interleaved_streams_are_each_sequential() {
    let units = (0..50).flat_map(|turn| (0..8).map(move |stream| stream * stream * 10_000 + turn));
    assert_pattern(units, 16, Pattern::Sequential);
    // At equal distances their beginnings look like a strided stream first.
    let units = (0..50).flat_map(|turn| (0..8).map(move |stream| stream * 10_000 + turn));
    assert_pattern(units, 32, Pattern::Sequential);
}

#[test]
fn clients_that_read_the_same_file_side_by_side_are_sequential() {
    assert_pattern((0..100).flat_map(|unit| [unit, unit, unit]), 9, Pattern::Sequential);
    // The second one begins where the first one has been.
    let second = (20..100).flat_map(|unit| [unit, unit - 20]);
    assert_pattern((0..20).chain(second), 30, Pattern::Sequential);
}

#[test]
fn a_stream_whose_requests_come_in_pairs_out_of_order_is_sequential() {
    assert_pattern((0..100).map(|unit| unit ^ 1), 5, Pattern::Sequential);
}

#[test]
fn equal_gaps_make_a_strided_stream_however_wide_they_are() {
    for stride in [2, 5, 9, 100, 1 << 30] {
        assert_pattern((0..100).map(|turn| turn * stride), 3, Pattern::Strided);
    }
}

#[test]
fn three_requests_at_equal_distances_are_no_stream_yet() {
    assert_eq!(patterns([0, 300, 600]), [Pattern::Unknown; 3]);
    // Twice the first offset and one: a free place must not be taken for a request.
    let mut trace = Trace::new();
    for offset in [99_999, 199_999, 299_999] {
        assert_eq!(trace.read(offset, 10).pattern, Pattern::Unknown, "{offset}");
    }
}

#[test]
fn interleaved_strided_streams_are_told_apart() {
    let units = (0..50).flat_map(|turn| [0, 1_000_003, 5_000_011].map(|start| start + turn * 300));
    assert_pattern(units, 12, Pattern::Strided);
}

#[test]
fn overlapping_requests_are_sequential() {
    let mut trace = Trace::new();
    let found: Vec<_> = (0..20).map(|turn| trace.read(turn * 48 * KIB, 64 * KIB).pattern).collect();
    assert_eq!(found[4..], [Pattern::Sequential; 16]);
}

#[test]
fn a_stream_towards_the_beginning_is_backward() {
    assert_pattern((0..100).rev(), 2, Pattern::Backward);
    assert_pattern((0..100).rev().map(|unit| unit * 7), 4, Pattern::Backward);
    assert_pattern((0..100).rev().map(|unit| unit * 700), 4, Pattern::Backward);
}

#[test]
fn scattered_requests_are_random() {
    let patterns = patterns(scattered(1000, 1 << 30));
    assert_eq!(patterns[..5], [Pattern::Unknown; 5]);
    assert!(share(&patterns[6..], Pattern::Random) > 0.99);
}

#[test]
fn scattered_requests_of_a_small_region_are_not_taken_for_a_stream() {
    for below in [64, 256, 1024, 4096] {
        let patterns = patterns(scattered(2000, below));
        for stream in [Pattern::Sequential, Pattern::Strided, Pattern::Backward] {
            let share = share(&patterns, stream);
            assert!(share < 0.1, "{stream:?}: {share} of {below} units");
        }
    }
}

#[test]
fn a_stream_goes_on_among_scattered_requests() {
    let units = scattered(100, 1 << 30).into_iter().enumerate();
    let patterns = patterns(units.flat_map(|(turn, far)| [(1 << 40) + turn as u64, far]));
    for (at, found) in patterns.iter().enumerate().skip(4).step_by(2) {
        assert_eq!(*found, Pattern::Sequential, "request {at}");
    }
}

#[test]
fn reads_and_writes_are_streams_apart() {
    let mut trace = Trace::new();
    for turn in 0..20 {
        let write = trace.write(turn * MIB, MIB).pattern;
        let read = trace.read((1000 - turn) * MIB, MIB).pattern;
        assert!(turn < 3 || (write, read) == (Pattern::Sequential, Pattern::Backward), "turn {turn}");
    }
}

#[test]
fn bytes_read_once_are_told_from_bytes_read_again() {
    let mut trace = Trace::new();
    for unit in 0..64 {
        let reuse = trace.read(unit * MIB, MIB).reuse;
        assert_eq!(reuse, if unit < 3 { Reuse::Unknown } else { Reuse::Once });
    }
    let again: Vec<_> = (0..64).map(|unit| trace.read(unit * MIB, MIB).reuse).collect();
    assert_eq!(again[..8], [Reuse::Once; 8]);
    assert_eq!(again[12..], [Reuse::Reused; 52]);
}

#[test]
fn a_file_that_grows_is_not_taken_for_one_that_is_read_again() {
    let mut trace = Trace::new();
    for unit in 0..4096 {
        assert_ne!(trace.read(unit * MIB, MIB).reuse, Reuse::Reused, "unit {unit}");
    }
    // The first half a hundred times, then the second half once.
    let mut trace = Trace::new();
    for unit in (0..100).flat_map(|_| 0..8) {
        trace.read(unit * MIB, MIB);
    }
    assert_eq!(trace.read(0, MIB).reuse, Reuse::Reused);
    for unit in 8..4096 {
        trace.read(unit * MIB, MIB);
    }
    assert_eq!(trace.read(4096 * MIB, MIB).reuse, Reuse::Once);
}

#[test]
fn a_small_file_that_is_read_again_is_reused() {
    let mut trace = Trace::new();
    assert_eq!(trace.read(0, 100 * KIB).reuse, Reuse::Unknown);
    let reuse = (0..4).map(|_| trace.read(0, 100 * KIB).reuse).last();
    assert_eq!(reuse, Some(Reuse::Reused));
}

#[test]
fn a_read_soon_after_a_write_is_expected_again_and_a_late_one_is_not() {
    for (pause, is_expected) in [(Duration::from_secs(10), true), (Duration::from_secs(40), false)] {
        let mut trace = Trace::new();
        for unit in 0..32 {
            assert!(!trace.write(unit * MIB, MIB).is_read_after_write_expected);
        }
        trace.now += pause;
        for unit in 0..16 {
            trace.read(unit * MIB, MIB);
        }
        assert_eq!(trace.write(100 * MIB, MIB).is_read_after_write_expected, is_expected);
    }
}

#[test]
fn a_read_of_bytes_that_were_not_written_here_is_no_sign_of_early_reads() {
    let mut trace = Trace::new();
    trace.write(1000 * MIB, MIB);
    for unit in 0..100 {
        assert!(!trace.read(unit * MIB, MIB).is_read_after_write_expected, "unit {unit}");
    }
}

#[test]
fn the_reads_of_lately_count_most() {
    let mut trace = Trace::new();
    for unit in 0..16 << 10 {
        trace.read(unit * MIB, MIB);
    }
    let reuse = (0..256).map(|unit| trace.read(unit * MIB, MIB).reuse).last();
    assert_eq!(reuse, Some(Reuse::Reused));
}

#[test]
fn a_writer_whose_reader_has_gone_is_expected_to_write_only() {
    let mut trace = Trace::new();
    for unit in 0..64 {
        trace.write(unit * MIB, MIB);
        trace.read(unit * MIB, MIB);
    }
    assert!(trace.write(64 * MIB, MIB).is_read_after_write_expected);
    let last = (65..4096).map(|unit| trace.write(unit * MIB, MIB).is_read_after_write_expected).last();
    assert_eq!(last, Some(false));
}

#[test]
fn the_memory_of_a_file_is_bounded() {
    assert!(size_of::<History>() <= 2048, "{}", size_of::<History>());
}

#[test]
fn an_empty_request_leaves_no_trace() {
    let mut trace = Trace::new();
    for offset in [0, 5, u64::MAX] {
        assert_eq!(trace.read(offset, 0).pattern, Pattern::Unknown);
    }
    assert_pattern(0..3, 2, Pattern::Sequential);
}

proptest! {
    /// Ranks that write one file together: each window of 32 records comes in any order.
    #[test]
    fn records_out_of_order_near_the_front_are_sequential(
        windows in proptest::collection::vec(Just((0..32).collect::<Vec<u64>>()).prop_shuffle(), 20),
    ) {
        let records = windows.iter().enumerate().flat_map(|(at, window)| {
            window.iter().map(move |record| at as u64 * 32 + record)
        });
        let mut trace = Trace::new();
        let patterns: Vec<_> = records.map(|record| trace.write(record * 47_008, 47_008).pattern).collect();
        let share = share(&patterns[64..], Pattern::Sequential);
        prop_assert!(share > 0.8, "{}", share);
    }

    #[test]
    fn any_requests_are_taken(
        requests in proptest::collection::vec((any::<bool>(), any::<u64>(), any::<u64>(), 0_u32..64, 0_u32..64), 0..200),
    ) {
        let mut trace = Trace::new();
        for (is_write, offset, length, fewer, shorter) in requests {
            let kind = if is_write { Kind::Write } else { Kind::Read };
            trace.record(kind, offset >> fewer, length >> shorter);
            trace.record(kind, u64::MAX - (offset >> fewer), length >> shorter);
        }
    }

    /// Against a model that knows of each block how often it was read.
    #[test]
    fn reuse_is_never_told_of_bytes_that_were_read_once(
        blocks in Just((0..512).collect::<Vec<u64>>()).prop_shuffle(), block_bits in 12_u32..21,
    ) {
        let mut trace = Trace::new();
        for block in blocks {
            let observed = trace.read(block << block_bits, 1 << block_bits);
            prop_assert_ne!(observed.reuse, Reuse::Reused);
        }
    }
}
