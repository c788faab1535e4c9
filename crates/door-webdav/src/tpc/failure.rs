//! Why a copy ends without its file.

use http::{Method, StatusCode};
use http_client::ClientError;
use thiserror::Error;
use types::Checksum;

use super::LocalError;
use super::marker::one_line;

#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("rejected {method}: {status}{explanation}")]
    Rejected { method: Method, status: StatusCode, explanation: String },
    #[error("{0}")]
    Local(#[from] LocalError),
    #[error("size does not agree: expected {expected} bytes, got {got}")]
    Size { expected: u64, got: u64 },
    #[error("checksum does not agree: the other server says {theirs}, here it is {ours}")]
    Checksum { theirs: Checksum, ours: Checksum },
    #[error("checksum verification is required, but the other server tells no checksum{0}")]
    NoChecksum(String),
    #[error("cannot verify the copy: the other server tells neither its size nor a checksum{0}")]
    Unverified(String),
    /// The other server does not keep to what it said of ranges and versions.
    #[error("{0}")]
    Answer(String),
    #[error("remote file changed during the copy")]
    RemoteChanged,
    #[error("file changed during the copy")]
    SourceChanged,
    #[error("destination exists and Overwrite is F")]
    Exists,
    #[error("transfer is too slow: {bytes} bytes in the last {window_s} s")]
    TooSlow { bytes: u64, window_s: u64 },
    #[error("client went away")]
    Cancelled,
    #[error("server is stopping")]
    Stopping,
}

impl Failure {
    pub fn rejection(method: Method, status: StatusCode, explanation: String) -> Failure {
        let text = one_line(&explanation);
        // A page for browsers explains nothing on one line.
        let is_useless = text.is_empty() || text.starts_with('<');
        let explanation = if is_useless { String::new() } else { format!(": {text}") };
        Failure::Rejected { method, status, explanation }
    }

    pub fn is_retryable(&self) -> bool {
        match self {
            Failure::Client(error) => error.is_retryable(),
            Failure::Rejected { status, .. } => matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Ended by somebody's wish rather than by an error.
    pub fn is_abort(&self) -> bool {
        matches!(self, Failure::Cancelled | Failure::Stopping)
    }
}
