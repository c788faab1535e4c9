//! The mutations, one file each. All run inside a group: check everything, then change.

pub mod acls;
pub mod create;
pub mod link;
pub mod mode_bits;
pub mod properties;
pub mod publish;
pub mod quotas;
pub mod records;
pub mod rename;
pub mod setattr;
pub mod unlink;
pub mod writes;
pub mod xattrs;

use api::{ExpectedFile, NamespaceError, Replace};
use types::permission::{self, Removal};
use types::{Access, FileId, Identity, Name};

use crate::group::{Group, OpResult};
use crate::inode::{Inode, NO_PARENT};

/// A directory that `who` may search.
fn searchable(group: &mut Group<'_>, who: &Identity, dir: FileId) -> OpResult<Inode> {
    let inode = group.directory(dir)?;
    require(group, who, &inode, Access::EXECUTE)?;
    Ok(inode)
}

fn require(group: &mut Group<'_>, who: &Identity, inode: &Inode, wanted: Access) -> OpResult<()> {
    let acl = group.acls().of(&inode.attributes)?;
    if permission::allows(who, &inode.attributes, acl.as_ref(), wanted) {
        Ok(())
    } else {
        Err(NamespaceError::AccessDenied.into())
    }
}

/// An entry may be added to `dir` (Linux: `may_create`), a directory or something else.
fn may_add(group: &mut Group<'_>, who: &Identity, dir: &Inode, is_directory: bool) -> OpResult<()> {
    let wanted = if is_directory { Access::ADD_SUBDIRECTORY } else { Access::ADD_FILE };
    require(group, who, dir, wanted | Access::EXECUTE)
}

/// `entry` may be taken out of `dir` (Linux: `may_delete`).
fn may_take(group: &mut Group<'_>, who: &Identity, dir: &Inode, entry: &Inode) -> OpResult<()> {
    let (above, below) = (group.acls().of(&dir.attributes)?, group.acls().of(&entry.attributes)?);
    let (dir, entry) = (&dir.attributes, &entry.attributes);
    match permission::judge_removal(who, (dir, above.as_ref()), (entry, below.as_ref())) {
        Removal::Allowed => Ok(()),
        Removal::Denied => Err(NamespaceError::AccessDenied.into()),
        Removal::Sticky => Err(NamespaceError::NotPermitted.into()),
    }
}

fn existing(group: &mut Group<'_>, dir: FileId, name: &Name) -> OpResult<Option<Inode>> {
    match group.names().child(dir, name)? {
        Some(child) => group.inode(child).map(Some),
        None => Ok(None),
    }
}

/// Whether the name stands for what the caller has found there.
fn judge_expectation(expected: ExpectedFile, found: Option<&Inode>) -> Result<(), NamespaceError> {
    if expected.is_met_by(found.map(Inode::id)) { Ok(()) } else { Err(NamespaceError::Moved) }
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
    Ok(group.names().other_parent(inode.id(), (dir, name))?.unwrap_or(NO_PARENT))
}

/// Takes one name from an inode, which counts at `home` then. A file that loses its last name stays as an orphan, for
/// its data is still on pools; an inode without data is removed at once.
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
