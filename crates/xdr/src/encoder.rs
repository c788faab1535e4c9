//! Building a message as a list of segments for a gathering write.
//!
//! Small items are appended to an open tail. A shared opaque of [`SHARE_MIN`] bytes or more seals the tail and
//! stands in the list by reference. Sealed tails stay writable until the end, so that a length reserved early can
//! be patched whatever came in between.

use bytes::{BufMut, Bytes, BytesMut};

use crate::decoder::padding;

/// From this many bytes on an opaque is shared instead of copied: below, copying is cheaper than another segment
/// in the socket's gather list.
pub const SHARE_MIN: usize = 512;

/// The first tail holds a usual reply without payload.
const TAIL_CAPACITY: usize = 512;

const ZEROS: [u8; 3] = [0; 3];

/// The place of a reserved word, valid for the encoder that gave it.
#[derive(Debug, Clone, Copy)]
#[must_use = "a reserved word must be patched"]
pub struct Mark {
    segment: usize,
    offset: usize,
    /// Length of the message just after the reserved word.
    end: usize,
}

#[derive(Debug)]
enum Segment {
    Own(BytesMut),
    Shared(Bytes),
}

/// Appends items to a message.
#[derive(Debug, Default)]
pub struct Encoder {
    sealed: Vec<Segment>,
    sealed_len: usize,
    tail: BytesMut,
}

impl Encoder {
    pub fn new() -> Self {
        Self::with_capacity(TAIL_CAPACITY)
    }

    /// `capacity` is for what is copied: headers and small items.
    pub fn with_capacity(capacity: usize) -> Self {
        Encoder { sealed: Vec::new(), sealed_len: 0, tail: BytesMut::with_capacity(capacity) }
    }

    /// Bytes of the message so far.
    pub fn len(&self) -> usize {
        self.sealed_len + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn put_u32(&mut self, value: u32) {
        self.tail.put_u32(value);
    }

    pub fn put_i32(&mut self, value: i32) {
        self.tail.put_i32(value);
    }

    pub fn put_u64(&mut self, value: u64) {
        self.tail.put_u64(value);
    }

    pub fn put_i64(&mut self, value: i64) {
        self.tail.put_i64(value);
    }

    pub fn put_bool(&mut self, value: bool) {
        self.tail.put_u32(u32::from(value));
    }

    /// The length or count of what follows.
    pub fn put_len(&mut self, len: usize) {
        self.put_u32(wire_len(len));
    }

    /// A variable-length opaque, shared when it is large enough to be worth a segment.
    pub fn opaque(&mut self, bytes: &Bytes) {
        self.put_len(bytes.len());
        self.put_shared(bytes);
        self.pad(bytes.len());
    }

    /// A variable-length opaque, copied.
    pub fn opaque_slice(&mut self, bytes: &[u8]) {
        self.put_len(bytes.len());
        self.opaque_fixed(bytes);
    }

    /// A fixed-length opaque, copied: the bytes and their padding, without a length.
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    /// A variable-length opaque that holds what `content` encodes.
    pub fn opaque_with(&mut self, content: impl FnOnce(&mut Self)) {
        let mark = self.reserve_u32();
        content(self);
        let len = self.len() - mark.end;
        self.pad(len);
        self.patch_u32(mark, wire_len(len));
    }

    /// Leaves room for a word that is known later.
    pub fn reserve_u32(&mut self) -> Mark {
        let (segment, offset) = (self.sealed.len(), self.tail.len());
        self.tail.put_u32(0);
        Mark { segment, offset, end: self.len() }
    }

    /// Fills in a reserved word.
    pub fn patch_u32(&mut self, mark: Mark, value: u32) {
        let own = if mark.segment == self.sealed.len() {
            &mut self.tail
        } else {
            match &mut self.sealed[mark.segment] {
                Segment::Own(own) => own,
                Segment::Shared(_) => panic!("a mark belongs to the encoder that gave it"),
            }
        };
        own[mark.offset..mark.offset + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes of the message since just after the reserved word.
    pub fn len_since(&self, mark: Mark) -> usize {
        self.len() - mark.end
    }

    /// Bytes that are XDR already (a cached reply), as they are.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Segments that are XDR already (a cached reply), as they are; large ones are shared.
    pub fn put_raw_segments(&mut self, segments: impl IntoIterator<Item = Bytes>) {
        for segment in segments {
            self.put_shared(&segment);
        }
    }

    /// Another message after this one. Marks of `other` are void thereafter.
    pub fn append(&mut self, other: Encoder) {
        if other.sealed.is_empty() {
            self.put_shared(&other.tail.freeze());
        } else {
            self.put_raw_segments(other.into_segments());
        }
    }

    /// The message for a gathering write; no segment is empty.
    pub fn into_segments(mut self) -> Vec<Bytes> {
        self.seal();
        self.sealed
            .into_iter()
            .map(|segment| match segment {
                Segment::Own(own) => own.freeze(),
                Segment::Shared(shared) => shared,
            })
            .collect()
    }

    /// The message in one piece; copies unless there is just one segment.
    pub fn into_bytes(self) -> Bytes {
        let len = self.len();
        let mut segments = self.into_segments();
        match segments.len() {
            0 => Bytes::new(),
            1 => segments.remove(0),
            _ => {
                let mut joined = BytesMut::with_capacity(len);
                segments.iter().for_each(|segment| joined.extend_from_slice(segment));
                joined.freeze()
            }
        }
    }

    fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_MIN {
            self.tail.extend_from_slice(bytes);
        } else {
            self.seal();
            self.sealed_len += bytes.len();
            self.sealed.push(Segment::Shared(bytes.clone()));
        }
    }

    fn pad(&mut self, len: usize) {
        self.tail.extend_from_slice(&ZEROS[..padding(len)]);
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.sealed_len += self.tail.len();
            self.sealed.push(Segment::Own(self.tail.split()));
        }
    }
}

fn wire_len(len: usize) -> u32 {
    u32::try_from(len).expect("messages are bounded far below what a 32-bit length can say")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(len: usize) -> Bytes {
        Bytes::from(vec![0xab; len])
    }

    #[test]
    fn a_large_opaque_becomes_a_segment_of_the_same_memory() {
        let data = payload(SHARE_MIN + 1);
        let mut e = Encoder::new();
        e.put_u32(1);
        e.opaque(&data);
        e.put_u32(2);
        assert_eq!(e.len(), 4 + 4 + SHARE_MIN + 4 + 4);
        let segments = e.into_segments();
        assert_eq!(segments.len(), 3);
        assert_eq!(segments[0], &b"\0\0\0\x01\0\0\x02\x01"[..]);
        assert_eq!((segments[1].as_ptr(), segments[1].len()), (data.as_ptr(), data.len()));
        assert_eq!(segments[2], &b"\0\0\0\0\0\0\x02"[..]);
    }

    #[test]
    fn a_small_opaque_is_copied_into_the_tail() {
        let mut e = Encoder::new();
        e.opaque(&payload(SHARE_MIN - 1));
        e.opaque_slice(b"ab");
        let segments = e.into_segments();
        assert_eq!(segments.len(), 1);
        assert_eq!(segments[0].len(), 4 + SHARE_MIN + 8);
        assert_eq!(segments[0][4 + SHARE_MIN - 1], 0, "padding is zero");
    }

    #[test]
    fn a_word_can_be_patched_before_and_after_its_segment_is_sealed() {
        let mut e = Encoder::new();
        let first = e.reserve_u32();
        e.opaque(&payload(SHARE_MIN));
        e.put_u32(0x99);
        let second = e.reserve_u32();
        e.opaque(&payload(SHARE_MIN));
        e.opaque(&payload(SHARE_MIN));
        let third = e.reserve_u32();
        assert_eq!(e.len_since(third), 0);
        assert_eq!(e.len_since(second), 2 * (4 + SHARE_MIN) + 4);
        e.patch_u32(third, 3);
        e.patch_u32(second, 2);
        e.patch_u32(first, 1);
        let wire = e.into_bytes();
        let word = |at: usize| u32::from_be_bytes(wire[at..at + 4].try_into().unwrap());
        let second_at = 8 + SHARE_MIN + 4;
        assert_eq!((word(0), word(second_at - 4), word(second_at), word(wire.len() - 4)), (1, 0x99, 2, 3));
    }

    #[test]
    fn an_opaque_made_in_place_has_its_length_and_padding() {
        let mut e = Encoder::new();
        e.opaque_with(|e| {
            e.put_raw(b"abcde");
        });
        e.opaque_with(|e| e.opaque(&payload(SHARE_MIN)));
        let wire = e.into_bytes();
        assert_eq!(wire[..12], *b"\0\0\0\x05abcde\0\0\0");
        assert_eq!(wire[12..16], *b"\0\0\x02\x04");
        assert_eq!(wire.len(), 12 + 4 + 4 + SHARE_MIN);
    }

    #[test]
    fn an_appended_message_keeps_its_shared_segments() {
        let data = payload(SHARE_MIN);
        let mut result = Encoder::new();
        result.put_u32(5);
        result.opaque(&data);
        let mut reply = Encoder::new();
        reply.put_u32(4);
        let mut small = Encoder::new();
        small.put_u64(6);
        reply.append(small);
        reply.append(result);
        assert_eq!(reply.len(), 4 + 8 + 4 + 4 + SHARE_MIN);
        let segments = reply.into_segments();
        assert_eq!(segments.len(), 2, "small parts are joined");
        assert_eq!(segments[1].as_ptr(), data.as_ptr());
    }

    #[test]
    fn an_empty_message_has_no_segments() {
        assert!(Encoder::new().is_empty());
        assert!(Encoder::new().into_segments().is_empty());
        assert_eq!(Encoder::default().into_bytes(), Bytes::new());
    }
}
