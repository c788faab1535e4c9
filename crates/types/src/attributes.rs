//! Attributes of a file.

use crate::{Epoch, FileId, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    BlockDevice(Device),
    CharacterDevice(Device),
    Fifo,
    Socket,
}

impl FileKind {
    pub fn is_directory(self) -> bool {
        self == FileKind::Directory
    }

    pub fn is_regular(self) -> bool {
        self == FileKind::Regular
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub file: FileId,
    pub kind: FileKind,
    /// Permission bits with set-uid, set-gid and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Directories count themselves and their subdirectories. 0: unlinked, kept while somebody has it open.
    pub nlink: u32,
    /// Bytes; for a symbolic link the length of its target.
    pub size: u64,
    /// Bytes on disk as last reported; at most what a pool told.
    pub space_used: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub birth: Timestamp,
    /// Grows with every change of data or attributes and never goes backwards, also not over a crash.
    pub change: u64,
    /// Fencing epoch: tickets for this file carry it.
    pub epoch: Epoch,
    /// There is an ACL, which decides on access; the mode shows the bits that it amounts to.
    pub has_acl: bool,
}

/// The change attribute of a directory around an operation on it (RFC 8881 §3.3.8 `change_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInfo {
    /// Whether nothing else changed the directory between `before` and `after`.
    pub atomic: bool,
    pub before: u64,
    pub after: u64,
}
