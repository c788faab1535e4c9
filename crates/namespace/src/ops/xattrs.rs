//! Extended attributes, by the rules of Linux' `xattr_permission` for `user.*`.

use std::collections::BTreeMap;

use api::{NamespaceError, SetXattr, XATTR_BYTES_MAX, XATTR_NAMES_BYTES_MAX, XATTRS_BYTES_MAX};
use bytes::Bytes;
use types::permission::sticky_forbids;
use types::{Access, ChangeInfo, FileId, Identity, XattrName};

use super::require;
use crate::group::{Group, OpResult};
use crate::inode::Inode;
use crate::store::{XattrEntry, XattrRow};

pub fn set(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    (name, value): (&XattrName, &Bytes),
    how: SetXattr,
) -> OpResult<ChangeInfo> {
    let inode = group.inode(file)?;
    may_write(group, who, &inode)?;
    let known = group.attached().xattrs(&inode)?;
    let found = known.get(name);
    match how {
        SetXattr::Create if found.is_some() => return Err(NamespaceError::Exists.into()),
        SetXattr::Replace if found.is_none() => return Err(NamespaceError::NotFound.into()),
        SetXattr::Either | SetXattr::Create | SetXattr::Replace => {}
    }
    check_bounds(&known, name, value)?;
    group.require_room()?;
    let cookie = match found {
        Some(entry) => entry.cookie,
        None => group.new_cookie()?,
    };

    group.attached().set_xattr(file, name, XattrRow { cookie, value: value.clone() });
    Ok(touch(group, inode, true))
}

pub fn remove(group: &mut Group<'_>, who: &Identity, file: FileId, name: &XattrName) -> OpResult<ChangeInfo> {
    let inode = group.inode(file)?;
    may_write(group, who, &inode)?;
    let known = group.attached().xattrs(&inode)?;
    if !known.contains_key(name) {
        return Err(NamespaceError::NotFound.into());
    }

    group.attached().remove_xattr(file, name);
    Ok(touch(group, inode, known.len() > 1))
}

fn touch(group: &mut Group<'_>, mut inode: Inode, has_xattrs: bool) -> ChangeInfo {
    let (truth, shown) = (inode.attributes.change, group.shown(&inode).attributes.change);
    inode.extras.has_xattrs = has_xattrs;
    inode.touch(group.now(), group.instance);
    group.put(inode);
    // Of a directory whose entries changed readers may have seen less than the truth until now.
    ChangeInfo { atomic: shown == truth, before: shown, after: inode.attributes.change }
}

pub fn has_any(inode: &Inode) -> bool {
    inode.attributes.kind.is_regular() || inode.is_directory()
}

/// The mode of a device or a socket governs its use, that of a symbolic link nothing: neither is to let anybody store
/// data there.
fn may_write(group: &mut Group<'_>, who: &Identity, inode: &Inode) -> OpResult<()> {
    let attributes = &inode.attributes;
    if !has_any(inode) || (inode.is_directory() && sticky_forbids(who, attributes, attributes)) {
        return Err(NamespaceError::NotPermitted.into());
    }
    require(group, who, inode, Access::WRITE)
}

fn check_bounds(
    known: &BTreeMap<XattrName, XattrEntry>,
    name: &XattrName,
    value: &Bytes,
) -> Result<(), NamespaceError> {
    let others = || known.iter().filter(|(other, _)| *other != name);
    let listed: usize = others().map(|(other, _)| other.listed_bytes()).sum();
    let bytes: usize = others().map(|(other, entry)| other.as_bytes().len() + entry.value_bytes).sum();
    let is_beyond = value.len() > XATTR_BYTES_MAX
        || listed + name.listed_bytes() > XATTR_NAMES_BYTES_MAX
        || bytes + name.as_bytes().len() + value.len() > XATTRS_BYTES_MAX;
    if is_beyond { Err(NamespaceError::NoSpace) } else { Ok(()) }
}
