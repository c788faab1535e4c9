//! Why a target is refused, and the bounds of its path.

use http::StatusCode;
use thiserror::Error;
use types::Name;

pub const DEPTH_MAX: usize = 256;
/// Of all names together, decoded. Encoded they may be three times as long, and the request line's limit holds.
pub const PATH_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    #[error("the path does not begin with a slash")]
    NotAPath,
    #[error("a % is not followed by two hexadecimal digits")]
    Escape,
    #[error("the path contains an encoded slash or NUL")]
    BadCharacter,
    #[error("the path contains a component . or ..")]
    Dot,
    #[error("a name in the path is longer than {} bytes", Name::BYTES_MAX)]
    NameTooLong,
    #[error("the path is longer than {PATH_BYTES_MAX} bytes or deeper than {DEPTH_MAX} directories")]
    TooLong,
    #[error("the query is not text in pairs, or has too many")]
    Query,
}

impl TargetError {
    pub fn status(self) -> StatusCode {
        match self {
            TargetError::NameTooLong | TargetError::TooLong => StatusCode::URI_TOO_LONG,
            TargetError::NotAPath
            | TargetError::Escape
            | TargetError::BadCharacter
            | TargetError::Dot
            | TargetError::Query => StatusCode::BAD_REQUEST,
        }
    }
}
