//! The receiving half of a connection: takes records off the stream, hands answers to their calls, and has calls answered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use oncrpc::{CallHeader, MessageType, RecordReader, ReplyHeader, message_type};
use tokio::io::{AsyncRead, AsyncReadExt, ReadHalf};
use tokio::task::JoinSet;
use tokio::time::timeout;
use xdr::Decoder;

use super::{ANSWER_BYTES_MAX, Answerer, CALLS_MAX, ClosedAtEnd, Connection, PATIENCE, PROGRAM, VERSION};
use crate::tasks;

const FRAGMENTS_MAX: u32 = 64;
/// Room for small records, of which many come in one read.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;

/// The connection is of no more use.
struct Broken(&'static str);

struct Incoming {
    connection: Arc<Connection>,
    answerer: Arc<dyn Answerer>,
    /// Calls that are being answered, with the bytes of each.
    answers: JoinSet<usize>,
    bytes: usize,
}

type Answering = Pin<Box<dyn Future<Output = usize> + Send>>;

/// Reads until the connection is closed, and then waits until what has begun is answered.
pub(super) async fn serve<S: AsyncRead>(
    connection: Arc<Connection>,
    reader: ReadHalf<S>,
    answerer: Arc<dyn Answerer>,
    record_bytes_max: usize,
) {
    let _ended = Ended(&connection);
    let mut incoming =
        Incoming { connection: Arc::clone(&connection), answerer, answers: JoinSet::new(), bytes: 0 };
    {
        let _closed = ClosedAtEnd(&connection);
        tokio::select! {
            biased;
            () = connection.closed() => {}
            Err(Broken(reason)) = incoming.read(reader, record_bytes_max) => tracing::debug!(reason, "closed a connection"),
        }
    }
    while incoming.answers.join_next().await.is_some() {}
}

/// Tells that nothing is answered any more when this is dropped.
struct Ended<'a>(&'a Connection);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.outgoing.lock().has_ended = true;
        self.0.closing.notify_waiters();
    }
}

impl Incoming {
    async fn read<S: AsyncRead>(
        &mut self,
        mut reader: ReadHalf<S>,
        record_bytes_max: usize,
    ) -> Result<(), Broken> {
        let mut records = RecordReader::new(record_bytes_max, FRAGMENTS_MAX);
        let mut buffer = BytesMut::new();
        loop {
            while let Some(record) = records.feed(&mut buffer).map_err(|_| Broken("a record is too long"))? {
                self.take(record).await?;
            }
            let is_between = records.is_between_records() && buffer.is_empty();
            let reading = read_some(&mut reader, &mut buffer, records.wanted());
            let read = match is_between {
                true => reading.await,
                false => timeout(PATIENCE, reading).await.map_err(|_| Broken("a record came half"))?,
            };
            match read {
                Ok(0) if is_between => return Err(Broken("the other side closed it")),
                Ok(0) => return Err(Broken("it ended within a record")),
                Ok(_) => {}
                Err(_) => return Err(Broken("it cannot be read")),
            }
        }
    }

    async fn take(&mut self, record: Bytes) -> Result<(), Broken> {
        let (xid, kind) = message_type(&record).map_err(|_| Broken("a message is garbled"))?;
        let bytes = record.len();
        let mut message = Decoder::new(record);
        match kind {
            MessageType::Reply => {
                self.connection.deliver(xid, message);
                Ok(())
            }
            MessageType::Call => {
                let call = match CallHeader::decode(&mut message) {
                    Ok(call) => call,
                    Err(error) => {
                        let reply = error.reply().ok_or(Broken("a call is garbled"))?;
                        self.connection.send_reply(&reply, Vec::new());
                        return self.await_room().await;
                    }
                };
                self.begin(&call, message, bytes).await?;
                self.await_room().await
            }
        }
    }

    async fn begin(&mut self, call: &CallHeader, arguments: Decoder, bytes: usize) -> Result<(), Broken> {
        let (xid, procedure) = (call.xid, call.procedure);
        if call.program != PROGRAM {
            self.connection.send_reply(&ReplyHeader::prog_unavail(xid), Vec::new());
            return Ok(());
        }
        if call.version != VERSION {
            self.connection.send_reply(&ReplyHeader::prog_mismatch(xid, VERSION, VERSION), Vec::new());
            return Ok(());
        }
        let (answerer, connection) = (Arc::clone(&self.answerer), Arc::clone(&self.connection));
        let mut answering: Answering = Box::pin(async move {
            connection.reply(xid, answerer.answer(procedure, arguments).await);
            bytes
        });
        // Here, and not in a task, so that calls begin in their order.
        if std::future::poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await.is_pending() {
            self.bytes += bytes;
            self.answers.spawn(tasks::of_caller(answering));
        }
        Ok(())
    }

    /// Returns when another call may be taken.
    async fn await_room(&mut self) -> Result<(), Broken> {
        loop {
            while let Some(answered) = self.answers.try_join_next() {
                self.note(answered)?;
            }
            let is_behind = self.connection.outgoing.lock().is_behind();
            if self.answers.len() < CALLS_MAX && self.bytes <= ANSWER_BYTES_MAX && !is_behind {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(answered) = self.answers.join_next() => self.note(answered)?,
                () = self.connection.sent.notified() => {}
            }
        }
    }

    fn note(&mut self, answered: Result<usize, tokio::task::JoinError>) -> Result<(), Broken> {
        self.bytes -= answered.map_err(|_| Broken("a call made a task panic"))?;
        Ok(())
    }
}

/// Reads into the place where a long record will be complete, and not beyond it.
async fn read_some<S: AsyncRead>(
    reader: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
    wanted: usize,
) -> std::io::Result<usize> {
    if buffer.capacity() - buffer.len() < wanted.max(READ_BYTES_MIN) {
        buffer.reserve(wanted.max(READ_BYTES));
    }
    let room = if wanted > READ_BYTES { wanted } else { buffer.capacity() - buffer.len() };
    reader.read_buf(&mut buffer.limit(room)).await
}
