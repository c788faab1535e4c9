//! The mutations, one file each. All run inside a group: check everything, then change.

pub mod commit;
pub mod create;
pub mod link;
pub mod properties;
pub mod publish;
pub mod quotas;
pub mod records;
pub mod rename;
pub mod setattr;
pub mod unlink;
pub mod xattrs;

use api::{NamespaceError, Replace};
use types::permission::{allows, sticky_forbids};
use types::{Access, FileId, Identity, Name};

use crate::group::{Group, OpResult};
use crate::inode::{Inode, NO_PARENT};

/// A directory that `who` may search.
fn searchable(group: &mut Group<'_>, who: &Identity, dir: FileId) -> OpResult<Inode> {
    let inode = group.directory(dir)?;
    require(who, &inode, Access::EXECUTE)?;
    Ok(inode)
}

fn require(who: &Identity, inode: &Inode, wanted: Access) -> Result<(), NamespaceError> {
    if allows(who, &inode.attributes, wanted) { Ok(()) } else { Err(NamespaceError::AccessDenied) }
}

/// Entries of `dir` may be added (Linux: `may_create`).
fn may_add(who: &Identity, dir: &Inode) -> Result<(), NamespaceError> {
    require(who, dir, Access::WRITE | Access::EXECUTE)
}

/// `entry` may be taken out of `dir` (Linux: `may_delete`).
fn may_take(who: &Identity, dir: &Inode, entry: &Inode) -> Result<(), NamespaceError> {
    require(who, dir, Access::WRITE | Access::EXECUTE)?;
    if sticky_forbids(who, &dir.attributes, &entry.attributes) {
        return Err(NamespaceError::NotPermitted);
    }
    Ok(())
}

fn existing(group: &mut Group<'_>, dir: FileId, name: &Name) -> OpResult<Option<Inode>> {
    match group.child(dir, name)? {
        Some(child) => group.inode(child).map(Some),
        None => Ok(None),
    }
}

/// Whether what has the name may lose it to what is to get it.
fn judge_replacement(rule: Replace, found: Option<&Inode>) -> Result<(), NamespaceError> {
    let is_allowed = match rule {
        Replace::Never => found.is_none(),
        Replace::Any => true,
        Replace::File(file) => found.is_some_and(|found| found.id() == file),
        Replace::Exactly { file, change } => {
            found.is_some_and(|found| (found.id(), found.attributes.change) == (file, change))
        }
    };
    if is_allowed { Ok(()) } else { Err(NamespaceError::Exists) }
}

/// Where an inode counts that loses this name.
fn next_home(group: &mut Group<'_>, inode: &Inode, (dir, name): (FileId, &Name)) -> OpResult<FileId> {
    if inode.is_directory() || inode.parent != dir {
        return Ok(inode.parent);
    }
    if inode.attributes.nlink <= 1 {
        return Ok(NO_PARENT);
    }
    Ok(group.other_parent(inode.id(), (dir, name))?.unwrap_or(NO_PARENT))
}

/// Takes one name from an inode, which counts at `home` then. A file whose last name went stays as an orphan, for its data is still on pools; what
/// has no data goes at once.
fn drop_link(group: &mut Group<'_>, mut inode: Inode, home: FileId, now: types::Timestamp) -> Inode {
    inode.parent = home;
    inode.attributes.nlink = if inode.is_directory() { 0 } else { inode.attributes.nlink.saturating_sub(1) };
    inode.touch(now, group.instance);
    if inode.is_nameless() && !inode.attributes.kind.is_regular() {
        group.remove(&inode);
    } else {
        group.put(inode);
    }
    inode
}
