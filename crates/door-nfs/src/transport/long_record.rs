//! Long records: each is received into memory of its own that is used again, placed so that the payload of a WRITE lies
//! where direct I/O can take it.
//!
//! A client builds one WRITE like the other, so the place of the payload in the last record tells that in the next one. A
//! wrong guess costs a copy on the way to the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aligned::{ALIGNMENT_BYTES_MIN, AlignedBuffer, AlignedBuffers};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// Direct I/O takes whole blocks of the file from memory at multiples of this.
pub(super) const ALIGNMENT_BYTES: usize = ALIGNMENT_BYTES_MIN;
/// Shorter payloads are copied, and teach nothing.
const LONG_BYTES: usize = 64 << 10;

pub(super) struct LongRecord {
    memory: AlignedBuffer,
    /// The record is `start..`.
    start: usize,
    /// The end of what has come.
    filled: usize,
}

/// Where whole blocks began in the last record with a long payload, modulo the alignment.
#[derive(Default)]
pub(super) struct PayloadPlace(AtomicUsize);

impl LongRecord {
    /// Takes what has come of it off `received`.
    pub fn begin(
        memory: &Arc<AlignedBuffers>,
        length: usize,
        place: &PayloadPlace,
        received: &mut BytesMut,
    ) -> LongRecord {
        let start = (ALIGNMENT_BYTES - place.0.load(Ordering::Relaxed)) % ALIGNMENT_BYTES;
        let mut memory = memory.take(start + length);
        let has_come = received.len().min(length);
        received.copy_to_slice(&mut memory.bytes_mut()[start..start + has_come]);
        LongRecord { memory, start, filled: start + has_come }
    }

    /// Reads what there is, up to the end of the record. False: the connection is over.
    pub async fn read(&mut self, reader: &mut OwnedReadHalf) -> bool {
        match reader.read(&mut self.memory.bytes_mut()[self.filled..]).await {
            Ok(count) => {
                self.filled += count;
                count > 0
            }
            Err(_) => false,
        }
    }

    pub fn is_complete(&self) -> bool {
        self.filled == self.memory.bytes().len()
    }

    pub fn finish(self) -> Bytes {
        debug_assert!(self.is_complete(), "bytes that have not come are not given out");
        self.memory.freeze(self.start..self.filled)
    }
}

impl PayloadPlace {
    /// The payload, for the file from `offset`, came in the record that begins at this address.
    pub fn learn(&self, record_address: usize, payload: &[u8], offset: u64) {
        if payload.len() < LONG_BYTES {
            return;
        }
        let before_blocks = (offset as usize).wrapping_neg() % ALIGNMENT_BYTES;
        let blocks = payload.as_ptr().addr() + before_blocks;
        self.0.store(blocks.wrapping_sub(record_address) % ALIGNMENT_BYTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of one WRITE: `before` bytes of RPC and COMPOUND, then the payload.
    fn received(memory: &Arc<AlignedBuffers>, place: &PayloadPlace, before: usize, offset: u64) -> Bytes {
        let length = before + LONG_BYTES + 8;
        let mut come: BytesMut = (0..length).map(|at| at as u8).collect();
        let record = LongRecord::begin(memory, length, place, &mut come);
        assert!(come.is_empty() && record.is_complete());
        let record = record.finish();
        assert!(record.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        place.learn(record.as_ptr().addr(), &record[before..before + LONG_BYTES], offset);
        record
    }

    fn is_aligned(record: &Bytes, before: usize, offset: u64) -> bool {
        let block = offset.next_multiple_of(ALIGNMENT_BYTES as u64);
        let blocks = record[before + (block - offset) as usize..].as_ptr().addr();
        blocks.is_multiple_of(ALIGNMENT_BYTES)
    }

    #[test]
    fn whole_blocks_of_a_second_write_of_the_same_shape_are_aligned() {
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, 1 << 20);
        for (before, offset) in [(212, 0), (212, 2104), (236, 2104 + (1 << 20)), (4000, 4095), (4096, 1)] {
            let place = PayloadPlace::default();
            received(&memory, &place, before, offset);
            let second = received(&memory, &place, before, offset + (7 << 20));
            assert!(is_aligned(&second, before, offset), "{before} {offset}");
            let third = received(&memory, &place, before, offset + (9 << 20));
            assert!(is_aligned(&third, before, offset), "{before} {offset}");
        }
    }

    #[test]
    fn a_write_of_another_shape_is_received_whole_and_teaches_its_place() {
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, 1 << 20);
        let place = PayloadPlace::default();
        received(&memory, &place, 212, 0);
        assert!(!is_aligned(&received(&memory, &place, 300, 100), 300, 100));
        assert!(is_aligned(&received(&memory, &place, 300, 100), 300, 100));
    }

    #[test]
    fn a_record_that_is_in_use_keeps_its_memory_from_the_next() {
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, 1 << 20);
        let place = PayloadPlace::default();
        let first = received(&memory, &place, 212, 0);
        let second = received(&memory, &place, 212, 0);
        assert_eq!(first, second);
        drop(second);
        assert!(memory.kept_bytes() > 0, "it is used again");
        assert_eq!(first[7], 7);
    }

    #[tokio::test]
    async fn a_record_is_read_to_its_end_and_no_further() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut reader, _writer) = listener.accept().await.unwrap().0.into_split();
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, 1 << 20);
        let mut come = BytesMut::from(&b"he"[..]);
        let mut record = LongRecord::begin(&memory, 5, &PayloadPlace::default(), &mut come);
        tokio::io::AsyncWriteExt::write_all(&mut client, b"llo, next").await.unwrap();
        while !record.is_complete() {
            assert!(record.read(&mut reader).await);
        }
        assert_eq!(record.finish(), "hello");
        drop(client);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b", next");
        let mut ended = LongRecord::begin(&memory, 5, &PayloadPlace::default(), &mut come);
        assert!(!ended.read(&mut reader).await, "the connection is over");
    }
}
