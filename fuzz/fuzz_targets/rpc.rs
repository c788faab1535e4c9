//! A stream of records in chunks of any size, and each record read as a call and as a reply.

#![no_main]

use bytes::{Bytes, BytesMut};
use forebay_fuzz::{bounded, survives};
use libfuzzer_sys::fuzz_target;
use oncrpc::{CallError, CallHeader, RecordError, RecordReader, ReplyHeader, message_type};
use xdr::{Decoder, Encoder};

const RECORD_MAX: usize = 1 << 16;
const FRAGMENTS_MAX: u32 = 8;

fuzz_target!(|input: &[u8]| {
    let Some((chunk, stream)) = input.split_first() else { return };
    let in_chunks = bounded(stream.len() + RECORD_MAX / 1024, || records(stream, usize::from(*chunk).max(1)));
    let at_once = records(stream, stream.len().max(1));
    assert_eq!(in_chunks, at_once, "records do not depend on how the stream was cut");
    for record in in_chunks.0 {
        look_into(&record);
    }
});

/// The records of a stream that arrives in chunks, and the error that ended it.
fn records(stream: &[u8], chunk: usize) -> (Vec<Bytes>, Option<RecordError>) {
    let mut reader = RecordReader::new(RECORD_MAX, FRAGMENTS_MAX);
    let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
    for part in stream.chunks(chunk) {
        buffer.extend_from_slice(part);
        loop {
            match reader.feed(&mut buffer) {
                Ok(Some(record)) => {
                    assert!(record.len() <= RECORD_MAX);
                    found.push(record);
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!((1..=RECORD_MAX).contains(&reader.wanted()));
    }
    (found, None)
}

fn look_into(record: &Bytes) {
    survives::<ReplyHeader>(record);
    let mut d = Decoder::new(record.clone());
    let header = match bounded(record.len(), || CallHeader::decode(&mut d)) {
        Ok(header) => header,
        Err(error) => {
            let silent = matches!(error, CallError::Garbled(_) | CallError::NotACall { .. });
            assert_eq!(error.reply().is_none(), silent);
            return;
        }
    };
    assert!(message_type(record).is_ok_and(|(xid, _)| xid == header.xid));
    let mut e = Encoder::new();
    header.encode(&mut e);
    e.put_raw(&d.rest());
    let mut again = Decoder::new(e.into_bytes());
    assert_eq!(CallHeader::decode(&mut again), Ok(header));
    assert_eq!(again.rest(), d.rest());
}
