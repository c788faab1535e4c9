//! Names as a client sees them: in an export those of the namespace, and in a pseudo directory those of the client's
//! view, which lead to exports (RFC 8881 §7.3). LOOKUP, OPEN, READDIR and SECINFO come by here.

use api::{Cookie, DirEntry, Found, NamespaceError, Page};
use nfs4::{Component4, NfsStat4};
use types::{FileId, FileKind, Name};

use super::component::name;
use super::file_system::FileSystem;
use crate::context::{Compound, as_pseudo};
use crate::exports::ViewPlace;
use crate::status;

/// Cookies 0 to 2 are reserved (RFC 8881 §18.23.3).
const COOKIE_FIRST: u64 = 3;

/// The entry of a name, as it comes in a request, in the current file handle's directory. That the handle is of no
/// directory goes before anything that is wrong with the name.
pub(super) async fn look_up(
    compound: &Compound,
    fs: &FileSystem,
    component: &Component4,
) -> Result<Found, NfsStat4> {
    let dir = compound.file()?;
    match name(component) {
        Ok(name) => lookup(compound, fs, dir, &name).await,
        Err(status) => directory(fs, dir).await.and(Err(status)),
    }
}

/// The entry of a name in the current file handle's directory. A symbolic link in place of the directory has a status
/// of its own.
pub(super) async fn lookup(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    name: &Name,
) -> Result<Found, NfsStat4> {
    if compound.current.place != ViewPlace::Pseudo {
        return match fs.namespace.lookup(&compound.identity, dir, name).await {
            Ok(found) => Ok(found),
            Err(NamespaceError::NotDirectory) => directory(fs, dir).await.and(Err(NfsStat4::NotDir)),
            Err(error) => Err(status::of_namespace(error)),
        };
    }
    let Some(child) = compound.caller.view.child(dir, name) else {
        return directory(fs, dir).await.and(Err(NfsStat4::NoEnt));
    };
    let found = fs.namespace.lookup(&compound.climber(), dir, name).await.map_err(status::of_namespace)?;
    // Another file may have the name since the exports were looked up.
    if found.entry.file == child { Ok(found) } else { Err(NfsStat4::NoEnt) }
}

/// The file if it is a directory; a symbolic link has a status of its own, so that clients follow it.
pub(super) async fn directory(fs: &FileSystem, file: FileId) -> Result<FileId, NfsStat4> {
    match fs.attributes(file).await?.kind {
        FileKind::Directory => Ok(file),
        FileKind::Symlink => Err(NfsStat4::SymLink),
        _ => Err(NfsStat4::NotDir),
    }
}

/// As `directory`, for operations that know no SYMLINK status.
pub(super) async fn plain_directory(fs: &FileSystem, file: FileId) -> Result<FileId, NfsStat4> {
    directory(fs, file)
        .await
        .map_err(|status| if status == NfsStat4::SymLink { NfsStat4::NotDir } else { status })
}

/// Up to `limit` entries of the current file handle's directory behind `after`.
pub(super) async fn list(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    after: Cookie,
    limit: usize,
) -> Result<Page, NfsStat4> {
    if compound.current.place != ViewPlace::Pseudo {
        return fs.namespace.list(&compound.identity, dir, after, limit).await.map_err(status::of_namespace);
    }
    let view = &compound.caller.view;
    let mut left = view.names(dir).zip(COOKIE_FIRST..).filter(|(_, cookie)| *cookie > after.0);
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some(((name, child), cookie)) = left.next()
    {
        let attributes = match fs.attributes(child).await {
            Ok(attributes) => attributes,
            // It was removed since the exports were looked up.
            Err(NfsStat4::Stale) => continue,
            Err(status) => return Err(status),
        };
        let is_pseudo = view.step(ViewPlace::Pseudo, child) == ViewPlace::Pseudo;
        let attributes = if is_pseudo { as_pseudo(attributes) } else { attributes };
        entries.push(DirEntry { name: name.clone(), cookie: Cookie(cookie), attributes });
    }
    Ok(Page { entries, is_last: left.next().is_none() })
}
