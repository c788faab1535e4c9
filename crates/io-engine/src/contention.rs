//! Whether holders contend for the pages of a file.
//!
//! After FAST '24: a file is contended once `conflicts_min` conflicts fall into a sliding window. A conflict is a write
//! to pages that another holder wrote lately, or a request that waited for the range of another holder. A read after a
//! write of another holder is none, unless it waited: the page cache serves it best.
//!
//! The memory is constant: the last few writes, and the conflicts of the window counted in slots. Deliberately absent:
//! a lock. A file keeps this beside its range locks and changes it under the same one.

use std::time::{Duration, Instant};

use types::ByteRange;

use crate::mode::ContentionThresholds;

const PAGE_BYTES: u64 = 4096;
/// Writes that a new one is compared with.
const RECENT_LEN: usize = 8;
const SLOTS: usize = 8;

/// A client or an open of it: two requests of one holder do not conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(pub u64);

#[derive(Clone, Debug)]
pub struct Contention {
    conflicts_min: u32,
    window: Duration,
    conflicts: SlidingCount,
    recent: [Option<RecentWrite>; RECENT_LEN],
    /// The place of the oldest of `recent`.
    oldest: usize,
}

#[derive(Clone, Copy, Debug)]
struct RecentWrite {
    holder: Holder,
    range: ByteRange,
    at: Instant,
}

impl Contention {
    pub fn new(thresholds: ContentionThresholds) -> Contention {
        Contention {
            conflicts_min: thresholds.conflicts_min,
            window: thresholds.window,
            conflicts: SlidingCount::new(thresholds.window),
            recent: [None; RECENT_LEN],
            oldest: 0,
        }
    }

    /// Takes note of a write. `true`: it conflicts with a recent one.
    pub fn record_write(&mut self, holder: Holder, range: ByteRange, now: Instant) -> bool {
        let range = from_page_start(range);
        let is_conflict = self.recent.iter().flatten().any(|write| {
            write.holder != holder
                && write.range.overlaps(range)
                && now.saturating_duration_since(write.at) < self.window
        });
        if is_conflict {
            self.conflicts.add(now);
        }
        self.recent[self.oldest] = Some(RecentWrite { holder, range, at: now });
        self.oldest = (self.oldest + 1) % RECENT_LEN;
        is_conflict
    }

    /// A request, a read or a write, waited for a range that another holder had.
    pub fn record_wait(&mut self, now: Instant) {
        self.conflicts.add(now);
    }

    pub fn is_contended(&mut self, now: Instant) -> bool {
        self.conflicts.count(now) >= self.conflicts_min
    }
}

/// The range from the start of its first page. Two of these overlap if and only if the ranges share a page.
fn from_page_start(range: ByteRange) -> ByteRange {
    let start = range.offset() - range.offset() % PAGE_BYTES;
    ByteRange::from_bounds(start, range.end()).expect("the start moves away from the end")
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

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).unwrap()
    }

    #[test]
    fn sixteen_conflicts_in_four_seconds_make_a_file_contended_until_the_window_has_passed() {
        let (mut contention, start) = (contention(), Instant::now());
        let mut now = start;
        // The first write conflicts with none.
        for turn in 0..16 {
            assert_eq!(contention.record_write(Holder(turn % 2), range(100, 10), now), turn > 0);
            now += SECOND / 10;
            assert!(!contention.is_contended(now));
        }
        contention.record_write(Holder(0), range(0, 1), now);
        assert!(contention.is_contended(now));
        assert!(contention.is_contended(start + SECOND * 3));
        assert!(!contention.is_contended(start + SECOND * 6));
        assert!(
            !contention.record_write(Holder(1), range(0, 1), start + SECOND * 6),
            "these are too long ago"
        );
    }

    #[test]
    fn one_holder_does_not_conflict_with_itself() {
        let (mut contention, now) = (contention(), Instant::now());
        for _ in 0..100 {
            assert!(!contention.record_write(Holder(1), range(0, 1 << 20), now));
        }
        assert!(!contention.is_contended(now));
    }

    #[test]
    fn holders_of_apart_pages_do_not_conflict_and_those_of_a_shared_page_do() {
        let (mut contention, now) = (contention(), Instant::now());
        for turn in 0..100 {
            assert!(!contention.record_write(Holder(turn), range(turn * PAGE_BYTES, PAGE_BYTES), now));
        }
        assert!(!contention.is_contended(now));
        // IOR-hard: records of 47,008 bytes, one rank after the other.
        for turn in 0..17 {
            contention.record_write(Holder(turn), range((1 << 30) + turn * 47_008, 47_008), now);
        }
        assert!(contention.is_contended(now));
    }

    #[test]
    fn waits_for_ranges_count_as_conflicts() {
        let (mut contention, now) = (contention(), Instant::now());
        for _ in 0..15 {
            contention.record_wait(now);
        }
        assert!(!contention.is_contended(now));
        contention.record_wait(now);
        assert!(contention.is_contended(now));
    }

    #[test]
    fn ranges_at_the_end_of_all_offsets_and_windows_of_no_length_are_taken() {
        let now = Instant::now();
        let none = ContentionThresholds { conflicts_min: 1, window: Duration::ZERO };
        let mut contention = Contention::new(none);
        for holder in 0..3 {
            contention.record_write(Holder(holder), range(u64::MAX - 5, u64::MAX), now);
            contention.record_write(Holder(holder), ByteRange::ALL, now + SECOND);
        }
        assert!(!contention.is_contended(now + SECOND * 2));
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
