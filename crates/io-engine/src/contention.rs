//! Whether holders contend for the pages of a file.
//!
//! After FAST '24: a file is contended once `conflicts_min` conflicts fall into a sliding window. A conflict is a write
//! that waited for the range of another one. The memory is constant: the conflicts of the window are counted in slots.

use std::time::{Duration, Instant};

use crate::mode::ContentionThresholds;

const SLOTS: usize = 8;

#[derive(Clone, Debug)]
pub struct Contention {
    conflicts_min: u32,
    conflicts: SlidingCount,
}

impl Contention {
    pub fn new(thresholds: ContentionThresholds) -> Contention {
        Contention {
            conflicts_min: thresholds.conflicts_min,
            conflicts: SlidingCount::new(thresholds.window),
        }
    }

    /// A write waited for a range that another holder had.
    pub fn record_wait(&mut self, now: Instant) {
        self.conflicts.add(now);
    }

    pub fn is_contended(&mut self, now: Instant) -> bool {
        self.conflicts.count(now) >= self.conflicts_min
    }
}

/// Events of a sliding window. It never counts an event older than the window, and it may forget one that is older than
/// the window less one slot.
#[derive(Clone, Debug)]
struct SlidingCount {
    slot: Duration,
    /// The beginning of slot 0: the time of the first event.
    epoch: Option<Instant>,
    newest: u64,
    counts: [u32; SLOTS],
}

impl SlidingCount {
    fn new(window: Duration) -> SlidingCount {
        // The newest slot is not over yet, so the slots together are never longer than the window.
        let slot = (window / SLOTS as u32).max(Duration::from_nanos(1));
        SlidingCount { slot, epoch: None, newest: 0, counts: [0; SLOTS] }
    }

    fn add(&mut self, now: Instant) {
        self.advance(now);
        let count = &mut self.counts[self.place(self.newest)];
        *count = count.saturating_add(1);
    }

    fn count(&mut self, now: Instant) -> u32 {
        self.advance(now);
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Times of several threads may come out of order: an earlier one counts as the latest.
    fn advance(&mut self, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        let slots = now.saturating_duration_since(epoch).as_nanos() / self.slot.as_nanos();
        let slot = u64::try_from(slots).unwrap_or(u64::MAX);
        if slot <= self.newest {
            return;
        }
        if slot - self.newest >= SLOTS as u64 {
            self.counts = [0; SLOTS];
        } else {
            for passed in self.newest + 1..=slot {
                self.counts[self.place(passed)] = 0;
            }
        }
        self.newest = slot;
    }

    fn place(&self, slot: u64) -> usize {
        (slot % SLOTS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn contention() -> Contention {
        Contention::new(ContentionThresholds::default())
    }

    #[test]
    fn sixteen_waits_in_four_seconds_make_a_file_contended_until_the_window_has_passed() {
        let (mut contention, start) = (contention(), Instant::now());
        let mut now = start;
        for _ in 0..15 {
            contention.record_wait(now);
            now += SECOND / 10;
            assert!(!contention.is_contended(now));
        }
        contention.record_wait(now);
        assert!(contention.is_contended(now));
        assert!(contention.is_contended(start + SECOND * 3));
        assert!(!contention.is_contended(start + SECOND * 6));
    }

    #[test]
    fn a_window_of_no_length_is_taken() {
        let now = Instant::now();
        let none = ContentionThresholds { conflicts_min: 1, window: Duration::ZERO };
        let mut contention = Contention::new(none);
        contention.record_wait(now);
        assert!(!contention.is_contended(now + SECOND));
    }

    proptest! {
        #[test]
        fn a_sliding_count_is_exact_save_for_its_oldest_slot(
            steps_ms in proptest::collection::vec(0_u64..1500, 0..200),
        ) {
            let window = Duration::from_secs(4);
            let start = Instant::now();
            let mut now = start;
            let mut events = Vec::new();
            let mut count = SlidingCount::new(window);
            for step in steps_ms {
                now += Duration::from_millis(step);
                count.add(now);
                events.push(now);
                let later = now + Duration::from_millis(step % 7 * 300);
                let younger_than = |age| events.iter().filter(|at| later - **at < age).count() as u32;
                let counted = count.clone().count(later);
                prop_assert!(counted <= younger_than(window));
                prop_assert!(counted >= younger_than(window - count.slot));
            }
        }
    }
}
