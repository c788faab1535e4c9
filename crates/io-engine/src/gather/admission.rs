//! Whether a file's writes are worth gathering: the rule, apart from the bytes.
//!
//! 1. Writes in the order of their offsets bypass. The page cache merges them, and its allocation is delayed already. A
//!    file gathers while at least two of its last eight small writes did not begin where the write before them ended:
//!    strided writers of one file, whose records arrive in any order.
//! 2. Gathering must pay. A flush has paid if the writes of its extents were merged into at most half as many ranges;
//!    random writes do not pay. A file may hold as many open extents as it has earned: eight at first, two more for each
//!    extent of a flush that has paid, half as many after each flush that has not. A file that has earned none may try one
//!    more after a number of writes.
//!
//! A write that falls into open extents only is gathered in any case; it costs no further extent.

use super::limits::GatherLimits;

/// A small write that did not follow its predecessor, per bit; the latest is the lowest bit.
type Disorder = u8;

const DISORDERED_WRITES_MIN: u32 = 2;
const EARNED_EXTENTS_FIRST: usize = 8;
const EARNED_EXTENTS_STEP: usize = 2;
const MERGED_WRITES_MIN: usize = 2;

#[derive(Clone, Debug)]
pub struct Admission {
    /// End of the last write; none before the first.
    last_end: Option<u64>,
    disorder: Disorder,
    earned_extents: usize,
    /// Writes since the file has lost its last extent.
    waited_writes: u32,
}

/// Extents that are flushed at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flushed {
    pub extents: usize,
    /// Writes that were gathered in them.
    pub writes: usize,
    /// Writes to the file that they cost.
    pub fragments: usize,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { last_end: None, disorder: 0, earned_extents: EARNED_EXTENTS_FIRST, waited_writes: 0 }
    }
}

impl Admission {
    /// Every write is noted, gathered or not. Before it is judged.
    pub fn note_write(&mut self, offset: u64, end: u64, limits: &GatherLimits) {
        let follows = self.last_end.is_none_or(|last_end| last_end == offset);
        self.last_end = Some(end);
        if end - offset < limits.write_bytes_max as u64 {
            self.disorder = (self.disorder << 1) | Disorder::from(!follows);
        }
        if self.earned_extents == 0 {
            self.waited_writes += 1;
            if self.waited_writes >= limits.trial_writes {
                (self.earned_extents, self.waited_writes) = (1, 0);
            }
        }
    }

    pub fn is_disordered(&self) -> bool {
        self.disorder.count_ones() >= DISORDERED_WRITES_MIN
    }

    /// How many extents the file may have open.
    pub fn earned_extents(&self) -> usize {
        self.earned_extents
    }

    /// Extents that are flushed together count as one: a COMMIT takes extents that had no time to be filled, and says
    /// little of each.
    pub fn note_flush(&mut self, flushed: Flushed, limits: &GatherLimits) {
        if flushed.extents == 0 {
            return;
        }
        if flushed.writes >= MERGED_WRITES_MIN * flushed.fragments {
            let earned = self.earned_extents + EARNED_EXTENTS_STEP * flushed.extents;
            self.earned_extents = earned.min(limits.file_extents_max);
        } else {
            self.earned_extents /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> GatherLimits {
        GatherLimits::for_memory(128 << 20)
    }

    #[test]
    fn writes_in_order_are_not_disordered_and_two_jumps_are() {
        let mut admission = Admission::default();
        for at in 0..20 {
            admission.note_write(at * 10, at * 10 + 10, &limits());
            assert!(!admission.is_disordered());
        }
        admission.note_write(1000, 1010, &limits());
        assert!(!admission.is_disordered(), "one jump is a new stream");
        admission.note_write(500, 510, &limits());
        assert!(admission.is_disordered());
        for at in 51..59 {
            admission.note_write(at * 10, at * 10 + 10, &limits());
        }
        assert!(!admission.is_disordered(), "old jumps are forgotten");
    }

    #[test]
    fn extents_that_do_not_pay_take_the_right_to_open_more() {
        let mut admission = Admission::default();
        admission.note_flush(Flushed::default(), &limits());
        for expected in [4, 2, 1, 0, 0] {
            admission.note_flush(Flushed { extents: 1, writes: 1, fragments: 1 }, &limits());
            assert_eq!(admission.earned_extents(), expected);
        }
        for write in 1..=limits().trial_writes {
            assert_eq!(admission.earned_extents(), 0, "write {write}");
            admission.note_write(0, 1, &limits());
        }
        assert_eq!(admission.earned_extents(), 1, "a trial");
        admission.note_flush(Flushed { extents: 1, writes: 22, fragments: 1 }, &limits());
        assert_eq!(admission.earned_extents(), 3);
        for _ in 0..100 {
            admission.note_flush(Flushed { extents: 1, writes: 22, fragments: 1 }, &limits());
        }
        assert_eq!(admission.earned_extents(), 64, "at most the limit");
    }
}
