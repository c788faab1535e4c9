//! `multipart/byteranges` (RFC 9110 §14.6): the framing of many ranges in one answer.
//!
//! Invariants: the exact length of the body is known before anything of it is made; the heads of parts are made a
//! few hundred at a time in one piece of memory, so 10,000 ranges cost some dozens of allocations; the ranges themselves take about as many bytes as their text
//! did.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use types::{ByteRange, hex};

use crate::list;
use crate::range::ContentRange;

const BOUNDARY_BYTES: usize = 32;
const HEADS_AT_ONCE_BYTES: usize = 16 << 10;

/// Delimits the parts. It must not occur in the file, so it is made from 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; BOUNDARY_BYTES]);

impl Boundary {
    pub fn new(chance: [u8; BOUNDARY_BYTES / 2]) -> Boundary {
        let mut text = [0; BOUNDARY_BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(chance) {
            pair.copy_from_slice(&hex::digits(byte));
        }
        Boundary(text)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The body of a 206 with several ranges.
#[derive(Clone, Debug)]
pub struct ByteRanges {
    boundary: Boundary,
    /// From the delimiter's CR LF to the end of "Content-Range: ".
    prefix: Bytes,
    complete: u64,
    ranges: Packed,
    length: u64,
}

/// Ranges in a few bytes each: a slow client keeps a long list for as long as its answer takes.
#[derive(Clone, Debug)]
struct Packed {
    /// Offset and length of each range, seven bits a byte, the least first; all but a number's last have the high bit.
    bytes: Bytes,
    count: usize,
}

impl Packed {
    fn new(ranges: &[ByteRange]) -> Packed {
        let mut bytes = Vec::new();
        for range in ranges {
            put(&mut bytes, range.offset());
            put(&mut bytes, range.end() - range.offset());
        }
        bytes.shrink_to_fit();
        Packed { bytes: bytes.into(), count: ranges.len() }
    }

    fn next(&mut self) -> Option<ByteRange> {
        let offset = self.take()?;
        let length = self.take()?;
        self.count -= 1;
        ByteRange::from_bounds(offset, offset.checked_add(length)?)
    }

    fn take(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.bytes.split_to(self.bytes.len().min(1)).first().copied()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

impl ByteRanges {
    /// Of a file of `complete` bytes and the media type `content_type`; every range lies inside the file.
    pub fn new(
        boundary: Boundary,
        content_type: &HeaderValue,
        complete: u64,
        ranges: &[ByteRange],
    ) -> ByteRanges {
        let mut prefix = BytesMut::from(&b"\r\n--"[..]);
        prefix.extend_from_slice(boundary.as_bytes());
        prefix.extend_from_slice(b"\r\nContent-Type: ");
        prefix.extend_from_slice(content_type.as_bytes());
        prefix.extend_from_slice(b"\r\nContent-Range: ");
        let length = length_of(boundary, &prefix, complete, ranges);
        ByteRanges { boundary, prefix: prefix.freeze(), complete, ranges: Packed::new(ranges), length }
    }

    /// For the answer's `Content-Type`.
    pub fn content_type(&self) -> HeaderValue {
        let mut value = BytesMut::from(&b"multipart/byteranges; boundary="[..]);
        value.extend_from_slice(self.boundary.as_bytes());
        HeaderValue::from_maybe_shared(value.freeze()).expect("a boundary is hexadecimal")
    }

    /// For the answer's `Content-Length`.
    pub fn content_length(&self) -> u64 {
        self.length
    }

    /// Each part's delimiter and head, to be sent before that range of the file; after the last part comes
    /// [`ByteRanges::closing`].
    pub fn into_parts(self) -> Parts {
        Parts { body: self, ready: BytesMut::new() }
    }

    /// The delimiter that ends the body.
    pub fn closing(&self) -> Bytes {
        closing(self.boundary)
    }
}

fn closing(boundary: Boundary) -> Bytes {
    let mut out = BytesMut::with_capacity(BOUNDARY_BYTES + 8);
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(boundary.as_bytes());
    out.extend_from_slice(b"--\r\n");
    out.freeze()
}

fn length_of(boundary: Boundary, prefix: &[u8], complete: u64, ranges: &[ByteRange]) -> u64 {
    let fixed = prefix.len() as u64 + b"bytes -/\r\n\r\n".len() as u64 + list::decimal_len(complete);
    let parts = ranges.iter().map(|range| {
        fixed + list::decimal_len(range.offset()) + list::decimal_len(range.end() - 1) + range.length()
    });
    parts.fold(closing(boundary).len() as u64, u64::saturating_add)
}

/// Heads and ranges in their order.
#[derive(Debug)]
pub struct Parts {
    body: ByteRanges,
    ready: BytesMut,
}

impl Iterator for Parts {
    type Item = (Bytes, ByteRange);

    fn next(&mut self) -> Option<(Bytes, ByteRange)> {
        let range = self.body.ranges.next()?;
        // A head is the prefix and at most three numbers; what is left over of a piece is not worth keeping.
        if self.ready.capacity() < self.body.prefix.len() + 80 {
            self.ready = BytesMut::with_capacity(self.piece_bytes());
        }
        self.ready.extend_from_slice(&self.body.prefix);
        ContentRange::Part { range, complete: Some(self.body.complete) }.put(&mut self.ready);
        self.ready.extend_from_slice(b"\r\n\r\n");
        Some((self.ready.split().freeze(), range))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.body.ranges.count;
        (left, Some(left))
    }
}

impl Parts {
    fn piece_bytes(&self) -> usize {
        let head_bytes_max = self.body.prefix.len() + 80;
        let left = self.body.ranges.count + 1;
        head_bytes_max.saturating_mul(left).min(HEADS_AT_ONCE_BYTES).max(head_bytes_max)
    }
}

impl ExactSizeIterator for Parts {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(complete: u64, bounds: &[(u64, u64)]) -> ByteRanges {
        let ranges: Vec<_> =
            bounds.iter().map(|(from, to)| ByteRange::from_bounds(*from, *to).unwrap()).collect();
        ByteRanges::new(Boundary::new([0xa5; 16]), &HeaderValue::from_static("text/plain"), complete, &ranges)
    }

    fn written(body: &ByteRanges, file: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (head, range) in body.clone().into_parts() {
            out.extend_from_slice(&head);
            out.extend_from_slice(&file[range.offset() as usize..range.end() as usize]);
        }
        out.extend_from_slice(&body.closing());
        out
    }

    #[test]
    fn parts_are_framed_as_the_rfc_shows() {
        let body = body(10, &[(0, 2), (7, 10)]);
        let boundary = "a5".repeat(16);
        let expected = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\nab\
             \r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\nhij\
             \r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(written(&body, b"abcdefghij")).unwrap(), expected);
        assert_eq!(body.content_length(), expected.len() as u64);
        assert_eq!(body.content_type(), format!("multipart/byteranges; boundary={boundary}"));
    }

    #[test]
    fn ten_thousand_heads_share_some_dozens_of_allocations() {
        let bounds: Vec<(u64, u64)> = (0..10_000).map(|i| (i * 90_000_000, i * 90_000_000 + 100)).collect();
        let body = body(1 << 40, &bounds);
        let heads: Vec<Bytes> = body.clone().into_parts().map(|(head, _)| head).collect();
        let apart = heads.windows(2).filter(|pair| pair[0].as_ptr_range().end != pair[1].as_ptr()).count();
        assert!(apart < 120, "{apart}");
        let length = heads.iter().map(|head| head.len() as u64 + 100).sum::<u64>();
        assert_eq!(body.content_length(), length + body.closing().len() as u64);
    }

    #[test]
    fn a_list_of_ranges_takes_no_more_than_its_text() {
        let text = (0..16_384).map(|i| format!("{}-{},", i * 7, i * 7)).collect::<String>();
        let ranges: Vec<_> =
            (0..16_384_u64).map(|i| ByteRange::from_bounds(i * 7, i * 7 + 1).unwrap()).collect();
        let mut packed = Packed::new(&ranges);
        assert!(packed.bytes.len() < text.len() / 2, "{} of {}", packed.bytes.len(), text.len());
        assert!(ranges.iter().all(|range| packed.next() == Some(*range)) && packed.next().is_none());
        let largest = ByteRange::from_bounds(u64::MAX - 1, u64::MAX).unwrap();
        assert_eq!(Packed::new(&[largest]).next(), Some(largest));
    }

    proptest! {
        #[test]
        fn the_length_is_known_in_advance(bounds in prop::collection::vec((0_u64..200, 1_u64..100), 1..20)) {
            let bounds: Vec<(u64, u64)> = bounds.iter().map(|(from, len)| (*from, from + len)).collect();
            let body = body(300, &bounds);
            prop_assert_eq!(body.content_length(), written(&body, &[b'x'; 300]).len() as u64);
            prop_assert_eq!(body.clone().into_parts().len(), bounds.len());
        }
    }
}
