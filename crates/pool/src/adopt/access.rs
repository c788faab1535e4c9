//! Permission bits of files that are adopted. A pool reads and writes its replicas; many trees have files that even their
//! owner may only read.
//!
//! Until the namespace has the modes of a tree, its files keep them. The label of a file that its owner may not write
//! needs another mode for a moment. Meanwhile the file has a further name in the pool, which has the mode in it: after a
//! kill, [`restore`] finds it. Linux takes the set-group-ID bit away if the user is not root and not in the file's group.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, chmod, fstat, linkat, open, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::AdoptError;
use crate::error::OpenError;

/// Read and write, for the owner.
const NEEDED: u32 = 0o600;
/// Begins the further name of a file; its mode follows, in octal digits.
const OPENED: &str = "adopting-";

/// A file, however little of it this user may do.
pub struct SeenFile {
    file: OwnedFd,
    stat: Stat,
}

/// A file whose owner may read and write it for a moment.
pub struct OpenedForAMoment<'a> {
    seen: SeenFile,
    pool: BorrowedFd<'a>,
    name: String,
}

impl SeenFile {
    /// Of the regular file with that device and inode, if it is still there.
    pub fn find(path: &Path, seen: (u64, u64)) -> Result<SeenFile, AdoptError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => AdoptError::NotRegular,
            errno => AdoptError::io("find it", errno),
        })?;
        let stat = fstat(&file).map_err(|errno| AdoptError::io("look at it", errno))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(AdoptError::NotRegular);
        }
        if (stat.st_dev, stat.st_ino) != seen {
            return Err(AdoptError::Changed);
        }
        Ok(SeenFile { file, stat })
    }

    /// Whether the owner may not read or not write it, and this user may change that.
    pub fn is_closed(&self) -> bool {
        let is_ours = geteuid().is_root() || geteuid().as_raw() == self.stat.st_uid;
        is_ours && self.stat.st_mode & NEEDED != NEEDED
    }

    /// From now on its owner may read and write it.
    pub fn open_for_owner(&self) -> Result<(), AdoptError> {
        self.set_mode(self.mode() | NEEDED)
    }

    /// `pool`: the directory for the further name.
    pub fn open_for_a_moment(self, pool: BorrowedFd<'_>) -> Result<OpenedForAMoment<'_>, AdoptError> {
        if !self.is_closed() {
            return Err(AdoptError::NotPermitted);
        }
        let name = format!("{OPENED}{:04o}", self.mode());
        let linked = linkat(CWD, self.path(), pool, &name, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(|errno| AdoptError::io("link it into the pool", errno))?;
        let opened = OpenedForAMoment { seen: self, pool, name };
        opened.seen.open_for_owner()?;
        Ok(opened)
    }

    fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    fn set_mode(&self, mode: u32) -> Result<(), AdoptError> {
        chmod(self.path(), Mode::from_raw_mode(mode))
            .map_err(|errno| AdoptError::io("change its mode", errno))
    }

    /// Leads to the file itself, whatever has its name by now.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd()))
    }
}

impl OpenedForAMoment<'_> {
    /// The file has its mode again.
    pub fn close(self) -> Result<(), AdoptError> {
        self.seen.set_mode(self.seen.mode())?;
        let removed = unlinkat(self.pool, &self.name, AtFlags::empty());
        removed.map_err(|errno| AdoptError::io("remove its further name", errno))
    }
}

/// Gives a file its mode again that an adoption, killed since, had opened. `dir`: the pool, which nobody else has.
pub fn restore(dir: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io("restore the mode of a file in", dir, error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let mode = name.to_str().and_then(|name| name.strip_prefix(OPENED));
        let Some(mode) = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()) else { continue };
        if !entry.file_type().map_err(failed)?.is_file() {
            continue;
        }
        let restored = chmod(entry.path(), Mode::from_raw_mode(mode)).map_err(std::io::Error::from);
        restored.map_err(failed)?;
        fs::remove_file(entry.path()).map_err(failed)?;
    }
    Ok(())
}
