//! The delayed allocation of a pool, as `forebay pool iostat` shows it.

use pool::{Bypass, GatherReport};
use serde::{Deserialize, Serialize};
use types::display::Size;

use crate::output::counted;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// These six since the start, or in an interval. Writes that were kept in memory first.
    pub writes: u64,
    pub bytes: u64,
    /// Pieces of their files that they were merged into, and those of them without gaps.
    pub extents: u64,
    pub complete: u64,
    /// Tries to write one that failed.
    pub failed: u64,
    /// Writes out of order that found no memory.
    pub no_memory: u64,
    pub memory_bytes: u64,
}

impl Gathered {
    pub fn since(self, earlier: Gathered) -> Gathered {
        // Of a server that was started anew meanwhile.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Gathered {
            writes: since(self.writes, earlier.writes),
            bytes: since(self.bytes, earlier.bytes),
            extents: since(self.extents, earlier.extents),
            complete: since(self.complete, earlier.complete),
            failed: since(self.failed, earlier.failed),
            no_memory: since(self.no_memory, earlier.no_memory),
            memory_bytes: self.memory_bytes,
        }
    }

    /// Without a line end.
    pub fn line(&self) -> String {
        let (writes, extents) =
            (counted(self.writes, "write", "writes"), counted(self.extents, "extent", "extents"));
        let (complete, failed, no_memory) = (self.complete, self.failed, self.no_memory);
        let (written, memory) = (Size(self.bytes), Size(self.memory_bytes));
        format!(
            "{writes} ({written}) in {extents}, {complete} complete, {failed} failed; {no_memory} without memory; {memory} in \
             memory"
        )
    }
}

impl From<GatherReport> for Gathered {
    fn from(report: GatherReport) -> Gathered {
        let GatherReport { in_use, counts } = report;
        Gathered {
            writes: counts.gathered_writes,
            bytes: counts.gathered_bytes,
            extents: counts.flushed_extents,
            complete: counts.complete_extents,
            failed: counts.failed_flushes,
            no_memory: counts.bypassed_writes[Bypass::NoMemory as usize],
            memory_bytes: in_use.bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Gathered = Gathered {
        writes: 2230,
        bytes: 100 << 20,
        extents: 101,
        complete: 99,
        failed: 1,
        no_memory: 7,
        memory_bytes: 2 << 20,
    };

    #[test]
    fn the_line_has_all_counts() {
        let line = "2230 writes (100 MiB) in 101 extents, 99 complete, 1 failed; 7 without memory; 2.0 MiB in memory";
        assert_eq!(NOW.line(), line);
    }

    #[test]
    fn an_interval_has_the_differences_of_counts_and_the_present_memory() {
        let before = Gathered { writes: 2000, bytes: 90 << 20, extents: 100, memory_bytes: 9 << 20, ..NOW };
        let shown = NOW.since(before);
        assert_eq!((shown.writes, shown.bytes, shown.extents), (230, 10 << 20, 1));
        assert_eq!((shown.complete, shown.failed, shown.no_memory), (0, 0, 0));
        assert_eq!(shown.memory_bytes, 2 << 20);
        let restarted = Gathered {
            writes: 5,
            bytes: 6,
            extents: 4,
            complete: 3,
            failed: 0,
            no_memory: 2,
            memory_bytes: 1,
        };
        assert_eq!(restarted.since(NOW), restarted);
    }

    #[test]
    fn a_report_gives_each_count_its_place() {
        let mut counts = pool::GatherCounts {
            gathered_writes: 1,
            gathered_bytes: 2,
            flushed_extents: 3,
            complete_extents: 4,
            failed_flushes: 5,
            ..pool::GatherCounts::default()
        };
        counts.bypassed_writes[Bypass::NoMemory as usize] = 6;
        let in_use = pool::BudgetUse { bytes: 7, ..pool::BudgetUse::default() };
        let shown = Gathered::from(GatherReport { in_use, counts });
        let expected = Gathered {
            writes: 1,
            bytes: 2,
            extents: 3,
            complete: 4,
            failed: 5,
            no_memory: 6,
            memory_bytes: 7,
        };
        assert_eq!(shown, expected);
    }
}
