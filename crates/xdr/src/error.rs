//! Errors of decoding bytes as XDR.

use thiserror::Error;

/// Why bytes could not be decoded. Small and `Copy`, since hostile peers make many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum XdrError {
    #[error("message ends inside an item")]
    UnexpectedEnd,
    #[error("length {length} is over the limit of {limit}")]
    LengthOverLimit { length: u32, limit: usize },
    #[error("boolean is {0}, not 0 or 1")]
    InvalidBool(u32),
    #[error("{type_name} has no arm {value}")]
    InvalidDiscriminant { type_name: &'static str, value: u32 },
    #[error("string is not UTF-8")]
    InvalidUtf8,
    /// An array of items that take no bytes could claim any count for free, so it is refused.
    #[error("array item takes no bytes")]
    EmptyItem,
    #[error("items are nested too deeply")]
    DepthExceeded,
    #[error("message goes on after its last item")]
    TrailingBytes,
}
