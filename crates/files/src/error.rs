//! Why a file cannot be used now.

use api::{NamespaceError, PoolError, SelectError};
use file_state::FileStateError;
use thiserror::Error;
use types::FileId;

use crate::{UploadError, WalkError};

#[derive(Debug, Error)]
pub enum FilesError {
    #[error(transparent)]
    Namespace(NamespaceError),
    /// The path cannot be walked by this caller, or by nobody. Errors of the namespace on the way are `Namespace`.
    #[error(transparent)]
    Path(WalkError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Select(#[from] SelectError),
    /// Others still have layouts of the file: they have been asked to give them back, and the same call may do later.
    #[error("clients are asked to give the file back")]
    Recalled,
    /// Somebody else has the file open in a way that does not go with this, or has locked it.
    #[error("file is open or locked by another client")]
    Denied,
    /// While bytes of the file were asked for it became shorter, and they lie behind its end now.
    #[error("file was made shorter meanwhile")]
    Shortened,
    /// The name stands for another file than the caller has found, or for another one each time that it was looked up.
    #[error("name stands for another file now")]
    Moved,
    #[error("file would be larger than files can be")]
    TooLarge,
    #[error("the bound of {0} is reached")]
    Limit(&'static str),
    #[error(transparent)]
    Upload(#[from] UploadError),
}

impl From<NamespaceError> for FilesError {
    fn from(error: NamespaceError) -> FilesError {
        match error {
            NamespaceError::Moved => FilesError::Moved,
            error => FilesError::Namespace(error),
        }
    }
}

impl From<WalkError> for FilesError {
    fn from(error: WalkError) -> FilesError {
        match error {
            WalkError::Namespace(error) => error.into(),
            error => FilesError::Path(error),
        }
    }
}

impl FilesError {
    /// Translates an error of the conflict table.
    pub fn of_table(file: FileId, error: FileStateError) -> FilesError {
        match error {
            FileStateError::ShareDenied | FileStateError::Locked(_) => FilesError::Denied,
            FileStateError::RecallConflict | FileStateError::InUse => FilesError::Recalled,
            FileStateError::Gone => FilesError::Namespace(NamespaceError::Stale(file)),
            FileStateError::Limit(what) => FilesError::Limit(what),
        }
    }

    /// Whether the same call may succeed in a moment, without anything else being done.
    pub fn is_retryable(&self) -> bool {
        match self {
            FilesError::Namespace(error) => error.is_retryable(),
            FilesError::Pool(error) => error.is_retryable(),
            FilesError::Recalled | FilesError::Shortened | FilesError::Moved => true,
            FilesError::Path(_)
            | FilesError::Select(_)
            | FilesError::Denied
            | FilesError::TooLarge
            | FilesError::Limit(_)
            | FilesError::Upload(_) => false,
        }
    }

    /// Whether the same call may succeed some day, because others do something: a lock ends, a pool comes back.
    pub fn may_pass(&self) -> bool {
        match self {
            FilesError::Namespace(error) => {
                matches!(error, NamespaceError::Busy | NamespaceError::ReadOnly(_))
            }
            FilesError::Pool(error) => matches!(
                error,
                PoolError::Fenced
                    | PoolError::NoReplica(_)
                    | PoolError::Offline(_)
                    | PoolError::Unknown(_)
                    | PoolError::Busy(_)
            ),
            FilesError::Select(error) => matches!(error, SelectError::Unavailable | SelectError::Away),
            FilesError::Recalled
            | FilesError::Shortened
            | FilesError::Moved
            | FilesError::Denied
            | FilesError::Limit(_) => true,
            FilesError::Upload(error) => matches!(
                error,
                UploadError::Contended
                    | UploadError::BeingReceived
                    | UploadError::TooMany
                    | UploadError::TooManyOf(_)
            ),
            FilesError::TooLarge | FilesError::Path(_) => false,
        }
    }
}
