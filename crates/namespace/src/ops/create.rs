//! Creation of every kind of entry.

use api::{CreateKind, CreateMode, CreateSpec, Created, NamespaceError};
use types::{Acl, Attributes, ChangeInfo, FileId, FileKind, Identity, Name, Timestamp};

use super::mode_bits::SET_GID;
use super::setattr;
use super::{acls, existing, may_add, searchable};
use crate::group::{Group, OpResult};
use crate::inode::{Inode, LINKS_MAX, new_inode};
use crate::locality::Placement;

const GROUP_EXECUTE: u32 = 0o010;
/// Mode bits that mkdir takes (Linux: `vfs_mkdir`); set-gid comes from the parent.
const DIRECTORY_BITS: u32 = 0o1777;
const ALL_BITS: u32 = 0o7777;

pub fn create(
    group: &mut Group<'_>,
    who: &Identity,
    dir: FileId,
    name: &Name,
    spec: &CreateSpec,
) -> OpResult<Created> {
    let mut parent = searchable(group, who, dir)?;
    if let Some(found) = existing(group, dir, name)? {
        return Ok(answer_existing(&group.shown(&parent), &found, spec)?);
    }
    let is_directory = spec.kind == CreateKind::Directory;
    may_add(group, who, &parent, is_directory)?;
    if is_directory && parent.attributes.nlink >= LINKS_MAX {
        return Err(NamespaceError::TooManyLinks.into());
    }
    group.require_room()?;
    let now = group.now();
    let (id, cookie) = (group.new_file_id()?, group.new_cookie()?);
    let (mut inode, acl) = prepared(group, who, &parent, id, spec, now)?;
    inode.parent = dir;
    group.usage().require_quota(who, (None, &inode), None)?;

    group.insert(inode);
    group.acls().begin(id, acl);
    group.names().add(dir, name, cookie, id);
    if let CreateKind::Symlink(target) = &spec.kind {
        group.set_target(id, target);
    }
    if let (CreateKind::Regular, Some(pool)) = (&spec.kind, spec.location) {
        group.locations().begin(id, pool, now);
    }
    if is_directory {
        parent.attributes.nlink += 1;
    }
    let parent = group.touch_entries(parent, now);
    Ok(Created { attributes: inode.attributes, parent, is_new: true })
}

/// The name is taken: by what will do, or not. Writing to the directory is not asked then (Linux looks up first).
pub fn answer_existing(parent: &Inode, found: &Inode, spec: &CreateSpec) -> Result<Created, NamespaceError> {
    let will_do = spec.kind == CreateKind::Regular
        && match spec.mode {
            // Of any kind: whether a directory may be opened is for the door to say.
            CreateMode::Unchecked => true,
            CreateMode::Guarded => false,
            CreateMode::Exclusive { verifier } => {
                found.attributes.kind.is_regular() && found.verifier == Some(verifier)
            }
        };
    if !will_do {
        return Err(NamespaceError::Exists);
    }
    let change = parent.attributes.change;
    let parent = ChangeInfo { atomic: true, before: change, after: change };
    Ok(Created { attributes: found.attributes, parent, is_new: false })
}

/// The new inode with owner, mode and the attributes asked for (Linux: `inode_init_owner`), and its ACL.
pub fn prepared(
    group: &mut Group<'_>,
    who: &Identity,
    parent: &Inode,
    id: FileId,
    spec: &CreateSpec,
    now: Timestamp,
) -> OpResult<(Inode, Option<Acl>)> {
    let mut inode = new_inode(id, kind_of(&spec.kind), now, group.instance);
    let above = group.acls().of(&parent.attributes)?;
    let inherited = acls::inherited(above.as_ref(), inode.attributes.kind);
    let umask = spec.umask.filter(|_| !acls::replaces_umask(inherited.as_ref())).unwrap_or_default();
    let attributes = &mut inode.attributes;
    attributes.uid = who.uid;
    attributes.gid = who.gid;
    if attributes.kind.is_directory() || attributes.kind.is_regular() {
        attributes.io = parent.attributes.io;
    }
    attributes.mode =
        spec.permissions & !umask & if attributes.kind.is_directory() { DIRECTORY_BITS } else { ALL_BITS };
    if parent.attributes.mode & SET_GID != 0 {
        attributes.gid = parent.attributes.gid;
        if attributes.kind.is_directory() {
            attributes.mode |= SET_GID;
        }
    }
    drop_foreign_group(who, attributes);
    match &spec.kind {
        CreateKind::Directory => {
            inode.extras.consistency = parent.extras.consistency;
        }
        CreateKind::Symlink(target) => {
            inode.attributes.mode = 0o777;
            inode.attributes.size = target.as_bytes().len() as u64;
        }
        CreateKind::Regular if spec.location.is_some() => inode.extras.placement = Placement::Replicas,
        _ => {}
    }
    if let CreateMode::Exclusive { verifier } = spec.mode {
        inode.verifier = Some(verifier);
    }
    let mut set = spec.set.clone();
    // The creator of a file may set its length.
    set.size_is_authorized = true;
    setattr::check(who, &inode.attributes, None, &set)?;
    setattr::apply(who, &mut inode, &set, now, group.instance);
    let acl = match (&spec.set.acl, inherited) {
        (Some(given), _) => acls::begin(&mut inode, given.clone())?,
        (None, Some(inherited)) => acls::begin_inherited(&mut inode, inherited, spec.umask.is_some())?,
        (None, None) => None,
    };
    // The ACL has said what the mode is.
    drop_foreign_group(who, &mut inode.attributes);
    Ok((inode, acl))
}

/// Nobody makes a program that runs as a group that he is not in.
fn drop_foreign_group(who: &Identity, attributes: &mut Attributes) {
    let is_program = !attributes.kind.is_directory() && attributes.mode & GROUP_EXECUTE != 0;
    if is_program && !who.is_root() && !who.is_member_of(attributes.gid) {
        attributes.mode &= !SET_GID;
    }
}

fn kind_of(kind: &CreateKind) -> FileKind {
    match kind {
        CreateKind::Regular => FileKind::Regular,
        CreateKind::Directory => FileKind::Directory,
        CreateKind::Symlink(_) => FileKind::Symlink,
        CreateKind::BlockDevice(device) => FileKind::BlockDevice(*device),
        CreateKind::CharacterDevice(device) => FileKind::CharacterDevice(*device),
        CreateKind::Fifo => FileKind::Fifo,
        CreateKind::Socket => FileKind::Socket,
    }
}
