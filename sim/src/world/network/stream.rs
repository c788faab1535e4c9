//! The two ends of a connection.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Side, World};
use crate::dice::TraceHasher;
use crate::histories::LineSubject;

/// Bytes on the way in one direction.
const WINDOW: usize = 256 << 10;

pub struct Wire {
    pub number: u64,
    pub pool: usize,
    /// Leaf lock.
    state: Mutex<WireState>,
}

#[derive(Default)]
struct WireState {
    /// By the side to which they lead.
    pipes: [Pipe; 2],
    ends: [End; 2],
}

#[derive(Default)]
struct Pipe {
    /// With the time at which they arrive.
    chunks: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    last: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Default)]
struct End {
    is_broken: bool,
    is_closed: bool,
    /// Nothing leaves it any more.
    is_silent: bool,
}

impl Pipe {
    fn push(&mut self, at: Instant, bytes: Bytes) {
        let at = self.last.map_or(at, |last| last.max(at));
        self.last = Some(at);
        self.bytes += bytes.len();
        self.chunks.push_back((at, bytes));
        self.wake();
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

impl Wire {
    pub fn new(number: u64, pool: usize) -> Arc<Wire> {
        Arc::new(Wire { number, pool, state: Mutex::default() })
    }

    /// The stream of draws for what leads to a side.
    pub fn draws_of(&self, to: Side) -> u64 {
        0x10_0000 + 2 * self.number + to as u64
    }

    /// Bytes to that side that were held back arrive from then on.
    pub fn send_again(&self, to: Side, from: Instant) {
        let mut state = self.state.lock();
        let pipe = &mut state.pipes[to as usize];
        for (at, _) in &mut pipe.chunks {
            *at = (*at).max(from);
        }
        if !pipe.chunks.is_empty() {
            pipe.last = pipe.last.max(Some(from));
        }
        pipe.wake();
    }

    pub fn break_end(&self, side: Side) {
        let mut state = self.state.lock();
        state.ends[side as usize].is_broken = true;
        state.pipes.iter_mut().for_each(Pipe::wake);
    }

    pub fn silence(&self, side: Side) {
        self.state.lock().ends[side as usize].is_silent = true;
    }
}

pub struct SimStream {
    world: Arc<World>,
    wire: Arc<Wire>,
    side: Side,
    timer: Pin<Box<Sleep>>,
}

impl SimStream {
    pub fn new(world: &Arc<World>, wire: &Arc<Wire>, side: Side) -> SimStream {
        let timer = Box::pin(sleep_until(Instant::now()));
        SimStream { world: Arc::clone(world), wire: Arc::clone(wire), side, timer }
    }

    /// Time passes until bytes that are on the way are here.
    fn poll_until(&mut self, at: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(context)
    }

    fn send(&self, bytes: Bytes) {
        let to = self.side.other();
        let delay = self.world.delay(self.wire.draws_of(to));
        let (pool, number) = (self.wire.pool, self.wire.number);
        let mut hasher = TraceHasher::default();
        hasher.write(&bytes);
        self.world.note(LineSubject::Bytes, (number, to, bytes.len(), hasher.finish()), || {
            format!("pool {pool}: connection {number}, {} bytes to the {to:?}", bytes.len())
        });
        let mut state = self.wire.state.lock();
        if !state.ends[self.side as usize].is_silent {
            state.pipes[to as usize].push(Instant::now() + delay, bytes);
        }
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.wire.state.lock();
        let end = &state.ends[self.side as usize];
        if end.is_broken || end.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let pipe = &mut state.pipes[self.side.other() as usize];
        if pipe.bytes > WINDOW {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn close(&self) {
        {
            let mut state = self.wire.state.lock();
            let end = &mut state.ends[self.side as usize];
            if std::mem::replace(&mut end.is_closed, true) {
                return;
            }
        }
        // The end of the stream comes behind all bytes.
        self.send(Bytes::new());
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        let wire = Arc::clone(&stream.wire);
        let is_cut = stream.world.network.is_cut(wire.pool, stream.side);
        let at = {
            let mut state = wire.state.lock();
            if state.ends[stream.side as usize].is_broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let pipe = &mut state.pipes[stream.side as usize];
            pipe.reader = Some(context.waker().clone());
            match pipe.chunks.front() {
                Some((at, _)) if !is_cut => *at,
                _ => return Poll::Pending,
            }
        };
        if at > Instant::now() {
            ready!(stream.poll_until(at, context));
        }
        let mut state = wire.state.lock();
        let pipe = &mut state.pipes[stream.side as usize];
        let Some((_, chunk)) = pipe.chunks.front_mut() else { return Poll::Pending };
        // The end of the stream is an empty chunk, which stays.
        let count = chunk.len().min(into.remaining());
        if count > 0 {
            into.put_slice(&chunk[..count]);
            chunk.advance(count);
            pipe.bytes -= count;
            if chunk.is_empty() {
                pipe.chunks.pop_front();
            }
            pipe.writer.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        self.send(Bytes::copy_from_slice(bytes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        let mut bytes = BytesMut::new();
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        let count = bytes.len();
        self.send(bytes.freeze());
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.close();
    }
}
