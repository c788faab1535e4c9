//! A stream of which a test stops the reading, as if the reader hung.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Default)]
pub(super) struct Hold(Mutex<State>);

#[derive(Default)]
struct State {
    is_held: bool,
    /// Readers that are to go on.
    held: Vec<Waker>,
}

impl Hold {
    pub fn set(&self, is_held: bool) {
        let held = {
            let mut state = self.0.lock();
            state.is_held = is_held;
            if is_held { Vec::new() } else { std::mem::take(&mut state.held) }
        };
        held.into_iter().for_each(Waker::wake);
    }

    pub fn is_held(&self) -> bool {
        self.0.lock().is_held
    }

    fn keeps(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.is_held {
            state.held.retain(|held| !held.will_wake(waker));
            state.held.push(waker.clone());
        }
        state.is_held
    }
}

pub(super) struct Holdable<S> {
    stream: S,
    hold: Arc<Hold>,
}

impl<S> Holdable<S> {
    pub fn new(stream: S, hold: Arc<Hold>) -> Holdable<S> {
        Holdable { stream, hold }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Holdable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.hold.keeps(context.waker()) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Holdable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
