//! Traces of readers, and the share of bytes that are read ahead in vain; and invariants of any reads.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Lone forward streams, too.
fn every_stream(pool_bytes_max: u64) -> ReadAheadLimits {
    ReadAheadLimits { is_kernel_trusted: false, ..ReadAheadLimits::for_memory(pool_bytes_max) }
}

/// Notes a read that missed, and returns the ranges to fetch.
fn ask(read_ahead: &mut ReadAhead, read: ByteRange, file_bytes: u64, now: Instant) -> Vec<ByteRange> {
    read_ahead.read(read, Found::Miss, file_bytes, now).map(|advice| advice.ranges).unwrap_or_default()
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).unwrap()
}

/// A generator of numbers; the same for each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Replayed {
    counts: ReadAheadCounts,
    read_bytes: u64,
    fetches: u64,
    outstanding_bytes_max: u64,
}

impl Replayed {
    fn check(&self, used_percent_min: u64, wasted_percent_max: u64) {
        let percent = |bytes: u64| bytes * 100 / self.read_bytes;
        let ReadAheadCounts { issued_bytes, used_bytes, wasted_bytes, .. } = self.counts;
        let told = format!(
            "of {} bytes read: {issued_bytes} issued, {used_bytes} used, {wasted_bytes} wasted, {} fetches",
            self.read_bytes, self.fetches
        );
        println!("{told}");
        assert!(percent(used_bytes) >= used_percent_min, "{told}");
        assert!(percent(wasted_bytes) <= wasted_percent_max, "{told}");
    }
}

/// The file is closed at the end: outstanding bytes are wasted then.
fn replay(file_bytes: u64, reads: impl IntoIterator<Item = ByteRange>) -> Replayed {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    let mut now = Instant::now();
    let (mut read_bytes, mut fetches, mut outstanding_bytes_max) = (0, 0, 0);
    for read in reads {
        now += Duration::from_micros(500);
        read_bytes += read.length();
        fetches += ask(&mut read_ahead, read, file_bytes, now).len() as u64;
        outstanding_bytes_max = outstanding_bytes_max.max(budget.counts().outstanding_bytes());
    }
    drop(read_ahead);
    let counts = budget.counts();
    assert_eq!(counts.outstanding_bytes(), 0);
    Replayed { counts, read_bytes, fetches, outstanding_bytes_max }
}

fn forward(base: u64, read_bytes: u64, count: u64) -> impl Iterator<Item = ByteRange> {
    (0..count).map(move |at| range(base + at * read_bytes, read_bytes))
}

/// One read of each in turn.
fn interleaved(streams: Vec<Vec<ByteRange>>) -> Vec<ByteRange> {
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| streams.iter().filter_map(move |stream| stream.get(at).copied())).collect()
}

#[test]
fn a_sequential_reader_finds_its_bytes_read_ahead_by_few_fetches() {
    let replayed = replay(256 * MIB, forward(0, 64 * KIB, 4096));
    replayed.check(99, 0);
    assert!(replayed.fetches < 100, "{}", replayed.fetches);
    assert!(replayed.outstanding_bytes_max <= 8 * MIB, "{}", replayed.outstanding_bytes_max);
}

#[test]
fn a_reader_that_stops_wastes_one_window_at_most() {
    let replayed = replay(1024 * MIB, forward(0, 64 * KIB, 1024));
    assert!(replayed.counts.wasted_bytes <= 8 * MIB, "{}", replayed.counts.wasted_bytes);
}

#[test]
fn a_sequential_reader_whose_reads_arrive_out_of_order_is_followed() {
    let mut dice = Dice(11);
    let mut reads: Vec<ByteRange> = forward(0, 64 * KIB, 4096).collect();
    for chunk in reads.chunks_mut(8) {
        for at in (1..chunk.len()).rev() {
            chunk.swap(at, dice.below(at as u64 + 1) as usize);
        }
    }
    replay(256 * MIB, reads).check(90, 2);
}

fn issued(reads: impl IntoIterator<Item = ByteRange>) -> u64 {
    let budget = ReadAheadBudget::new(ReadAheadLimits::for_memory(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    for read in reads {
        ask(&mut read_ahead, read, 1 << 40, Instant::now());
    }
    budget.counts().issued_bytes
}

#[test]
fn a_lone_forward_stream_in_order_is_left_to_the_kernel_and_others_are_not() {
    let reads: Vec<_> = forward(0, 64 * KIB, 100).collect();
    assert_eq!(issued(reads.clone()), 0);
    let other: Vec<_> = forward(1 << 30, 64 * KIB, 100).collect();
    assert!(issued(interleaved(vec![reads.clone(), other])) > 0);
    let mut disordered = reads.clone();
    disordered.swap(50, 51);
    assert!(issued(disordered) > 0);
    assert!(issued(reads.into_iter().rev()) > 0);
}

#[test]
fn a_strided_reader_gets_its_records_and_not_the_gaps() {
    let (record, stride) = (47_008, 16 * 47_008);
    let reads = (0..1000).map(|at| range(at * stride, record));
    replay(1000 * stride, reads).check(98, 0);
    let backward = (0..1000).rev().map(|at| range(at * stride, record));
    replay(1000 * stride, backward).check(98, 0);
}

#[test]
fn a_backward_reader_is_followed() {
    let reads = (0..1000).rev().map(|at| range(at * 100 * KIB, 100 * KIB));
    replay(1000 * 100 * KIB, reads).check(98, 0);
}

#[test]
fn two_interleaved_readers_are_two_streams() {
    let streams = vec![forward(0, 64 * KIB, 1000).collect(), forward(256 * MIB, 64 * KIB, 1000).collect()];
    replay(256 * MIB + 1000 * 64 * KIB, interleaved(streams)).check(98, 8);
    let strided = |base: u64| (0..1000).map(|at| range(base + at * MIB, 16 * KIB)).collect();
    replay(1000 * MIB, interleaved(vec![strided(0), strided(100 * KIB)])).check(98, 1);
}

#[test]
fn eight_interleaved_readers_are_eight_streams() {
    let streams = (0..8).map(|at| forward(at * 256 * MIB, 64 * KIB, 2048).collect()).collect();
    let replayed = replay(2048 * MIB, interleaved(streams));
    replayed.check(95, 7);
    assert!(replayed.outstanding_bytes_max <= 64 * MIB);
}

#[test]
fn random_reads_get_next_to_nothing() {
    let mut dice = Dice(5);
    let reads: Vec<_> = (0..20_000).map(|_| range(dice.below(1 << 18) * 4096, 4096)).collect();
    replay(1 << 30, reads).check(0, 1);
    let small: Vec<_> = (0..20_000).map(|_| range(dice.below(256) * 4096, 4096)).collect();
    replay(MIB, small).check(0, 5);
}

#[test]
fn runs_of_a_few_reads_are_not_read_past_for_long() {
    for (reads, wasted_percent_max) in [(2, 1), (4, 1), (6, 1), (10, 13), (20, 13), (100, 13), (500, 13)] {
        let mut dice = Dice(3);
        let run = |_| forward(dice.below(1 << 14) * MIB, 64 * KIB, reads);
        replay(1 << 35, (0..20_000 / reads).flat_map(run).collect::<Vec<_>>()).check(0, wasted_percent_max);
    }
}

#[test]
fn a_long_stream_after_many_short_ones_is_read_ahead() {
    let mut dice = Dice(3);
    let run = |_| forward(dice.below(1 << 14) * MIB, 64 * KIB, 4);
    let mut reads: Vec<_> = (0..500).flat_map(run).collect();
    reads.extend(forward(1 << 34, 64 * KIB, 20_000));
    replay((1 << 34) + 20_000 * 64 * KIB, reads).check(90, 1);
}

#[test]
fn a_range_that_is_read_again_and_again_makes_no_new_streams() {
    let reads = (0..1000).flat_map(|_| forward(0, 4096, 2));
    let replayed = replay(1 << 30, reads);
    assert_eq!(replayed.counts.issued_bytes, 4 * 4096, "the first time only");
}

#[test]
fn three_reads_at_equal_distances_are_no_stream_and_four_are() {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(budget);
    let now = Instant::now();
    for at in [9, 7, 5] {
        assert!(ask(&mut read_ahead, range(at * MIB, 4096), 1 << 30, now).is_empty());
    }
    let fetches = ask(&mut read_ahead, range(3 * MIB, 4096), 1 << 30, now);
    assert_eq!(fetches, [range(MIB, 4096)], "the file begins there");
}

#[test]
fn a_reader_that_begins_to_skip_is_no_longer_read_ahead() {
    let mut dice = Dice(9);
    let mut at = 64 * MIB;
    let skipping = (0..500).map(move |_| {
        at += 512 * KIB + dice.below(256) * 4 * KIB;
        range(at, 64 * KIB)
    });
    let replayed = replay(1 << 30, forward(0, 64 * KIB, 1024).chain(skipping));
    assert!(replayed.counts.wasted_bytes <= 16 * MIB, "{}", replayed.counts.wasted_bytes);
}

#[test]
fn the_largest_offsets_and_lengths_are_no_trouble() {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    let now = Instant::now();
    let ends = [0, 1, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for offset in ends {
        for end in ends {
            for file_bytes in ends {
                let Some(read) = ByteRange::from_bounds(offset, end) else { continue };
                ask(&mut read_ahead, read, file_bytes, now);
                assert!(budget.counts().outstanding_bytes() <= 64 * MIB);
            }
        }
    }
}

#[test]
fn tight_memory_stops_read_ahead_and_it_starts_again_after() {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    let now = Instant::now();
    let mut reads = forward(0, 64 * KIB, 1000);
    budget.set_tight(true);
    for read in reads.by_ref().take(100) {
        assert!(ask(&mut read_ahead, read, 1 << 30, now).is_empty());
    }
    budget.set_tight(false);
    assert!(reads.by_ref().take(2).any(|read| !ask(&mut read_ahead, read, 1 << 30, now).is_empty()));
}

#[test]
fn advice_that_is_not_read_in_time_is_wasted() {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    let now = Instant::now();
    assert!(ask(&mut read_ahead, range(0, 4096), 1 << 30, now).is_empty(), "one read is no stream");
    assert_eq!(ask(&mut read_ahead, range(4096, 4096), 1 << 30, now), [range(8192, 16_384)]);
    let age_max = budget.limits().age_max;
    read_ahead.expire(now + age_max - Duration::from_nanos(1));
    assert_eq!(budget.counts().wasted_bytes, 0);
    read_ahead.expire(now + age_max);
    assert_eq!(
        budget.counts(),
        ReadAheadCounts { issued_bytes: 16_384, wasted_bytes: 16_384, ..ReadAheadCounts::default() }
    );
    assert!(read_ahead.ledger.is_doubtful());
}

#[test]
fn files_share_the_memory_of_the_pool() {
    let budget = ReadAheadBudget::new(every_stream(MIB));
    let now = Instant::now();
    let mut files: Vec<_> = (0..20).map(|_| ReadAhead::new(Arc::clone(&budget))).collect();
    for read in forward(0, 64 * KIB, 100) {
        for file in &mut files {
            ask(file, read, 1 << 30, now);
            assert!(budget.counts().outstanding_bytes() <= MIB);
        }
    }
    assert!(budget.counts().used_bytes > 0);
    drop(files);
    assert_eq!(budget.counts().outstanding_bytes(), 0, "closed files give their share back");
}

#[test]
fn a_stream_whose_pages_are_in_memory_is_read_ahead_again_after_a_miss() {
    let budget = ReadAheadBudget::new(every_stream(64 * MIB));
    let mut read_ahead = ReadAhead::new(Arc::clone(&budget));
    let now = Instant::now();
    let mut reads = forward(0, 64 * KIB, 1000);
    let mut read =
        |read_ahead: &mut ReadAhead, found| read_ahead.read(reads.next().unwrap(), found, 1 << 30, now);
    assert_eq!(read(&mut read_ahead, Found::Miss), None);
    let advice = read(&mut read_ahead, Found::Hit).unwrap();
    read_ahead.end_advice(&advice, Outcome::Resident);
    let bytes = advice.ranges.iter().map(|range| range.length()).sum::<u64>();
    assert_eq!((budget.counts().dropped_bytes, budget.counts().outstanding_bytes()), (bytes, 0));
    for _ in 0..50 {
        assert_eq!(read(&mut read_ahead, Found::Hit), None);
    }
    assert!(!read_ahead.follows_hits());
    let again = read(&mut read_ahead, Found::Miss).expect("it is the same stream");
    assert_eq!(again.ranges[0].offset(), 53 * 64 * KIB);
    assert!(read_ahead.follows_hits());
}

#[derive(Clone, Debug)]
enum Step {
    /// A few reads at equal distances.
    Run {
        offset: u64,
        length: u64,
        stride: i64,
        reads: u64,
        /// One advice in so many is not followed.
        drops: usize,
    },
    Wait {
        seconds: u64,
    },
    Resize {
        file_bytes: u64,
    },
    Tight {
        is_tight: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..200_000_u64;
    prop_oneof![
        10 => (file.clone(), 1..5000_u64, -20_000..20_000_i64, 1..30_u64, 1..9_usize)
            .prop_map(|(offset, length, stride, reads, drops)| Step::Run { offset, length, stride, reads, drops }),
        10 => (file.clone(), 1..5000_u64, any::<bool>(), 1..30_u64, 1..9_usize).prop_map(|(offset, length, up, reads, drops)| {
            let stride = if up { length as i64 } else { -(length as i64) };
            Step::Run { offset, length, stride, reads, drops }
        }),
        1 => (0..40_u64).prop_map(|seconds| Step::Wait { seconds }),
        1 => file.prop_map(|file_bytes| Step::Resize { file_bytes }),
        1 => any::<bool>().prop_map(|is_tight| Step::Tight { is_tight }),
    ]
}

fn limits() -> ReadAheadLimits {
    ReadAheadLimits {
        window_bytes_max: 40_000,
        fetches_max: 4,
        pool_bytes_max: 60_000,
        age_max: Duration::from_secs(30),
        is_kernel_trusted: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_reads_stay_within_the_bounds(steps in prop::collection::vec((0..2_usize, step()), 1..40)) {
        let budget = ReadAheadBudget::new(limits());
        let mut files = [ReadAhead::new(Arc::clone(&budget)), ReadAhead::new(Arc::clone(&budget))];
        let mut now = Instant::now();
        let mut file_bytes = 200_000;
        let mut is_tight = false;
        let mut issued_bytes = 0;
        let mut read_bytes = 0;
        for (file, step) in steps {
            match step {
                Step::Wait { seconds } => now += Duration::from_secs(seconds),
                Step::Resize { file_bytes: resized } => file_bytes = resized,
                Step::Tight { is_tight: tight } => {
                    is_tight = tight;
                    budget.set_tight(tight);
                }
                Step::Run { offset, length, stride, reads, drops } => {
                    for at in 0..reads as i64 {
                        let Some(offset) = offset.checked_add_signed(at * stride) else { break };
                        let found = if at % 3 == 0 { Found::Hit } else { Found::Miss };
                        let advice = files[file].read(range(offset, length), found, file_bytes, now);
                        if let Some(advice) = advice.as_ref().filter(|_| (at as usize).is_multiple_of(drops)) {
                            let outcome = [Outcome::Fetched, Outcome::Resident, Outcome::Refused][drops % 3];
                            files[file].end_advice(advice, outcome);
                        }
                        let fetches = advice.map(|advice| advice.ranges).unwrap_or_default();
                        read_bytes += length;
                        prop_assert!(fetches.len() <= limits().fetches_max);
                        prop_assert!(fetches.is_empty() || !is_tight);
                        let fetched: u64 = fetches.iter().map(|fetch| fetch.length()).sum();
                        prop_assert!(fetched <= limits().window_bytes_max);
                        prop_assert!(fetches.iter().all(|fetch| fetch.end() <= file_bytes));
                        issued_bytes += fetched;
                        let counts = budget.counts();
                        prop_assert_eq!(counts.issued_bytes, issued_bytes, "issued is used, wasted, dropped or outstanding");
                        prop_assert!(counts.outstanding_bytes() <= limits().pool_bytes_max);
                        prop_assert!(counts.used_bytes <= 8 * read_bytes, "each stream counts a read once");
                        let held: u64 = files.iter().flat_map(|file| &file.streams).map(Stream::advised_bytes).sum();
                        prop_assert_eq!(counts.outstanding_bytes(), held);
                        prop_assert!(files[file].streams.len() <= STREAMS_MAX);
                        prop_assert!(files[file].strays.len() <= STRAYS_MAX);
                    }
                }
            }
        }
        for file in &mut files {
            file.expire(now + limits().age_max);
        }
        prop_assert_eq!(budget.counts().outstanding_bytes(), 0);
    }
}
