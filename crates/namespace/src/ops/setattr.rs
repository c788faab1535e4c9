//! Changes of attributes, by the rules of Linux' `setattr_prepare`, `notify_change` and `nfsd_sanitize_attrs`.

use api::{NamespaceError, SetAttributes, SetTime};
use types::permission::is_owner;
use types::{Access, Attributes, FileId, FileKind, Identity, Timestamp};

use super::require;
use crate::group::{Group, OpResult};
use crate::inode::{Inode, Instance};
use crate::written::without_privileges;

pub const SET_GID: u32 = 0o2000;

pub fn set_attributes(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    set: &SetAttributes,
) -> OpResult<Attributes> {
    let mut inode = group.inode(file)?;
    check(who, &inode, set)?;
    if is_empty(set) {
        return Ok(group.shown(&inode).attributes);
    }
    let now = group.now();
    let before = inode;
    apply(who, &mut inode, set, now, group.instance);
    group.require_quota(who, (Some(&before), &inode), None)?;
    group.put(inode);
    Ok(inode.attributes)
}

fn is_empty(set: &SetAttributes) -> bool {
    let authorized = set.size_is_authorized;
    *set == SetAttributes { size_is_authorized: authorized, ..SetAttributes::default() }
}

pub fn check(who: &Identity, inode: &Inode, set: &SetAttributes) -> Result<(), NamespaceError> {
    let attributes = &inode.attributes;
    if set.size.is_some() {
        match attributes.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(NamespaceError::IsDirectory),
            _ => return Err(NamespaceError::NotRegular),
        }
        if !set.size_is_authorized {
            require(who, inode, Access::WRITE)?;
        }
    }
    let owns = who.uid == attributes.uid;
    let may_chown = set.uid.is_none_or(|uid| owns && uid == attributes.uid);
    let may_chgrp = set.gid.is_none_or(|gid| owns && (gid == attributes.gid || who.is_member_of(gid)));
    let may_give = who.is_root() || (may_chown && may_chgrp);
    if !may_give {
        return Err(NamespaceError::NotPermitted);
    }
    let times = [set.atime, set.mtime];
    let gives_time = times.iter().any(|time| matches!(time, Some(SetTime::To(_))));
    if (set.mode.is_some() || gives_time) && !is_owner(who, attributes) {
        return Err(NamespaceError::NotPermitted);
    }
    if times.contains(&Some(SetTime::Now)) && !is_owner(who, attributes) {
        require(who, inode, Access::WRITE)?;
    }
    Ok(())
}

/// After `check`. What sets nothing changes nothing.
pub fn apply(who: &Identity, inode: &mut Inode, set: &SetAttributes, now: Timestamp, instance: Instance) {
    if is_empty(set) {
        return;
    }
    let attributes = &mut inode.attributes;
    let chowns = set.uid.is_some() || set.gid.is_some();
    let is_directory = attributes.kind.is_directory();
    attributes.uid = set.uid.unwrap_or(attributes.uid);
    attributes.gid = set.gid.unwrap_or(attributes.gid);
    let in_group = who.is_root() || who.is_member_of(attributes.gid);
    if let Some(mode) = set.mode {
        attributes.mode = mode & 0o7777;
        if !in_group {
            attributes.mode &= !SET_GID;
        }
    }
    if chowns && !is_directory {
        // Also by root: a program must not become set-uid of its new owner unasked.
        attributes.mode = without_privileges(attributes.mode);
        if !in_group {
            attributes.mode &= !SET_GID;
        }
    }
    if let Some(size) = set.size {
        attributes.size = size;
        attributes.mtime = now;
        inode.extras.has_checksums = false;
        if !who.is_root() {
            attributes.mode = without_privileges(attributes.mode);
        }
    }
    attributes.space_used = set.space_used.unwrap_or(attributes.space_used);
    let at = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    attributes.atime = set.atime.map_or(attributes.atime, at);
    attributes.mtime = set.mtime.map_or(attributes.mtime, at);
    inode.touch(now, instance);
}
