//! `multipart/byteranges` (RFC 9110 §14.6): the framing of many ranges in one answer.
//!
//! Invariants: the exact length of the body is known before anything of it is made; the heads of parts are made a
//! few hundred at a time in one piece of memory, so 10,000 ranges cost some dozens of allocations.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use types::ByteRange;

use crate::list;
use crate::range::ContentRange;

const BOUNDARY_BYTES: usize = 32;
const HEADS_AT_ONCE_BYTES: usize = 32 << 10;

/// What parts the parts. It must not occur in the file, so it is made by chance from 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; BOUNDARY_BYTES]);

impl Boundary {
    pub fn new(chance: [u8; BOUNDARY_BYTES / 2]) -> Boundary {
        let mut text = [0; BOUNDARY_BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(chance) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 0xf)];
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
    ranges: Vec<ByteRange>,
}

impl ByteRanges {
    /// Of a file of `complete` bytes and the media type `content_type`; every range lies inside the file.
    pub fn new(
        boundary: Boundary,
        content_type: &HeaderValue,
        complete: u64,
        ranges: Vec<ByteRange>,
    ) -> ByteRanges {
        let mut prefix = BytesMut::from(&b"\r\n--"[..]);
        prefix.extend_from_slice(boundary.as_bytes());
        prefix.extend_from_slice(b"\r\nContent-Type: ");
        prefix.extend_from_slice(content_type.as_bytes());
        prefix.extend_from_slice(b"\r\nContent-Range: ");
        ByteRanges { boundary, prefix: prefix.freeze(), complete, ranges }
    }

    /// For the answer's `Content-Type`.
    pub fn content_type(&self) -> HeaderValue {
        let mut value = BytesMut::from(&b"multipart/byteranges; boundary="[..]);
        value.extend_from_slice(self.boundary.as_bytes());
        HeaderValue::from_maybe_shared(value.freeze()).expect("a boundary is hexadecimal")
    }

    /// For the answer's `Content-Length`.
    pub fn content_length(&self) -> u64 {
        let fixed =
            self.prefix.len() as u64 + b"bytes -/\r\n\r\n".len() as u64 + list::decimal_len(self.complete);
        let parts = self.ranges.iter().map(|range| {
            fixed + list::decimal_len(range.offset()) + list::decimal_len(range.end() - 1) + range.length()
        });
        parts.fold(self.closing().len() as u64, u64::saturating_add)
    }

    pub fn ranges(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// Each part's delimiter and head, to be sent before that range of the file; after the last part comes
    /// [`ByteRanges::closing`].
    pub fn into_parts(self) -> Parts {
        Parts { body: self, next: 0, ready: BytesMut::new() }
    }

    /// What ends the body.
    pub fn closing(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(BOUNDARY_BYTES + 8);
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary.as_bytes());
        out.extend_from_slice(b"--\r\n");
        out.freeze()
    }
}

/// Heads and ranges in their order.
#[derive(Debug)]
pub struct Parts {
    body: ByteRanges,
    next: usize,
    ready: BytesMut,
}

impl Iterator for Parts {
    type Item = (Bytes, ByteRange);

    fn next(&mut self) -> Option<(Bytes, ByteRange)> {
        let range = *self.body.ranges.get(self.next)?;
        self.next += 1;
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
        let left = self.body.ranges.len() - self.next;
        (left, Some(left))
    }
}

impl Parts {
    fn piece_bytes(&self) -> usize {
        let head_bytes_max = self.body.prefix.len() + 80;
        let left = self.body.ranges.len() - self.next + 1;
        head_bytes_max.saturating_mul(left).min(HEADS_AT_ONCE_BYTES).max(head_bytes_max)
    }
}

impl ExactSizeIterator for Parts {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(complete: u64, bounds: &[(u64, u64)]) -> ByteRanges {
        let ranges = bounds.iter().map(|(from, to)| ByteRange::from_bounds(*from, *to).unwrap()).collect();
        ByteRanges::new(Boundary::new([0xa5; 16]), &HeaderValue::from_static("text/plain"), complete, ranges)
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
        assert!(apart < 60, "{apart}");
        let length = heads.iter().map(|head| head.len() as u64 + 100).sum::<u64>();
        assert_eq!(body.content_length(), length + body.closing().len() as u64);
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
