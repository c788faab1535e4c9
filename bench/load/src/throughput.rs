//! Results of a transfer: one JSON object, the same keys for NFS and for the bound.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::report::{Latencies, Summary, rounded};

/// Bytes that are taken off a socket at once, into one buffer that is used again: a cache holds them.
pub const RECEIVE_BYTES: usize = 256 << 10;

/// Measurements of one stream.
#[derive(Debug, Default)]
pub struct Measured {
    pub bytes: u64,
    /// From the beginning of all streams to the last reply of this one.
    pub elapsed: Duration,
    /// Of each request that went well.
    pub latencies: Latencies,
    /// Of each COMMIT.
    pub commits: Latencies,
    /// Counts by what failed.
    pub errors: BTreeMap<String, u64>,
}

impl Measured {
    pub fn count_error(&mut self, error: String) {
        *self.errors.entry(error).or_default() += 1;
    }

    /// Those of another transfer besides these.
    pub fn add(&mut self, other: Measured) {
        self.bytes += other.bytes;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.latencies.append(other.latencies);
        self.commits.append(other.commits);
        other.errors.into_iter().for_each(|(what, count)| *self.errors.entry(what).or_default() += count);
    }
}

#[derive(Debug, Serialize)]
pub struct Throughput {
    pub streams: usize,
    /// Until the last stream has ended.
    pub seconds: f64,
    pub bytes: u64,
    /// Millions of bytes per second.
    pub mb_s: f64,
    pub operations: u64,
    pub operations_s: f64,
    #[serde(flatten)]
    pub latencies: Summary,
    /// User and system time of this process.
    pub cpu_s: f64,
    pub errors: BTreeMap<String, u64>,
}

impl Throughput {
    /// All streams together, and the times of their COMMITs.
    pub fn of(measured: Vec<Measured>, cpu: Duration) -> (Throughput, Latencies) {
        let streams = measured.len();
        let mut all = Measured::default();
        measured.into_iter().for_each(|each| all.add(each));
        let seconds = all.elapsed.as_secs_f64().max(1e-9);
        let operations = all.latencies.len() as u64;
        let throughput = Throughput {
            streams,
            seconds: rounded(seconds),
            bytes: all.bytes,
            mb_s: rounded(all.bytes as f64 / 1e6 / seconds),
            operations,
            operations_s: rounded(operations as f64 / seconds),
            latencies: all.latencies.summary(),
            cpu_s: rounded(cpu.as_secs_f64()),
            errors: all.errors,
        };
        (throughput, all.commits)
    }
}
