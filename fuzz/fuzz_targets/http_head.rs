//! A connection of requests with bodies, in pieces of any size: heads, framing, chunks.

#![no_main]

use bytes::{Buf, BytesMut};
use forebay_fuzz::bounded;
use http::Version;
use http_wire::chunked::{Chunked, ChunkedDecoder, ChunkedError};
use http_wire::head::{BodyFraming, HeadError, HeadLimits, HeadReader, RequestHead};
use libfuzzer_sys::fuzz_target;

/// Small, so that inputs of 4 KiB reach every bound.
const LIMITS: HeadLimits =
    HeadLimits { request_line_bytes_max: 300, head_bytes_max: 600, range_bytes_max: 400, headers_max: 8 };

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
    end: Option<End>,
}

#[derive(Debug, PartialEq)]
enum End {
    Head(HeadError),
    Chunked(ChunkedError),
}

/// The meaning of the next bytes of the connection.
enum Expected {
    Head,
    Length(u64),
    Chunks(ChunkedDecoder),
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, stream)) = input.split_first() else { return };
    let in_pieces = bounded(stream.len(), || connection(stream, usize::from(*piece).max(1)));
    let at_once = connection(stream, stream.len().max(1));
    assert_eq!(in_pieces, at_once, "a connection does not depend on how it was cut");
});

fn connection(stream: &[u8], piece: usize) -> Outcome {
    let (mut reader, mut buffer, mut outcome) =
        (HeadReader::new(LIMITS), BytesMut::new(), Outcome::default());
    let mut expected = Expected::Head;
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        while let Some(next) = step(&mut expected, &mut reader, &mut buffer, &mut outcome) {
            expected = next;
        }
        if outcome.end.is_some() {
            break;
        }
    }
    outcome
}

/// `None` when more bytes are wanted, or after an error.
fn step(
    expected: &mut Expected,
    reader: &mut HeadReader,
    buffer: &mut BytesMut,
    outcome: &mut Outcome,
) -> Option<Expected> {
    match expected {
        Expected::Head => match reader.feed(buffer) {
            Ok(Some(head)) => {
                look_at(&head);
                outcome.heads.push(format!("{head:?}"));
                outcome.bodies.push(Vec::new());
                Some(match head.framing {
                    BodyFraming::None => Expected::Head,
                    BodyFraming::Length(length) => Expected::Length(length),
                    BodyFraming::Chunked => Expected::Chunks(ChunkedDecoder::new()),
                })
            }
            Ok(None) => {
                let most = LIMITS.head_bytes_max + LIMITS.range_bytes_max;
                assert!(buffer.len() <= most, "more is kept than a head may have");
                None
            }
            Err(error) => {
                assert!(error.status().as_u16() >= 400);
                end(outcome, End::Head(error))
            }
        },
        Expected::Length(0) => Some(Expected::Head),
        Expected::Length(left) => {
            let taken = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            buffer.advance(taken);
            *left -= taken as u64;
            (*left == 0).then_some(Expected::Head)
        }
        Expected::Chunks(decoder) => loop {
            match decoder.decode(buffer) {
                Ok(Chunked::Data(data)) => {
                    assert!(!data.is_empty());
                    outcome.bodies.last_mut()?.extend_from_slice(&data);
                }
                Ok(Chunked::NeedMore) => return None,
                Ok(Chunked::End) => return Some(Expected::Head),
                Err(error) => return end(outcome, End::Chunked(error)),
            }
        },
    }
}

fn end(outcome: &mut Outcome, end: End) -> Option<Expected> {
    outcome.end = Some(end);
    None
}

fn look_at(head: &RequestHead) {
    assert!(head.version == Version::HTTP_10 || head.authority.is_some());
    assert!(head.headers.len() <= LIMITS.headers_max);
    assert!(head.uri.path().starts_with('/') || head.uri.path() == "*");
    assert!(!(head.headers.contains_key("content-length") && head.headers.contains_key("transfer-encoding")));
    for value in head.headers.values() {
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
}
