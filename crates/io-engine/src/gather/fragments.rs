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

    /// `removed` lies within a range, so that its removal makes two of one.
    pub fn is_split_by(&self, removed: &Range<usize>) -> bool {
        let overlapping = &self.ranges[self.overlapping(removed)];
        matches!(overlapping, [sole] if sole.start < removed.start && removed.end < sole.end)
    }

    pub fn remove(&mut self, removed: Range<usize>) {
        let overlapping = self.overlapping(&removed);
        let [first, last] = match &self.ranges[overlapping.clone()] {
            [] => return,
            [sole] => [sole.clone(), sole.clone()],
            [first, .., last] => [first.clone(), last.clone()],
        };
        let kept = [first.start..removed.start, removed.end..last.end];
        self.ranges.splice(overlapping, kept.into_iter().filter(|kept| !kept.is_empty()));
    }

    /// The positions of the ranges that have bytes of `range`.
    fn overlapping(&self, range: &Range<usize>) -> Range<usize> {
        let first = self.ranges.partition_point(|it| it.end <= range.start);
        let behind = self.ranges.partition_point(|it| it.start < range.end);
        first..if range.is_empty() { first } else { behind }
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
            steps in prop::collection::vec((0..4, range()), 0..40),
            look in range(),
        ) {
            let mut fragments = Fragments::default();
            let mut model = [false; BYTES];
            for (step, range) in steps {
                if step < 2 {
                    let expected = fragments.len_with(&range);
                    fragments.insert(range.clone());
                    prop_assert_eq!(fragments.len(), expected);
                    model[range].fill(true);
                } else if step == 2 {
                    let expected = fragments.len() + usize::from(fragments.is_split_by(&range));
                    fragments.remove(range.clone());
                    prop_assert!(fragments.len() <= expected);
                    model[range].fill(false);
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
