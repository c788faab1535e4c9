//! Names as a client sees them: in an export those of the namespace, and in a pseudo directory those of the client's
//! view, which lead to exports (RFC 8881 §7.3). LOOKUP, OPEN, READDIR and SECINFO come by here, and
//! REMOVE and RENAME before they recall delegations.

use api::{Cookie, DirEntry, Page};
use nfs4::NfsStat4;
use types::{Attributes, FileId, Name};

use super::file_system::FileSystem;
use crate::context::{Compound, as_pseudo};
use crate::exports::ViewPlace;
use crate::status;

/// Cookies 0 to 2 are reserved (RFC 8881 §18.23.3).
const COOKIE_FIRST: u64 = 3;

/// The file of a name in the current file handle's directory.
pub(super) async fn lookup(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    name: &Name,
) -> Result<Attributes, NfsStat4> {
    if compound.current.place != ViewPlace::Pseudo {
        return fs.namespace.lookup(&compound.identity, dir, name).await.map_err(status::of_namespace);
    }
    let child = compound.caller.view.child(dir, name).ok_or(NfsStat4::NoEnt)?;
    let found = fs.namespace.lookup(&compound.climber(), dir, name).await.map_err(status::of_namespace)?;
    // Another file may have the name since the exports were looked up.
    if found.file == child { Ok(found) } else { Err(NfsStat4::NoEnt) }
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
