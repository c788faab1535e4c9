//! The series of the process itself, under the names that client libraries of Prometheus have agreed on.
//!
//! They are written here and not recorded: CPU time is a counter with a fraction, which the recorder does not have.

use std::fmt::Write;

use super::series::{Kind, SERIES};
use crate::instance::ProcessView;

const PREFIX: &str = "process_";

/// Whether a series is one of these.
pub(super) fn has(series: &str) -> bool {
    series.starts_with(PREFIX)
}

/// Without those that the system does not tell.
pub(super) fn text(process: &ProcessView) -> String {
    let whole = |number: Option<u64>| number.map(|number| number as f64);
    let values = [
        ("process_cpu_seconds_total", process.cpu_seconds),
        ("process_open_fds", whole(process.open_fds)),
        ("process_max_fds", whole(process.max_fds)),
        ("process_resident_memory_bytes", whole(process.resident_bytes)),
        ("process_virtual_memory_bytes", whole(process.virtual_bytes)),
        ("process_threads", whole(process.threads)),
        ("process_start_time_seconds", process.start_seconds),
    ];
    let mut out = String::new();
    for series in SERIES.iter().filter(|series| has(series.name)) {
        let value = values.iter().find(|(name, _)| *name == series.name).and_then(|(_, value)| *value);
        let Some(value) = value else { continue };
        let kind = if series.kind == Kind::Counter { "counter" } else { "gauge" };
        let (name, help) = (series.name, series.help);
        // Writing to a String never fails.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    out
}
