//! Bytes on their way out: large ones by reference, small ones copied together, all in one `writev`.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Copying less than this is cheaper than one more element of a vector.
const COPIED_BYTES_MAX: usize = 2 << 10;
const SLICES_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct Segments {
    sealed: VecDeque<Bytes>,
    /// Behind all of `sealed`.
    small: BytesMut,
    bytes: usize,
}

impl Segments {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() < COPIED_BYTES_MAX {
            return self.copy(&bytes);
        }
        self.bytes += bytes.len();
        self.seal();
        self.sealed.push_back(bytes);
    }

    pub fn copy(&mut self, bytes: &[u8]) {
        self.append(bytes.len(), |small| small.extend_from_slice(bytes));
    }

    /// As `copy`, of what `put` appends: at most `room` bytes, for which there is room at once.
    pub fn append(&mut self, room: usize, put: impl FnOnce(&mut BytesMut)) {
        if self.small.capacity() - self.small.len() < room {
            self.small.reserve(room.max(4 << 10));
        }
        let before = self.small.len();
        put(&mut self.small);
        self.bytes += self.small.len() - before;
    }

    fn seal(&mut self) {
        if !self.small.is_empty() {
            self.sealed.push_back(self.small.split().freeze());
        }
    }

    /// The first of it, for one call.
    pub fn slices<'a>(&'a self, room: &'a mut [IoSlice<'a>; SLICES_MAX]) -> &'a [IoSlice<'a>] {
        let small = (!self.small.is_empty()).then_some(&self.small[..]);
        let all = self.sealed.iter().map(|bytes| &bytes[..]).chain(small);
        let mut len = 0;
        for (slot, bytes) in room.iter_mut().zip(all) {
            *slot = IoSlice::new(bytes);
            len += 1;
        }
        &room[..len]
    }

    pub fn room<'a>() -> [IoSlice<'a>; SLICES_MAX] {
        std::array::from_fn(|_| IoSlice::new(&[]))
    }

    /// `count` bytes were written.
    pub fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(front) = self.sealed.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.sealed.pop_front();
        }
        self.small.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(mut segments: Segments, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while !segments.is_empty() {
            let mut room = Segments::room();
            let first: Vec<u8> =
                segments.slices(&mut room).iter().flat_map(|slice| slice.to_vec()).take(step).collect();
            out.extend_from_slice(&first);
            segments.advance(first.len());
        }
        out
    }

    #[test]
    fn order_is_kept_however_little_is_written_at_a_time() {
        for step in [1, 7, 2048, 1 << 20] {
            let mut segments = Segments::default();
            let mut expected = Vec::new();
            for round in 0..50_u8 {
                let part = vec![round; if round % 3 == 0 { 5000 } else { 10 }];
                expected.extend_from_slice(&part);
                segments.push(Bytes::from(part));
            }
            assert_eq!(segments.bytes(), expected.len());
            assert_eq!(drain(segments, step), expected, "{step}");
        }
    }

    #[test]
    fn large_bytes_are_not_copied() {
        let (mut segments, large) = (Segments::default(), Bytes::from(vec![1; 5000]));
        segments.copy(b"head");
        segments.push(large.clone());
        let mut room = Segments::room();
        let slices = segments.slices(&mut room);
        assert_eq!((slices.len(), slices[1].as_ptr()), (2, large.as_ptr()));
    }
}
