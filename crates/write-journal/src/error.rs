//! Why the journal refuses a record, and why it does not open.

use std::io;
use std::sync::Arc;

use thiserror::Error;

/// Told to many waiters, so it is cheap to clone.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    #[error("the journal has no room")]
    Full,
    #[error("the journal has too much to write at once")]
    Busy,
    #[error("the record is longer than the journal takes")]
    TooLarge,
    #[error("the thread that was to write the journal gave up")]
    Abandoned,
    #[error("the journal has records that are not settled")]
    Unsettled,
    #[error("the journal failed to {operation}: {error}")]
    Failed { operation: &'static str, error: Arc<io::Error> },
}

impl JournalError {
    pub(crate) fn failed(operation: &'static str, error: io::Error) -> JournalError {
        JournalError::Failed { operation, error: Arc::new(error) }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            JournalError::Full | JournalError::Busy | JournalError::Abandoned | JournalError::Unsettled => {
                true
            }
            JournalError::TooLarge | JournalError::Failed { .. } => false,
        }
    }
}

/// The operator reads these lines: they say what to do.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("write journal segment {segment} belongs to another instance; give each pool its own directory")]
    OtherInstance { segment: u32 },
    #[error(
        "write journal segment {segment} is of version {found} and this program knows versions up to {known}; \
         start a newer program"
    )]
    NewerVersion { segment: u32, found: u32, known: u32 },
    #[error("the write journal is set up wrongly: {reason}")]
    Config { reason: &'static str },
    #[error("the {numbers} of the write journal are used up")]
    UsedUp { numbers: &'static str },
    #[error("cannot {operation} the write journal: {error}")]
    Io { operation: &'static str, error: io::Error },
}

impl OpenError {
    pub(crate) fn io(operation: &'static str) -> impl Fn(io::Error) -> OpenError {
        move |error| OpenError::Io { operation, error }
    }
}
