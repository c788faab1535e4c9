//! Taking XDR items off a shared buffer.
//!
//! Every opaque is a slice of the buffer that was given, so a decoded value keeps that buffer alive. A value that
//! must outlive its request for long (an owner name in a table) should copy what it keeps.

use bytes::Bytes;

use crate::XdrError;

/// No XDR item but the empty ones is shorter than this (RFC 4506 §3).
const ITEM_LEN_MIN: usize = 4;

/// Bounds that hold for a whole message, besides those that its types declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many arrays, boxes and `nested` calls may lie inside one another.
    pub depth_max: u32,
    /// The most bytes in any one opaque or string.
    pub opaque_bytes_max: usize,
    /// The most items in any one array.
    pub array_items_max: usize,
}

impl Default for Limits {
    /// Sizes are then bounded by the buffer alone, which the record reader has bounded already.
    fn default() -> Self {
        Limits { depth_max: 64, opaque_bytes_max: usize::MAX, array_items_max: usize::MAX }
    }
}

/// Reads items from the front of a buffer.
#[derive(Debug, Clone)]
pub struct Decoder {
    buffer: Bytes,
    position: usize,
    depth: u32,
    limits: Limits,
}

impl Decoder {
    pub fn new(buffer: Bytes) -> Self {
        Self::with_limits(buffer, Limits::default())
    }

    pub fn with_limits(buffer: Bytes, limits: Limits) -> Self {
        Decoder { buffer, position: 0, depth: 0, limits }
    }

    /// Bytes not yet taken.
    pub fn remaining(&self) -> usize {
        self.buffer.len() - self.position
    }

    /// Bytes taken so far.
    pub fn position(&self) -> usize {
        self.position
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The bytes not yet taken, shared with the buffer. Takes nothing.
    pub fn rest(&self) -> Bytes {
        self.buffer.slice(self.position..)
    }

    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.opaque_fixed_unpadded().map(u32::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.opaque_fixed_unpadded().map(i32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.opaque_fixed_unpadded().map(u64::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.opaque_fixed_unpadded().map(i64::from_be_bytes)
    }

    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(XdrError::InvalidBool(other)),
        }
    }

    /// A variable-length opaque of at most `max` bytes, shared with the buffer.
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, XdrError> {
        let length = self.length(max.min(self.limits.opaque_bytes_max))?;
        self.shared(length)
    }

    /// A fixed-length opaque of `N` bytes and its padding.
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let bytes = self.opaque_fixed_unpadded()?;
        self.skip(padding(N))?;
        Ok(bytes)
    }

    /// A string of at most `max` bytes. Unlike an opaque it is copied: strings are short.
    pub fn string(&mut self, max: usize) -> Result<String, XdrError> {
        let bytes = self.opaque(max)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| XdrError::InvalidUtf8)
    }

    /// A variable-length array of at most `max` items, each taken by `item`. A count that the rest of the buffer
    /// cannot hold is refused first, and the vector grows as items arrive.
    pub fn array<T>(
        &mut self,
        max: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let count = self.length(max.min(self.limits.array_items_max))?;
        if count > self.remaining() / ITEM_LEN_MIN {
            return Err(XdrError::UnexpectedEnd);
        }
        self.nested(|d| {
            let mut items = Vec::new();
            for _ in 0..count {
                let before = d.position;
                items.push(item(d)?);
                if d.position == before {
                    return Err(XdrError::EmptyItem);
                }
            }
            Ok(items)
        })
    }

    /// Runs `inner` one level deeper; types that can contain themselves pass through here at each turn.
    pub fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, XdrError>) -> Result<T, XdrError> {
        if self.depth >= self.limits.depth_max {
            return Err(XdrError::DepthExceeded);
        }
        self.depth += 1;
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }

    /// Passes over `len` bytes as they are, without regard to padding.
    pub fn skip(&mut self, len: usize) -> Result<(), XdrError> {
        if len > self.remaining() {
            return Err(XdrError::UnexpectedEnd);
        }
        self.position += len;
        Ok(())
    }

    /// Says that nothing should follow.
    pub fn finish(&self) -> Result<(), XdrError> {
        if self.is_empty() { Ok(()) } else { Err(XdrError::TrailingBytes) }
    }

    fn opaque_fixed_unpadded<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let bytes = self.buffer[self.position..].first_chunk::<N>().ok_or(XdrError::UnexpectedEnd)?;
        self.position += N;
        Ok(*bytes)
    }

    fn length(&mut self, limit: usize) -> Result<usize, XdrError> {
        let length = self.u32()?;
        match usize::try_from(length) {
            Ok(len) if len <= limit => Ok(len),
            _ => Err(XdrError::LengthOverLimit { length, limit }),
        }
    }

    fn shared(&mut self, len: usize) -> Result<Bytes, XdrError> {
        let start = self.position;
        self.skip(len)?;
        self.skip(padding(len))?;
        Ok(self.buffer.slice(start..start + len))
    }
}

/// Zero bytes that follow `len` bytes of opaque data (RFC 4506 §4.9).
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opaque_is_a_slice_of_the_buffer() {
        let buffer = Bytes::from_static(b"\0\0\0\x05hello\0\0\0\0\0\0\x09");
        let mut d = Decoder::new(buffer.clone());
        let opaque = d.opaque(5).unwrap();
        assert_eq!(opaque, "hello");
        assert_eq!(opaque.as_ptr(), buffer[4..].as_ptr());
        assert_eq!((d.position(), d.remaining()), (12, 4));
        assert_eq!(d.u32(), Ok(9));
        assert_eq!(d.finish(), Ok(()));
    }

    #[test]
    fn an_opaque_that_claims_more_than_there_is_is_refused() {
        for (claim, max) in [(9u32, 100), (u32::MAX, usize::MAX), (0x8000_0000, usize::MAX)] {
            let mut wire = claim.to_be_bytes().to_vec();
            wire.extend_from_slice(b"12345678");
            assert_eq!(Decoder::new(wire.into()).opaque(max), Err(XdrError::UnexpectedEnd));
        }
    }

    #[test]
    fn an_opaque_over_its_bound_is_refused_whatever_follows() {
        let mut d = Decoder::new(Bytes::from_static(b"\0\0\0\x04abcd"));
        assert_eq!(d.opaque(3), Err(XdrError::LengthOverLimit { length: 4, limit: 3 }));
        let limits = Limits { opaque_bytes_max: 2, ..Limits::default() };
        let mut d = Decoder::with_limits(Bytes::from_static(b"\0\0\0\x04abcd"), limits);
        assert_eq!(d.opaque(8), Err(XdrError::LengthOverLimit { length: 4, limit: 2 }));
    }

    #[test]
    fn an_opaque_without_its_padding_is_refused() {
        assert_eq!(
            Decoder::new(Bytes::from_static(b"\0\0\0\x01a\0\0")).opaque(8),
            Err(XdrError::UnexpectedEnd)
        );
        assert_eq!(
            Decoder::new(Bytes::from_static(b"abcde\0\0")).opaque_fixed::<5>(),
            Err(XdrError::UnexpectedEnd)
        );
    }

    #[test]
    fn the_content_of_padding_is_ignored() {
        let mut d = Decoder::new(Bytes::from_static(b"\0\0\0\x01aXYZ"));
        assert_eq!(d.opaque(8).unwrap(), "a");
        assert_eq!(d.finish(), Ok(()));
    }

    #[test]
    fn an_array_count_beyond_the_buffer_takes_no_item() {
        let mut taken = 0;
        let mut d = Decoder::new(Bytes::from_static(b"\xff\xff\xff\xff\0\0\0\x01\0\0\0\x02"));
        let outcome = d.array(usize::MAX, |d| {
            taken += 1;
            d.u32()
        });
        assert_eq!((outcome, taken), (Err(XdrError::UnexpectedEnd), 0));
    }

    #[test]
    fn an_array_of_items_without_bytes_is_refused() {
        let mut d = Decoder::new(Bytes::from_static(b"\0\0\0\x01\0\0\0\x01"));
        assert_eq!(d.array(usize::MAX, |_| Ok(())), Err(XdrError::EmptyItem));
    }

    #[test]
    fn only_zero_and_one_are_booleans() {
        let mut d = Decoder::new(Bytes::from_static(b"\0\0\0\0\0\0\0\x01\0\0\0\x02"));
        assert_eq!((d.bool(), d.bool(), d.bool()), (Ok(false), Ok(true), Err(XdrError::InvalidBool(2))));
    }

    #[test]
    fn a_string_must_be_utf8() {
        assert_eq!(
            Decoder::new(Bytes::from_static(b"\0\0\0\x02\xff\xfe\0\0")).string(8),
            Err(XdrError::InvalidUtf8)
        );
    }

    #[test]
    fn bytes_after_the_last_item_are_told() {
        let mut d = Decoder::new(Bytes::from_static(b"\0\0\0\x01\0"));
        assert_eq!(d.u32(), Ok(1));
        assert_eq!(d.finish(), Err(XdrError::TrailingBytes));
        assert_eq!(d.rest().len(), 1);
        assert_eq!(d.skip(2), Err(XdrError::UnexpectedEnd));
    }
}
