//! ACLs kept in step with modes (RFC 8881 §6.4).

use api::NamespaceError;
use types::{Acl, Attributes, FileKind, Identity, permission};

use crate::group::{Group, OpResult};
use crate::inode::Inode;
use crate::ops::mode_bits::{SET_GID, SET_UID};

const NINE_BITS: u32 = 0o777;

/// After `setattr::apply` put the mode in place, if there was one: an ACL that was given stands and changes the mode
/// (§6.4.1.2), else a new mode changes the ACL that there is (§6.4.1.1). The caller puts the inode.
pub fn follow(
    group: &mut Group<'_>,
    who: &Identity,
    inode: &mut Inode,
    given: Option<&Acl>,
    is_mode_set: bool,
) -> OpResult<()> {
    if let Some(acl) = given {
        let kept = fit(inode, acl.clone())?;
        drop_privileges(who, &mut inode.attributes);
        group.acls().set(inode, kept);
    } else if is_mode_set && let Some(before) = group.acls().of(&inode.attributes)? {
        let kept = fit(inode, changed(&before, inode.attributes.mode)?)?;
        group.acls().set(inode, kept);
    }
    Ok(())
}

/// Drops the set-id bits that `chmod` would drop: a program runs as its owner only if the owner sets that, and as its
/// group only if the owner is in it. An ACL may make a program of a file that was none.
fn drop_privileges(who: &Identity, attributes: &mut Attributes) {
    if attributes.kind.is_directory() {
        return;
    }
    if !permission::is_owner(who, attributes) {
        attributes.mode &= !(SET_UID | SET_GID);
    } else if !who.is_root() && !who.is_member_of(attributes.gid) {
        attributes.mode &= !SET_GID;
    }
}

/// Of a new inode: the ACL that it is given, and the mode that follows (§6.4.3, 2 and 3). The caller notes what is answered
/// when nothing refuses the inode any more.
pub fn begin(inode: &mut Inode, acl: Acl) -> Result<Option<Acl>, NamespaceError> {
    let kept = fit(inode, acl)?;
    inode.attributes.has_acl = kept.is_some();
    Ok(kept)
}

/// As [`begin`], of an inode with the mode that was asked for and what it inherits (§6.4.3, 1 and 4).
pub fn begin_inherited(
    inode: &mut Inode,
    inherited: Acl,
    is_mode_a_bound: bool,
) -> Result<Option<Acl>, NamespaceError> {
    let mode = inode.attributes.mode & NINE_BITS;
    let acl = if !inherited.is_effective() {
        Acl::of_mode_handing_on(mode, &inherited)
    } else if is_mode_a_bound {
        inherited.bounded_by(mode)
    } else {
        inherited.with_mode(mode)
    };
    begin(inode, acl.map_err(|_| NamespaceError::NoSpace)?)
}

/// The ACL that an inode of this kind inherits in a directory with the ACL `above`.
pub fn inherited(above: Option<&Acl>, kind: FileKind) -> Option<Acl> {
    above.filter(|_| kind != FileKind::Symlink)?.inherited(kind.is_directory())
}

/// Whether the inherited ACL replaces the umask (RFC 8275 §3): not if all its entries are for files made below and none
/// is for the directory itself.
pub fn replaces_umask(inherited: Option<&Acl>) -> bool {
    inherited.is_some_and(Acl::is_effective)
}

fn changed(acl: &Acl, mode: u32) -> Result<Acl, NamespaceError> {
    acl.with_mode(mode & NINE_BITS).map_err(|_| NamespaceError::NoSpace)
}

/// Gives the inode the mode of its ACL. One that says no more than a mode is not kept beside it (`None`); the mode of a
/// symbolic link says nothing, and so would its ACL.
fn fit(inode: &mut Inode, acl: Acl) -> Result<Option<Acl>, NamespaceError> {
    let attributes = &mut inode.attributes;
    if attributes.kind == FileKind::Symlink {
        return Err(NamespaceError::NotPermitted);
    }
    attributes.mode = attributes.mode & !NINE_BITS | acl.mode();
    Ok(if acl.is_trivial() { None } else { Some(acl) })
}
