//! The rate of a scrub. Pure: the caller has the clock and waits.

use std::time::{Duration, Instant};

/// While the pool has requests of others, a scrub takes this share of its rate.
const BUSY_SHARE: u64 = 4;
/// Time that a slow disk has cost is made up for, up to this.
const ARREARS: Duration = Duration::from_millis(250);

pub struct Pace {
    bytes_per_s: u64,
    due: Option<Instant>,
}

impl Pace {
    pub fn new(bytes_per_s: u64) -> Pace {
        Pace { bytes_per_s: bytes_per_s.max(1), due: None }
    }

    /// The time to wait after `bytes` were read until `now`.
    pub fn wait(&mut self, bytes: u64, is_busy: bool, now: Instant) -> Duration {
        let bytes = if is_busy { bytes.saturating_mul(BUSY_SHARE) } else { bytes };
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        let earliest = now.checked_sub(ARREARS).unwrap_or(now);
        let due = self.due.unwrap_or(now).max(earliest) + took;
        self.due = Some(due);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Time that so many reads take, each of `read` besides the wait.
    fn time_of(reads: u32, read: Duration, is_busy: bool) -> Duration {
        let begun = Instant::now();
        let (mut pace, mut now) = (Pace::new(10 * MIB), begun);
        for _ in 0..reads {
            now += read;
            now += pace.wait(MIB, is_busy, now);
        }
        now - begun
    }

    #[test]
    fn reads_take_the_time_of_the_rate_whatever_the_disk_takes_of_it() {
        let near = |time: Duration, seconds: f64| {
            assert!((time.as_secs_f64() - seconds).abs() < 0.3, "{time:?} and not {seconds} s");
        };
        near(time_of(100, Duration::ZERO, false), 10.0);
        near(time_of(100, Duration::from_millis(90), false), 10.0);
        near(time_of(100, Duration::from_millis(200), false), 20.0);
        near(time_of(100, Duration::ZERO, true), 40.0);
    }

    #[test]
    fn a_pause_is_not_made_up_for_by_a_burst() {
        let (mut pace, begun) = (Pace::new(10 * MIB), Instant::now());
        pace.wait(MIB, false, begun);
        let later = begun + Duration::from_secs(3600);
        assert!(pace.wait(10 * MIB, false, later) >= Duration::from_millis(700));
    }
}
