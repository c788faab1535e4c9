//! The bytes of one extent that are present, as ranges.
//!
//! Invariant: the ranges are not empty, sorted, and neither overlap nor touch. So their number says how many separate
//! writes the extent costs, and an extent without gaps is one range.

use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    ranges: Vec<Range<usize>>,
}

impl Fragments {
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    /// The end of the last range; 0 if there is none.
    pub fn end(&self) -> usize {
        self.ranges.last().map_or(0, |last| last.end)
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.iter().cloned()
    }

    /// The present parts of `within`.
    pub fn within(&self, within: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let first = self.ranges.partition_point(|range| range.end <= within.start);
        self.ranges[first..]
            .iter()
            .take_while(move |range| range.start < within.end)
            .map(move |range| range.start.max(within.start)..range.end.min(within.end))
    }

    pub fn overlap(&self, range: Range<usize>) -> bool {
        self.within(range).next().is_some()
    }

    /// How many ranges there are after `insert`.
    pub fn len_with(&self, added: &Range<usize>) -> usize {
        self.ranges.len() + 1 - self.touching(added).len()
    }

    pub fn insert(&mut self, added: Range<usize>) {
        let touching = self.touching(&added);
        let old = &self.ranges[touching.clone()];
        let start = old.first().map_or(added.start, |first| first.start.min(added.start));
        let end = old.last().map_or(added.end, |last| last.end.max(added.end));
        self.ranges.splice(touching, std::iter::once(start..end));
    }

    /// Removes all bytes from `end` on.
    pub fn cut(&mut self, end: usize) {
        let kept = self.ranges.partition_point(|range| range.start < end);
        self.ranges.truncate(kept);
        if let Some(last) = self.ranges.last_mut() {
            last.end = last.end.min(end);
        }
    }

    /// The positions of the ranges that overlap or touch `added`.
    fn touching(&self, added: &Range<usize>) -> Range<usize> {
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let behind = self.ranges.partition_point(|range| range.start <= added.end);
        first..behind
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 40;

    fn fragments(ranges: &[Range<usize>]) -> Fragments {
        let mut fragments = Fragments::default();
        for range in ranges {
            fragments.insert(range.clone());
        }
        fragments
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let joined = fragments(&[0..4, 8..12, 4..8]);
        assert!(joined.iter().eq(std::iter::once(0..12)));
    }

    fn range() -> impl Strategy<Value = Range<usize>> {
        (0..BYTES, 1..10_usize).prop_map(|(start, len)| start..(start + len).min(BYTES))
    }

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_of_bytes_holds(
            steps in prop::collection::vec((any::<bool>(), range()), 0..40),
            look in range(),
        ) {
            let mut fragments = Fragments::default();
            let mut model = [false; BYTES];
            for (add, range) in steps {
                if add {
                    let expected = fragments.len_with(&range);
                    fragments.insert(range.clone());
                    prop_assert_eq!(fragments.len(), expected);
                    model[range].fill(true);
                } else {
                    fragments.cut(range.start);
                    model[range.start..].fill(false);
                }
                let mut held = [false; BYTES];
                let mut end = None;
                for range in fragments.iter() {
                    prop_assert!(range.start < range.end && end.is_none_or(|end| end < range.start));
                    end = Some(range.end);
                    held[range].fill(true);
                }
                prop_assert_eq!(held, model);
                prop_assert_eq!(fragments.end(), end.unwrap_or(0));
                prop_assert_eq!(fragments.bytes(), model.iter().filter(|byte| **byte).count());
            }
            let mut seen = [false; BYTES];
            for range in fragments.within(look.clone()) {
                seen[range].fill(true);
            }
            for at in 0..BYTES {
                prop_assert_eq!(seen[at], model[at] && look.contains(&at));
            }
            prop_assert_eq!(fragments.overlap(look.clone()), model[look].contains(&true));
        }
    }
}
