//! Sets of accesses to a file.

use std::ops::BitOr;

/// A set of wanted or granted accesses, in the bits of `acemask4` (RFC 8881 §6.2.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    pub const NONE: Access = Access(0);
    /// Of a directory: to list it.
    pub const READ: Access = Access(0x1);
    /// The accesses of `w`: to write anywhere (WRITE_DATA) and behind the end (APPEND_DATA). Of a directory: to add
    /// files and directories.
    pub const WRITE: Access = Access(0x2 | 0x4);
    /// Of a directory: to search it.
    pub const EXECUTE: Access = Access(0x20);
    pub const ADD_FILE: Access = Access(0x2);
    pub const ADD_SUBDIRECTORY: Access = Access(0x4);
    pub const DELETE_CHILD: Access = Access(0x40);
    pub const READ_ATTRIBUTES: Access = Access(0x80);
    /// Times.
    pub const WRITE_ATTRIBUTES: Access = Access(0x100);
    /// The file itself, wherever it has a name.
    pub const DELETE: Access = Access(0x1_0000);
    pub const READ_ACL: Access = Access(0x2_0000);
    /// The mode too.
    pub const WRITE_ACL: Access = Access(0x4_0000);
    /// To take the file, or give it to a group that one is a member of.
    pub const WRITE_OWNER: Access = Access(0x8_0000);
    pub const SYNCHRONIZE: Access = Access(0x10_0000);
    /// The accesses that the nine bits of a mode cover.
    pub const OF_MODE: Access = Access::READ.and(Access::WRITE).and(Access::EXECUTE);
    /// All accesses of the protocol: besides these, those for named attributes and for retention.
    pub(crate) const ALL: Access = Access(0x1f_07ff);

    /// `None`: there are bits that nobody defined.
    pub fn from_bits(bits: u32) -> Option<Access> {
        (bits & !Access::ALL.0 == 0).then_some(Access(bits))
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }

    #[must_use]
    pub const fn within(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }

    /// Of the lowest three bits of a mode.
    pub(crate) fn of_mode_bits(bits: u32) -> Access {
        let granted = |bit, access| if bits & bit != 0 { access } else { Access::NONE };
        granted(4, Access::READ) | granted(2, Access::WRITE) | granted(1, Access::EXECUTE)
    }

    /// As three bits of a mode: `w` is both ways of writing (RFC 8881 §6.3.2).
    pub(crate) fn mode_bits(self) -> u32 {
        let bit = |access, bit| if self.contains(access) { bit } else { 0 };
        bit(Access::READ, 4) | bit(Access::WRITE, 2) | bit(Access::EXECUTE, 1)
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        self.and(other)
    }
}
