//! Changes of attributes, by the rules of Linux' `setattr_prepare`, `notify_change` and `nfsd_sanitize_attrs`.

use api::{NamespaceError, SetAttributes, SetTime};
use types::permission::{granted, is_owner};
use types::{Access, Acl, Attributes, FileId, FileKind, Identity, Timestamp};

use super::acls;
use super::mode_bits::{SET_GID, STICKY};
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

/// By what is asked alone: mode, owner and times.
pub fn may_be_deferrable(set: &SetAttributes) -> bool {
    set.size.is_none() && set.space_used.is_none() && set.acl.is_none()
}

/// As `set_attributes`. `None`, and nothing is changed: the group may be answered before it is on disk, and the change would
/// take rights away, which a power cut must not give back.
pub fn set_if_deferrable(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    set: &SetAttributes,
) -> OpResult<Option<Attributes>> {
    let before = group.inode(file)?;
    let mut after = before;
    apply(who, &mut after, set, group.now(), group.instance);
    if !group.is_awaited() && takes_rights(&before.attributes, &after.attributes) {
        return Ok(None);
    }
    set_attributes(group, who, file, set).map(Some)
}

/// Whether somebody but root may do less after a change of mode and owner. Of an ACL, which changes with them, that is taken
/// for granted.
fn takes_rights(before: &Attributes, after: &Attributes) -> bool {
    let (given, taken) = (after.mode & !before.mode, before.mode & !after.mode);
    let takes_bits = taken & !STICKY != 0 || given & STICKY != 0;
    let takes_owner = before.uid != after.uid && before.uid != 0;
    let moves_group = before.gid != after.gid;
    let are_apart = (before.mode >> 3 ^ before.mode) & 0o7 != 0;
    let changes_acl = before.has_acl && (before.mode != after.mode || moves_group);
    takes_bits || takes_owner || moves_group && are_apart || changes_acl
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::new_inode;

    fn of(mode: u32, uid: u32, gid: u32) -> Attributes {
        let inode = new_inode(FileId(2), FileKind::Regular, Timestamp::EPOCH, Instance { start: 1 });
        Attributes { mode, uid, gid, ..inode.attributes }
    }

    #[test]
    fn a_change_takes_rights_if_it_clears_bits_or_moves_a_file_away_from_users() {
        let before = of(0o640, 10, 100);
        for after in [of(0o640, 10, 100), of(0o775, 10, 100), of(0o6640, 10, 100)] {
            assert!(!takes_rights(&before, &after), "{after:?}");
        }
        for after in [of(0o600, 10, 100), of(0o1640, 10, 100), of(0o640, 0, 100), of(0o640, 10, 200)] {
            assert!(takes_rights(&before, &after), "{after:?}");
        }
        assert!(takes_rights(&of(0o4755, 10, 100), &of(0o755, 10, 100)), "a set-id bit");
        assert!(!takes_rights(&of(0o1777, 10, 100), &of(0o777, 10, 100)), "the sticky bit");
    }

    #[test]
    fn root_loses_nothing_and_a_group_that_has_no_more_than_others_neither() {
        assert!(!takes_rights(&of(0o600, 0, 0), &of(0o600, 10, 100)));
        assert!(!takes_rights(&of(0o644, 0, 0), &of(0o644, 10, 100)));
        assert!(takes_rights(&of(0o640, 0, 0), &of(0o640, 10, 100)));
    }

    #[test]
    fn an_acl_that_changes_with_the_mode_may_take_rights() {
        let before = Attributes { has_acl: true, ..of(0o644, 0, 0) };
        assert!(takes_rights(&before, &Attributes { mode: 0o664, ..before }));
        assert!(takes_rights(&before, &Attributes { gid: 100, ..before }));
        assert!(!takes_rights(&before, &before));
    }
}
