//! Percent-encoding undone (RFC 3986 §2.1).

use types::hex;

use crate::target_error::TargetError;

/// The library's decoder leaves a broken escape as it is; here it is an error.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, TargetError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok(out),
            [b'%', high, low, after @ ..] => {
                let (Some(high), Some(low)) = (hex::value(*high), hex::value(*low)) else {
                    return Err(TargetError::Escape);
                };
                out.push(high << 4 | low);
                after
            }
            [b'%', ..] => return Err(TargetError::Escape),
            [byte, after @ ..] => {
                out.push(*byte);
                after
            }
        };
    }
}
