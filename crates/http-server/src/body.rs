//! The body of a request, pulled by its handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::time::timeout;

use crate::body_error::BodyError;
use crate::budget::{Account, charged};
use crate::h1::Slot;
use crate::h2::Frames;

/// Nothing of it is read, and no `100 Continue` is sent, before the first [`RequestBody::next`].
///
/// It belongs to the call it came with: once that is answered, `next` says `Gone`. After an error nothing more comes.
pub struct RequestBody {
    length: Option<u64>,
    is_awaited: bool,
    source: Source,
    /// Where bytes that the handler has read are counted.
    counter: Option<Arc<AtomicU64>>,
}

enum Source {
    Memory(Option<Bytes>),
    /// The connection, lent.
    H1(Arc<Slot>),
    H2(Box<Frames>),
}

impl RequestBody {
    pub fn empty() -> RequestBody {
        RequestBody { length: Some(0), is_awaited: false, source: Source::Memory(None), counter: None }
    }

    /// A body that is all there, for tests and for requests that one part of the server makes to another.
    pub fn of(bytes: impl Into<Bytes>) -> RequestBody {
        let bytes = bytes.into();
        RequestBody {
            length: Some(bytes.len() as u64),
            is_awaited: false,
            source: Source::Memory(Some(bytes).filter(|bytes| !bytes.is_empty())),
            counter: None,
        }
    }

    /// As of a client that waits with its body.
    pub fn awaited(self) -> RequestBody {
        RequestBody { is_awaited: true, ..self }
    }

    pub(crate) fn h1(slot: Arc<Slot>, length: Option<u64>, is_awaited: bool) -> RequestBody {
        RequestBody { length, is_awaited, source: Source::H1(slot), counter: None }
    }

    pub(crate) fn h2(frames: Frames, length: Option<u64>) -> RequestBody {
        RequestBody { length, is_awaited: false, source: Source::H2(Box::new(frames)), counter: None }
    }

    pub(crate) fn counted(self, counter: Option<Arc<AtomicU64>>) -> RequestBody {
        RequestBody { counter, ..self }
    }

    /// Zero for a request without a body; `None` for a chunked one.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The client waits with the body until it is told to go on: a redirect or an error may come first.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The next bytes, never empty; `None` at the end. Large where the client is fast: up to 1 MiB. Dropped in the
    /// middle it loses nothing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        self.is_awaited = false;
        let next = match &mut self.source {
            Source::Memory(bytes) => Ok(bytes.take()),
            Source::H1(slot) => slot.next().await,
            Source::H2(frames) => frames.next().await,
        };
        if let (Some(counter), Ok(Some(bytes))) = (&self.counter, &next) {
            counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        next
    }

    /// All of a small body, in the time that any body has to get on. It is charged to its connection.
    pub async fn collect(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        if self.length.is_some_and(|length| length > bytes_max) {
            return Err(BodyError::TooLong(bytes_max));
        }
        let (account, patience) = match &self.source {
            Source::Memory(_) => return within(self.next().await?.unwrap_or_default(), bytes_max),
            Source::H1(slot) => (Arc::clone(&slot.account), slot.intake.limits.body_time),
            Source::H2(frames) => (Arc::clone(&frames.account), frames.intake.limits.body_time),
        };
        timeout(patience, self.gather(bytes_max, &account)).await.unwrap_or(Err(BodyError::Slow))
    }

    /// Copies each part: what parts come in is larger than most of them.
    async fn gather(&mut self, bytes_max: u64, account: &Arc<Account>) -> Result<Bytes, BodyError> {
        let (mut whole, mut charge) = (Vec::new(), None);
        let most = self.length.unwrap_or(u64::MAX).min(bytes_max);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        while let Some(part) = self.next().await? {
            let len = whole.len() + part.len();
            if len as u64 > bytes_max {
                return Err(BodyError::TooLong(bytes_max));
            }
            if len > whole.capacity() {
                let capacity = (2 * whole.capacity()).min(most).max(len);
                // Where there is no room to double, the bytes at hand are enough.
                let granted = [capacity, len].into_iter().find(|bytes| account.grow(&mut charge, *bytes));
                whole.reserve_exact(granted.ok_or(BodyError::Busy)? - whole.len());
            }
            whole.extend_from_slice(&part);
        }
        Ok(match charge {
            Some(charge) => charged(vec![whole.into()], charge).next().unwrap_or_default(),
            None => Bytes::new(),
        })
    }
}

fn within(bytes: Bytes, bytes_max: u64) -> Result<Bytes, BodyError> {
    if bytes.len() as u64 > bytes_max { Err(BodyError::TooLong(bytes_max)) } else { Ok(bytes) }
}
