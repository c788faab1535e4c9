//! Files that are made without a name, and get it when they are complete.

use api::{CreateKind, CreateMode, CreateSpec, NamespaceError, Publish, Published, Replace, Unnamed};
use types::{Access, Attributes, FileId, FileKind, Identity, Name, permission};

use super::{
    create, drop_link, existing, judge_replacement, may_add, may_take, next_home, require, searchable,
};
use crate::group::{Group, OpResult};
use crate::inode::{Inode, NO_PARENT};
use types::permission::without_privileges;

/// Mode bits requested if none are given. The umask clears them again unless an ACL is inherited.
const READ_WRITE: u32 = 0o666;

pub fn create_unnamed(
    group: &mut Group<'_>,
    who: &Identity,
    dir: FileId,
    new: &Unnamed,
) -> OpResult<Attributes> {
    let parent = searchable(group, who, dir)?;
    may_add(group, who, &parent, false)?;
    group.require_room()?;
    let now = group.now();
    let id = group.new_file_id()?;
    let spec = CreateSpec {
        kind: CreateKind::Regular,
        mode: CreateMode::Guarded,
        permissions: new.permissions | READ_WRITE,
        umask: Some(!new.permissions),
        set: api::SetAttributes::default(),
        location: Some(new.location),
    };
    let (mut inode, acl) = create::prepared(group, who, &parent, id, &spec, now)?;
    inode.attributes.nlink = 0;
    inode.extras.is_unnamed = true;
    group.usage().require_quota(who, (None, &Inode { parent: dir, ..inode }), None)?;

    group.insert(inode);
    group.acls().begin(id, acl);
    group.locations().begin(id, new.location, now);
    Ok(inode.attributes)
}

pub fn publish(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    (dir, name): (FileId, &Name),
    how: &Publish,
) -> OpResult<Published> {
    let mut inode = group.inode(file)?;
    if !inode.extras.is_unnamed {
        return Err(NamespaceError::Stale(file).into());
    }
    let parent = searchable(group, who, dir)?;
    let replaced = existing(group, dir, name)?;
    check(group, who, &parent, replaced.as_ref(), how.replace)?;
    if replaced.is_none() {
        group.require_room()?;
    }
    let cookie = group.new_cookie()?;
    require_quota(group, who, (&inode, dir), replaced.as_ref(), how)?;
    let home = replaced.map(|replaced| next_home(group, &replaced, (dir, name))).transpose()?;

    let now = group.now();
    complete(group, &mut inode, how);
    inode.parent = dir;
    let replaced = match replaced {
        Some(replaced) => {
            take_over(group, &mut inode, &replaced)?;
            group.names().replace(dir, name, file);
            Some(drop_link(group, replaced, home.unwrap_or(NO_PARENT), now).attributes)
        }
        None => {
            group.names().add(dir, name, cookie, file);
            None
        }
    };
    // As for `set_attributes`: only the owner says when a file was modified.
    let told = how.mtime.filter(|_| permission::is_owner(who, &inode.attributes));
    inode.attributes.mtime = told.unwrap_or(now);
    inode.touch(now, group.instance);
    group.put(inode);
    let parent = group.touch_entries(parent, now);
    Ok(Published { attributes: inode.attributes, parent, replaced })
}

/// Checks the caller's condition first, then the permissions in the directory, then the file that is replaced.
fn check(
    group: &mut Group<'_>,
    who: &Identity,
    parent: &Inode,
    replaced: Option<&Inode>,
    rule: Replace,
) -> OpResult<()> {
    judge_replacement(rule, replaced)?;
    let Some(replaced) = replaced else { return may_add(group, who, parent, false) };
    may_take(group, who, parent, replaced)?;
    may_add(group, who, parent, false)?;
    match replaced.attributes.kind {
        FileKind::Regular | FileKind::Symlink => require(group, who, replaced, Access::WRITE),
        FileKind::Directory => Err(NamespaceError::IsDirectory.into()),
        _ => Err(NamespaceError::NotRegular.into()),
    }
}

/// Of the later owner of the file. The replaced file frees its place, though it is removed a moment later.
fn require_quota(
    group: &mut Group<'_>,
    who: &Identity,
    (inode, dir): (&Inode, FileId),
    replaced: Option<&Inode>,
    how: &Publish,
) -> OpResult<()> {
    let mut published = Inode { parent: dir, ..*inode };
    published.attributes.size = how.size;
    if let Some(replaced) = replaced.filter(|replaced| replaced.attributes.kind.is_regular()) {
        (published.attributes.uid, published.attributes.gid) =
            (replaced.attributes.uid, replaced.attributes.gid);
    }
    let freed = replaced.filter(|replaced| replaced.attributes.nlink == 1);
    group.usage().require_quota(who, (Some(inode), &published), freed)
}

fn complete(group: &mut Group<'_>, inode: &mut Inode, how: &Publish) {
    inode.attributes.nlink = 1;
    inode.attributes.size = how.size;
    inode.attributes.space_used = how.space_used;
    inode.extras.is_unnamed = false;
    inode.judge_placement();
    // Checksums recorded before this were of other data.
    inode.extras.has_checksums = false;
    group.attached().add_checksums(inode, &how.checksums);
}

/// To its users it is the replaced file with other contents. A symbolic link hands nothing on: its mode allows anybody
/// anything.
fn take_over(group: &mut Group<'_>, inode: &mut Inode, replaced: &Inode) -> OpResult<()> {
    let (new, old) = (&mut inode.attributes, &replaced.attributes);
    // Clients that cache by the change attribute must see it grow.
    new.change = new.change.max(old.change);
    if !old.kind.is_regular() {
        return Ok(());
    }
    // A write would have taken the set-id bits away.
    new.mode = without_privileges(old.mode);
    (new.uid, new.gid) = (old.uid, old.gid);
    // Also that it has none: what was inherited until now was for a name that was free.
    let acl = group.acls().of(old)?;
    group.acls().set(inode, acl);
    if replaced.extras.has_properties && !inode.extras.has_properties {
        group.attached().copy_properties(replaced, inode.id())?;
        inode.extras.has_properties = true;
    }
    if replaced.extras.has_xattrs && !inode.extras.has_xattrs {
        group.attached().copy_xattrs(replaced, inode.id())?;
        inode.extras.has_xattrs = true;
    }
    Ok(())
}
