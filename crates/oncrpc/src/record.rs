//! Record marking (RFC 5531 §11): messages on a byte stream, each as one or more fragments.
//!
//! A record in one fragment, as every client in use sends it, is split off the transport's buffer without a
//! copy. Several fragments are joined, each copied once. Nothing is looked at twice.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

const HEADER_LEN: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// Why a stream cannot be read on. There is no way to find the next record, so the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("record of at least {len} bytes is over the limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("record has more than {max} fragments")]
    TooManyFragments { max: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Fragment {
    len: usize,
    last: bool,
}

/// Finds the records of one stream.
#[derive(Debug)]
pub struct RecordReader {
    bytes_max: usize,
    fragments_max: u32,
    /// The fragment whose header has been taken and whose content has not.
    current: Option<Fragment>,
    /// Content of the earlier fragments of this record, and their number.
    joined: BytesMut,
    fragments: u32,
    wanted: usize,
}

impl RecordReader {
    /// `bytes_max` bounds a whole record without its headers, `fragments_max` its pieces: without the latter a
    /// peer could send empty fragments for ever.
    pub fn new(bytes_max: usize, fragments_max: u32) -> Self {
        RecordReader {
            bytes_max,
            fragments_max,
            current: None,
            joined: BytesMut::new(),
            fragments: 0,
            wanted: HEADER_LEN,
        }
    }

    /// Takes the next record off the front of `buffer`, or says by `None` that [`wanted`](Self::wanted) more
    /// bytes must be appended first. Call it until it says so. After an error the stream is lost.
    pub fn feed(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, RecordError> {
        loop {
            let Some(fragment) = self.current else {
                if !self.has(buffer, HEADER_LEN) {
                    return Ok(None);
                }
                self.current = Some(self.announced(buffer.get_u32())?);
                continue;
            };
            if !self.has(buffer, fragment.len) {
                return Ok(None);
            }
            self.current = None;
            let content = buffer.split_to(fragment.len);
            if let Some(record) = self.join(content, fragment.last) {
                return Ok(Some(record));
            }
        }
    }

    /// Bytes missing before `feed` can get on: at most the record limit, so that the transport can make room
    /// for the rest of a fragment at once and read it in place.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Length of the record that has begun once it is complete, as far as is known: a record in several fragments may
    /// become as long as records may be. Zero between records.
    pub fn expected(&self) -> usize {
        match self.whole() {
            Some(len) => len,
            None if self.is_between_records() => 0,
            None => self.bytes_max,
        }
    }

    /// Length of the record that has begun, if one fragment has all of it and `feed` waits for its content. The transport
    /// may receive it elsewhere than in the buffer of `feed`, beginning with what is in there, and then calls
    /// [`received`](Self::received).
    pub fn whole(&self) -> Option<usize> {
        match self.current {
            Some(Fragment { len, last: true }) if self.fragments == 0 => Some(len),
            _ => None,
        }
    }

    /// The record of `whole` has been taken off the stream.
    pub fn received(&mut self) {
        debug_assert!(self.whole().is_some(), "it was asked for before");
        self.current = None;
        self.wanted = HEADER_LEN;
    }

    /// Whether the stream may end here, if the buffer is empty too.
    pub fn is_between_records(&self) -> bool {
        self.current.is_none() && self.fragments == 0
    }

    fn has(&mut self, buffer: &BytesMut, len: usize) -> bool {
        self.wanted = len.saturating_sub(buffer.len());
        self.wanted == 0
    }

    fn announced(&self, header: u32) -> Result<Fragment, RecordError> {
        if self.fragments >= self.fragments_max {
            return Err(RecordError::TooManyFragments { max: self.fragments_max });
        }
        let len = (header & !LAST_FRAGMENT) as usize;
        let record_len = self.joined.len().saturating_add(len);
        if record_len > self.bytes_max {
            return Err(RecordError::TooLong { len: record_len, max: self.bytes_max });
        }
        Ok(Fragment { len, last: header & LAST_FRAGMENT != 0 })
    }

    fn join(&mut self, content: BytesMut, last: bool) -> Option<Bytes> {
        if last && self.fragments == 0 {
            return Some(content.freeze());
        }
        self.fragments += 1;
        self.joined.extend_from_slice(&content);
        last.then(|| {
            self.fragments = 0;
            std::mem::take(&mut self.joined).freeze()
        })
    }
}

/// The header of a record of `len` bytes that is sent as one fragment.
pub fn record_header(len: usize) -> [u8; HEADER_LEN] {
    let len = u32::try_from(len).expect("records are bounded far below what the header can say");
    assert!(len < LAST_FRAGMENT, "records are bounded far below what the header can say");
    (len | LAST_FRAGMENT).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader() -> RecordReader {
        RecordReader::new(64, 4)
    }

    #[test]
    fn a_record_in_one_fragment_is_not_copied() {
        let mut buffer = BytesMut::from(&b"\x80\0\0\x05hello\x80"[..]);
        let content = buffer[4..].as_ptr();
        let record = reader().feed(&mut buffer).unwrap().unwrap();
        assert_eq!(record, "hello");
        assert_eq!(record.as_ptr(), content);
        assert_eq!(&buffer[..], b"\x80", "the next record stays");
    }

    #[test]
    fn fragments_are_joined() {
        let mut buffer = BytesMut::from(&b"\0\0\0\x03hel\0\0\0\0\x80\0\0\x02lo\x80\0\0\x01!"[..]);
        let mut reader = reader();
        assert_eq!(reader.feed(&mut buffer).unwrap().unwrap(), "hello");
        assert!(reader.is_between_records());
        assert_eq!(reader.feed(&mut buffer).unwrap().unwrap(), "!");
        assert_eq!(reader.feed(&mut buffer), Ok(None));
    }

    #[test]
    fn the_reader_says_how_many_bytes_it_waits_for() {
        let mut reader = reader();
        let mut buffer = BytesMut::new();
        let mut waits = Vec::new();
        for byte in b"\0\0\0\x02ab\x80\0\0\x01c" {
            waits.push(reader.wanted());
            buffer.extend_from_slice(&[*byte]);
            if let Some(record) = reader.feed(&mut buffer).unwrap() {
                assert_eq!(record, "abc");
            }
        }
        assert_eq!(waits, [4, 3, 2, 1, 2, 1, 4, 3, 2, 1, 1]);
        assert_eq!(reader.feed(&mut buffer), Ok(None));
        assert_eq!(reader.wanted(), 4);
    }

    #[test]
    fn a_record_over_the_limit_is_refused_at_its_header() {
        let mut buffer = BytesMut::from(&b"\x80\0\0\x41"[..]);
        assert_eq!(reader().feed(&mut buffer), Err(RecordError::TooLong { len: 65, max: 64 }));
        let mut buffer = BytesMut::from(&b"\x7f\xff\xff\xff"[..]);
        assert!(matches!(reader().feed(&mut buffer), Err(RecordError::TooLong { .. })));
        let mut buffer = BytesMut::from(&b"\0\0\0\x01a\x80\0\0\x40"[..]);
        assert_eq!(reader().feed(&mut buffer), Err(RecordError::TooLong { len: 65, max: 64 }));
    }

    #[test]
    fn a_flood_of_empty_fragments_is_refused() {
        let mut buffer = BytesMut::from(&[0u8; 400][..]);
        assert_eq!(reader().feed(&mut buffer), Err(RecordError::TooManyFragments { max: 4 }));
    }

    #[test]
    fn an_empty_record_is_a_record() {
        let mut buffer = BytesMut::from(&b"\x80\0\0\0"[..]);
        assert_eq!(reader().feed(&mut buffer), Ok(Some(Bytes::new())));
    }

    #[test]
    fn a_header_marks_its_only_fragment_as_the_last() {
        assert_eq!(record_header(0x0102), [0x80, 0, 1, 2]);
    }

    /// The fragments of some records, at most four to a record.
    fn any_records() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
        let fragment = proptest::collection::vec(any::<u8>(), 0..16);
        proptest::collection::vec(proptest::collection::vec(fragment, 1..=4), 0..6)
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in_however_the_stream_is_cut(
            records in any_records(),
            cuts in proptest::collection::vec(1usize..9, 1..20),
        ) {
            let mut stream = Vec::new();
            for fragments in &records {
                for (index, fragment) in fragments.iter().enumerate() {
                    let mut header = record_header(fragment.len());
                    if index + 1 < fragments.len() {
                        header[0] &= 0x7f;
                    }
                    stream.extend_from_slice(&header);
                    stream.extend_from_slice(fragment);
                }
            }
            let (mut reader, mut buffer, mut found) = (reader(), BytesMut::new(), Vec::new());
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                rest = after;
                buffer.extend_from_slice(chunk);
                while let Some(record) = reader.feed(&mut buffer).unwrap() {
                    found.push(record.to_vec());
                }
                prop_assert!(reader.wanted() > 0);
                if rest.is_empty() {
                    break;
                }
            }
            let sent: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
            prop_assert_eq!(found, sent);
            prop_assert!(reader.is_between_records() && buffer.is_empty());
        }
    }
}
