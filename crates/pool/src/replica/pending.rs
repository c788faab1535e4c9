//! Changes past the journal that are not stable: which bytes, as long as these are few small writes.
//!
//! Changes are counted, and each range has the number of the newest change in it. Absent are the ranges that a COMMIT has
//! taken, whose records are on their way.

use types::ByteRange;

/// More of them are many: the file is synced.
const RANGES_MAX: usize = if cfg!(test) { 4 } else { 16 };

#[derive(Default)]
pub struct Pending {
    /// Apart from each other.
    ranges: Vec<(ByteRange, u64)>,
    /// The newest change that is in no range.
    many: u64,
}

impl Pending {
    /// A write of this range, in the page cache. `bytes_max`: of all ranges together.
    pub fn add(&mut self, mut range: ByteRange, number: u64, bytes_max: u64) {
        let touches = |a: ByteRange, b: ByteRange| a.offset() <= b.end() && b.offset() <= a.end();
        self.ranges.retain(|(other, _)| {
            let is_apart = !touches(range, *other);
            if !is_apart {
                let (offset, end) = (range.offset().min(other.offset()), range.end().max(other.end()));
                range = ByteRange::from_bounds(offset, end).expect("it has the bytes of both");
            }
            is_apart
        });
        self.ranges.push((range, number));
        if self.ranges.len() > RANGES_MAX || self.bytes() > bytes_max {
            self.add_many(number);
        }
    }

    /// Any other change.
    pub fn add_many(&mut self, number: u64) {
        self.many = number;
        self.ranges = Vec::new();
    }

    /// Changes up to this one are stable.
    pub fn forget(&mut self, stable: u64) {
        self.ranges.retain(|(_, newest)| *newest > stable);
    }

    /// Whether the ranges are all that is not stable.
    pub fn are_few(&self, stable: u64) -> bool {
        self.many <= stable
    }

    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(range, _)| range.length()).sum()
    }

    pub fn take(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.ranges).into_iter().map(|(range, _)| range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).unwrap()
    }

    #[test]
    fn writes_that_touch_are_one_range() {
        let mut pending = Pending::default();
        for (number, (offset, length)) in [(10, 5), (30, 5), (0, 5), (15, 5), (4, 7)].into_iter().enumerate()
        {
            pending.add(range(offset, length), number as u64 + 1, 100);
        }
        assert_eq!(pending.bytes(), 25);
        assert!(pending.are_few(0));
        pending.forget(4);
        assert_eq!(pending.bytes(), 20, "the first is of the fifth write too");
        assert_eq!(pending.take(), [range(0, 20)]);
        assert_eq!(pending.bytes(), 0);
    }

    #[test]
    fn too_many_bytes_or_ranges_are_many_until_all_is_stable() {
        let mut pending = Pending::default();
        pending.add(range(0, 60), 1, 100);
        pending.add(range(200, 41), 2, 100);
        assert!(!pending.are_few(1) && pending.bytes() == 0);
        pending.add(range(500, 1), 3, 100);
        assert!(!pending.are_few(1) && pending.are_few(2));
        let mut pending = Pending::default();
        for number in 1..=RANGES_MAX as u64 {
            pending.add(range(number * 10, 1), number, 100);
        }
        assert!(pending.are_few(0));
        pending.add(range(0, 1), 17, 100);
        assert!(!pending.are_few(16) && pending.are_few(17));
    }
}
