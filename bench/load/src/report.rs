//! Results of a run: one JSON object, the same keys on every level.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use rustix::time::ClockId;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Directories;

/// How long each create took, in microseconds: kept all, since ten seconds of them are a few megabytes.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    us: Vec<u32>,
}

impl Latencies {
    pub fn with_capacity(count: usize) -> Latencies {
        Latencies { us: Vec::with_capacity(count) }
    }

    pub fn add(&mut self, took: Duration) {
        self.us.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Those of another task besides these.
    pub fn append(&mut self, mut other: Latencies) {
        self.us.append(&mut other.us);
    }

    pub fn len(&self) -> usize {
        self.us.len()
    }

    /// Mean, median, 99th percentile and maximum; zeros if there are none.
    pub fn summary(mut self) -> Summary {
        self.us.sort_unstable();
        let sum: u64 = self.us.iter().copied().map(u64::from).sum();
        Summary {
            mean_us: rounded(sum as f64 / self.us.len().max(1) as f64),
            p50_us: rank(&self.us, 0.5),
            p99_us: rank(&self.us, 0.99),
            max_us: rank(&self.us, 1.0),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub mean_us: f64,
    pub p50_us: u32,
    pub p99_us: u32,
    pub max_us: u32,
}

/// `level` is "a" for the namespace alone, "b" for NFS.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub level: &'static str,
    pub mode: String,
    pub directories: Directories,
    pub creators: u32,
    /// From the first create to the end of the last.
    pub seconds: f64,
    pub creates: u64,
    pub rate: f64,
    #[serde(flatten)]
    pub latencies: Summary,
    pub errors: u64,
    /// Results that only one level has.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Report {
    pub fn new(
        level: &'static str,
        load: &crate::Load,
        creators: u32,
        elapsed: Duration,
        latencies: Latencies,
        errors: u64,
    ) -> Report {
        let creates = latencies.len() as u64;
        Report {
            level,
            mode: load.mode.clone(),
            directories: load.directory,
            creators,
            seconds: rounded(elapsed.as_secs_f64()),
            creates,
            rate: rounded(creates as f64 / elapsed.as_secs_f64().max(1e-9)),
            latencies: latencies.summary(),
            errors,
            more: Map::new(),
        }
    }

    /// Adds what only one level has to say.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Report {
        self.more.insert(key.to_owned(), value.into());
        self
    }
}

/// User and system time of this process so far.
pub fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// The same of the calling thread alone.
pub fn thread_cpu_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(clock: ClockId) -> Duration {
    let used = rustix::time::clock_gettime(clock);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

/// User and system time of all processes and of the kernel since the start of the machine, in ticks of mostly 10 ms.
pub fn machine_cpu_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat does not begin with the times of all CPUs")?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Of the line of all CPUs: user, nice, system, irq and softirq, without idle, iowait and the time of guests.
fn busy_ticks(stat: &str) -> Option<u64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times = times.map(|ticks| ticks.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = times.as_slice() else { return None };
    Some(user + nice + system + irq + softirq)
}

/// The value that such a share of the sorted values does not exceed; zero without values.
pub fn rank<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

/// To a thousandth: no measurement here is better.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(us: impl IntoIterator<Item = u64>) -> Summary {
        let mut latencies = Latencies::default();
        us.into_iter().for_each(|us| latencies.add(Duration::from_micros(us)));
        latencies.summary()
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let summary = of((1..=200).rev());
        assert_eq!(summary, Summary { mean_us: 100.5, p50_us: 100, p99_us: 198, max_us: 200 });
    }

    #[test]
    fn one_value_is_every_percentile_and_none_are_zero() {
        assert_eq!(of([7]), Summary { mean_us: 7.0, p50_us: 7, p99_us: 7, max_us: 7 });
        assert_eq!(of([]), Summary { mean_us: 0.0, p50_us: 0, p99_us: 0, max_us: 0 });
    }

    #[test]
    fn the_machine_is_busy_while_it_is_neither_idle_nor_waits_for_the_disk() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(7_600_321));
        for wrong in ["", "cpu0 1 2 3 4 5 6 7", "cpu  1 2 3", "cpu  1 2 x 4 5 6 7"] {
            assert_eq!(busy_ticks(wrong), None, "{wrong}");
        }
        assert!(machine_cpu_time().unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_report_is_one_flat_object() {
        let load = crate::Load {
            creators: 2,
            directory: Directories::Own,
            seconds: 1.0,
            count: None,
            mode: "interval".to_owned(),
        };
        let mut latencies = Latencies::default();
        latencies.add(Duration::from_micros(5));
        let report = Report::new("b", &load, 2, Duration::from_millis(500), latencies, 1).with("slots", 64);
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "level": "b", "mode": "interval", "directories": "own", "creators": 2, "seconds": 0.5, "creates": 1,
            "rate": 2.0, "mean_us": 5.0, "p50_us": 5, "p99_us": 5, "max_us": 5, "errors": 1, "slots": 64,
        });
        assert_eq!(json, expected);
    }
}
