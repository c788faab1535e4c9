//! The pool's directory as the system calls see it: open, create, look at, remove and sync replica files.
//!
//! Everything is relative to one open directory, so a pool keeps to it whatever happens to the path. All calls block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, fdatasync, fstatfs, fsync, ioctl_ficlone, mkdirat, openat, openat2,
    statat, unlinkat,
};
use rustix::io::Errno;
use types::{FileId, PoolId, Timestamp};

use crate::label::Label;
use crate::layout::{DATA, FAN_OUT, Place};
use types::Epoch;

/// File systems that persist a new file's name, and the directories above it, with the first fsync of the file: the
/// creation is in the same or an earlier transaction of their log, and logs are written in order. On others the
/// directories are synced as POSIX asks for. ext2 has ext4's number; the ext4 driver, which serves both, syncs the
/// parents itself where there is no journal.
const NAMES_FOLLOW_FILES: &[i64] = &[0xef53, 0x5846_5342, 0x9123_683e];

pub struct Store {
    pub pool: PoolId,
    pub instance: [u8; 16],
    root: OwnedFd,
    names_follow_files: bool,
    /// Files may share blocks of this size.
    pub clone_granularity: Option<u32>,
    /// By `Place::directory_index`: known to be on disk.
    directory_durable: Vec<AtomicBool>,
    outer_durable: Vec<AtomicBool>,
    #[cfg(test)]
    pub fail_syncs: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub size: u64,
    pub space_used: u64,
    pub modified: Timestamp,
}

impl Store {
    pub fn new(pool: PoolId, instance: [u8; 16], root: OwnedFd) -> Result<Store, Errno> {
        match mkdirat(&root, DATA, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        fsync(&root)?;
        let about = fstatfs(&root)?;
        let names_follow_files = NAMES_FOLLOW_FILES.contains(&{ about.f_type });
        let block_bytes = u32::try_from(about.f_bsize).ok();
        let clone_granularity = block_bytes.filter(|_| shares_blocks(root.as_fd()));
        let unknown = |length: usize| (0..length).map(|_| AtomicBool::new(false)).collect();
        Ok(Store {
            pool,
            instance,
            root,
            names_follow_files,
            clone_granularity,
            directory_durable: unknown(FAN_OUT * FAN_OUT),
            outer_durable: unknown(FAN_OUT),
            #[cfg(test)]
            fail_syncs: AtomicBool::new(false),
        })
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub fn label(&self, file: FileId, epoch: Epoch) -> Label {
        Label { file, instance: self.instance, epoch }
    }

    /// `None`: there is no such file.
    pub fn open(&self, file: FileId) -> Result<Option<OwnedFd>, Errno> {
        match self.open_with(file, OFlags::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens the file if the kernel can say at once where it is (`RESOLVE_CACHED`): without a disk, without a wait.
    pub fn open_resident(&self, file: FileId) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME;
        openat2(&self.root, Place::of(file).path(), flags, Mode::empty(), ResolveFlags::CACHED)
    }

    /// Opens the file and whether it was made for that. One may be there: left by a crash before it was labelled.
    pub fn create(&self, file: FileId) -> Result<(OwnedFd, bool), Errno> {
        let fresh = OFlags::CREATE | OFlags::EXCL;
        match self.open_with(file, fresh) {
            Err(Errno::EXIST) => self.open_with(file, OFlags::empty()).map(|file| (file, false)),
            Err(Errno::NOENT) => {
                self.make_directories(Place::of(file))?;
                self.open_with(file, fresh).map(|file| (file, true))
            }
            opened => opened.map(|file| (file, true)),
        }
    }

    pub fn make_directories(&self, place: Place) -> Result<(), Errno> {
        for directory in [place.outer_directory(), place.directory()] {
            match mkdirat(&self.root, directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn open_with(&self, file: FileId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = Place::of(file).path();
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.root, &path, flags | OFlags::NOATIME, Mode::RUSR | Mode::WUSR) {
            // Only the owner may leave the access time alone; an operator may have changed it.
            Err(Errno::PERM) => openat(&self.root, &path, flags, Mode::RUSR | Mode::WUSR),
            opened => opened,
        }
    }

    /// `None`: there is no such file.
    pub fn look(&self, file: FileId) -> Result<Option<Extent>, Errno> {
        match statat(&self.root, Place::of(file).path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(extent(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether there was one.
    pub fn unlink(&self, file: FileId) -> Result<bool, Errno> {
        match unlinkat(&self.root, Place::of(file).path(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The data, and what is needed to read it back: size and extents (fdatasync(2)).
    pub fn sync_data(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.injected()?;
        fdatasync(file)
    }

    /// The data and everything about the file, also its label.
    pub fn sync_all(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.injected()?;
        fsync(file)
    }

    /// The replica's name; the file itself has been synced.
    pub fn sync_name(&self, file: FileId) -> Result<(), Errno> {
        if self.names_follow_files {
            return Ok(());
        }
        let place = Place::of(file);
        self.sync_directory(&place.directory())?;
        let durable = &self.directory_durable[place.directory_index()];
        if !durable.load(Ordering::Acquire) {
            self.sync_directory(&place.outer_directory())?;
            let outer = &self.outer_durable[place.outer_index()];
            if !outer.load(Ordering::Acquire) {
                self.sync_directory(DATA)?;
                outer.store(true, Ordering::Release);
            }
            durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fsync(openat(&self.root, path, flags, Mode::empty())?)
    }

    #[cfg(test)]
    fn injected(&self) -> Result<(), Errno> {
        if self.fail_syncs.load(Ordering::SeqCst) { Err(Errno::IO) } else { Ok(()) }
    }

    #[cfg(not(test))]
    fn injected(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// By trying it with two files that have no name.
fn shares_blocks(root: BorrowedFd<'_>) -> bool {
    let unnamed = || openat(root, DATA, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RWXU);
    matches!((unnamed(), unnamed()), (Ok(one), Ok(other)) if ioctl_ficlone(&one, &other).is_ok())
}

pub fn look_at(file: BorrowedFd<'_>) -> Result<Extent, Errno> {
    Ok(extent(&rustix::fs::fstat(file)?))
}

fn extent(stat: &rustix::fs::Stat) -> Extent {
    // The kernel gives neither negative; blocks are of 512 bytes whatever the file system's are.
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Extent {
        size: stat.st_size.cast_unsigned(),
        space_used: stat.st_blocks.cast_unsigned() * 512,
        modified: Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(Timestamp::EPOCH),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn store(dir: &tempfile::TempDir) -> Store {
        Store::new(PoolId(1), [1; 16], File::open(dir.path()).unwrap().into()).unwrap()
    }

    #[test]
    fn a_file_is_made_with_its_directories_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        assert!(store.open(FileId(9)).unwrap().is_none());
        assert!(store.create(FileId(9)).unwrap().1);
        assert!(!store.create(FileId(9)).unwrap().1);
        assert!(store.open(FileId(9)).unwrap().is_some());
        let seen = store.look(FileId(9)).unwrap().unwrap();
        assert_eq!((seen.size, seen.space_used), (0, 0));
        assert_eq!(store.unlink(FileId(9)), Ok(true));
        assert_eq!(store.unlink(FileId(9)), Ok(false));
        assert_eq!(store.look(FileId(9)).unwrap(), None);
    }

    #[test]
    fn where_names_do_not_follow_files_the_directories_are_synced_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(&dir);
        store.names_follow_files = false;
        store.create(FileId(9)).unwrap();
        store.sync_name(FileId(9)).unwrap();
        let place = Place::of(FileId(9));
        assert!(store.directory_durable[place.directory_index()].load(Ordering::SeqCst));
        assert!(store.outer_durable[place.outer_index()].load(Ordering::SeqCst));
        store.sync_name(FileId(9)).unwrap();
    }
}
