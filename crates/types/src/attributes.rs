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

/// How a pool reads and writes the bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoMode {
    /// The pool decides for each request.
    #[default]
    Auto,
    Buffered,
    Uncached,
    Direct,
}

impl IoMode {
    pub const ALL: [IoMode; 4] = [IoMode::Auto, IoMode::Buffered, IoMode::Uncached, IoMode::Direct];

    /// Stable: databases and tickets keep it. It fits two bits.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Of the lowest two bits.
    pub fn from_number(number: u8) -> IoMode {
        IoMode::ALL[usize::from(number & 3)]
    }

    pub fn name(self) -> &'static str {
        match self {
            IoMode::Auto => "auto",
            IoMode::Buffered => "buffered",
            IoMode::Uncached => "uncached",
            IoMode::Direct => "direct",
        }
    }
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
    /// Of a regular file; of a directory that of what is made in it. An operator chooses it.
    pub io: IoMode,
}

/// The change attribute of a directory around an operation on it (RFC 8881 §3.3.8 `change_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInfo {
    /// Whether nothing else changed the directory between `before` and `after`.
    pub atomic: bool,
    pub before: u64,
    pub after: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_io_come_back_from_their_numbers() {
        for mode in IoMode::ALL {
            assert_eq!(IoMode::from_number(mode.number()), mode);
            assert_eq!(IoMode::from_number(mode.number() | 4), mode, "other bits are not its own");
        }
        let names = IoMode::ALL.map(IoMode::name);
        assert_eq!(names, ["auto", "buffered", "uncached", "direct"]);
    }
}
