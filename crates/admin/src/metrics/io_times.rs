//! The histogram of reads and writes at the pools.
//!
//! It is written here and not recorded: the pools count their buckets themselves.

use std::fmt::Write;

use super::IO_SECONDS;
use super::series::SERIES;
use crate::instance::IoTimesView;

/// Nothing, before the first read or write.
pub(super) fn text(all: &[IoTimesView]) -> String {
    let mut out = String::new();
    if all.is_empty() {
        return out;
    }
    let help = SERIES.iter().find(|series| series.name == IO_SECONDS).map_or("", |series| series.help);
    // Writing to a String never fails.
    let _ = writeln!(out, "# HELP {IO_SECONDS} {help}\n# TYPE {IO_SECONDS} histogram");
    for IoTimesView { direction, mode, up_to, count, sum_s, .. } in all {
        let labels = format!("direction=\"{direction}\",mode=\"{mode}\"");
        for (end, count) in up_to {
            let _ = writeln!(out, "{IO_SECONDS}_bucket{{{labels},le=\"{end}\"}} {count}");
        }
        let _ = writeln!(out, "{IO_SECONDS}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{IO_SECONDS}_sum{{{labels}}} {sum_s}");
        let _ = writeln!(out, "{IO_SECONDS}_count{{{labels}}} {count}");
    }
    out.push('\n');
    out
}
