//! Before a file is opened, or read or written without an open: grants of other clients are called back.

use files::{Change, FileChangeGuard, Modes, Share};
use nfs4::NfsStat4;
use types::FileId;

use super::file_system::{FileSystem, WAIT};
use crate::context::Compound;
use crate::status;

/// Conflicting grants of others must be returned first, or the answer is DELAY. The caller keeps the
/// [`FileChangeGuard`] until its access is entered or done.
pub(super) async fn make_way(
    compound: &Compound,
    fs: &FileSystem,
    file: FileId,
    access: Modes,
    deny: Modes,
) -> Result<FileChangeGuard, NfsStat4> {
    let (by, change) = (fs.caller(compound), Change::Access(Share::new(access, deny)));
    fs.files.before_change(file, by, change, WAIT).await.map_err(status::of_files)
}
