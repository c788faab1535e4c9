//! Why a pool does not open. The operator who starts the program reads these lines: they say what to do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;
use types::PoolId;

use crate::disk_error::is_of_the_disk;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("pool in {} is in use by another process", dir.display())]
    InUse { dir: PathBuf },
    #[error(
        "pool in {} is of version {found} and this program knows versions up to {known}; start a newer program",
        dir.display()
    )]
    NewerVersion { dir: PathBuf, found: u64, known: u64 },
    #[error("pool in {} belongs to another instance; give each instance directories of its own", dir.display())]
    OtherInstance { dir: PathBuf },
    #[error("pool in {} is {found}, not {expected}; check which directory is which pool", dir.display())]
    OtherPool { dir: PathBuf, found: PoolId, expected: PoolId },
    #[error("{} is neither a pool nor empty; give an empty directory for a new pool", dir.display())]
    NotAPool { dir: PathBuf },
    #[error(
        "file system of {} keeps no user extended attributes, which a pool needs; use ext4, XFS or Btrfs",
        dir.display()
    )]
    NoAttributes { dir: PathBuf },
    #[error("{} cannot be understood: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("cannot {operation} {}: {error}{}", path.display(), advice(error))]
    Io { operation: &'static str, path: PathBuf, error: io::Error },
    #[error("write journal in {} fails: {error}", place.display())]
    Journal { place: PathBuf, error: write_journal::OpenError },
    #[error(
        "write journal {} is missing: is its disk mounted? If it is lost for good, remove {} (small writes of the last \
         minute before the stop may be lost)",
        place.display(), note.display()
    )]
    JournalMissing { place: PathBuf, note: PathBuf },
    #[error("pool index {} fails: {error}", path.display())]
    Index { path: PathBuf, error: rusqlite::Error },
}

impl OpenError {
    pub fn io(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> OpenError {
        OpenError::Io { operation, path: path.to_owned(), error: error.into() }
    }

    pub fn is_read_only(&self) -> bool {
        self.io_error().is_some_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem)
    }

    fn io_error(&self) -> Option<&io::Error> {
        match self {
            OpenError::Io { error, .. } => Some(error),
            OpenError::Journal { error: write_journal::OpenError::Io { error, .. }, .. } => Some(error),
            _ => None,
        }
    }

    /// The disk does not take what was to be written, for now.
    pub fn is_of_disk(&self) -> bool {
        let Some(error) = self.io_error() else { return false };
        error.raw_os_error().is_some_and(|code| is_of_the_disk(Errno::from_raw_os_error(code)))
            || matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull)
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "; make its file system writable",
        ErrorKind::PermissionDenied => "; let the user that runs the server write there",
        ErrorKind::StorageFull => "; free some space",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was said twice, and without advice.
    #[test]
    fn an_error_of_the_disk_is_told_once_and_with_advice() {
        let error = OpenError::io("make", Path::new("pool/lock"), rustix::io::Errno::ROFS);
        let told =
            "cannot make pool/lock: Read-only file system (os error 30); make its file system writable";
        assert_eq!(error.to_string(), told);
        assert!(std::error::Error::source(&error).is_none(), "a report of the sources would repeat it");
    }
}
