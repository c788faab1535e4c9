//! The chunked transfer coding (RFC 9112 §7.1), in both directions.
//!
//! Invariants: data are slices of the buffer, not copies; a size line, the extensions of a body together and the
//! trailers have bounds; what is lax elsewhere (a bare LF, a sign, spaces around a size) is an error here.
//!
//! Deliberately absent: the meaning of extensions and trailers. Both are discarded (RFC 9112 §7.1.1 and §7.1.2).

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderName;
use thiserror::Error;
use types::hex;

/// Sixteen digits of size and a generous extension.
const SIZE_LINE_BYTES_MAX: usize = 1024;
/// A body of one-byte chunks, each with an extension, would otherwise be a cheap way to keep a server busy.
const EXTENSIONS_BYTES_MAX: usize = 16 << 10;
const TRAILERS_BYTES_MAX: usize = 8 << 10;
const SIZE_DIGITS_MAX: usize = 16;

/// The connection has lost its framing and is to be closed, after a 400 if nothing was answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkedError {
    #[error("a chunk does not begin with its size in hexadecimal and CR LF")]
    Size,
    #[error("chunk extensions are too long or contain control characters")]
    Extensions,
    #[error("a chunk is not followed by CR LF")]
    DataEnd,
    #[error("a trailer is not `Name: value` ended by CR LF, or trailers are too long")]
    Trailers,
}

/// The beginning of the buffer, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunked {
    /// Never empty; a chunk may come in many of these.
    Data(Bytes),
    /// The buffer is used up (but for an unfinished line); append to it and come again.
    NeedMore,
    /// The body is complete, and the buffer begins with whatever follows it.
    End,
}

/// Takes a body off a buffer that fills bit by bit.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// Of the line at the front of the buffer, what is known to have no LF.
    scanned: usize,
    extensions_bytes: usize,
    trailers_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data {
        left: u64,
    },
    DataEnd,
    Trailers,
    End,
}

impl ChunkedDecoder {
    pub fn new() -> ChunkedDecoder {
        ChunkedDecoder::default()
    }

    /// After [`Chunked::End`] every call says so again and takes nothing.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Chunked, ChunkedError> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = self.line(buffer, SIZE_LINE_BYTES_MAX, ChunkedError::Size)? else {
                        return Ok(Chunked::NeedMore);
                    };
                    self.state = match self.size(&line)? {
                        0 => State::Trailers,
                        left => State::Data { left },
                    };
                }
                State::Data { left } => {
                    let available = u64::try_from(buffer.len()).unwrap_or(u64::MAX).min(left);
                    if available == 0 {
                        return Ok(Chunked::NeedMore);
                    }
                    let left = left - available;
                    self.state = if left == 0 { State::DataEnd } else { State::Data { left } };
                    let available = usize::try_from(available).expect("no more than the buffer's length");
                    return Ok(Chunked::Data(buffer.split_to(available).freeze()));
                }
                State::DataEnd => match &buffer[..buffer.len().min(2)] {
                    b"\r\n" => {
                        buffer.advance(2);
                        self.state = State::Size;
                    }
                    b"" | b"\r" => return Ok(Chunked::NeedMore),
                    _ => return Err(ChunkedError::DataEnd),
                },
                State::Trailers => {
                    let left = TRAILERS_BYTES_MAX - self.trailers_bytes;
                    let Some(line) = self.line(buffer, left, ChunkedError::Trailers)? else {
                        return Ok(Chunked::NeedMore);
                    };
                    self.trailers_bytes += line.len() + 2;
                    match &line[..] {
                        [] => self.state = State::End,
                        line if is_field(line) => {}
                        // Another server may see the next request here.
                        _ => return Err(ChunkedError::Trailers),
                    }
                }
                State::End => return Ok(Chunked::End),
            }
        }
    }

    /// The body has ended; a connection that closes before this has cut it short.
    pub fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// The line at the front of the buffer, without its CR LF, when it is whole. A line with its end may have `max`
    /// bytes; what stands behind those is not looked at, so that a refusal does not depend on how the bytes came.
    fn line(
        &mut self,
        buffer: &mut BytesMut,
        max: usize,
        error: ChunkedError,
    ) -> Result<Option<BytesMut>, ChunkedError> {
        let window = &buffer[..buffer.len().min(max)];
        let Some(found) = window[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            if buffer.len() >= max {
                return Err(error);
            }
            self.scanned = buffer.len();
            return Ok(None);
        };
        let lf = self.scanned + found;
        self.scanned = 0;
        let mut line = buffer.split_to(lf + 1);
        line.truncate(lf);
        match line.split_last() {
            Some((b'\r', rest)) if !rest.contains(&b'\r') => {
                line.truncate(lf - 1);
                Ok(Some(line))
            }
            _ => Err(error),
        }
    }

    fn size(&mut self, line: &[u8]) -> Result<u64, ChunkedError> {
        let values = || line.iter().map_while(|byte| hex::value(*byte));
        let digit_count = values().count();
        let extensions = &line[digit_count..];
        if digit_count == 0 || digit_count > SIZE_DIGITS_MAX {
            return Err(ChunkedError::Size);
        }
        if extensions.first().is_some_and(|byte| *byte != b';') {
            return Err(ChunkedError::Size);
        }
        self.extensions_bytes += extensions.len();
        if self.extensions_bytes > EXTENSIONS_BYTES_MAX || !extensions.iter().all(is_text) {
            return Err(ChunkedError::Extensions);
        }
        Ok(values().fold(0, |sum, value| sum << 4 | u64::from(value)))
    }
}

/// A header line (RFC 9112 §5): a name that is a token, directly a colon, and a value without control characters.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    HeaderName::from_bytes(&line[..colon]).is_ok() && line[colon + 1..].iter().all(is_text)
}

fn is_text(byte: &u8) -> bool {
    *byte == b'\t' || !byte.is_ascii_control()
}

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Ends a body, behind the end of its last chunk with data.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The line before a chunk's data, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    bytes: [u8; SIZE_DIGITS_MAX + 2],
    start: usize,
}

impl ChunkHead {
    /// `None` for no data: that would be the last chunk.
    pub fn new(len: usize) -> Option<ChunkHead> {
        if len == 0 {
            return None;
        }
        let mut bytes = [0; SIZE_DIGITS_MAX + 2];
        bytes[SIZE_DIGITS_MAX..].copy_from_slice(b"\r\n");
        let digits = hex::number(len as u64);
        let start = SIZE_DIGITS_MAX - digits.len();
        bytes[start..].iter_mut().zip(digits).for_each(|(byte, digit)| *byte = digit);
        Some(ChunkHead { bytes, start })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Outcome = (Vec<u8>, bool, Option<ChunkedError>, Vec<u8>);

    /// Body, whether it ended, the error, and what is left in the buffer.
    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
        let (mut decoder, mut buffer, mut body) = (ChunkedDecoder::new(), BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Chunked::Data(data)) => {
                        assert!(!data.is_empty());
                        body.extend_from_slice(&data);
                    }
                    Ok(_) => break,
                    Err(error) => return (body, false, Some(error), Vec::new()),
                }
            }
        }
        (body, decoder.is_complete(), None, buffer.to_vec())
    }

    fn encode(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut wire = Vec::new();
        for chunk in chunks {
            wire.extend_from_slice(ChunkHead::new(chunk.len()).unwrap().as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(CHUNK_END);
        }
        wire.extend_from_slice(LAST_CHUNK);
        wire
    }

    fn error_of(wire: &[u8]) -> Option<ChunkedError> {
        decode([wire]).2
    }

    #[test]
    fn a_body_ends_with_the_last_chunk_and_what_follows_stays() {
        let wire = b"4;a=\"b\"\r\nWiki\r\n005\r\npedia\r\n0\r\nDigest: x\r\n\r\nGET";
        assert_eq!(decode([&wire[..]]), (b"Wikipedia".to_vec(), true, None, b"GET".to_vec()));
    }

    #[test]
    fn data_are_slices_of_the_buffer() {
        let mut buffer = BytesMut::from(&b"ff\r\nabc"[..]);
        let place = buffer.as_ptr() as usize + 4;
        let Ok(Chunked::Data(data)) = ChunkedDecoder::new().decode(&mut buffer) else { panic!("no data") };
        assert_eq!((data.as_ptr() as usize, &data[..]), (place, &b"abc"[..]));
    }

    #[test]
    fn a_size_is_hexadecimal_digits_and_nothing_else() {
        for bad in [
            "\r\n", "+1\r\n", "-1\r\n", "0x1\r\n", " 1\r\n", "1 \r\n", "1 ;a\r\n", "g\r\n", "1\n", "1\r\r\n",
            ";a\r\n",
        ] {
            assert_eq!(error_of(bad.as_bytes()), Some(ChunkedError::Size), "{bad:?}");
        }
        assert_eq!(error_of(b"00000000000000001\r\n"), Some(ChunkedError::Size));
        assert_eq!(error_of(b"fFfFfFfFfFfFfFfF\r\nx"), None);
        assert_eq!(error_of(&b"1".repeat(SIZE_LINE_BYTES_MAX)), Some(ChunkedError::Size));
    }

    #[test]
    fn data_are_followed_by_cr_lf() {
        for bad in ["1\r\nab", "1\r\na\n", "1\r\na\rb", "1\r\na0\r\n\r\n"] {
            assert_eq!(error_of(bad.as_bytes()), Some(ChunkedError::DataEnd), "{bad:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_are_discarded_up_to_a_bound() {
        assert_eq!(error_of(b"1;\0\r\n"), Some(ChunkedError::Extensions));
        let extended = format!("1;{}\r\nx\r\n", "e".repeat(1000));
        assert_eq!(error_of(extended.repeat(16).as_bytes()), None);
        assert_eq!(error_of(extended.repeat(17).as_bytes()), Some(ChunkedError::Extensions));
        let trailer = format!("a: {}\r\n", "t".repeat(1000));
        let with = |count| format!("0\r\n{}\r\n", trailer.repeat(count));
        assert!(decode([with(8).as_bytes()]).1);
        assert_eq!(error_of(with(9).as_bytes()), Some(ChunkedError::Trailers));
        assert_eq!(error_of(b"0\r\na: b\n\r\n"), Some(ChunkedError::Trailers));
        assert_eq!(error_of(b"0\r\n\n"), Some(ChunkedError::Trailers));
    }

    #[test]
    fn a_trailer_is_a_header_line() {
        for bad in [
            "GET /x HTTP/1.1",
            "x",
            ": b",
            "a b: c",
            "a : b",
            " a: b",
            "\ta: b",
            "a: b\0",
            "a: \x7f",
            "\0: b",
        ] {
            let wire = format!("0\r\n{bad}\r\n\r\n");
            assert_eq!(error_of(wire.as_bytes()), Some(ChunkedError::Trailers), "{bad:?}");
        }
        assert!(decode([&b"0\r\nX-Sum:\r\nb: c\td:e \xe4\r\n\r\n"[..]]).1);
    }

    #[test]
    fn a_body_that_is_cut_short_is_not_complete() {
        let wire = b"4\r\nWiki\r\n0\r\n\r\n";
        for len in 0..wire.len() {
            assert!(!decode([&wire[..len]]).1, "{len}");
        }
        assert!(decode([&wire[..]]).1);
    }

    #[test]
    fn no_data_make_no_chunk() {
        assert!(ChunkHead::new(0).is_none());
        assert_eq!(ChunkHead::new(0x1a0).unwrap().as_bytes(), b"1a0\r\n");
        assert_eq!(ChunkHead::new(usize::MAX).unwrap().as_bytes(), b"ffffffffffffffff\r\n");
    }

    proptest! {
        #[test]
        fn an_encoded_body_decodes_wherever_it_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            size in 1_usize..60,
        ) {
            let mut wire = encode(&chunks);
            wire.extend_from_slice(b"next");
            let (body, ended, error, rest) = decode(wire.chunks(size));
            prop_assert_eq!(body, chunks.concat());
            prop_assert_eq!((ended, error, &rest[..]), (true, None, &b"next"[..]));
        }

        #[test]
        fn any_bytes_decode_the_same_wherever_they_are_cut(
            wire in "([0-9a-c\r\n; ]|\r\n|0\r\n\r\n|3\r\nabc\r\n){0,30}",
            size in 1_usize..20,
        ) {
            let wire = wire.as_bytes();
            let (whole, cut) = (decode([wire]), decode(wire.chunks(size)));
            prop_assert_eq!(cut, whole);
        }
    }
}
