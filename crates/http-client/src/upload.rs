//! The body of a request that sends one, held back until the server has said that it wants it.
//!
//! With `Expect: 100-continue` a redirect or a refusal comes before the first byte, so the same body can go to where it
//! is wanted: the stream lies in the gate and is taken out by the connection that first gets to send it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};

pub type UploadStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

pub struct Upload {
    /// `None`: sent chunked. Else the stream must give exactly so many bytes.
    pub length: Option<u64>,
    pub stream: UploadStream,
}

/// State of an upload that a request and its connection share.
pub(crate) struct Gate {
    length: Option<u64>,
    /// Which attempt may send; an earlier one whose connection is just being dropped must not take the stream.
    attempt: AtomicU64,
    is_open: AtomicBool,
    waker: AtomicWaker,
    /// Until it is begun.
    stream: Mutex<Option<UploadStream>>,
    is_begun: AtomicBool,
    is_finished: AtomicBool,
    sent_bytes: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Gate {
    pub fn new(upload: Upload) -> Arc<Gate> {
        Arc::new(Gate {
            length: upload.length,
            attempt: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            stream: Mutex::new(Some(upload.stream)),
            is_begun: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Shuts the gate and gives the number of the attempt that it may be opened for.
    pub fn begin_attempt(&self) -> u64 {
        self.is_open.store(false, Ordering::SeqCst);
        self.attempt.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn open(&self, attempt: u64) {
        if self.attempt.load(Ordering::SeqCst) == attempt {
            self.is_open.store(true, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    fn is_open_for(&self, attempt: u64) -> bool {
        self.is_open.load(Ordering::SeqCst) && self.attempt.load(Ordering::SeqCst) == attempt
    }

    pub fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Bytes that the connection has taken; the last of them may still be in its buffers.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Why our own side could not go on, if it could not.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }

    fn fail(&self, reason: String) -> io::Error {
        *lock(&self.failure) = Some(reason.clone());
        io::Error::other(reason)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As hyper sees it.
pub(crate) enum Body {
    Empty,
    Upload { gate: Arc<Gate>, attempt: u64, stream: Option<UploadStream> },
}

impl Body {
    pub fn of(gate: &Arc<Gate>, attempt: u64) -> Body {
        Body::Upload { gate: Arc::clone(gate), attempt, stream: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Body::Upload { gate, attempt, stream } = self.get_mut() else { return Poll::Ready(None) };
        if stream.is_none() {
            if gate.attempt.load(Ordering::SeqCst) == *attempt {
                gate.waker.register(context.waker());
            }
            if !gate.is_open_for(*attempt) {
                return Poll::Pending;
            }
            *stream = lock(&gate.stream).take();
            gate.is_begun.store(true, Ordering::Release);
        }
        let Some(stream) = stream else {
            return Poll::Ready(Some(Err(gate.fail("the body was sent before".to_owned()))));
        };
        let sent = gate.sent_bytes();
        match ready!(stream.as_mut().poll_next(context)) {
            Some(Ok(data)) => {
                let sent = sent + data.len() as u64;
                if gate.length.is_some_and(|length| sent > length) {
                    return Poll::Ready(Some(Err(
                        gate.fail("it is longer than it was said to be".to_owned())
                    )));
                }
                gate.sent_bytes.store(sent, Ordering::Relaxed);
                if gate.length == Some(sent) {
                    gate.is_finished.store(true, Ordering::Release);
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(gate.fail(error.to_string())))),
            None if gate.length.is_some_and(|length| sent < length) => {
                Poll::Ready(Some(Err(gate.fail("it ends before its length".to_owned()))))
            }
            None => {
                gate.is_finished.store(true, Ordering::Release);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Upload { gate, .. } => gate.length == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Upload { gate, .. } => match gate.length {
                Some(length) => SizeHint::with_exact(length.saturating_sub(gate.sent_bytes())),
                None => SizeHint::default(),
            },
        }
    }
}
