//! Times in buckets: of requests by kind and mode, and of jobs that wait for a thread.
//!
//! Four buckets for each doubling, from 125 ns to about two minutes, so that a percentile is at most a quarter too long.
//! Counters only grow, and are read for status only, as those of `counters`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::counters::{MODE_CELLS, place_of_mode};
use crate::mode::{Kind, Mode};

const UNIT_NS: u64 = 125;
const PER_DOUBLING: u64 = 4;
const DOUBLINGS: u64 = 30;
/// The first is below one unit.
const BUCKETS: usize = 1 + (PER_DOUBLING * DOUBLINGS) as usize;

/// The times of the requests of one pool, by kind and by the mode that ran.
pub struct Latencies([Histogram; MODE_CELLS]);

pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// The times of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The end of each bucket that has any, with their number. In order.
    pub buckets: Vec<(Duration, u64)>,
    pub sum: Duration,
    pub max: Duration,
}

impl Latencies {
    /// `count`: for how many requests this one stands.
    pub fn record(&self, kind: Kind, mode: Mode, took: Duration, count: u64) {
        self.0[place_of_mode(kind, mode)].record(took, count);
    }

    pub fn times(&self, kind: Kind, mode: Mode) -> Times {
        self.0[place_of_mode(kind, mode)].times()
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(std::array::from_fn(|_| Histogram::default()))
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram { buckets, sum_ns: AtomicU64::new(0), max_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub fn record(&self, took: Duration, count: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(ns)].fetch_add(count, Relaxed);
        self.sum_ns.fetch_add(ns.saturating_mul(count), Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    pub fn times(&self) -> Times {
        let counts = self.buckets.iter().enumerate().map(|(at, count)| (end_of(at), count.load(Relaxed)));
        Times {
            buckets: counts.filter(|(_, count)| *count > 0).collect(),
            sum: Duration::from_nanos(self.sum_ns.load(Relaxed)),
            max: Duration::from_nanos(self.max_ns.load(Relaxed)),
        }
    }
}

impl Times {
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Those of two pools together.
    pub fn add(&mut self, other: &Times) {
        for (end, count) in &other.buckets {
            match self.buckets.binary_search_by_key(end, |(end, _)| *end) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (*end, *count)),
            }
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many took at most so long, as far as buckets tell: `end` is the end of one.
    pub fn up_to(&self, end: Duration) -> u64 {
        self.buckets.iter().take_while(|(known, _)| *known <= end).map(|(_, count)| count).sum()
    }
}

/// Ends of buckets with a factor of four between them, from 1 µs on: for metrics.
pub fn coarse_ends() -> impl Iterator<Item = Duration> {
    (3..DOUBLINGS).step_by(2).map(|doublings| Duration::from_nanos(UNIT_NS << doublings))
}

fn bucket_of(ns: u64) -> usize {
    let units = ns / UNIT_NS;
    let Some(doublings) = units.checked_ilog2().map(u64::from) else { return 0 };
    let part = ((units * PER_DOUBLING) >> doublings) - PER_DOUBLING;
    // Of 2⁶⁴ ns the product above fits, and the place is beyond the last bucket.
    ((1 + doublings * PER_DOUBLING + part) as usize).min(BUCKETS - 1)
}

/// Times in the bucket are shorter.
fn end_of(bucket: usize) -> Duration {
    let Some(at) = (bucket as u64).checked_sub(1) else { return Duration::from_nanos(UNIT_NS) };
    let (doublings, part) = (at / PER_DOUBLING, at % PER_DOUBLING);
    let units = ((PER_DOUBLING + part + 1) << doublings).div_ceil(PER_DOUBLING);
    Duration::from_nanos(units * UNIT_NS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Duration = Duration::from_micros(1);

    proptest! {
        #[test]
        fn a_time_is_shorter_than_the_end_of_its_bucket_and_not_shorter_than_the_one_before(
            ns in prop_oneof![0..10_000_u64, 0..100_000_000_000_u64],
        ) {
            let bucket = bucket_of(ns);
            prop_assert!(Duration::from_nanos(ns) < end_of(bucket));
            prop_assert!(bucket == 0 || Duration::from_nanos(ns) >= end_of(bucket - 1));
            prop_assert!(end_of(bucket).as_nanos() as u64 <= UNIT_NS.max(ns + ns / 4) + UNIT_NS);
        }
    }

    #[test]
    fn the_longest_time_has_a_place_and_ends_are_in_order() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|at| end_of(at - 1) <= end_of(at)));
        let ends: Vec<Duration> = coarse_ends().collect();
        assert_eq!(ends[..3], [US, 4 * US, 16 * US]);
        assert!(ends.iter().all(|end| (0..BUCKETS).any(|at| end_of(at) == *end)));
    }

    #[test]
    fn times_of_kinds_and_modes_stay_apart_and_counts_are_weighted() {
        let latencies = Latencies::default();
        latencies.record(Kind::Read, Mode::Buffered, 2 * US, 64);
        latencies.record(Kind::Read, Mode::Buffered, 9 * US, 1);
        latencies.record(Kind::Write, Mode::Direct, 300 * US, 1);
        let reads = latencies.times(Kind::Read, Mode::Buffered);
        assert_eq!((reads.count(), reads.sum, reads.max), (65, 137 * US, 9 * US));
        assert_eq!((reads.up_to(4 * US), reads.up_to(US)), (64, 0));
        assert_eq!(latencies.times(Kind::Write, Mode::Direct).count(), 1);
        assert_eq!(latencies.times(Kind::Write, Mode::Buffered), Times::default());
    }

    #[test]
    fn the_times_of_two_pools_add_up() {
        let (one, two) = (Histogram::default(), Histogram::default());
        for us in [1, 5, 70] {
            one.record(us * US, 1);
        }
        for us in [5, 700, 2] {
            two.record(us * US, 2);
        }
        let mut sum = one.times();
        sum.add(&two.times());
        assert_eq!((sum.count(), sum.sum, sum.max), (9, 1490 * US, 700 * US));
        assert!(sum.buckets.is_sorted());
        assert_eq!(sum.buckets.len(), 5);
    }
}
