//! The one error of the reader and of values.

use thiserror::Error;

use crate::Tag;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DerError {
    #[error("value ends early")]
    Truncated,
    #[error("tag {:#x} where {:#x} belongs", found.0, wanted.0)]
    Tag { wanted: Tag, found: Tag },
    #[error("tag has more than one byte")]
    LongTag,
    #[error("length is not in its shortest form")]
    Length,
    #[error("bytes are left over")]
    Trailing,
    #[error("value is out of range")]
    Range,
}
