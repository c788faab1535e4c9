//! The data path's values: handles to running I/O, what a read gives, how stable a write is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_channel::oneshot;

use crate::PoolError;

/// An I/O under way: ready at once where the page cache had it, or answered later by a disk thread.
///
/// Dropping it does not cancel the I/O; a write that was handed in is done.
pub enum IoHandle<T> {
    Ready(Option<Result<T, PoolError>>),
    Waiting { answer: oneshot::Receiver<Result<T, PoolError>>, gone: PoolError, deadline: Option<Deadline> },
}

/// Ends when an answer is not waited for any longer.
type Deadline = Pin<Box<dyn Future<Output = PoolError> + Send + Sync>>;

impl<T> IoHandle<T> {
    pub fn ready(value: Result<T, PoolError>) -> IoHandle<T> {
        IoHandle::Ready(Some(value))
    }

    /// `gone` is what the caller gets if the disk thread dies without an answer.
    pub fn waiting(answer: oneshot::Receiver<Result<T, PoolError>>, gone: PoolError) -> IoHandle<T> {
        IoHandle::Waiting { answer, gone, deadline: None }
    }

    /// Gives `deadline` to an I/O that is not answered yet: the caller gets that error if it comes before the answer. The
    /// I/O goes on.
    pub fn until(self, deadline: impl Future<Output = PoolError> + Send + Sync + 'static) -> IoHandle<T> {
        match self {
            ready @ IoHandle::Ready(_) => ready,
            IoHandle::Waiting { answer, gone, .. } => {
                IoHandle::Waiting { answer, gone, deadline: Some(Box::pin(deadline)) }
            }
        }
    }
}

impl<T: Unpin> Future for IoHandle<T> {
    type Output = Result<T, PoolError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            IoHandle::Ready(value) => {
                Poll::Ready(value.take().expect("an IoHandle is not polled after it was ready"))
            }
            IoHandle::Waiting { answer, gone, deadline } => {
                if let Poll::Ready(answer) = Pin::new(answer).poll(context) {
                    return Poll::Ready(answer.unwrap_or_else(|_| Err(gone.clone())));
                }
                match deadline {
                    Some(deadline) => deadline.as_mut().poll(context).map(Err),
                    None => Poll::Pending,
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct ReadData {
    pub data: Bytes,
    /// The read reached or passed the end of the replica.
    pub end_of_file: bool,
}

/// How safe a write is when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// In the page cache; the write verifier and a later sync cover it.
    Unstable,
    /// Data, and what is needed to read it back, survive power loss.
    DataSync,
    /// Data and all attributes survive power loss.
    FileSync,
}

/// Changes whenever unsynced writes may have been lost: new at every start of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verifier(pub [u8; 8]);
