//! Before a file is changed: grants of other clients are called back.

use files::{Change, FileChangeGuard, FilesError, Modes, Share};
use nfs4::NfsStat4;
use types::FileId;

use super::file_system::{FileSystem, WAIT};
use crate::context::Compound;
use crate::status;

/// Conflicting grants of others must be returned first, or the answer is DELAY. The caller keeps the
/// [`FileChangeGuard`] until the change is made.
pub(super) async fn before_change(
    compound: &Compound,
    fs: &FileSystem,
    file: FileId,
    change: Change,
) -> Result<FileChangeGuard, FilesError> {
    let by = fs.caller(compound);
    fs.files.before_change(file, by, change, WAIT).await
}

/// As `before_change`, of an open, or of I/O without one.
pub(super) async fn make_way(
    compound: &Compound,
    fs: &FileSystem,
    file: FileId,
    access: Modes,
    deny: Modes,
) -> Result<FileChangeGuard, NfsStat4> {
    let change = Change::Access(Share::new(access, deny));
    before_change(compound, fs, file, change).await.map_err(status::of_files)
}
