//! The body of a request, pulled by its handler.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::h1::Slot;
use crate::h2::Frames;

#[derive(Debug, Error)]
pub enum BodyError {
    #[error("client went away in the middle of the body")]
    Gone,
    #[error("body did not come in time")]
    Slow,
    #[error("body is not well-formed: {0}")]
    Malformed(&'static str),
    #[error("body is longer than {0} bytes")]
    TooLong(u64),
}

/// Nothing of it is read, and no `100 Continue` is sent, before the first [`RequestBody::next`].
///
/// It belongs to the call it came with: once that is answered, `next` says `Gone`. After an error nothing more comes.
pub struct RequestBody {
    length: Option<u64>,
    is_awaited: bool,
    source: Source,
}

enum Source {
    Memory(Option<Bytes>),
    /// The connection, lent.
    H1(Arc<Slot>),
    H2(Box<Frames>),
}

impl RequestBody {
    pub fn empty() -> RequestBody {
        RequestBody { length: Some(0), is_awaited: false, source: Source::Memory(None) }
    }

    /// A body that is all there, for tests and for requests that one part of the server makes to another.
    pub fn of(bytes: impl Into<Bytes>) -> RequestBody {
        let bytes = bytes.into();
        RequestBody {
            length: Some(bytes.len() as u64),
            is_awaited: false,
            source: Source::Memory(Some(bytes).filter(|bytes| !bytes.is_empty())),
        }
    }

    pub(crate) fn h1(slot: Arc<Slot>, length: Option<u64>, is_awaited: bool) -> RequestBody {
        RequestBody { length, is_awaited, source: Source::H1(slot) }
    }

    pub(crate) fn h2(frames: Frames, length: Option<u64>) -> RequestBody {
        RequestBody { length, is_awaited: false, source: Source::H2(Box::new(frames)) }
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
        match &mut self.source {
            Source::Memory(bytes) => Ok(bytes.take()),
            Source::H1(slot) => slot.next().await,
            Source::H2(frames) => frames.next().await,
        }
    }

    /// All of a small body.
    pub async fn collect(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        if self.length.is_some_and(|length| length > bytes_max) {
            return Err(BodyError::TooLong(bytes_max));
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await? else { return within(first, bytes_max) };
        let mut whole = BytesMut::from(&first[..]);
        let mut part = second;
        loop {
            if (whole.len() + part.len()) as u64 > bytes_max {
                return Err(BodyError::TooLong(bytes_max));
            }
            whole.extend_from_slice(&part);
            match self.next().await? {
                Some(next) => part = next,
                None => return Ok(whole.freeze()),
            }
        }
    }
}

fn within(bytes: Bytes, bytes_max: u64) -> Result<Bytes, BodyError> {
    if bytes.len() as u64 > bytes_max { Err(BodyError::TooLong(bytes_max)) } else { Ok(bytes) }
}
