//! How long the body is (RFC 9112 §6), in the strictest reading: whatever another server could understand in
//! another way is refused, since a proxy in front of us may be that server.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Version};

use super::HeadError;
use crate::list;

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// Neither `Content-Length` nor `Transfer-Encoding`: no body.
    None,
    Length(u64),
    Chunked,
}

pub(super) fn of(headers: &HeaderMap, version: Version) -> Result<BodyFraming, HeadError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = (lengths.next(), lengths.next());
    if headers.contains_key(TRANSFER_ENCODING) {
        return match length {
            (None, _) => chunked(headers, version),
            _ => Err(HeadError::TwoFramings),
        };
    }
    match length {
        (None, _) => Ok(BodyFraming::None),
        (Some(value), None) => {
            list::decimal(value.as_bytes()).map(BodyFraming::Length).ok_or(HeadError::ContentLength)
        }
        _ => Err(HeadError::ContentLength),
    }
}

fn chunked(headers: &HeaderMap, version: Version) -> Result<BodyFraming, HeadError> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(HeadError::TransferEncoding);
    };
    if version != Version::HTTP_11 {
        return Err(HeadError::TransferEncoding);
    }
    if value.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Ok(BodyFraming::Chunked);
    }
    // Another coding below a final `chunked` frames the body well enough to be told apart from an attack.
    let mut codings = list::items(value.as_bytes()).collect::<Vec<_>>();
    let last = codings.pop().unwrap_or_default();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(&last) && !codings.is_empty() && !codings.iter().any(is_chunked) {
        return Err(HeadError::TransferEncodingUnknown);
    }
    Err(HeadError::TransferEncoding)
}
