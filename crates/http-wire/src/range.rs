//! `Range: bytes=…` and `Content-Range` (RFC 9110 §14): which bytes of a file a request wants.
//!
//! Invariants: ranges stay in the client's order; a range in memory is 16 bytes whatever its text was; a header
//! that is malformed, or has another unit, is as if it were not there (§14.2).
//!
//! Lost: merging neighbours. A vector read means its ranges, and some clients count the parts.

use bytes::BytesMut;
use http::header::RANGE;
use http::{HeaderMap, HeaderValue};
use thiserror::Error;
use types::ByteRange;

use crate::list;

/// Requests up to this size never ask for too much: overlaps in a small file cost nobody anything.
const FREE_BYTES: u64 = 1 << 20;
const UNIT: &[u8] = b"bytes";

/// Bounds on the ranges of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    pub ranges_max: usize,
    /// All ranges together may have so many times the file's bytes, and 1 MiB in any case.
    pub overlap_max: u64,
}

impl Default for RangeLimits {
    fn default() -> RangeLimits {
        RangeLimits { ranges_max: 16_384, overlap_max: 2 }
    }
}

/// The form of the answer to a GET. One range is a plain 206, several are `multipart/byteranges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// 200, as without `Range`.
    Whole,
    /// 206. At least one range, all inside the file.
    Parts(Vec<ByteRange>),
    /// 416 with [`ContentRange::Unsatisfied`].
    Refused(RangeRefusal),
}

/// Each is 416: RFC 9110 §15.5.17 means it also for an excessive request of small or overlapping ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeRefusal {
    #[error("no requested range lies inside the file")]
    Unsatisfiable,
    #[error("the request has too many ranges; split it")]
    TooMany,
    #[error("the requested ranges overlap so much that they are larger than the file several times")]
    TooMuch,
}

/// The request's `Range` against a file of `length` bytes. Two `Range` lines are malformed.
pub fn select(headers: &HeaderMap, length: u64, limits: &RangeLimits) -> Selection {
    let mut values = headers.get_all(RANGE).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => select_value(value.as_bytes(), length, limits),
        _ => Selection::Whole,
    }
}

/// As [`select`], for one value.
pub fn select_value(value: &[u8], length: u64, limits: &RangeLimits) -> Selection {
    let Some((unit, set)) = value.split_at_checked(UNIT.len() + 1) else { return Selection::Whole };
    if !unit[..UNIT.len()].eq_ignore_ascii_case(UNIT) || unit[UNIT.len()] != b'=' {
        return Selection::Whole;
    }
    let (mut parts, mut count, mut wants_end) = (Vec::new(), 0, false);
    for item in list::items(set) {
        let Some(spec) = Spec::parse(item) else { return Selection::Whole };
        count += 1;
        if count > limits.ranges_max {
            return Selection::Refused(RangeRefusal::TooMany);
        }
        wants_end |= matches!(spec, Spec::Suffix(1..));
        parts.extend(spec.resolve(length));
    }
    if count == 0 || length == 0 && wants_end {
        // The last bytes of an empty file are satisfiable (§14.1.2), and no `Content-Range` can say so.
        return Selection::Whole;
    }
    if parts.is_empty() {
        return Selection::Refused(RangeRefusal::Unsatisfiable);
    }
    let wanted = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.length()));
    if wanted > length.saturating_mul(limits.overlap_max).max(FREE_BYTES) {
        return Selection::Refused(RangeRefusal::TooMuch);
    }
    Selection::Parts(parts)
}

/// One element of the list.
#[derive(Clone, Copy)]
enum Spec {
    /// `first-last`; `first-` has the largest number as its last.
    Bounds(u64, u64),
    Suffix(u64),
}

impl Spec {
    fn parse(item: &[u8]) -> Option<Spec> {
        let dash = item.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (&item[..dash], &item[dash + 1..]);
        match (first, last) {
            (b"", _) => position(last).map(Spec::Suffix),
            (_, b"") => position(first).map(|first| Spec::Bounds(first, u64::MAX)),
            _ => {
                let (first, last) = (position(first)?, position(last)?);
                (first <= last).then_some(Spec::Bounds(first, last))
            }
        }
    }

    fn resolve(self, length: u64) -> Option<ByteRange> {
        match self {
            Spec::Bounds(first, last) => ByteRange::from_bounds(first, last.saturating_add(1).min(length)),
            Spec::Suffix(count) => ByteRange::from_bounds(length.saturating_sub(count), length),
        }
    }
}

/// A number of any length; what has no room in 64 bits lies behind the end of every file.
fn position(text: &[u8]) -> Option<u64> {
    let all_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    all_digits.then(|| list::decimal(text).unwrap_or(u64::MAX))
}

/// `Content-Range` (RFC 9110 §14.4), of an answer and of a resumed PUT (§14.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-9/100`, or `bytes 0-9/*` when the length is not known yet.
    Part { range: ByteRange, complete: Option<u64> },
    /// `bytes */100`, of a 416.
    Unsatisfied { complete: u64 },
}

impl ContentRange {
    /// `None` for anything malformed; a PUT with such a header must be refused (400), not read as a whole file.
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let (unit, rest) = value.split_at_checked(UNIT.len())?;
        let rest = rest.strip_prefix(b" ").filter(|_| unit.eq_ignore_ascii_case(UNIT))?;
        let slash = rest.iter().position(|byte| *byte == b'/')?;
        let complete = match &rest[slash + 1..] {
            b"*" => None,
            digits => Some(list::decimal(digits)?),
        };
        if &rest[..slash] == b"*" {
            return complete.map(|complete| ContentRange::Unsatisfied { complete });
        }
        let dash = rest[..slash].iter().position(|byte| *byte == b'-')?;
        let (first, last) = (list::decimal(&rest[..dash])?, list::decimal(&rest[dash + 1..slash])?);
        // The largest end would mean "to the end of the file, whatever it is".
        let end = last.checked_add(1).filter(|end| *end < u64::MAX)?;
        let range = ByteRange::from_bounds(first, end)?;
        complete.is_none_or(|complete| end <= complete).then_some(ContentRange::Part { range, complete })
    }

    pub fn header_value(self) -> HeaderValue {
        let mut out = BytesMut::with_capacity(72);
        self.put(&mut out);
        HeaderValue::from_maybe_shared(out.freeze()).expect("digits and punctuation are visible ASCII")
    }

    pub(crate) fn put(self, out: &mut BytesMut) {
        out.extend_from_slice(b"bytes ");
        match self {
            ContentRange::Part { range, .. } => {
                list::put_decimal(out, range.offset());
                out.extend_from_slice(b"-");
                list::put_decimal(out, range.end() - 1);
            }
            ContentRange::Unsatisfied { .. } => out.extend_from_slice(b"*"),
        }
        out.extend_from_slice(b"/");
        match self {
            ContentRange::Part { complete: Some(complete), .. } | ContentRange::Unsatisfied { complete } => {
                list::put_decimal(out, complete);
            }
            ContentRange::Part { complete: None, .. } => out.extend_from_slice(b"*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANY: RangeLimits = RangeLimits { ranges_max: 100, overlap_max: 2 };

    fn of(value: &str, length: u64) -> Selection {
        select_value(value.as_bytes(), length, &ANY)
    }

    fn parts(bounds: &[(u64, u64)]) -> Selection {
        Selection::Parts(
            bounds.iter().map(|(from, to)| ByteRange::from_bounds(*from, *to).unwrap()).collect(),
        )
    }

    #[test]
    fn ranges_are_resolved_in_the_order_of_the_client() {
        assert_eq!(of("bytes=0-499", 1000), parts(&[(0, 500)]));
        assert_eq!(of("Bytes=500-", 1000), parts(&[(500, 1000)]));
        assert_eq!(of("bytes=-500", 1000), parts(&[(500, 1000)]));
        assert_eq!(of("bytes=-5000", 1000), parts(&[(0, 1000)]));
        assert_eq!(
            of("bytes=900-950,0-0 ,\t-1,, 999-4000", 1000),
            parts(&[(900, 951), (0, 1), (999, 1000), (999, 1000)])
        );
        assert_eq!(of("bytes=2000-3000,1-1,1000-", 1000), parts(&[(1, 2)]));
        assert_eq!(of("bytes=1-99999999999999999999999", 10), parts(&[(1, 10)]));
    }

    #[test]
    fn a_malformed_or_foreign_range_is_as_if_it_were_not_there() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes 0-1",
            "bytes =0-1",
            "lines=0-1",
            "bytes=0",
            "bytes=-",
            "bytes=a-1",
            "bytes=1-0",
            "bytes=0-1-2",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=0-1;2-3",
            "bytes=0 - 1",
            "bytes=0-1,x",
        ] {
            assert_eq!(of(value, 1000), Selection::Whole, "{value}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(select(&headers, 10, &ANY), Selection::Whole);
        headers.append(RANGE, HeaderValue::from_static("bytes=0-0"));
        assert_eq!(select(&headers, 10, &ANY), parts(&[(0, 1)]));
        headers.append(RANGE, HeaderValue::from_static("bytes=1-1"));
        assert_eq!(select(&headers, 10, &ANY), Selection::Whole);
    }

    #[test]
    fn ranges_outside_of_the_file_are_unsatisfiable() {
        for value in ["bytes=1000-", "bytes=1000-1000,2000-", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(value, 1000), Selection::Refused(RangeRefusal::Unsatisfiable), "{value}");
        }
        assert_eq!(of("bytes=0-", 0), Selection::Refused(RangeRefusal::Unsatisfiable));
        assert_eq!(of("bytes=-1", 0), Selection::Whole);
    }

    #[test]
    fn ten_thousand_ranges_are_served_and_a_hundred_thousand_are_refused() {
        let value = |count: u64| {
            let list: Vec<String> = (0..count).map(|i| format!("{}-{}", i * 1000, i * 1000 + 99)).collect();
            format!("bytes={}", list.join(","))
        };
        let limits = RangeLimits::default();
        let Selection::Parts(found) = select_value(value(10_000).as_bytes(), 1 << 30, &limits) else {
            panic!("refused")
        };
        assert_eq!((found.len(), found[9_999].offset()), (10_000, 9_999_000));
        let refused = select_value(value(100_000).as_bytes(), 1 << 30, &limits);
        assert_eq!(refused, Selection::Refused(RangeRefusal::TooMany));
    }

    #[test]
    fn overlaps_are_served_up_to_twice_the_file() {
        let large = 10 << 20;
        assert!(matches!(of("bytes=0-,0-", large), Selection::Parts(_)));
        assert_eq!(of("bytes=0-,0-,0-0", large), Selection::Refused(RangeRefusal::TooMuch));
        let small = format!("bytes={}", ["0-"; 100].join(","));
        assert!(matches!(of(&small, 10_000), Selection::Parts(_)));
    }

    #[test]
    fn a_content_range_is_read_strictly() {
        let part = |from, to, complete| {
            Some(ContentRange::Part { range: ByteRange::from_bounds(from, to).unwrap(), complete })
        };
        assert_eq!(ContentRange::parse(b"bytes 0-9/10"), part(0, 10, Some(10)));
        assert_eq!(ContentRange::parse(b"bytes 5-5/*"), part(5, 6, None));
        assert_eq!(ContentRange::parse(b"bytes */7"), Some(ContentRange::Unsatisfied { complete: 7 }));
        for bad in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes=0-9/10",
            "bytes 0-10/10",
            "bytes 5-4/10",
            "bytes */*",
            "bytes 0-/10",
            "bytes -9/10",
            "bytes  0-9/10",
            "bytes 0-9/10 ",
            "bytes 0-9/+10",
            "lines 0-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-18446744073709551614/*",
        ] {
            assert_eq!(ContentRange::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    /// Byte for byte, as the RFC's words say it.
    fn model(specs: &[(Option<u64>, Option<u64>)], length: u64) -> Vec<Vec<u64>> {
        let bytes = |(first, last): &(Option<u64>, Option<u64>)| -> Vec<u64> {
            (0..length)
                .filter(|at| match (first, last) {
                    (Some(first), last) => at >= first && last.is_none_or(|last| *at <= last),
                    (None, Some(count)) => at + count >= length,
                    (None, None) => false,
                })
                .collect()
        };
        specs.iter().map(bytes).filter(|bytes| !bytes.is_empty()).collect()
    }

    fn spec() -> impl Strategy<Value = (Option<u64>, Option<u64>)> {
        prop_oneof![
            (0_u64..60, 0_u64..60).prop_map(|(a, b)| (Some(a.min(b)), Some(a.max(b)))),
            (0_u64..60).prop_map(|first| (Some(first), None)),
            (0_u64..60).prop_map(|count| (None, Some(count))),
        ]
    }

    proptest! {
        #[test]
        fn ranges_are_what_a_naive_reading_finds(
            specs in prop::collection::vec(spec(), 1..8),
            length in 1_u64..50,
        ) {
            let number = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
            let texts: Vec<String> =
                specs.iter().map(|(first, last)| format!("{}-{}", number(*first), number(*last))).collect();
            let found: Vec<Vec<u64>> = match of(&format!("bytes={}", texts.join(", ")), length) {
                Selection::Parts(parts) => {
                    parts.iter().map(|part| (part.offset()..part.end()).collect()).collect()
                }
                Selection::Refused(RangeRefusal::Unsatisfiable) => Vec::new(),
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            prop_assert_eq!(found, model(&specs, length));
        }

        #[test]
        fn a_content_range_survives_being_written(from in 0_u64..1 << 60, len in 1_u64..1 << 60, more in 0_u64..9) {
            let range = ByteRange::new(from, len).unwrap();
            for complete in [None, Some(range.end() + more)] {
                let value = ContentRange::Part { range, complete };
                prop_assert_eq!(ContentRange::parse(value.header_value().as_bytes()), Some(value));
            }
        }
    }
}
