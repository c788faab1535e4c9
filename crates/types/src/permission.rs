//! Who may do what: POSIX mode bits as one pure function over (identity, attributes, wanted access).

use std::ops::BitOr;

use crate::{Attributes, FileKind, Identity};

/// A set of wanted or granted accesses, in the bits of `rwx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    pub const NONE: Access = Access(0);
    pub const EXECUTE: Access = Access(1);
    pub const WRITE: Access = Access(2);
    pub const READ: Access = Access(4);

    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// What `who` may do with a file, as Linux' `generic_permission` decides it: the first class that fits (owner, group,
/// other) is the only one that counts; root may read and write anything, search any directory, and execute what
/// anybody may execute.
pub fn granted(who: &Identity, attributes: &Attributes) -> Access {
    let mode = attributes.mode;
    if who.is_root() {
        let all = Access::READ | Access::WRITE;
        let executable = attributes.kind == FileKind::Directory || mode & 0o111 != 0;
        return if executable { all | Access::EXECUTE } else { all };
    }
    let class = if who.uid == attributes.uid {
        mode >> 6
    } else if who.is_member_of(attributes.gid) {
        mode >> 3
    } else {
        mode
    };
    Access((class & 0o7) as u8)
}

pub fn allows(who: &Identity, attributes: &Attributes, wanted: Access) -> bool {
    granted(who, attributes).contains(wanted)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, FileId, Timestamp};

    fn file(mode: u32, uid: u32, gid: u32) -> Attributes {
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
        }
    }

    #[test]
    fn the_first_class_that_fits_is_the_only_one_that_counts() {
        let who = Identity::new(10, 20, &[30]);
        assert!(!allows(&who, &file(0o077, 10, 20), Access::READ));
        assert!(!allows(&who, &file(0o707, 11, 20), Access::READ));
        assert!(!allows(&who, &file(0o707, 11, 30), Access::READ));
        assert!(allows(&who, &file(0o004, 11, 21), Access::READ));
    }

    #[test]
    fn root_executes_only_what_somebody_may_execute() {
        assert!(!allows(&Identity::root(), &file(0o666, 5, 5), Access::EXECUTE));
        assert!(allows(&Identity::root(), &file(0o001, 5, 5), Access::EXECUTE));
        assert!(allows(&Identity::root(), &file(0, 5, 5), Access::READ | Access::WRITE));
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
