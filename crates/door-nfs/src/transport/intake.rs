//! Takes the records of one connection off its socket: short ones in a buffer, long ones in memory of their own.

use std::sync::Arc;

use aligned::AlignedBuffers;
use bytes::{Bytes, BytesMut};
use oncrpc::{RecordError, RecordReader};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

use super::Connection;
use super::long_record::{ALIGNMENT_BYTES, LongRecord};

/// Linux sends every request in one fragment; others may cut them.
const FRAGMENTS_MAX: u32 = 1024;
const READ_BYTES: usize = 64 << 10;
/// A WRITE of the largest size and what stands around it. Aligned memory for more has twice this size.
const LONGEST_BYTES: usize = (1 << 20) + ALIGNMENT_BYTES;

pub(super) struct Intake {
    reader: OwnedReadHalf,
    records: RecordReader,
    /// Bytes that have come and belong to no long record.
    buffer: BytesMut,
    long: Option<LongRecord>,
    memory: Arc<AlignedBuffers>,
}

impl Intake {
    pub fn new(reader: OwnedReadHalf, record_bytes_max: usize, memory: &Arc<AlignedBuffers>) -> Intake {
        Intake {
            reader,
            records: RecordReader::new(record_bytes_max, FRAGMENTS_MAX),
            buffer: BytesMut::new(),
            long: None,
            memory: Arc::clone(memory),
        }
    }

    /// A record that has come whole. After an error the stream is lost.
    pub fn next(&mut self) -> Result<Option<Bytes>, RecordError> {
        if let Some(long) = self.long.take_if(|long| long.is_complete()) {
            self.records.received();
            return Ok(Some(long.finish()));
        }
        if self.long.is_some() {
            return Ok(None);
        }
        let record = self.records.feed(&mut self.buffer)?;
        if record.as_ref().is_some_and(|record| record.len() > READ_BYTES) {
            // The buffer has grown for it, and would stay so large.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(record)
    }

    /// Memory that the record that has begun will take, as far as is known, if it is a long one.
    pub fn long_bytes(&self) -> Option<usize> {
        let expected = self.records.expected();
        (expected > READ_BYTES).then(|| self.memory_of(expected))
    }

    /// Memory that a record of this length takes, until its call is answered.
    pub fn memory_of(&self, length: usize) -> usize {
        if is_long(length) { self.memory.memory_of(length + ALIGNMENT_BYTES) } else { length }
    }

    pub fn is_between_records(&self) -> bool {
        self.records.is_between_records() && self.buffer.is_empty()
    }

    /// Reads what there is. False: the connection is over. Nothing is lost if it is given up.
    pub async fn read(&mut self, connection: &Connection) -> bool {
        if self.long.is_none()
            && let Some(length) = self.records.whole().filter(|length| is_long(*length))
        {
            let place = connection.payload_place();
            self.long = Some(LongRecord::begin(&self.memory, length, place, &mut self.buffer));
        }
        match &mut self.long {
            Some(long) => long.read(&mut self.reader).await,
            None => {
                self.buffer.reserve(self.records.wanted().max(READ_BYTES));
                matches!(self.reader.read_buf(&mut self.buffer).await, Ok(count) if count > 0)
            }
        }
    }

    pub fn socket(&self) -> &OwnedReadHalf {
        &self.reader
    }
}

/// Whether a record gets memory of its own.
fn is_long(length: usize) -> bool {
    (READ_BYTES + 1..=LONGEST_BYTES).contains(&length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_long_record_in_fragments_leaves_no_long_buffer_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let local = stream.local_addr().unwrap();
        let (reader, writer) = stream.into_split();
        let connection = Connection::new(peer, local, writer, Duration::from_secs(60));
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, 0);
        let mut intake = Intake::new(reader, 2 << 20, &memory);
        let sending = tokio::spawn(async move {
            client.write_all(&(1_u32 << 20).to_be_bytes()).await.unwrap();
            client.write_all(&vec![7; 1 << 20]).await.unwrap();
            client.write_all(&[0x80, 0, 0, 0, 0x80]).await.unwrap();
            client
        });
        let record = loop {
            if let Some(record) = intake.next().unwrap() {
                break record;
            }
            assert!(intake.read(&connection).await);
        };
        assert_eq!(record.len(), 1 << 20);
        drop(record);
        intake.buffer.reserve(READ_BYTES);
        assert!(intake.buffer.capacity() < 2 * READ_BYTES, "{}", intake.buffer.capacity());
        sending.await.unwrap();
    }
}
