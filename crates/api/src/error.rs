//! One error enum per seam. Doors translate them in their `status.rs`, nobody else does.

use thiserror::Error;
use types::{FileId, PoolId};

#[derive(Debug, Error)]
pub enum NamespaceError {
    #[error("no such entry")]
    NotFound,
    #[error("no such file: {0}")]
    Stale(FileId),
    #[error("entry exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("not a symbolic link")]
    NotSymlink,
    #[error("not a regular file")]
    NotRegular,
    #[error("directory is not empty")]
    NotEmpty,
    /// The mode bits refuse it (`EACCES`).
    #[error("access denied")]
    AccessDenied,
    /// Only the owner or root may (`EPERM`).
    #[error("operation not permitted")]
    NotPermitted,
    #[error("a directory would become its own descendant")]
    Cycle,
    #[error("too many links")]
    TooManyLinks,
    #[error("listing cookie is not of this directory")]
    BadCookie,
    /// Another file has the name than the caller has found there.
    #[error("name stands for another file now")]
    Moved,
    #[error("no space left for the namespace database")]
    NoSpace,
    /// Of the user, of the group, or of a directory above.
    #[error("quota is exceeded")]
    QuotaExceeded,
    #[error("namespace is read-only: {0}")]
    ReadOnly(String),
    /// The bounded queue before the committer is full, or the service is stopping; the caller may try again.
    #[error("namespace is busy")]
    Busy,
    #[error("namespace database failed: {0}")]
    Database(String),
}

impl NamespaceError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, NamespaceError::Busy)
    }
}

#[derive(Debug, Clone, Error)]
pub enum PoolError {
    #[error("{0} has no replica of the file")]
    NoReplica(PoolId),
    /// The ticket is of an older epoch: the layout behind it was revoked.
    #[error("ticket is fenced off")]
    Fenced,
    #[error("ticket does not allow writing")]
    ReadOnlyTicket,
    #[error("{0} has no space left above its reserve")]
    NoSpace(PoolId),
    #[error("file is larger than the pool's file system allows")]
    TooLarge,
    #[error("file system of {0} cannot do that")]
    Unsupported(PoolId),
    #[error("{0} is not available")]
    Offline(PoolId),
    /// No answer came in time, or the connection was lost before it: the pool may have done it, or do it yet. All other
    /// errors are answers. Each operation of the seam may be asked for again.
    #[error("{0} gave no answer")]
    Unknown(PoolId),
    /// The bounded queue of the disk is full, or the pool is stopping; the caller may try again.
    #[error("{0} is busy")]
    Busy(PoolId),
    #[error("{pool} failed to {operation}: {reason}")]
    Io { pool: PoolId, operation: &'static str, reason: String },
}

impl PoolError {
    pub fn is_retryable(&self) -> bool {
        matches!(self, PoolError::Busy(_))
    }
}

#[derive(Debug, Clone, Error)]
pub enum SelectError {
    #[error("no pool has space for it")]
    NoSpace,
    #[error("no pool that holds the file is available")]
    Unavailable,
    /// As before, and the host of one of them may answer again.
    #[error("the host of a pool does not answer now")]
    Away,
    /// The file has data, or had some, and no good replica is noted.
    #[error("file has no good replica")]
    NoLocation,
}
