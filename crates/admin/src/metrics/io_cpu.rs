//! The CPU time of the pools.
//!
//! It is written here and not recorded: a counter with a fraction, which the recorder does not have.

use std::fmt::{Display, Write};

use super::series::SERIES;
use crate::instance::{IoCpuView, IoLaneView, Snapshot};

const OF_REQUESTS: &str = "forebay_io_cpu_seconds_total";
const OF_THREADS: &str = "forebay_io_thread_cpu_seconds_total";

/// Whether a series is one of these.
pub(super) fn has(series: &str) -> bool {
    [OF_REQUESTS, OF_THREADS].contains(&series)
}

pub(super) fn text(snapshot: &Snapshot) -> String {
    let requests = snapshot.io_cpu.iter().map(|IoCpuView { direction, mode, cpu_s, .. }| {
        (format!("direction=\"{direction}\",mode=\"{mode}\""), *cpu_s)
    });
    let threads = snapshot
        .io_lanes
        .iter()
        .map(|IoLaneView { pool, lane, cpu_s, .. }| (format!("lane=\"{lane}\",pool=\"{pool}\""), *cpu_s));
    block(OF_REQUESTS, requests) + &block(OF_THREADS, threads)
}

/// Nothing without values.
fn block(name: &str, values: impl Iterator<Item = (impl Display, f64)>) -> String {
    let mut out = String::new();
    for (labels, value) in values {
        if out.is_empty() {
            let help = SERIES.iter().find(|series| series.name == name).map_or("", |series| series.help);
            // Writing to a String never fails.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        }
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}
