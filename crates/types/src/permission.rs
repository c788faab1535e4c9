//! Permissions: mode bits and ACLs as pure functions over (identity, attributes, ACL, wanted access).

use crate::acl::{Acl, Verdict};
use crate::{Access, Attributes, FileKind, Identity};

/// The accesses to a file that `who` is granted: by its ACL if it has one, else by its mode.
///
/// Root may do anything, but execute only what anybody may execute. Owners may read and write the ACL and the attributes
/// of what is theirs, or nobody could mend an ACL that denies it (RFC 8881 §6.3.1). Of `DELETE` and `DELETE_CHILD` see
/// [`judge_removal`], which decides.
pub fn granted(who: &Identity, attributes: &Attributes, acl: Option<&Acl>) -> Access {
    if who.is_root() {
        let of_somebody = acl.map_or(Access::NONE, Acl::allowed_to_somebody);
        let executable = attributes.kind == FileKind::Directory
            || attributes.mode & 0o111 != 0
            || of_somebody.contains(Access::EXECUTE);
        let all = Access::ALL;
        return if executable { all } else { all.without(Access::EXECUTE) };
    }
    let allowed = match acl {
        Some(acl) => acl.judge(who, attributes).allowed,
        None => of_mode(who, attributes) | Access::READ_ATTRIBUTES | Access::READ_ACL,
    };
    if who.uid == attributes.uid { allowed | OWNED } else { allowed }
}

/// The owner's, whatever the ACL says.
const OWNED: Access =
    Access::READ_ATTRIBUTES.and(Access::READ_ACL).and(Access::WRITE_ATTRIBUTES).and(Access::WRITE_ACL);

/// As Linux' `generic_permission`: the first class that fits (owner, group, other) is the only one that counts.
fn of_mode(who: &Identity, attributes: &Attributes) -> Access {
    let mode = attributes.mode;
    Access::of_mode_bits(if who.uid == attributes.uid {
        mode >> 6
    } else if who.is_member_of(attributes.gid) {
        mode >> 3
    } else {
        mode
    })
}

pub fn allows(who: &Identity, attributes: &Attributes, acl: Option<&Acl>, wanted: Access) -> bool {
    granted(who, attributes, acl).contains(wanted)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Allowed,
    /// EACCES.
    Denied,
    /// The sticky bit keeps it: EPERM.
    Sticky,
}

/// Whether `who` may take `entry` out of `dir` (RFC 8881 §6.2.1.3.2): needs to search it, and to be allowed DELETE of
/// the one or DELETE_CHILD of the other. Where neither is allowed nor denied, adding files to it is what counts, and
/// the sticky bit.
pub fn judge_removal(
    who: &Identity,
    (dir, dir_acl): (&Attributes, Option<&Acl>),
    (entry, entry_acl): (&Attributes, Option<&Acl>),
) -> Removal {
    if who.is_root() {
        return Removal::Allowed;
    }
    let judge = |acl: Option<&Acl>, of| acl.map_or_else(Verdict::default, |acl| acl.judge(who, of));
    let (above, below) = (judge(dir_acl, dir), judge(entry_acl, entry));
    let granted = granted(who, dir, dir_acl);
    if !granted.contains(Access::EXECUTE) {
        return Removal::Denied;
    }
    if above.allowed.contains(Access::DELETE_CHILD) || below.allowed.contains(Access::DELETE) {
        return Removal::Allowed;
    }
    let is_denied = above.denied.contains(Access::DELETE_CHILD) || below.denied.contains(Access::DELETE);
    if is_denied || !granted.contains(Access::ADD_FILE) {
        Removal::Denied
    } else if sticky_forbids(who, dir, entry) {
        Removal::Sticky
    } else {
        Removal::Allowed
    }
}

/// The part of ACCESS' DELETE that a directory decides: whether entries may be removed whose own ACLs say nothing.
pub fn may_remove_entries(who: &Identity, dir: &Attributes, acl: Option<&Acl>) -> bool {
    let granted = granted(who, dir, acl);
    let verdict = acl.map_or_else(Verdict::default, |acl| acl.judge(who, dir));
    let is_denied = verdict.denied.contains(Access::DELETE_CHILD);
    granted.contains(Access::DELETE_CHILD) || (granted.contains(Access::ADD_FILE) && !is_denied)
}

/// Whether `who` owns the file or is root: what chmod, utimes to given times, and the sticky bit ask.
pub fn is_owner(who: &Identity, attributes: &Attributes) -> bool {
    who.is_root() || who.uid == attributes.uid
}

/// The sticky rule (`S_ISVTX`): in such a directory only the owner of the entry or of the directory may remove or
/// rename the entry.
pub fn sticky_forbids(who: &Identity, dir: &Attributes, entry: &Attributes) -> bool {
    dir.mode & 0o1000 != 0 && !is_owner(who, dir) && !is_owner(who, entry)
}

/// A writer that is not root takes set-uid away, and set-gid where the group may execute (without that bit it once
/// meant mandatory locking). The writer is not known when a write is recorded; files with these bits that root writes
/// in place are rare, programs that stay set-uid after others wrote them are holes.
pub fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Epoch, FileId, Timestamp};

    pub(crate) fn file(mode: u32, uid: u32, gid: u32) -> Attributes {
        let t = Timestamp::EPOCH;
        Attributes {
            file: FileId(7),
            kind: FileKind::Regular,
            mode,
            uid,
            gid,
            nlink: 1,
            size: 0,
            space_used: 0,
            atime: t,
            mtime: t,
            ctime: t,
            birth: t,
            change: 1,
            epoch: Epoch(0),
            has_acl: false,
            io: crate::IoMode::Auto,
        }
    }

    #[test]
    fn the_first_class_that_fits_is_the_only_one_that_counts() {
        let who = Identity::new(10, 20, &[30]);
        assert!(!allows(&who, &file(0o077, 10, 20), None, Access::READ));
        assert!(!allows(&who, &file(0o707, 11, 20), None, Access::READ));
        assert!(!allows(&who, &file(0o707, 11, 30), None, Access::READ));
        assert!(allows(&who, &file(0o004, 11, 21), None, Access::READ));
    }

    #[test]
    fn root_executes_only_what_somebody_may_execute() {
        assert!(!allows(&Identity::root(), &file(0o666, 5, 5), None, Access::EXECUTE));
        assert!(allows(&Identity::root(), &file(0o001, 5, 5), None, Access::EXECUTE));
        assert!(allows(&Identity::root(), &file(0, 5, 5), None, Access::READ | Access::WRITE));
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let dir = Attributes { kind: FileKind::Directory, ..file(0o1777, 1, 1) };
        let entry = file(0o666, 2, 2);
        assert!(sticky_forbids(&Identity::new(3, 3, &[]), &dir, &entry));
        assert!(!sticky_forbids(&Identity::new(2, 2, &[]), &dir, &entry));
        assert!(!sticky_forbids(&Identity::new(1, 1, &[]), &dir, &entry));
        assert!(!sticky_forbids(&Identity::root(), &dir, &entry));
    }
}
