//! The ranges of one stream that were asked for and not read yet.
//!
//! Invariant: at most [`Advised::SPANS_MAX`] spans, none of them empty. The methods return the bytes that leave: used
//! ones or wasted ones.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use types::ByteRange;

#[derive(Clone, Copy, Debug)]
struct Span {
    range: ByteRange,
    since: Instant,
}

/// In the order of their times.
#[derive(Debug, Default)]
pub struct Advised {
    spans: VecDeque<Span>,
}

impl Advised {
    pub const SPANS_MAX: usize = 32;

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.range.length()).sum()
    }

    pub fn overlaps(&self, range: ByteRange) -> bool {
        self.spans.iter().any(|span| span.range.overlaps(range))
    }

    /// Needs room for a span.
    pub fn push(&mut self, range: ByteRange, now: Instant) {
        assert!(self.spans.len() < Advised::SPANS_MAX, "spans are bounded");
        self.spans.push_back(Span { range, since: now });
    }

    /// Returns the bytes that `read` has in common with the spans. A span that is read in its middle leaves two; without
    /// room for both, the part behind the read counts as read, too.
    pub fn take(&mut self, read: ByteRange) -> u64 {
        let mut taken = 0;
        for at in (0..self.spans.len()).rev() {
            let span = self.spans[at];
            if !span.range.overlaps(read) {
                continue;
            }
            let left = ByteRange::from_bounds(span.range.offset(), read.offset());
            let right = ByteRange::from_bounds(read.end(), span.range.end());
            let has_room = left.is_none() || self.spans.len() < Advised::SPANS_MAX;
            let kept = [left, right.filter(|_| has_room)];
            taken += span.range.length();
            self.spans.remove(at);
            for range in kept.into_iter().rev().flatten() {
                self.spans.insert(at, Span { range, since: span.since });
                taken -= range.length();
            }
        }
        taken
    }

    /// Returns the bytes of the spans that go.
    pub fn drop_if(&mut self, is_passed: impl Fn(ByteRange) -> bool) -> u64 {
        let before = self.bytes();
        self.spans.retain(|span| !is_passed(span.range));
        before - self.bytes()
    }

    /// Returns the bytes of the spans that go.
    pub fn drop_old(&mut self, now: Instant, age_max: Duration) -> u64 {
        let is_old = |span: &&Span| now.saturating_duration_since(span.since) >= age_max;
        let mut bytes = 0;
        while let Some(old) = self.spans.front().filter(is_old) {
            bytes += old.range.length();
            self.spans.pop_front();
        }
        bytes
    }

    pub fn clear(&mut self) -> u64 {
        let bytes = self.bytes();
        self.spans.clear();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).unwrap()
    }

    #[test]
    fn a_span_that_is_read_in_its_middle_leaves_two_if_there_is_room() {
        let now = Instant::now();
        let mut advised = Advised::default();
        advised.push(range(0, 100), now);
        assert_eq!(advised.take(range(40, 20)), 20);
        assert_eq!((advised.len(), advised.bytes()), (2, 80));
        assert_eq!(advised.take(range(20, 60)), 40);
        assert!(advised.overlaps(range(0, 20)) && advised.overlaps(range(80, 20)));
        assert!(!advised.overlaps(range(20, 60)));
        while advised.len() < Advised::SPANS_MAX {
            advised.push(range(1000 + 10 * advised.len() as u64, 10), now);
        }
        assert_eq!(advised.take(range(5, 5)), 15, "the part behind the read counts, too");
        assert_eq!(advised.len(), Advised::SPANS_MAX);
        assert_eq!(advised.take(range(0, 1)), 1);
    }

    #[test]
    fn old_spans_go_and_younger_ones_stay() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut advised = Advised::default();
        advised.push(range(0, 10), now);
        advised.push(range(10, 20), now + second);
        assert_eq!(advised.drop_old(now + second, second), 10);
        assert_eq!(advised.bytes(), 20);
        assert_eq!(advised.clear(), 20);
    }
}
