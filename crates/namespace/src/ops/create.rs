//! Creation of every kind of entry.

use api::{CreateKind, CreateMode, CreateSpec, Created, NamespaceError};
use types::{ChangeInfo, FileId, FileKind, Identity, Name, Timestamp};

use super::setattr::{self, SET_GID};
use super::{existing, may_add, searchable};
use crate::group::{Group, OpResult};
use crate::inode::{Inode, LINKS_MAX, new_inode};

const GROUP_EXECUTE: u32 = 0o010;
/// What mkdir takes from its mode (Linux: `vfs_mkdir`); set-gid comes from the parent.
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
    may_add(who, &parent)?;
    let is_directory = spec.kind == CreateKind::Directory;
    if is_directory && parent.attributes.nlink >= LINKS_MAX {
        return Err(NamespaceError::TooManyLinks.into());
    }
    let now = group.now();
    let (id, cookie) = (group.new_file_id()?, group.new_cookie()?);
    let mut inode = prepared(group, who, &parent, id, spec, now)?;
    inode.parent = dir;
    group.require_quota(who, (None, &inode), None)?;

    group.insert(inode);
    group.add_name(dir, name, cookie, id);
    if let CreateKind::Symlink(target) = &spec.kind {
        group.set_target(id, target);
    }
    if let (CreateKind::Regular, Some(pool)) = (&spec.kind, spec.location) {
        group.add_location(id, pool, Vec::new());
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

/// The new inode with owner, mode and the attributes asked for (Linux: `inode_init_owner`).
pub fn prepared(
    group: &Group<'_>,
    who: &Identity,
    parent: &Inode,
    id: FileId,
    spec: &CreateSpec,
    now: Timestamp,
) -> Result<Inode, NamespaceError> {
    let mut inode = new_inode(id, kind_of(&spec.kind), now, group.instance);
    let attributes = &mut inode.attributes;
    attributes.uid = who.uid;
    attributes.gid = who.gid;
    attributes.mode =
        spec.permissions & if attributes.kind.is_directory() { DIRECTORY_BITS } else { ALL_BITS };
    if parent.attributes.mode & SET_GID != 0 {
        attributes.gid = parent.attributes.gid;
        if attributes.kind.is_directory() {
            attributes.mode |= SET_GID;
        } else if attributes.mode & GROUP_EXECUTE != 0 && !who.is_root() && !who.is_member_of(attributes.gid)
        {
            attributes.mode &= !SET_GID;
        }
    }
    match &spec.kind {
        CreateKind::Directory => {
            inode.extras.consistency = parent.extras.consistency;
        }
        CreateKind::Symlink(target) => {
            inode.attributes.mode = 0o777;
            inode.attributes.size = target.as_bytes().len() as u64;
        }
        _ => {}
    }
    if let CreateMode::Exclusive { verifier } = spec.mode {
        inode.verifier = Some(verifier);
    }
    let mut set = spec.set.clone();
    // Whoever creates a file may say how long it is.
    set.size_is_authorized = true;
    setattr::check(who, &inode, &set)?;
    setattr::apply(who, &mut inode, &set, now, group.instance);
    Ok(inode)
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
