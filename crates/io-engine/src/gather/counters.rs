//! Counts of gathering, of all files of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

use super::verdict::Bypass;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherCounts {
    pub gathered_writes: u64,
    pub gathered_bytes: u64,
    /// Extents handed out to be written, also those that are tried again.
    pub flushed_extents: u64,
    /// Of these, extents without gaps.
    pub complete_extents: u64,
    /// Separate ranges of the flushed extents: each is a write to the file.
    pub flushed_pieces: u64,
    pub failed_flushes: u64,
    /// Gathered bytes that were never written, because the file was cut.
    pub discarded_bytes: u64,
    /// In the order of `Bypass::ALL`.
    pub bypassed_writes: [u64; Bypass::ALL.len()],
}

#[derive(Default)]
pub(super) struct Counters {
    gathered_writes: AtomicU64,
    gathered_bytes: AtomicU64,
    flushed_extents: AtomicU64,
    complete_extents: AtomicU64,
    flushed_pieces: AtomicU64,
    failed_flushes: AtomicU64,
    discarded_bytes: AtomicU64,
    bypassed_writes: [AtomicU64; Bypass::ALL.len()],
}

impl Counters {
    pub fn note_gathered(&self, bytes: usize) {
        add(&self.gathered_writes, 1);
        add(&self.gathered_bytes, bytes as u64);
    }

    pub fn note_bypassed(&self, reason: Bypass) {
        add(&self.bypassed_writes[reason as usize], 1);
    }

    pub fn note_flushed(&self, pieces: usize, is_complete: bool) {
        add(&self.flushed_extents, 1);
        add(&self.complete_extents, u64::from(is_complete));
        add(&self.flushed_pieces, pieces as u64);
    }

    pub fn note_failed(&self) {
        add(&self.failed_flushes, 1);
    }

    pub fn note_discarded(&self, bytes: u64) {
        add(&self.discarded_bytes, bytes);
    }

    /// Not one moment: writes that go on meanwhile may be in some of the counts only.
    pub fn snapshot(&self) -> GatherCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GatherCounts {
            gathered_writes: load(&self.gathered_writes),
            gathered_bytes: load(&self.gathered_bytes),
            flushed_extents: load(&self.flushed_extents),
            complete_extents: load(&self.complete_extents),
            flushed_pieces: load(&self.flushed_pieces),
            failed_flushes: load(&self.failed_flushes),
            discarded_bytes: load(&self.discarded_bytes),
            bypassed_writes: std::array::from_fn(|reason| load(&self.bypassed_writes[reason])),
        }
    }
}

fn add(count: &AtomicU64, amount: u64) {
    count.fetch_add(amount, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_to_bypass_has_a_count_and_a_label_of_its_own() {
        let counters = Counters::default();
        for (position, reason) in Bypass::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, position);
            counters.note_bypassed(reason);
        }
        assert_eq!(counters.snapshot().bypassed_writes, [1; Bypass::ALL.len()]);
        let labels: std::collections::BTreeSet<_> = Bypass::ALL.map(Bypass::label).into();
        assert_eq!(labels.len(), Bypass::ALL.len());
    }
}
