//! A connection's stream with what was received and not used yet, and what is to be sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::budget::Account;
use crate::clock::within;
use crate::segments::Segments;
use crate::stream::Stream;

/// Of what a client sends while it waits for an answer, this much is looked at; then only a failing write tells that it
/// went away.
const UNASKED_BYTES_MAX: usize = 16 << 10;

pub(crate) struct Wire {
    pub stream: Stream,
    pub received: BytesMut,
    pub out: Segments,
    /// Pays for the connection's memory.
    pub account: Arc<Account>,
    /// Bytes that the stream has taken, and what of them goes before the body of the response under way.
    pub sent: u64,
    pub body_begins: u64,
}

impl Wire {
    pub fn new(stream: Stream, account: Arc<Account>) -> Wire {
        Wire {
            stream,
            received: BytesMut::with_capacity(4 << 10),
            out: Segments::default(),
            account,
            sent: 0,
            body_begins: 0,
        }
    }

    /// Appends what comes to `received`; zero is the end. Loses nothing when dropped.
    pub async fn receive(&mut self, room: usize) -> io::Result<usize> {
        if self.received.capacity() - self.received.len() < room / 2 {
            self.received.reserve(room);
        }
        self.stream.read_buf(&mut self.received).await
    }

    /// Writes all of `out`. The client must take some of it within `patience`, again and again.
    pub async fn send(&mut self, patience: Duration) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut room = Segments::room();
            let slices = self.out.slices(&mut room);
            let written = within(patience, self.stream.write_vectored(slices)).await??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.out.advance(written);
            self.sent += written as u64;
        }
        if self.stream.plain().is_none() {
            within(patience, self.stream.flush()).await??;
        }
        Ok(())
    }

    /// The head of a response is in `out` now; bytes that follow are of its body.
    pub fn begin_body(&mut self) {
        self.body_begins = self.sent + self.out.bytes() as u64;
    }

    /// Bytes of the body that the stream has taken, with their chunk heads if there are any.
    pub fn body_bytes(&self) -> u64 {
        self.sent.saturating_sub(self.body_begins)
    }

    /// Waits until the client has closed the connection, or its half of it. Loses nothing when dropped.
    pub async fn gone(&mut self) {
        while self.received.len() < UNASKED_BYTES_MAX {
            if matches!(self.receive(4 << 10).await, Ok(0) | Err(_)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Closes so that the client can still read what was sent: a connection that is closed with bytes unread is reset,
    /// and a reset overtakes the response (RFC 9112 §9.6).
    pub async fn linger(mut self: Box<Self>, limit: Duration) {
        let deadline = Instant::now() + limit;
        if !matches!(timeout_at(deadline, self.stream.shutdown()).await, Ok(Ok(()))) {
            return;
        }
        loop {
            self.received.clear();
            match timeout_at(deadline, self.receive(8 << 10)).await {
                Ok(Ok(received)) if received > 0 => {}
                _ => return,
            }
        }
    }

    /// Says goodbye where the protocol below has a word for it.
    pub async fn close(mut self: Box<Self>, patience: Duration) {
        // Nobody is left who could be told.
        let _ = timeout(patience.min(Duration::from_secs(1)), self.stream.shutdown()).await;
    }

    /// When it is dropped now, the client sees an error and not an end: what it has of the response is not all.
    pub fn reset_on_drop(&self) {
        if let Err(error) = self.stream.tcp().set_zero_linger() {
            tracing::debug!(%error, "cannot reset a connection");
        }
    }
}
