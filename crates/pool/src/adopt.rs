//! A pool out of files that are there already: they get a second name in it and a label, and are not copied.
//!
//! For making a namespace of a tree on the same file system. A file is labelled before it is linked, so a crash leaves
//! a replica under its label, or a label without a replica, which means nothing. A second adoption finds the replicas
//! of the first under their ids.

mod access;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::Birth;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, linkat, open, statat, syncfs, unlinkat};
use rustix::io::Errno;
use thiserror::Error;
use types::{Epoch, FileId};

use self::access::SeenFile;
use crate::error::OpenError;
use crate::identity::Identity;
use crate::label::{self, LabelError};
use crate::layout::ReplicaPlace;
use crate::local::{claim, identify};
use crate::scan::{Found, scan};
use crate::store::Store;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AdoptError {
    #[error("is not a regular file any more; leave the tree alone meanwhile")]
    NotRegular,
    #[error("lies on another file system than the pool, where a hard link does not reach")]
    OtherFileSystem,
    #[error(
        "is a replica of another pool already; if that pool is gone, take its label away: \
         setfattr -x user.forebay.id FILE"
    )]
    Taken,
    #[error("is another file than a moment ago; leave the tree alone meanwhile")]
    Changed,
    #[error("may not be written by this user, who is to serve it; run as root, or as who owns the files")]
    NotPermitted,
    #[error("cannot {0}: {1}")]
    Io(&'static str, Errno),
}

impl AdoptError {
    fn io(operation: &'static str, errno: Errno) -> AdoptError {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => AdoptError::NotPermitted,
            Errno::LOOP => AdoptError::NotRegular,
            Errno::XDEV => AdoptError::OtherFileSystem,
            errno => AdoptError::Io(operation, errno),
        }
    }
}

pub struct Adoption {
    dir: PathBuf,
    store: Store,
    device: u64,
    inode: u64,
    highest: FileId,
    /// Held until the end.
    _lock: OwnedFd,
}

impl Adoption {
    /// Makes the pool in an empty directory, or goes on with one that this made.
    pub fn begin(dir: &Path, identity: &Identity) -> Result<Adoption, OpenError> {
        let (root, lock) = claim(dir)?;
        identify(dir, identity)?;
        access::restore(dir)?;
        let highest = highest(dir)?;
        let store = Store::new(identity.pool, identity.instance, root);
        let store = store.map_err(|errno| OpenError::io("prepare", dir, errno))?;
        let facts = fs::metadata(dir).map_err(|error| OpenError::io("read", dir, error))?;
        let (device, inode) = (facts.dev(), facts.ino());
        Ok(Adoption { dir: dir.to_owned(), store, device, inode, highest, _lock: lock })
    }

    /// Of the file system, and of the pool's directory there.
    pub fn place(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Of the replicas that were there.
    pub fn highest(&self) -> FileId {
        self.highest
    }

    /// Gives a regular file a place in the pool, under `file` or under the id that it has there from before. `seen`: the
    /// device and inode that were found there, where the path may lead elsewhere by now.
    pub fn take(&self, path: &Path, seen: (u64, u64), file: FileId) -> Result<FileId, AdoptError> {
        self.with_opened(path, seen, |opened, stat| self.take_opened(path, file, opened, stat))
    }

    fn take_opened(
        &self,
        path: &Path,
        file: FileId,
        opened: &OwnedFd,
        stat: &Stat,
    ) -> Result<FileId, AdoptError> {
        if stat.st_dev != self.device {
            return Err(AdoptError::OtherFileSystem);
        }
        if let Some(known) = self.known(opened, stat)? {
            return Ok(known);
        }
        let label = self.store.label(file, Birth::UNKNOWN, Epoch::default(), stat.st_size.cast_unsigned());
        label::write(opened, &label).map_err(|errno| AdoptError::io("label it", errno))?;
        self.link(path, file)?;
        if self.is_replica(file, stat)? {
            return Ok(file);
        }
        // The path led elsewhere meanwhile, and what is there does not belong into the pool.
        let removed = unlinkat(self.store.root(), ReplicaPlace::of(file).path(), AtFlags::empty());
        removed.map_err(|errno| AdoptError::io("take it out of the pool again", errno))?;
        Err(AdoptError::Changed)
    }

    /// Lets the owner of a file that the pool has read and write it, as the pool will. Once the namespace has its mode.
    /// Whether the owner could not.
    pub fn give_access(&self, path: &Path, seen: (u64, u64)) -> Result<bool, AdoptError> {
        let file = SeenFile::find(path, seen)?;
        if !file.is_closed() || !self.has(path, seen)? {
            return Ok(false);
        }
        file.open_for_owner()?;
        Ok(true)
    }

    /// Takes away a name outside the pool, of a file that the pool has. Whether it had it.
    pub fn release(&self, path: &Path, seen: (u64, u64)) -> Result<bool, AdoptError> {
        if !self.has(path, seen)? {
            return Ok(false);
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(AdoptError::NotRegular);
        };
        // Looked at again in the directory that it is removed from, wherever the path leads meanwhile.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = open(above, flags, Mode::empty());
        let above = above.map_err(|errno| AdoptError::io("open its directory", errno))?;
        let there = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW);
        let there = there.map_err(|errno| AdoptError::io("look at it", errno))?;
        if (there.st_dev, there.st_ino) != seen {
            return Err(AdoptError::Changed);
        }
        let removed = unlinkat(&above, name, AtFlags::empty());
        removed.map_err(|errno| AdoptError::io("remove its name", errno))?;
        Ok(true)
    }

    /// All of it is on disk when this returns.
    pub fn sync(&self) -> Result<(), OpenError> {
        syncfs(self.store.root()).map_err(|errno| OpenError::io("sync", &self.dir, errno))
    }

    fn has(&self, path: &Path, seen: (u64, u64)) -> Result<bool, AdoptError> {
        self.with_opened(path, seen, |opened, stat| Ok(self.known(opened, stat)?.is_some()))
    }

    /// Does `work` with a file that is opened to be written. A file whose mode forbids that to its owner gets another one
    /// meanwhile.
    fn with_opened<T>(
        &self,
        path: &Path,
        seen: (u64, u64),
        work: impl FnOnce(&OwnedFd, &Stat) -> Result<T, AdoptError>,
    ) -> Result<T, AdoptError> {
        let (opened, stat) = match open_seen(path, seen) {
            Err(AdoptError::NotPermitted) => {
                let closed = SeenFile::find(path, seen)?.open_for_a_moment(self.store.root())?;
                let done = open_seen(path, seen).and_then(|(opened, stat)| work(&opened, &stat));
                let is_closed = closed.close();
                return done.and_then(|done| is_closed.map(|()| done));
            }
            opened => opened?,
        };
        work(&opened, &stat)
    }

    fn known(&self, file: &OwnedFd, stat: &Stat) -> Result<Option<FileId>, AdoptError> {
        match label::read(file) {
            Ok(None) => Ok(None),
            Ok(Some(label)) if label.instance != self.store.instance => Err(AdoptError::Taken),
            Ok(Some(label)) => Ok(self.is_replica(label.file, stat)?.then_some(label.file)),
            Err(LabelError::Malformed) => Err(AdoptError::Taken),
            Err(LabelError::Unreadable(errno)) => Err(AdoptError::io("read its label", errno)),
        }
    }

    fn is_replica(&self, file: FileId, stat: &Stat) -> Result<bool, AdoptError> {
        match statat(self.store.root(), ReplicaPlace::of(file).path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(AdoptError::io("look into the pool", errno)),
        }
    }

    fn link(&self, path: &Path, file: FileId) -> Result<(), AdoptError> {
        let (root, place) = (self.store.root(), ReplicaPlace::of(file));
        let link = || linkat(CWD, path, root, place.path(), AtFlags::empty());
        let made = match link() {
            Err(Errno::NOENT) => {
                let made = self.store.make_directories(place);
                made.map_err(|errno| AdoptError::Io("make a directory of the pool", errno))?;
                link()
            }
            made => made,
        };
        made.map_err(|errno| AdoptError::io("link it into the pool", errno))
    }
}

/// If it is still the file with that device and inode.
fn open_seen(path: &Path, seen: (u64, u64)) -> Result<(OwnedFd, Stat), AdoptError> {
    let (opened, stat) = open_regular(path)?;
    if (stat.st_dev, stat.st_ino) == seen { Ok((opened, stat)) } else { Err(AdoptError::Changed) }
}

fn open_regular(path: &Path) -> Result<(OwnedFd, Stat), AdoptError> {
    // As the pool will open it. NONBLOCK: no wait for a writer of a FIFO that was put there.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = match open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => open(path, flags, Mode::empty()),
        opened => opened,
    };
    let opened = opened.map_err(|errno| match errno {
        Errno::NOENT | Errno::ISDIR => AdoptError::NotRegular,
        errno => AdoptError::io("open it", errno),
    })?;
    let stat = fstat(&opened).map_err(|errno| AdoptError::io("look at it", errno))?;
    let is_regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    if is_regular { Ok((opened, stat)) } else { Err(AdoptError::NotRegular) }
}

fn highest(dir: &Path) -> Result<FileId, OpenError> {
    if !dir.join(crate::layout::DATA).exists() {
        return Ok(FileId(0));
    }
    let found = scan(dir)?.filter_map(|found| match found {
        Found::Replica(replica) => Some(replica.facts.file),
        Found::Problem(_) => None,
    });
    Ok(found.max().unwrap_or(FileId(0)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    use types::PoolId;

    use super::*;
    use crate::scan::FoundReplica;

    const INSTANCE: [u8; 16] = [1; 16];

    struct Scratch {
        dir: tempfile::TempDir,
    }

    fn seen(path: &Path) -> (u64, u64) {
        fs::symlink_metadata(path).map_or((0, 0), |facts| (facts.dev(), facts.ino()))
    }

    impl Scratch {
        fn new() -> Scratch {
            Scratch { dir: tempfile::tempdir().unwrap() }
        }

        fn pool(&self) -> PathBuf {
            self.dir.path().join("pool")
        }

        fn begin(&self) -> Adoption {
            Adoption::begin(&self.pool(), &Identity { pool: PoolId(0), instance: INSTANCE }).unwrap()
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        }

        fn found(&self) -> Vec<FoundReplica> {
            let one = |found| match found {
                Found::Replica(replica) => replica,
                Found::Problem(problem) => panic!("{problem}"),
            };
            scan(&self.pool()).unwrap().map(one).collect()
        }
    }

    #[test]
    fn a_file_that_is_taken_is_a_replica_and_keeps_its_name() {
        let scratch = Scratch::new();
        let path = scratch.file("a", "text");
        let adoption = scratch.begin();
        assert_eq!(adoption.highest(), FileId(0));
        assert_eq!(adoption.take(&path, seen(&path), FileId(9)), Ok(FileId(9)));
        adoption.sync().unwrap();
        let found = scratch.found();
        assert_eq!((found.len(), found[0].facts.file, found[0].facts.size), (1, FileId(9), 4));
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
    }

    #[test]
    fn a_second_adoption_finds_the_replicas_of_the_first_under_their_ids() {
        let scratch = Scratch::new();
        let (first, second) = (scratch.file("a", "1"), scratch.file("b", "2"));
        let adoption = scratch.begin();
        adoption.take(&first, seen(&first), FileId(9)).unwrap();
        // Killed between label and link.
        label::write(
            File::open(&second).unwrap(),
            &adoption.store.label(FileId(10), Birth::UNKNOWN, Epoch(0), 0),
        )
        .unwrap();
        drop(adoption);
        let again = scratch.begin();
        assert_eq!(again.highest(), FileId(9));
        assert_eq!(again.take(&second, seen(&second), FileId(30)), Ok(FileId(30)));
        assert_eq!(again.take(&first, seen(&first), FileId(31)), Ok(FileId(9)));
        assert_eq!(scratch.found().len(), 2);
    }

    #[test]
    fn a_name_is_taken_away_only_of_what_the_pool_has() {
        let scratch = Scratch::new();
        let (ours, other) = (scratch.file("a", "1"), scratch.file("b", "2"));
        let adoption = scratch.begin();
        adoption.take(&ours, seen(&ours), FileId(9)).unwrap();
        assert_eq!(adoption.release(&ours, seen(&ours)), Ok(true));
        assert_eq!(adoption.release(&other, seen(&other)), Ok(false));
        assert!(!ours.exists() && other.exists());
        assert_eq!(scratch.found().len(), 1);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_its_owner_may_not_write_keeps_its_mode_until_access_is_given() {
        let scratch = Scratch::new();
        let (closed, secret, open) = (scratch.file("a", "1"), scratch.file("b", "2"), scratch.file("c", "3"));
        let other = scratch.file("other", "is not taken");
        let modes = [(&closed, 0o444), (&secret, 0), (&open, 0o640), (&other, 0o400)];
        for (path, mode) in modes {
            set_mode(path, mode);
        }
        let adoption = scratch.begin();
        for (path, file) in [(&closed, 7), (&secret, 8), (&open, 9)] {
            assert_eq!(adoption.take(path, seen(path), FileId(file)), Ok(FileId(file)));
        }
        assert_eq!(modes.map(|(path, _)| mode(path)), modes.map(|(_, mode)| mode));
        let give = || modes.map(|(path, _)| adoption.give_access(path, seen(path)).unwrap());
        assert_eq!(give(), [true, true, false, false]);
        assert_eq!(modes.map(|(path, _)| mode(path)), [0o644, 0o600, 0o640, 0o400]);
        assert_eq!(give(), [false; 4]);
        assert_eq!(adoption.release(&closed, seen(&closed)), Ok(true));
    }

    #[test]
    fn a_mode_that_a_killed_adoption_had_changed_is_restored_by_the_next() {
        let scratch = Scratch::new();
        let path = scratch.file("a", "1");
        set_mode(&path, 0o440);
        let adoption = scratch.begin();
        let opened = SeenFile::find(&path, seen(&path)).unwrap().open_for_a_moment(adoption.store.root());
        assert_eq!((opened.is_ok(), mode(&path)), (true, 0o640));
        drop(opened);
        drop(adoption);
        scratch.begin();
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().nlink()), (0o440, 1));
    }

    #[test]
    fn a_directory_swapped_for_a_link_leads_to_nothing_outside() {
        let scratch = Scratch::new();
        let (dir, outside) = (scratch.dir.path().join("d"), scratch.dir.path().join("outside"));
        for dir in [&dir, &outside] {
            fs::create_dir(dir).unwrap();
        }
        let (path, theirs) = (scratch.file("d/a", "1"), scratch.file("outside/a", "2"));
        let adoption = scratch.begin();
        let (before, other) = (seen(&path), seen(&theirs));
        // The pool has the file outside as well, so its label does not give the exchange away.
        adoption.take(&theirs, other, FileId(5)).unwrap();
        fs::rename(&dir, scratch.dir.path().join("away")).unwrap();
        std::os::unix::fs::symlink(&outside, &dir).unwrap();
        assert_eq!(adoption.take(&path, before, FileId(9)), Err(AdoptError::Changed));
        assert_eq!(adoption.release(&path, before), Err(AdoptError::Changed));
        assert!(theirs.exists());
        assert_eq!(scratch.found().len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_a_replica_is_refused() {
        let scratch = Scratch::new();
        let adoption = scratch.begin();
        let taken = scratch.file("taken", "");
        let theirs = label::Label {
            file: FileId(1),
            instance: [2; 16],
            epoch: Epoch(0),
            length: Some(0),
            birth: Birth::UNKNOWN,
        };
        label::write(File::open(&taken).unwrap(), &theirs).unwrap();
        assert_eq!(adoption.take(&taken, seen(&taken), FileId(9)), Err(AdoptError::Taken));
        let link = scratch.dir.path().join("link");
        std::os::unix::fs::symlink(&taken, &link).unwrap();
        assert_eq!(adoption.take(&link, seen(&link), FileId(9)), Err(AdoptError::NotRegular));
        assert_eq!(
            adoption.take(scratch.dir.path(), seen(scratch.dir.path()), FileId(9)),
            Err(AdoptError::NotRegular)
        );
        assert_eq!(
            adoption.take(&link.join("none"), seen(&link.join("none")), FileId(9)),
            Err(AdoptError::Io("open it", Errno::NOTDIR))
        );
        assert_eq!(scratch.found(), []);
    }
}
