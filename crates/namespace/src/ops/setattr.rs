//! Changes of attributes, by the rules of Linux' `setattr_prepare`, `notify_change` and `nfsd_sanitize_attrs`.

use api::{NamespaceError, SetAttributes, SetTime};
use types::permission::{granted, is_owner};
use types::{Access, Acl, Attributes, FileId, FileKind, Identity, Timestamp};

use super::acls;
use super::mode_bits::SET_GID;
use crate::group::{Group, OpResult};
use crate::inode::{Inode, Instance};
use types::permission::without_privileges;

pub fn set_attributes(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    set: &SetAttributes,
) -> OpResult<Attributes> {
    let mut inode = group.inode(file)?;
    let acl = group.acls().of(&inode.attributes)?;
    check(who, &inode.attributes, acl.as_ref(), set)?;
    if is_empty(set) {
        return Ok(group.shown(&inode).attributes);
    }
    if set.acl.as_ref().is_some_and(|acl| !acl.is_trivial()) {
        group.require_room()?;
    }
    let now = group.now();
    let before = inode;
    apply(who, &mut inode, set, now, group.instance);
    group.usage().require_quota(who, (Some(&before), &inode), None)?;
    acls::follow(group, who, &mut inode, set.acl.as_ref(), set.mode.is_some())?;
    group.put(inode);
    Ok(inode.attributes)
}

fn is_empty(set: &SetAttributes) -> bool {
    let SetAttributes { size_is_authorized, keeps_set_id, .. } = *set;
    *set == SetAttributes { size_is_authorized, keeps_set_id, ..SetAttributes::default() }
}

pub fn check(
    who: &Identity,
    attributes: &Attributes,
    acl: Option<&Acl>,
    set: &SetAttributes,
) -> Result<(), NamespaceError> {
    let granted = granted(who, attributes, acl);
    let allows = |wanted| granted.contains(wanted);
    if set.size.is_some() {
        match attributes.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(NamespaceError::IsDirectory),
            _ => return Err(NamespaceError::NotRegular),
        }
        if !set.size_is_authorized && !allows(Access::WRITE) {
            return Err(NamespaceError::AccessDenied);
        }
    }
    let owns = who.uid == attributes.uid;
    // A user with WRITE_OWNER may take the file, but nobody gives one away.
    let may_take = allows(Access::WRITE_OWNER);
    let may_chown = set.uid.is_none_or(|uid| (owns && uid == attributes.uid) || (may_take && uid == who.uid));
    let may_chgrp = set
        .gid
        .is_none_or(|gid| (owns && gid == attributes.gid) || ((owns || may_take) && who.is_member_of(gid)));
    let may_give = who.is_root() || (may_chown && may_chgrp);
    if !may_give {
        return Err(NamespaceError::NotPermitted);
    }
    let times = [set.atime, set.mtime];
    let gives_time = times.iter().any(|time| matches!(time, Some(SetTime::To(_))));
    let sets_acl = set.mode.is_some() || set.acl.is_some();
    if (sets_acl && !allows(Access::WRITE_ACL)) || (gives_time && !allows(Access::WRITE_ATTRIBUTES)) {
        return Err(NamespaceError::NotPermitted);
    }
    let may_touch = allows(Access::WRITE_ATTRIBUTES) || allows(Access::WRITE);
    if times.contains(&Some(SetTime::Now)) && !may_touch {
        return Err(NamespaceError::AccessDenied);
    }
    Ok(())
}

/// After `check`. An empty set changes nothing.
pub fn apply(who: &Identity, inode: &mut Inode, set: &SetAttributes, now: Timestamp, instance: Instance) {
    if is_empty(set) {
        return;
    }
    let attributes = &mut inode.attributes;
    let chowns = set.uid.is_some() || set.gid.is_some();
    let is_directory = attributes.kind.is_directory();
    let owns = is_owner(who, attributes);
    attributes.uid = set.uid.unwrap_or(attributes.uid);
    attributes.gid = set.gid.unwrap_or(attributes.gid);
    let in_group = who.is_root() || who.is_member_of(attributes.gid);
    if let Some(mode) = set.mode {
        // Only the owner lets a program run as its owner, though others may change the ACL. No directory is a program.
        attributes.mode = mode & if owns || is_directory { 0o7777 } else { 0o1777 };
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
        // A mode that comes with a length is the later of the two, as in Linux' `nfsd_setattr`.
        if !who.is_root() && set.mode.is_none() && !set.keeps_set_id {
            attributes.mode = without_privileges(attributes.mode);
        }
        inode.judge_placement();
    }
    let attributes = &mut inode.attributes;
    attributes.space_used = set.space_used.unwrap_or(attributes.space_used);
    let at = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    attributes.atime = set.atime.map_or(attributes.atime, at);
    attributes.mtime = set.mtime.map_or(attributes.mtime, at);
    inode.touch(now, instance);
}
