//! Decisions counted by kind, mode and reason, and the residency of reads, for `iostat` and the metrics.
//!
//! Counters only grow. They are read for status only, so the order between them does not matter: a snapshot that is
//! taken while requests run may have the operation and not yet the bytes of one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::mode::{Decision, Kind, Mode, Reason, Residency};

const CELLS: usize = Kind::ALL.len() * Mode::ALL.len() * Reason::ALL.len();

/// The counts of one pool since it was opened.
pub struct DecisionCounts([Cell; CELLS]);

#[derive(Default)]
struct Cell {
    operations: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub operations: u64,
    pub bytes: u64,
}

/// The counts of one pool at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionSnapshot([Count; CELLS]);

/// The count of the requests of one kind that got one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    pub kind: Kind,
    pub decision: Decision,
    pub count: Count,
}

/// Bytes of reads by whether they were in memory when they were asked for. Reads that the page cache served whole are not
/// in it: the decisions have them.
#[derive(Default)]
pub(crate) struct ResidencyCounts {
    resident: AtomicU64,
    missing: AtomicU64,
    unknown: AtomicU64,
    /// Bytes of these reads that the decisions have like those that the page cache served whole.
    as_hot: AtomicU64,
}

/// Of all reads of one pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidencyBytes {
    pub resident: u64,
    pub missing: u64,
    /// Nobody looked: the kernel or the file system does not tell, or a door sent them by itself.
    pub unknown: u64,
}

impl ResidencyCounts {
    /// Of a read of so many bytes.
    pub fn add(&self, residency: Residency, bytes: u64, is_as_hot: bool) {
        if is_as_hot {
            self.as_hot.fetch_add(bytes, Relaxed);
        }
        let resident = match residency {
            Residency::Unknown => {
                self.unknown.fetch_add(bytes, Relaxed);
                return;
            }
            Residency::None => 0,
            // In whole pages, which may be more than was read.
            Residency::Part { resident_bytes } => resident_bytes.min(bytes),
            Residency::All => bytes,
        };
        self.resident.fetch_add(resident, Relaxed);
        self.missing.fetch_add(bytes - resident, Relaxed);
    }

    /// With the bytes of all reads that the decisions have as hot.
    pub fn snapshot(&self, hot: u64) -> ResidencyBytes {
        let served_whole = hot.saturating_sub(self.as_hot.load(Relaxed));
        ResidencyBytes {
            resident: self.resident.load(Relaxed) + served_whole,
            missing: self.missing.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
        }
    }
}

/// Of a table with a cell for each kind and mode.
pub(crate) const MODE_CELLS: usize = Kind::ALL.len() * Mode::ALL.len();

/// The counts of one file since it was opened, by kind and by the mode that ran.
#[derive(Default)]
pub struct ModeCounts([Cell; MODE_CELLS]);

impl ModeCounts {
    pub fn add(&self, kind: Kind, mode: Mode, bytes: u64) {
        let cell = &self.0[place_of_mode(kind, mode)];
        cell.operations.fetch_add(1, Relaxed);
        cell.bytes.fetch_add(bytes, Relaxed);
    }

    /// As `add`, but of two requests at the same moment one may be lost: two exact additions cost a read from the page
    /// cache 10 ns of 330.
    pub fn add_roughly(&self, kind: Kind, mode: Mode, bytes: u64) {
        let cell = &self.0[place_of_mode(kind, mode)];
        cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
        cell.bytes.store(cell.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
    }

    pub fn count(&self, kind: Kind, mode: Mode) -> Count {
        let cell = &self.0[place_of_mode(kind, mode)];
        Count { operations: cell.operations.load(Relaxed), bytes: cell.bytes.load(Relaxed) }
    }

    /// Read and written.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, cell| sum.saturating_add(cell.bytes.load(Relaxed)))
    }
}

impl DecisionCounts {
    /// `decision.mode` is the mode that ran, where that is another one than was chosen.
    pub fn add(&self, kind: Kind, decision: Decision, bytes: u64) {
        let cell = &self.0[place(kind, decision)];
        cell.operations.fetch_add(1, Relaxed);
        cell.bytes.fetch_add(bytes, Relaxed);
    }

    pub fn operations(&self, kind: Kind, decision: Decision) -> u64 {
        self.0[place(kind, decision)].operations.load(Relaxed)
    }

    pub fn snapshot(&self) -> DecisionSnapshot {
        DecisionSnapshot(std::array::from_fn(|at| Count {
            operations: self.0[at].operations.load(Relaxed),
            bytes: self.0[at].bytes.load(Relaxed),
        }))
    }
}

impl Default for DecisionCounts {
    fn default() -> DecisionCounts {
        DecisionCounts(std::array::from_fn(|_| Cell::default()))
    }
}

impl DecisionSnapshot {
    pub fn count(&self, kind: Kind, decision: Decision) -> Count {
        self.0[place(kind, decision)]
    }

    /// The decisions that were taken at least once, ordered by kind, mode and reason.
    pub fn iter(&self) -> impl Iterator<Item = DecisionCount> {
        let decisions = Kind::ALL.into_iter().flat_map(|kind| {
            Mode::ALL.into_iter().flat_map(move |mode| {
                Reason::ALL.into_iter().map(move |reason| (kind, Decision { mode, reason }))
            })
        });
        decisions
            .map(|(kind, decision)| DecisionCount { kind, decision, count: self.count(kind, decision) })
            .filter(|found| found.count.operations > 0)
    }
}

fn place(kind: Kind, decision: Decision) -> usize {
    let row = kind as usize * Mode::ALL.len() + decision.mode as usize;
    row * Reason::ALL.len() + decision.reason as usize
}

pub(crate) fn place_of_mode(kind: Kind, mode: Mode) -> usize {
    kind as usize * Mode::ALL.len() + mode as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HOT: Decision = Decision { mode: Mode::Buffered, reason: Reason::HotRead };
    const LARGE: Decision = Decision { mode: Mode::Direct, reason: Reason::LargeWrite };

    fn all() -> Vec<(Kind, Decision)> {
        let decisions =
            Mode::ALL.into_iter().flat_map(|mode| Reason::ALL.map(|reason| Decision { mode, reason }));
        decisions.flat_map(|decision| Kind::ALL.map(|kind| (kind, decision))).collect()
    }

    #[test]
    fn each_kind_mode_and_reason_has_a_place_of_its_own() {
        let places: BTreeSet<usize> =
            all().into_iter().map(|(kind, decision)| place(kind, decision)).collect();
        assert_eq!(places.len(), CELLS);
        assert_eq!(places.last(), Some(&(CELLS - 1)));
    }

    #[test]
    fn operations_and_bytes_are_counted_where_they_belong() {
        let counts = DecisionCounts::default();
        counts.add(Kind::Read, HOT, 10);
        counts.add(Kind::Read, HOT, 20);
        counts.add(Kind::Write, LARGE, 1 << 20);
        let snapshot = counts.snapshot();
        let found: Vec<_> = snapshot.iter().map(|found| (found.kind, found.decision, found.count)).collect();
        let expected = [
            (Kind::Read, HOT, Count { operations: 2, bytes: 30 }),
            (Kind::Write, LARGE, Count { operations: 1, bytes: 1 << 20 }),
        ];
        assert_eq!(found, expected);
        assert_eq!(snapshot.count(Kind::Write, HOT), Count::default());
    }

    #[test]
    fn the_order_is_that_of_kind_mode_and_reason() {
        let counts = DecisionCounts::default();
        for (kind, decision) in all().into_iter().rev() {
            counts.add(kind, decision, 1);
        }
        let snapshot = counts.snapshot();
        let order = snapshot.iter().map(|found| (found.kind, found.decision.mode, found.decision.reason));
        assert!(order.is_sorted());
        assert_eq!(snapshot.iter().count(), CELLS);
    }

    #[test]
    fn each_kind_and_mode_of_a_file_is_counted_by_itself() {
        let counts = ModeCounts::default();
        let all: Vec<_> = Kind::ALL.iter().flat_map(|kind| Mode::ALL.map(|mode| (*kind, mode))).collect();
        for (at, (kind, mode)) in all.iter().enumerate() {
            (0..at).for_each(|_| counts.add(*kind, *mode, 10));
            counts.add_roughly(*kind, *mode, 10);
        }
        for (at, (kind, mode)) in all.iter().enumerate() {
            let operations = at as u64 + 1;
            assert_eq!(counts.count(*kind, *mode), Count { operations, bytes: 10 * operations });
        }
        assert_eq!(counts.bytes(), 210);
    }

    #[test]
    fn a_read_counts_as_resident_as_far_as_its_pages_were_in_memory() {
        let counts = ResidencyCounts::default();
        counts.add(Residency::All, 10, false);
        counts.add(Residency::None, 200, false);
        counts.add(Residency::Part { resident_bytes: 4096 }, 10_000, true);
        counts.add(Residency::Part { resident_bytes: 8192 }, 5000, false);
        counts.add(Residency::Unknown, 7, false);
        let expected = ResidencyBytes { resident: 10 + 4096 + 5000 + 300, missing: 200 + 5904, unknown: 7 };
        assert_eq!(counts.snapshot(10_300), expected);
    }

    #[test]
    fn threads_lose_no_count() {
        let counts = DecisionCounts::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counts.add(Kind::Read, HOT, 3)));
            }
        });
        assert_eq!(counts.snapshot().count(Kind::Read, HOT), Count { operations: 4000, bytes: 12_000 });
    }
}
