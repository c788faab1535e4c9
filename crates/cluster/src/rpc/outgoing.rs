//! The sending half of a connection: a queue of messages, and the task that writes them.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use oncrpc::record_header;
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::time::timeout;
use xdr::Encoder;

use super::{ANSWER_BYTES_MAX, ClosedAtEnd, Connection, PATIENCE};

/// Segments handed to the stream at once.
const SLICES_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Outgoing {
    queue: VecDeque<Message>,
    /// In the queue or being written.
    pub call_bytes: usize,
    answer_bytes: usize,
    pub is_closed: bool,
    pub has_ended: bool,
}

/// One record in one fragment.
pub(super) struct Message {
    segments: Vec<Bytes>,
    bytes: usize,
    is_answer: bool,
}

impl Message {
    /// A header and what follows it, of which large segments are shared.
    pub fn of(header: impl FnOnce(&mut Encoder), body: Vec<Bytes>) -> Message {
        let mut encoder = Encoder::new();
        let mark = encoder.reserve_u32();
        header(&mut encoder);
        encoder.put_raw_segments(body);
        let bytes = encoder.len_since(mark);
        encoder.patch_u32(mark, u32::from_be_bytes(record_header(bytes)));
        Message { segments: encoder.into_segments(), bytes, is_answer: false }
    }

    /// Without the record's mark.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub fn into_segments(self) -> Vec<Bytes> {
        self.segments
    }
}

impl Outgoing {
    pub fn push_call(&mut self, message: Message) {
        self.call_bytes += message.bytes;
        self.queue.push_back(message);
    }

    pub fn push_answer(&mut self, message: Message) {
        if !self.is_closed {
            self.answer_bytes += message.bytes;
            self.queue.push_back(Message { is_answer: true, ..message });
        }
    }

    /// The other side takes its answers slower than they are made.
    pub fn is_behind(&self) -> bool {
        self.answer_bytes > ANSWER_BYTES_MAX
    }

    /// Messages that were not sent.
    #[must_use]
    pub fn close(&mut self) -> VecDeque<Message> {
        self.is_closed = true;
        std::mem::take(&mut self.queue)
    }

    /// The next messages, as many as are written at once.
    fn take(&mut self) -> Batch {
        if self.is_closed {
            return Batch::Closed;
        }
        let mut segments = 0;
        let fits = |message: &&Message| {
            segments += message.segments.len();
            segments <= SLICES_MAX
        };
        match self.queue.iter().take_while(fits).count() {
            0 if self.queue.is_empty() => Batch::Empty,
            count => Batch::Messages(self.queue.drain(..count.max(1)).collect()),
        }
    }

    fn note_sent(&mut self, batch: &[Message]) {
        for message in batch {
            let bytes = if message.is_answer { &mut self.answer_bytes } else { &mut self.call_bytes };
            *bytes -= message.bytes;
        }
    }
}

enum Batch {
    Messages(Vec<Message>),
    Empty,
    Closed,
}

/// Writes what is queued until the connection is closed.
pub(super) async fn send<S: AsyncWrite>(connection: Arc<Connection>, mut writer: WriteHalf<S>) {
    let _closed = ClosedAtEnd(&connection);
    loop {
        let batch = connection.outgoing.lock().take();
        let is_well = match batch {
            Batch::Closed => return,
            Batch::Empty => {
                connection.queued.notified().await;
                true
            }
            Batch::Messages(batch) => tokio::select! {
                biased;
                () = connection.closed() => return,
                is_written = write(&connection, &mut writer, batch) => is_written,
            },
        };
        if !is_well {
            tracing::debug!("the other side does not take what is sent, closed a connection");
            return;
        }
    }
}

async fn write<S: AsyncWrite>(
    connection: &Connection,
    writer: &mut WriteHalf<S>,
    mut batch: Vec<Message>,
) -> bool {
    let taken = batch.iter_mut().map(|message| std::mem::take(&mut message.segments));
    let mut segments: VecDeque<Bytes> = taken.flatten().collect();
    while !segments.is_empty() {
        let slices: Vec<_> = segments.iter().take(SLICES_MAX).map(|segment| IoSlice::new(segment)).collect();
        match timeout(PATIENCE, writer.write_vectored(&slices)).await {
            Ok(Ok(written)) if written > 0 => pass_over(&mut segments, written),
            _ => return false,
        }
    }
    // TLS may hold bytes back.
    let is_last = connection.outgoing.lock().queue.is_empty();
    if is_last && !matches!(timeout(PATIENCE, writer.flush()).await, Ok(Ok(()))) {
        return false;
    }
    connection.outgoing.lock().note_sent(&batch);
    connection.sent.notify_one();
    true
}

fn pass_over(segments: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(front) = segments.front_mut() {
        if written < front.len() {
            front.advance(written);
            return;
        }
        written -= front.len();
        segments.pop_front();
    }
}
