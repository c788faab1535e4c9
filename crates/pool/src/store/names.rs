//! The names of replica files: the directories that they stand in, and whether these are on disk.
//!
//! Invariant: a directory counts as durable only after its own name was synced.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FsWord, Mode, OFlags, fsync, mkdirat, openat};
use rustix::io::Errno;
use types::FileId;

use crate::layout::{DATA, FAN_OUT, ReplicaPlace};

/// File systems that persist a new file's name, and the directories above it, with the first fsync of the file: the
/// creation is in the same or an earlier transaction of their log, and logs are written in order. On others the
/// directories are synced as POSIX asks for. ext4 without a journal, and ext2, have ext4's number. There a power cut takes
/// files that were synced (Linux 6.18), also where their directories were, so that syncing these is of no use; the pool warns
/// of it (`ext4_journal`).
const NAMES_FOLLOW_FILES: &[FsWord] = &[0xef53, 0x5846_5342, 0x9123_683e];

pub struct Names {
    follow_files: bool,
    /// By `ReplicaPlace::directory_index`: known to be on disk.
    directory_durable: Vec<AtomicBool>,
    outer_durable: Vec<AtomicBool>,
}

impl Names {
    /// On a file system of this type.
    pub fn of(file_system: FsWord) -> Names {
        let unknown = |length: usize| (0..length).map(|_| AtomicBool::new(false)).collect();
        Names {
            follow_files: NAMES_FOLLOW_FILES.contains(&file_system),
            directory_durable: unknown(FAN_OUT * FAN_OUT),
            outer_durable: unknown(FAN_OUT),
        }
    }

    /// The file itself has been synced.
    pub fn sync_one(&self, root: &OwnedFd, file: FileId) -> Result<(), Errno> {
        if self.follow_files {
            return Ok(());
        }
        let place = ReplicaPlace::of(file);
        sync_directory(root, &place.directory())?;
        let durable = &self.directory_durable[place.directory_index()];
        if !durable.load(Ordering::Acquire) {
            sync_directory(root, &place.outer_directory())?;
            let outer = &self.outer_durable[place.outer_index()];
            if !outer.load(Ordering::Acquire) {
                sync_directory(root, DATA)?;
                outer.store(true, Ordering::Release);
            }
            durable.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Names that came or went are on disk as they are now.
pub fn sync_all(root: &OwnedFd, files: &[FileId]) -> Result<(), Errno> {
    // Where there is a journal, the first of them brings all to the disk.
    let directories: BTreeSet<_> = files.iter().map(|file| ReplicaPlace::of(*file).directory()).collect();
    directories.iter().try_for_each(|directory| match sync_directory(root, directory) {
        // Nothing was ever made there.
        Err(Errno::NOENT) => Ok(()),
        synced => synced,
    })
}

fn sync_directory(root: &OwnedFd, path: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(openat(root, path, flags, Mode::empty())?)
}

/// The directories in which the file of that place stands, if they are not there.
pub fn make_directories(root: &OwnedFd, place: ReplicaPlace) -> Result<(), Errno> {
    for directory in [place.outer_directory(), place.directory()] {
        match mkdirat(root, directory, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn where_names_do_not_follow_files_the_directories_are_synced_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let root = OwnedFd::from(File::open(dir.path()).unwrap());
        mkdirat(&root, DATA, Mode::RWXU).unwrap();
        let place = ReplicaPlace::of(FileId(9));
        make_directories(&root, place).unwrap();
        let names = Names::of(0);
        names.sync_one(&root, FileId(9)).unwrap();
        assert!(names.directory_durable[place.directory_index()].load(Ordering::SeqCst));
        assert!(names.outer_durable[place.outer_index()].load(Ordering::SeqCst));
        names.sync_one(&root, FileId(9)).unwrap();
    }
}
