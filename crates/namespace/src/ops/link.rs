//! A further name for a file.

use api::{Linked, NamespaceError};
use types::{FileId, Identity, Name};

use super::{may_add, searchable};
use crate::group::{Group, OpResult};
use crate::inode::LINKS_MAX;

pub fn link(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    dir: FileId,
    name: &Name,
) -> OpResult<Linked> {
    let mut inode = group.inode(file)?;
    let parent = searchable(group, who, dir)?;
    if group.names().child(dir, name)?.is_some() {
        return Err(NamespaceError::Exists.into());
    }
    may_add(group, who, &parent, inode.is_directory())?;
    if inode.is_directory() {
        return Err(NamespaceError::NotPermitted.into());
    }
    if inode.is_nameless() {
        // As Linux: what lost its last name does not get another.
        return Err(NamespaceError::NotFound.into());
    }
    if inode.attributes.nlink >= LINKS_MAX {
        return Err(NamespaceError::TooManyLinks.into());
    }
    group.require_room()?;
    let now = group.now();
    let cookie = group.new_cookie()?;

    group.names().add(dir, name, cookie, file);
    inode.attributes.nlink += 1;
    inode.touch(now, group.instance);
    group.put(inode);
    Ok(Linked { attributes: inode.attributes, parent: group.touch_entries(parent, now) })
}
