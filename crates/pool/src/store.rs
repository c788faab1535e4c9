//! The pool's directory as the system calls see it: open, create, look at, remove and sync replica files.
//!
//! Everything is relative to one open directory, so a pool keeps to it whatever happens to the path. All calls block.

mod faults;
mod names;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use api::Birth;
use io_engine::uncached::check_write_back;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatVfsMountFlags, fdatasync, fstat, fstatfs,
    fstatvfs, fsync, ioctl_ficlone, linkat, mkdirat, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use types::{ByteRange, FileId, PoolId, Timestamp};

pub use self::faults::Faults;
#[cfg(test)]
pub use self::faults::{OnDisk, Operation};
use self::names::Names;
use crate::disk_error::is_of_the_disk;
use crate::label::{self, Label, LabelError};
use crate::layout::{DATA, ReplicaPlace};
use types::Epoch;

/// Written where writes have failed, to learn whether they do still.
const PROBE: &str = "write-probe";

pub struct Store {
    pub pool: PoolId,
    pub instance: [u8; 16],
    root: OwnedFd,
    names: Names,
    /// Files may share blocks of this size.
    pub clone_granularity: Option<u32>,
    pub faults: Arc<Faults>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub size: u64,
    pub space_used: u64,
    pub modified: Timestamp,
    /// No name leads to it: its bytes go with the last descriptor.
    pub is_unlinked: bool,
}

/// The contents of a place of the pool.
#[derive(Default)]
struct Lying {
    /// The file that its label names, if it has a label.
    of: Option<FileId>,
    inode: Option<u64>,
}

/// The least that file systems allocate, as far as it matters for a reserve.
const BLOCK_BYTES: u64 = 4096;

impl Extent {
    /// Of a file that is not there.
    pub const NONE: Extent =
        Extent { size: 0, space_used: 0, modified: Timestamp::EPOCH, is_unlinked: false };

    /// The space that a write of `[offset, end)` may take at most where blocks are written in place: blocks behind the end,
    /// and as many of those within the file as it has holes. Where these are, the file system is not asked. Reserved blocks
    /// were counted when they were reserved.
    fn space_in_place(&self, offset: u64, end: u64) -> u64 {
        let (first, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let blocks = self.size.div_ceil(BLOCK_BYTES);
        let behind = last.saturating_sub(blocks.max(first));
        let within = last.min(blocks).saturating_sub(first);
        let holes = blocks.saturating_sub(self.space_used / BLOCK_BYTES);
        behind.saturating_add(within.min(holes)).saturating_mul(BLOCK_BYTES)
    }
}

impl Store {
    pub fn new(pool: PoolId, instance: [u8; 16], root: OwnedFd) -> Result<Store, Errno> {
        let is_new = match mkdirat(&root, DATA, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno),
        };
        match fsync(&root) {
            // The replicas can still be read.
            Err(errno) if !is_new && is_of_the_disk(errno) => {}
            synced => synced?,
        }
        let about = fstatfs(&root)?;
        let block_bytes = u32::try_from(about.f_bsize).ok();
        let clone_granularity = block_bytes.filter(|_| shares_blocks(root.as_fd()));
        Ok(Store {
            pool,
            instance,
            root,
            names: Names::of(about.f_type),
            clone_granularity,
            faults: Arc::new(Faults::none()),
        })
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub fn label(&self, file: FileId, birth: Birth, epoch: Epoch, length: u64) -> Label {
        Label { file, instance: self.instance, epoch, length: Some(length), birth }
    }

    /// To read only, if the disk takes no writes. `None`: there is no such file.
    pub fn open(&self, file: FileId) -> Result<Option<OwnedFd>, Errno> {
        match self.open_to_write(file) {
            Err(Errno::NOENT) => Ok(None),
            // The replica can still be read.
            Err(Errno::ROFS) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                openat(&self.root, ReplicaPlace::of(file).path(), flags, Mode::empty()).map(Some)
            }
            opened => opened.map(Some),
        }
    }

    /// To read only, past the replica's own descriptor. `None`: there is no such file, or something else of its name.
    pub fn open_to_look(&self, file: FileId) -> Result<Option<OwnedFd>, Errno> {
        let path = ReplicaPlace::of(file).path();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = match openat(&self.root, &path, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => openat(&self.root, &path, flags, Mode::empty()),
            opened => opened,
        };
        match opened {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
            Ok(file) => Ok(FileType::from_raw_mode(fstat(&file)?.st_mode).is_file().then_some(file)),
            Err(errno) => Err(errno),
        }
    }

    pub fn open_to_write(&self, file: FileId) -> Result<OwnedFd, Errno> {
        self.open_with(file, OFlags::empty())
    }

    /// Opens the file if the kernel can say at once where it is (`RESOLVE_CACHED`): without a disk, without a wait.
    pub fn open_resident(&self, file: FileId) -> Result<OwnedFd, Errno> {
        self.faults.of_open()?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME;
        openat2(&self.root, ReplicaPlace::of(file).path(), flags, Mode::empty(), ResolveFlags::CACHED)
    }

    /// Opens the file and whether it was made for that. One may be there: left by a crash before it was labelled.
    pub fn create(&self, file: FileId) -> Result<(OwnedFd, bool), Errno> {
        let fresh = OFlags::CREATE | OFlags::EXCL;
        match self.open_with(file, fresh) {
            Err(Errno::EXIST) => self.open_to_write(file).map(|file| (file, false)),
            Err(Errno::NOENT) => {
                self.make_directories(ReplicaPlace::of(file))?;
                self.open_with(file, fresh).map(|file| (file, true))
            }
            opened => opened.map(|file| (file, true)),
        }
    }

    pub fn make_directories(&self, place: ReplicaPlace) -> Result<(), Errno> {
        names::make_directories(&self.root, place)
    }

    fn open_with(&self, file: FileId, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.faults.of_open()?;
        let path = ReplicaPlace::of(file).path();
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.root, &path, flags | OFlags::NOATIME, Mode::RUSR | Mode::WUSR) {
            // Only the owner may leave the access time alone; an operator may have changed it.
            Err(Errno::PERM) => openat(&self.root, &path, flags, Mode::RUSR | Mode::WUSR),
            opened => opened,
        }
    }

    /// The space that a write of `[offset, end)` may take at most. Blocks that are shared with another file are not written
    /// in place, and the file does not say which these are.
    pub fn space_for(&self, extent: Extent, offset: u64, end: u64) -> u64 {
        match self.clone_granularity {
            None => extent.space_in_place(offset, end),
            Some(_) => Extent::NONE.space_in_place(offset, end),
        }
    }

    /// `None`: there is no such file, or something else of its name.
    pub fn look(&self, file: FileId) -> Result<Option<Extent>, Errno> {
        match statat(&self.root, ReplicaPlace::of(file).path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode).is_file().then(|| extent(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The same, and the birth, if it bears the replica's label. One that was made and is not labelled yet is empty.
    pub fn look_inside(&self, file: FileId) -> Result<Option<(Extent, Birth)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = match openat(&self.root, ReplicaPlace::of(file).path(), flags, Mode::empty()) {
            // Nothing, a symbolic link, a socket.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            opened => opened?,
        };
        let stat = fstat(&opened)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(None);
        }
        let birth = match label::read(&opened) {
            Ok(Some(label)) if label.file == file && label.instance == self.instance => label.birth,
            Ok(None) if stat.st_size == 0 => Birth::UNKNOWN,
            Ok(_) | Err(LabelError::Malformed) => return Ok(None),
            Err(LabelError::Unreadable(errno)) => return Err(errno),
        };
        Ok(Some((extent(&stat), birth)))
    }

    /// Puts a replica that lies in another file's place into that of its own, as its label says, and what lies there in the
    /// wrong place into its own. Labels stay as they are: whatever a crash leaves, this goes on with. `moved` gets the places
    /// that something came to or went from. `false`: something else has its place, and it is left where it is.
    pub fn put_in_place(&self, place: FileId, moved: &mut Vec<FileId>) -> Result<bool, Errno> {
        // Each exchange puts one more where it belongs.
        loop {
            let Lying { of: Some(own), inode } = self.labelled(place)? else { return Ok(false) };
            if own == place {
                return Ok(true);
            }
            self.make_directories(ReplicaPlace::of(own))?;
            let rename = |flags| {
                let (from, to) = (ReplicaPlace::of(place).path(), ReplicaPlace::of(own).path());
                renameat_with(&self.root, from, &self.root, to, flags)
            };
            let there = self.labelled(own)?;
            let is_done = match there.of {
                // A second name of it.
                Some(_) if there.inode == inode => self.unlink(place),
                Some(file) if file == own => return Ok(false),
                Some(_) => rename(RenameFlags::EXCHANGE).map(|()| false),
                None => rename(RenameFlags::NOREPLACE).map(|()| true),
            };
            let is_done = match is_done {
                // Something without a label, or a file system that cannot.
                Err(Errno::EXIST | Errno::INVAL) => return Ok(false),
                is_done => is_done?,
            };
            self.sync_names(&[place, own])?;
            moved.extend([place, own]);
            if is_done {
                return Ok(true);
            }
        }
    }

    fn labelled(&self, place: FileId) -> Result<Lying, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = match openat(&self.root, ReplicaPlace::of(place).path(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(Lying::default()),
            opened => opened?,
        };
        let stat = fstat(&opened)?;
        let label = match label::read(&opened) {
            Ok(label) => label.filter(|label| label.instance == self.instance),
            Err(LabelError::Malformed) => None,
            Err(LabelError::Unreadable(errno)) => return Err(errno),
        };
        Ok(Lying { of: label.map(|label| label.file), inode: Some(stat.st_ino) })
    }

    /// The label first names the file that it had, under both names, then the other.
    pub fn renumber(&self, from: FileId, to: FileId) -> Result<(), Errno> {
        let (old, new) = (ReplicaPlace::of(from), ReplicaPlace::of(to));
        self.make_directories(new)?;
        let file = self.open_with(from, OFlags::empty())?;
        let found = label::read(&file).map_err(|error| match error {
            LabelError::Unreadable(errno) => errno,
            LabelError::Malformed => Errno::INVAL,
        })?;
        linkat(&self.root, old.path(), &self.root, new.path(), AtFlags::empty())?;
        label::write(&file, &Label { file: to, ..found.ok_or(Errno::INVAL)? })?;
        self.sync_all(file.as_fd())?;
        self.sync_name(to)?;
        self.unlink(from).map(drop)
    }

    /// Whether there was one.
    pub fn unlink(&self, file: FileId) -> Result<bool, Errno> {
        match unlinkat(&self.root, ReplicaPlace::of(file).path(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the file system is mounted to be read only.
    pub fn is_read_only(&self) -> bool {
        fstatvfs(&self.root).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Writes a block to the disk and removes it again.
    pub fn try_to_write(&self) -> Result<(), Errno> {
        self.faults.of_open()?;
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.root, PROBE, flags, Mode::RUSR | Mode::WUSR)?;
        let written = rustix::io::write(&file, &[0; 4096]).and_then(|_| fsync(&file));
        unlinkat(&self.root, PROBE, AtFlags::empty())?;
        written
    }

    /// The data, and what is needed to read it back: size and extents (fdatasync(2)).
    pub fn sync_data(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.faults.of_sync(file)?;
        fdatasync(file)?;
        self.faults.note_synced(file, false);
        Ok(())
    }

    /// An error if written data was lost on its way to the disk. Pages that wait in memory stay there.
    pub fn check_write_back(&self, file: BorrowedFd<'_>, range: ByteRange) -> Result<(), Errno> {
        self.faults.of_write_back(file)?;
        check_write_back(file, range)
    }

    /// The data and everything about the file, also its label.
    pub fn sync_all(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.faults.of_sync(file)?;
        fsync(file)?;
        self.faults.note_synced(file, true);
        Ok(())
    }

    /// The replica's name; the file itself has been synced.
    pub fn sync_name(&self, file: FileId) -> Result<(), Errno> {
        self.names.sync_one(&self.root, file)
    }

    /// Names that came or went are on disk as they are now.
    pub fn sync_names(&self, files: &[FileId]) -> Result<(), Errno> {
        self.faults.of_names()?;
        names::sync_all(&self.root, files)
    }
}

/// By trying it with two files that have no name.
fn shares_blocks(root: BorrowedFd<'_>) -> bool {
    let unnamed = || openat(root, DATA, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RWXU);
    matches!((unnamed(), unnamed()), (Ok(one), Ok(other)) if ioctl_ficlone(&one, &other).is_ok())
}

pub fn look_at(file: BorrowedFd<'_>) -> Result<Extent, Errno> {
    Ok(extent(&fstat(file)?))
}

/// Through the page cache. Fewer bytes at the end of the file.
pub fn read_up_to(file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut data = vec![0; length];
    let filled = io_engine::read_all(file, &mut data, offset)?;
    data.truncate(filled);
    Ok(data)
}

fn extent(stat: &rustix::fs::Stat) -> Extent {
    // The kernel gives neither negative; blocks are of 512 bytes whatever the file system's are.
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Extent {
        size: stat.st_size.cast_unsigned(),
        space_used: stat.st_blocks.cast_unsigned() * 512,
        modified: Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(Timestamp::EPOCH),
        is_unlinked: stat.st_nlink == 0,
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

    /// Files by place, each with its label's number and its bytes.
    fn places(store: &Store) -> Vec<(u64, u64, u64)> {
        let look = |place: u64| {
            let file = store.open(FileId(place)).unwrap()?;
            let label = label::read(&file).unwrap().expect("each has one");
            Some((place, label.file.0, fstat(&file).unwrap().st_size.cast_unsigned()))
        };
        (1..10).filter_map(look).collect()
    }

    #[test]
    fn replicas_go_into_their_own_places_whatever_way_they_were_exchanged() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        // Three in a ring; one whose place is free; a copy of what is in order.
        for (place, of) in [(1, 2), (2, 3), (3, 1), (4, 5), (7, 6), (6, 6)] {
            let (file, _) = store.create(FileId(place)).unwrap();
            label::write(&file, &store.label(FileId(of), Birth(1), Epoch(0), 0)).unwrap();
            rustix::fs::ftruncate(&file, of * 10 + place).unwrap();
        }
        let mut moved = Vec::new();
        let mut put = |place| store.put_in_place(FileId(place), &mut moved).unwrap();
        assert_eq!([1, 2, 3, 4, 6, 7].map(&mut put), [true, true, true, true, true, false]);
        let right = [(1, 1, 13), (2, 2, 21), (3, 3, 32), (5, 5, 54), (6, 6, 66)];
        assert_eq!(places(&store), [&right[..], &[(7, 6, 67)]].concat(), "its place is taken");
        assert!((1..=5).all(|place| moved.contains(&FileId(place))));
        store.unlink(FileId(7)).unwrap();
        linkat(
            &store.root,
            ReplicaPlace::of(FileId(6)).path(),
            &store.root,
            ReplicaPlace::of(FileId(7)).path(),
            AtFlags::empty(),
        )
        .unwrap();
        assert!(store.put_in_place(FileId(7), &mut Vec::new()).unwrap());
        assert_eq!(places(&store), right, "a second name goes");
    }

    #[test]
    fn a_write_takes_space_behind_the_end_and_in_holes_and_none_over_what_is_there() {
        let file = |size, space_used| Extent { size, space_used, ..Extent::NONE };
        let mib = 1 << 20;
        assert_eq!(Extent::NONE.space_in_place(0, 1), 4096);
        assert_eq!(Extent::NONE.space_in_place(mib, mib + 8192), 8192);
        assert_eq!(file(100, 4096).space_in_place(100, 4096), 0, "within its last block");
        assert_eq!(file(100, 4096).space_in_place(100, 4097), 4096);
        assert_eq!(file(mib, mib).space_in_place(0, mib), 0);
        assert_eq!(file(mib, 0).space_in_place(0, mib), mib, "all of it is a hole");
        assert_eq!(file(mib, 0).space_in_place(5, 6), 4096, "a byte is a block");
        assert_eq!(
            file(mib, mib - 4096).space_in_place(0, mib),
            4096,
            "there is one block less than it is long"
        );
        assert_eq!(file(mib, 0).space_in_place(mib - 4096, mib + 4096), 8192);
        assert_eq!(file(mib, 2 * mib).space_in_place(0, mib), 0, "reserved beyond its end");
    }

    #[test]
    fn where_blocks_can_be_shared_a_write_takes_space_also_over_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(&dir);
        let extent = Extent { size: 1 << 20, space_used: 1 << 20, ..Extent::NONE };
        store.clone_granularity = Some(4096);
        assert_eq!(store.space_for(extent, 100, 8192), 8192);
        store.clone_granularity = None;
        assert_eq!(store.space_for(extent, 100, 8192), 0);
    }
}
