//! Times of requests and of waits, as commands print them.

use std::time::Duration;

use pool::IoTimes;
use serde::{Deserialize, Serialize};

/// In microseconds. A percentile is the end of its bucket, at most a quarter too long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// The end of each bucket in nanoseconds, with the number of times in it.
    pub buckets_ns: Vec<(u64, u64)>,
}

impl Times {
    pub fn new(times: &IoTimes) -> Times {
        let buckets = times.buckets.iter().map(|(end, count)| (nanoseconds(*end), *count));
        Times::of(buckets.collect(), nanoseconds(times.max))
    }

    fn of(buckets_ns: Vec<(u64, u64)>, max_ns: u64) -> Times {
        let count = buckets_ns.iter().map(|(_, count)| count).sum();
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile = |percent: u64| {
            let wanted = (u128::from(count) * u128::from(percent)).div_ceil(100);
            let mut seen = 0;
            let reached = buckets_ns.iter().find(|(_, count)| {
                seen += u128::from(*count);
                seen >= wanted
            });
            us(reached.map_or(0, |(end, _)| (*end).min(max_ns)))
        };
        let [p50_us, p90_us, p99_us] = [50, 90, 99].map(percentile);
        Times { count, p50_us, p90_us, p99_us, max_us: us(max_ns), buckets_ns }
    }

    /// The times between two reports. The longest is only known by the end of its bucket.
    pub fn since(&self, earlier: Option<&Times>) -> Times {
        let Some(earlier) = earlier.filter(|earlier| earlier.count <= self.count) else {
            return self.clone();
        };
        let before = |end: u64| {
            let found = earlier.buckets_ns.iter().find(|(known, _)| *known == end);
            found.map_or(0, |(_, count)| *count)
        };
        let buckets = self.buckets_ns.iter().map(|(end, count)| (*end, count.saturating_sub(before(*end))));
        let buckets: Vec<_> = buckets.filter(|(_, count)| *count > 0).collect();
        let longest = buckets.last().map_or(0, |(end, _)| *end);
        Times::of(buckets, longest.min((self.max_us * 1e3) as u64))
    }

    /// p50, p90, p99 and the longest.
    pub fn cells(&self) -> [String; 4] {
        [self.p50_us, self.p90_us, self.p99_us, self.max_us].map(shown)
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// With two or three significant digits.
fn shown(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(buckets_us: &[(u64, u64)], max_us: u64) -> Times {
        Times::of(buckets_us.iter().map(|(end, count)| (end * 1000, *count)).collect(), max_us * 1000)
    }

    #[test]
    fn percentiles_are_the_ends_of_their_buckets_and_never_above_the_longest() {
        let times = times(&[(2, 89), (8, 10), (4000, 1)], 3500);
        assert_eq!((times.p50_us, times.p90_us, times.p99_us, times.max_us), (2.0, 8.0, 8.0, 3500.0));
        assert_eq!(times.cells(), ["2.0 µs", "8.0 µs", "8.0 µs", "3.5 ms"]);
        let one = Times::of(vec![(4000, 1)], 3100);
        assert_eq!((one.p50_us, one.p99_us), (3.1, 3.1));
        assert_eq!(Times::of(Vec::new(), 0).p99_us, 0.0);
    }

    #[test]
    fn an_interval_has_the_times_that_came_in_it() {
        let before = times(&[(2, 10), (4000, 1)], 3500);
        let now = times(&[(2, 12), (16, 1), (4000, 1)], 3500);
        assert_eq!(now.since(Some(&before)), times(&[(2, 2), (16, 1)], 16));
        assert_eq!(now.since(None), now);
        // Of a server that was started anew meanwhile.
        assert_eq!(before.since(Some(&now)), before);
    }
}
