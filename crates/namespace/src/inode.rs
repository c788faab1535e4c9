//! An inode as the namespace keeps it, and the one rule by which its change attribute grows.
//!
//! Of several copies of one inode the one with the highest `change` is the truth: every mutation raises it, and a
//! value is never used for two states. Caches, unsettled writes and database snapshots are reconciled by that alone.

use api::Consistency;
use types::{Attributes, Device, Epoch, FileId, FileKind, IoMode, Timestamp};

use crate::locality::Placement;

/// Linux' own bound on ext4 (`EXT4_LINK_MAX`); also for subdirectories, which link their parent by `..`.
pub const LINKS_MAX: u32 = 65_000;

/// The parent of what has none: of the root, and of what has no name.
pub const NO_PARENT: FileId = FileId(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    pub attributes: Attributes,
    /// The directory that holds this directory. Of anything else the one of its names' directories in whose tree it
    /// counts. `NO_PARENT` where there is none.
    pub parent: FileId,
    /// Of the exclusive create that made the file.
    pub verifier: Option<[u8; 8]>,
    pub extras: Extras,
}

/// Facts of a file beside its attributes. A file without rows in another table costs no look into that table.
///
/// `has_checksums` is a fact that may be set without a new `change`. A reader with an older copy sees no
/// checksums a moment longer. The fact is never cleared without a new `change`, so no old copy brings checksums back.
/// The mode of I/O of a file is another: a cache takes what a later group wrote, whatever `change` it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    pub has_checksums: bool,
    pub has_properties: bool,
    pub has_xattrs: bool,
    /// Made without a name and not published yet. An unlinked file has no name either, and never gets one.
    pub is_unnamed: bool,
    /// Of a regular file.
    pub placement: Placement,
    /// Of a directory; `None`: as the instance.
    pub consistency: Option<Consistency>,
}

impl Extras {
    pub const CHECKSUMS: u32 = 1;
    pub const PROPERTIES: u32 = 2;
    const UNNAMED: u32 = 4;
    const CONSISTENCY_SHIFT: u32 = 3;
    const CONSISTENCY_MASK: u32 = 7;
    pub const XATTRS: u32 = 1 << 6;
    /// Whether there is an ACL is an attribute, for every door asks it.
    pub const ACL: u32 = 1 << 7;
    /// After those of the placement. The mode of I/O is an attribute too: tickets carry it. That of a file may change
    /// without a new `change`: a reader with an older copy opens the file as a moment ago.
    const IO_SHIFT: u32 = 11;
    const IO_MASK: u32 = 3;

    pub fn io(bits: u32) -> IoMode {
        // Two bits fit.
        IoMode::from_number(((bits >> Extras::IO_SHIFT) & Extras::IO_MASK) as u8)
    }

    pub fn from_bits(bits: u32) -> Extras {
        Extras {
            has_checksums: bits & Extras::CHECKSUMS != 0,
            has_properties: bits & Extras::PROPERTIES != 0,
            has_xattrs: bits & Extras::XATTRS != 0,
            is_unnamed: bits & Extras::UNNAMED != 0,
            placement: Placement::from_number((bits >> Placement::SHIFT) & Placement::MASK),
            consistency: match (bits >> Extras::CONSISTENCY_SHIFT) & Extras::CONSISTENCY_MASK {
                1 => Some(Consistency::Strong),
                2 => Some(Consistency::Weak),
                3 => Some(Consistency::Soft),
                4 => Some(Consistency::Auto),
                _ => None,
            },
        }
    }

    pub fn bits(self) -> u32 {
        let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
        let consistency = match self.consistency {
            None => 0,
            Some(Consistency::Strong) => 1,
            Some(Consistency::Weak) => 2,
            Some(Consistency::Soft) => 3,
            Some(Consistency::Auto) => 4,
        };
        bit(self.has_checksums, Extras::CHECKSUMS)
            | bit(self.has_properties, Extras::PROPERTIES)
            | bit(self.has_xattrs, Extras::XATTRS)
            | bit(self.is_unnamed, Extras::UNNAMED)
            | consistency << Extras::CONSISTENCY_SHIFT
            | self.placement.number() << Placement::SHIFT
    }
}

impl Inode {
    /// As all databases keep them.
    pub fn extras_bits(&self) -> u32 {
        let acl = if self.attributes.has_acl { Extras::ACL } else { 0 };
        self.extras.bits() | acl | u32::from(self.attributes.io.number()) << Extras::IO_SHIFT
    }

    pub fn id(&self) -> FileId {
        self.attributes.file
    }

    pub fn is_directory(&self) -> bool {
        self.attributes.kind.is_directory()
    }

    pub fn is_nameless(&self) -> bool {
        self.attributes.nlink == 0
    }

    /// After its length changed. Without replicas a file with a length has lost its data, and one without is empty.
    pub fn judge_placement(&mut self) {
        if self.extras.placement != Placement::Replicas {
            self.extras.placement = Placement::without_replicas(self.attributes.size);
        }
    }

    /// Notes a change of attributes: `ctime` and `change` move.
    pub fn touch(&mut self, now: Timestamp, instance: Instance) {
        self.attributes.ctime = now;
        self.attributes.change = instance.next_change(self.attributes.change);
    }

    /// Notes a change of a directory's entries. Its times never go backwards, whatever the clock does: a client
    /// that trusts mtime would keep an old listing.
    pub fn touch_entries(&mut self, now: Timestamp, instance: Instance) {
        let attributes = &mut self.attributes;
        attributes.mtime = attributes.mtime.max(now);
        attributes.ctime = attributes.ctime.max(now);
        attributes.change = instance.next_change(attributes.change);
    }
}

/// One start of the namespace. Its number is raised durably at each open, so change values made in it lie above
/// every value of earlier starts, also of those that a crash lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub start: u32,
}

impl Instance {
    pub fn first_change(self) -> u64 {
        u64::from(self.start) << 32
    }

    pub fn next_change(self, old: u64) -> u64 {
        (old + 1).max(self.first_change())
    }
}

pub fn new_inode(id: FileId, kind: FileKind, now: Timestamp, instance: Instance) -> Inode {
    let attributes = Attributes {
        file: id,
        kind,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: if kind.is_directory() { 2 } else { 1 },
        size: 0,
        space_used: 0,
        atime: now,
        mtime: now,
        ctime: now,
        birth: now,
        change: instance.first_change(),
        epoch: Epoch::default(),
        has_acl: false,
        io: IoMode::Auto,
    };
    let placement = if kind.is_regular() { Placement::Empty } else { Placement::default() };
    let extras = Extras { placement, ..Extras::default() };
    Inode { attributes, parent: NO_PARENT, verifier: None, extras }
}

/// Lower bounds of change attributes as shown: after an unclean end, values that clients saw may be lost, and what is
/// shown afterwards must lie above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeFloor {
    /// Regular files: unstable writes are lost by any crash.
    pub regular: u64,
    /// Everything: with deferred durability a power cut may lose whole groups.
    pub any: u64,
}

impl ChangeFloor {
    pub fn of(self, kind: FileKind) -> u64 {
        if kind.is_regular() { self.regular.max(self.any) } else { self.any }
    }
}

/// As all databases keep it: a number, and what a device has besides.
pub fn encode_kind(kind: FileKind) -> (u8, Device) {
    match kind {
        FileKind::Regular => (0, Device::default()),
        FileKind::Directory => (1, Device::default()),
        FileKind::Symlink => (2, Device::default()),
        FileKind::BlockDevice(device) => (3, device),
        FileKind::CharacterDevice(device) => (4, device),
        FileKind::Fifo => (5, Device::default()),
        FileKind::Socket => (6, Device::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_new_start_lies_above_every_value_of_the_one_before() {
        let before = Instance { start: 3 }.next_change(Instance { start: 3 }.first_change() + 5_000_000);
        assert!(Instance { start: 4 }.next_change(7) > before);
    }

    #[test]
    fn extras_are_the_same_after_a_way_through_the_database() {
        let placed = (0..8 * 5).flat_map(|bits| (0..3).map(move |number| bits | number << Placement::SHIFT));
        for bits in placed.flat_map(|bits| [bits, bits | Extras::XATTRS]) {
            assert_eq!(Extras::from_bits(bits).bits(), bits);
            assert_eq!(Extras::from_bits(bits | Extras::ACL).bits(), bits);
        }
    }

    #[test]
    fn mode_of_io_is_in_bits_of_its_own() {
        for io in IoMode::ALL {
            let mut inode = new_inode(FileId(5), FileKind::Regular, Timestamp::EPOCH, Instance { start: 1 });
            let without = inode.extras_bits();
            inode.attributes.io = io;
            let bits = inode.extras_bits();
            assert_eq!(Extras::io(bits), io);
            assert_eq!(Extras::from_bits(bits), inode.extras);
            assert_eq!(bits & !(3 << 11), without);
        }
    }

    #[test]
    fn directory_times_never_go_backwards() {
        let instance = Instance { start: 1 };
        let late = Timestamp::new(100, 0).unwrap();
        let mut dir = new_inode(FileId(5), FileKind::Directory, late, instance);
        let change = dir.attributes.change;
        dir.touch_entries(Timestamp::new(50, 0).unwrap(), instance);
        assert_eq!((dir.attributes.mtime, dir.attributes.ctime), (late, late));
        assert!(dir.attributes.change > change);
    }
}
