//! The body of a request, pulled by its handler.

use bytes::Bytes;
use thiserror::Error;

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
pub struct RequestBody {
    length: Option<u64>,
}

impl RequestBody {
    /// Zero for a request without a body; `None` for a chunked one.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The client waits with the body until it is told to go on: a redirect or an error may come first.
    pub fn is_awaited(&self) -> bool {
        false
    }

    /// The next bytes, `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        Ok(None)
    }

    /// All of a small body.
    pub async fn collect(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        let mut whole = bytes::BytesMut::new();
        while let Some(part) = self.next().await? {
            if (whole.len() + part.len()) as u64 > bytes_max {
                return Err(BodyError::TooLong(bytes_max));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }
}
