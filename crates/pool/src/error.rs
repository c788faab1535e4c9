//! Why a pool does not open. These lines are read by whoever started the program: they say what to do.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use types::PoolId;

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
    #[error("cannot {operation} {}: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("pool index {} fails: {source}", path.display())]
    Index { path: PathBuf, source: rusqlite::Error },
}

impl OpenError {
    pub fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> OpenError {
        OpenError::Io { operation, path: path.to_owned(), source: source.into() }
    }
}
