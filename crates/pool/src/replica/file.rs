//! The file of a replica: whether there is one, found, made, opened and removed.
//!
//! Invariant: the file that is open bears the replica's label. `opening` is held while the file is looked for, made or
//! removed, so that all find the same one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{PoolError, Presence, ReplicaFacts};
use parking_lot::Mutex;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use types::{Epoch, FileId};

use super::claim::Claim;
use super::descriptors::Descriptors;
use super::length::KnownLength;
use super::record::Record;
use crate::label::{self, Label, LabelError};
use crate::parts::PoolParts;
use crate::store::{Extent, look_at};

pub struct ReplicaFile {
    record: Record,
    descriptors: Descriptors,
    /// The disk has been asked whether there is a file.
    loaded: AtomicBool,
    /// The file was as long as it should be at this look of the pool at its disk.
    whole_at: AtomicU64,
    removed: AtomicBool,
    /// It was made through this object, so that nothing of it was on disk before.
    fresh: AtomicBool,
    /// Somebody else than the head has removed the file that is open.
    orphaned: AtomicBool,
    /// Held while the file is looked for or made. After `ordering`.
    opening: Mutex<()>,
}

impl ReplicaFile {
    pub fn new(file: FileId) -> ReplicaFile {
        ReplicaFile {
            record: Record::new(file),
            descriptors: Descriptors::default(),
            loaded: AtomicBool::new(false),
            whole_at: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            fresh: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            opening: Mutex::new(()),
        }
    }

    pub fn id(&self) -> FileId {
        self.record.file()
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// `None`: never written.
    pub fn open(&self) -> Option<BorrowedFd<'_>> {
        self.descriptors.file()
    }

    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Acquire)
    }

    /// Nothing of it comes to the disk. A ticket that knows of its bytes finds them missing.
    pub fn is_known_as_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    pub fn check_unbroken(&self, shared: &PoolParts) -> Result<(), PoolError> {
        self.record.faults.check_unbroken(shared, self.open())
    }

    /// Finds out whether there is a file and what its label says.
    pub fn load(&self, shared: &PoolParts) -> Result<(), PoolError> {
        if self.is_loaded() {
            return Ok(());
        }
        let _opening = self.opening.lock();
        if self.is_loaded() {
            return Ok(());
        }
        let failed = |errno| shared.failure("open a replica", errno);
        let found = shared.store.open(self.id()).map_err(failed)?;
        if let Some(found) = &found {
            let is_to_write = fcntl_getfl(found).map_err(failed)?.contains(OFlags::RDWR);
            self.descriptors.set_to_read(!is_to_write);
        }
        self.finish_loading(shared, found)
    }

    /// As [`ReplicaFile::load`] where the kernel has the name and the inode in memory, so that it needs no thread. `false`:
    /// it has not, or somebody else is at it, and nothing was done.
    pub fn load_resident(&self, shared: &PoolParts) -> Result<bool, PoolError> {
        let Some(_opening) = self.opening.try_lock() else { return Ok(false) };
        if self.is_loaded() {
            return Ok(true);
        }
        let Ok(found) = shared.store.open_resident(self.id()) else { return Ok(false) };
        self.finish_loading(shared, Some(found)).map(|()| true)
    }

    /// Called with `opening` held.
    fn finish_loading(&self, shared: &PoolParts, found: Option<OwnedFd>) -> Result<(), PoolError> {
        if shared.removed.contains(self.id()) {
            self.removed.store(true, Ordering::Release);
        } else {
            let fence = shared.index.fence_of(self.id()).unwrap_or_default();
            let labelled = match found {
                Some(found) => self.adopt(shared, found)?,
                None => Epoch::default(),
            };
            self.record.fence.learn(fence.max(labelled));
        }
        self.loaded.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes a file found under the replica's name for the replica, if its label agrees.
    fn adopt(&self, shared: &PoolParts, found: OwnedFd) -> Result<Epoch, PoolError> {
        let Some((labelled, size)) = self.verify_label(shared, found.as_fd())? else {
            // Made and not labelled when the machine stopped. It reads as what it is, empty; the first write labels it.
            return Ok(Epoch::default());
        };
        self.record.learn(&labelled, size);
        let faults = &self.record.faults;
        faults.learn_damage(found.as_fd()).map_err(|error| faults.bad_label(shared, &error.to_string()))?;
        self.descriptors.keep(found);
        Ok(labelled.epoch)
    }

    /// The label and the size; `None` for an empty file without a label.
    fn verify_label(
        &self,
        shared: &PoolParts,
        found: BorrowedFd<'_>,
    ) -> Result<Option<(Label, u64)>, PoolError> {
        let refuse = |reason: &str| Err(self.record.faults.bad_label(shared, reason));
        let stat = fstat(found).map_err(|errno| shared.failure("look at a replica", errno))?;
        let size = u64::try_from(stat.st_size).expect("no file has less than nothing");
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return refuse("it is not a regular file");
        }
        match label::read(found) {
            Ok(Some(label)) if label.file != self.id() => refuse("its label names another file"),
            Ok(Some(label)) if label.instance != shared.store.instance => {
                refuse("its label names another instance")
            }
            Ok(Some(label)) => Ok(Some((label, size))),
            Ok(None) if size == 0 => Ok(None),
            Ok(None) => refuse("it has no label"),
            Err(LabelError::Unreadable(errno)) => Err(shared.failure("read a label", errno)),
            Err(LabelError::Malformed) => refuse("its label cannot be understood"),
        }
    }

    /// The replica's file, open to be written, and made if there is none. Under `ordering`.
    pub fn create(&self, shared: &PoolParts) -> Result<BorrowedFd<'_>, PoolError> {
        let _opening = self.opening.lock();
        if let Some(file) = self.open() {
            return if self.descriptors.must_be_reopened() { self.reopen(shared, file) } else { Ok(file) };
        }
        if self.is_removed() {
            return Err(PoolError::NoReplica(shared.id()));
        }
        if !shared.space.admit_file(shared.store.root()) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let made = shared.store.create(self.id());
        let (file, fresh) = made.map_err(|errno| shared.write_failure("make a replica", errno))?;
        if fresh {
            forget_records(shared, self.id())?;
            self.fresh.store(true, Ordering::Release);
        } else {
            // Only an unfinished one may be there, for a labelled one would have been found.
            self.verify_label(shared, file.as_fd())?;
        }
        if let Err(errno) = self.record.write_label(shared, file.as_fd()) {
            if fresh {
                let _ = shared.store.unlink(self.id());
            }
            return Err(shared.write_failure("label a replica", errno));
        }
        shared.counters.replicas.add(1);
        shared.index.note(self.id());
        self.record.faults.note_known_state();
        Ok(self.descriptors.keep(file))
    }

    /// A file that was opened to read only, opened to be written. Called with `opening` held.
    fn reopen(&self, shared: &PoolParts, file: BorrowedFd<'_>) -> Result<BorrowedFd<'_>, PoolError> {
        let failed = |errno| shared.write_failure("open a replica", errno);
        let reopened = shared.store.open_to_write(self.id()).map_err(failed)?;
        let (old, new) = (fstat(file).map_err(failed)?, fstat(&reopened).map_err(failed)?);
        if (old.st_dev, old.st_ino) != (new.st_dev, new.st_ino) {
            return Err(self.record.faults.bad_label(shared, "another file has its name"));
        }
        Ok(self.descriptors.keep_reopened(reopened))
    }

    /// Under `ordering`, alone.
    pub fn remove(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let _opening = self.opening.lock();
        if self.is_removed() {
            return Ok(());
        }
        let unlinked = shared.store.unlink(self.id());
        let existed = unlinked.map_err(|errno| shared.write_failure("remove a replica", errno))?;
        shared.removed.add(self.id());
        self.removed.store(true, Ordering::Release);
        self.loaded.store(true, Ordering::Release);
        if existed {
            shared.counters.replicas.subtract(1);
        }
        shared.index.forget(self.id());
        shared.descriptions.forget(self.id());
        Ok(())
    }

    /// An error if somebody else than the head has removed the open file, or put another in its place: bytes written to
    /// it go with the last descriptor.
    pub fn check_linked(&self, shared: &PoolParts, extent: Extent) -> Result<(), PoolError> {
        if !extent.is_unlinked {
            return Ok(());
        }
        // A removal holds it until it is known as one.
        let _opening = self.opening.lock();
        if self.is_removed() {
            return Ok(());
        }
        if !self.orphaned.swap(true, Ordering::AcqRel) {
            shared.counters.replicas.subtract(1);
            shared.index.note(self.id());
        }
        Err(self.record.faults.lost(shared, "its replica was removed, and not by the head"))
    }

    /// Whether what is written here goes nowhere, as `check_linked` says.
    pub fn is_orphaned(&self, shared: &PoolParts) -> Result<bool, PoolError> {
        let Some(file) = self.open() else { return Ok(false) };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        Ok(self.check_linked(shared, extent).is_err())
    }

    /// An error if the ticket says that there is a file, and there is none.
    pub fn check_present(&self, shared: &PoolParts, claim: Claim) -> Result<(), PoolError> {
        match claim.presence {
            _ if self.open().is_some() => Ok(()),
            Presence::Unmade | Presence::Filling => Ok(()),
            Presence::Made => Err(PoolError::NoReplica(shared.id())),
            Presence::Written => Err(self.record.faults.lost(shared, "it has data, and its replica is gone")),
        }
    }

    /// An error if bytes are missing that were on disk.
    pub fn check_whole(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let known = self.record.known_length();
        match self.open() {
            Some(file) if known.length > 0 => {
                let size = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?.size;
                self.record.check_end(shared, known, size)
            }
            _ => Ok(()),
        }
    }

    /// As [`ReplicaFile::check_whole`], or the same check of less than a second ago: a read judges the bytes besides.
    pub fn check_whole_lately(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let now = shared.space.looks();
        if self.whole_at.load(Ordering::Relaxed) == now {
            return Ok(());
        }
        self.check_whole(shared)?;
        self.whole_at.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Before a sync of `file`: what it brings to the disk at least.
    pub fn length_to_sync(&self, shared: &PoolParts, file: BorrowedFd<'_>) -> Result<KnownLength, PoolError> {
        self.record.length_to_sync(|| {
            let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
            self.check_linked(shared, extent)?;
            Ok(extent.size)
        })
    }

    /// `None`: the replica does not exist, or cannot be opened any more.
    pub fn facts(&self, shared: &PoolParts) -> Result<Option<ReplicaFacts>, PoolError> {
        let Some(file) = self.open().filter(|_| !self.is_removed()) else { return Ok(None) };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        if extent.is_unlinked {
            return Ok(None);
        }
        Ok(Some(ReplicaFacts {
            space_used: extent.space_used,
            modified: Some(extent.modified),
            ..self.facts_of_none(extent.size)
        }))
    }

    /// Of a replica that does not exist, and would be this long.
    pub fn facts_of_none(&self, size: u64) -> ReplicaFacts {
        ReplicaFacts { file: self.id(), birth: self.record.birth(), size, space_used: 0, modified: None }
    }
}

/// Of a replica of the same file that somebody else than the head has removed: no replay brings its bytes to the new one.
fn forget_records(shared: &PoolParts, file: FileId) -> Result<(), PoolError> {
    let Some(newest) = shared.journal.newest(file) else { return Ok(()) };
    shared.journal.settled(file, newest);
    shared.journal.barrier(shared)
}
