//! One replica: its file, its fencing epoch, and what is known of it going wrong.
//!
//! All methods that touch the file block and run in the engine's threads. Data goes under a shared `ordering`;
//! truncation, removal and fencing take it alone, so each of them has a before and an after: when a fence is answered
//! no older write is running, and none comes.

mod ranges;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use api::{PoolError, ReplicaFacts};
use io_engine::{SyncGate, write};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use types::{Epoch, FileId};

use crate::label::{self, LabelError};
use crate::shared::Shared;
use crate::store::look_at;

pub struct Replica {
    file: FileId,
    /// Set once, when the file is found or made. Shared with those who send from it, so that it is not closed before
    /// they are through, whatever becomes of this object.
    open: OnceLock<Arc<OwnedFd>>,
    /// The disk has been asked whether there is a file.
    loaded: AtomicBool,
    removed: AtomicBool,
    /// The lowest epoch whose tickets are honoured.
    epoch: AtomicU32,
    /// The highest epoch that is known to be on disk.
    epoch_recorded: AtomicU32,
    /// The label has been asked whether the replica is in order. Reading does not need to know.
    state_known: AtomicBool,
    /// Written data was lost on its way to the disk.
    broken: AtomicBool,
    /// The label says so too, so that it may be forgotten here.
    broken_recorded: AtomicBool,
    /// The name of the file is on disk.
    named: AtomicBool,
    /// Writes done, and those of them that a sync has covered.
    written: AtomicU64,
    synced: AtomicU64,
    /// Shared by writes; taken alone by truncation, removal and fencing. Before `opening`.
    ordering: RwLock<()>,
    /// Held while the file is looked for or made.
    opening: Mutex<()>,
    gate: SyncGate,
}

impl Replica {
    pub fn new(file: FileId) -> Replica {
        Replica {
            file,
            open: OnceLock::new(),
            loaded: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            epoch_recorded: AtomicU32::new(0),
            state_known: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            broken_recorded: AtomicBool::new(false),
            named: AtomicBool::new(false),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            ordering: RwLock::new(()),
            opening: Mutex::new(()),
            gate: SyncGate::default(),
        }
    }

    pub fn file(&self) -> FileId {
        self.file
    }

    pub fn gate(&self) -> &SyncGate {
        &self.gate
    }

    /// `None`: never written.
    pub fn open_file(&self) -> Option<BorrowedFd<'_>> {
        self.open.get().map(|file| file.as_fd())
    }

    /// The same, to be held without the replica.
    pub fn lend_file(&self) -> Option<Arc<OwnedFd>> {
        self.open.get().cloned()
    }

    #[cfg(test)]
    pub fn lend_for_test(&self) -> Arc<OwnedFd> {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        Arc::clone(self.open.get_or_init(|| Arc::new(file.into())))
    }

    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub fn has_unsynced(&self) -> bool {
        // `synced` first: it never passes `written`.
        let synced = self.synced.load(Ordering::Acquire);
        synced != self.written.load(Ordering::Acquire)
    }

    /// Nothing would be lost with this object that is not on disk, and its file would be closed.
    pub fn may_be_given_up(&self) -> bool {
        if self.open.get().is_some_and(|file| Arc::strong_count(file) > 1) {
            return false;
        }
        if self.broken.load(Ordering::Acquire) {
            return self.broken_recorded.load(Ordering::Acquire);
        }
        !self.has_unsynced()
            && self.epoch.load(Ordering::Acquire) == self.epoch_recorded.load(Ordering::Acquire)
    }

    /// Counted after the bytes are in the page cache and before the write is answered.
    pub fn note_write(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    pub fn check_epoch(&self, epoch: Epoch) -> Result<(), PoolError> {
        if epoch.0 < self.epoch.load(Ordering::Acquire) { Err(PoolError::Fenced) } else { Ok(()) }
    }

    pub fn check_unbroken(&self, shared: &Shared) -> Result<(), PoolError> {
        if !self.state_known.load(Ordering::Acquire) {
            self.learn_state(shared)?;
        }
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = "written data was lost in an earlier failure".to_owned();
        Err(PoolError::Io { pool: shared.id(), operation: "keep the replica", reason })
    }

    fn learn_state(&self, shared: &Shared) -> Result<(), PoolError> {
        let Some(file) = self.open_file() else { return Ok(()) };
        if label::is_broken(file).map_err(|error| self.bad_label(shared, &error.to_string()))? {
            self.broken.store(true, Ordering::Release);
            self.broken_recorded.store(true, Ordering::Release);
        }
        self.state_known.store(true, Ordering::Release);
        Ok(())
    }

    /// Finds out whether there is a file and what its label says.
    pub fn load(&self, shared: &Shared) -> Result<(), PoolError> {
        if self.is_loaded() {
            return Ok(());
        }
        let _opening = self.opening.lock();
        if self.is_loaded() {
            return Ok(());
        }
        let found = shared.store.open(self.file);
        self.finish_loading(shared, found.map_err(|errno| shared.failure("open a replica", errno))?)
    }

    /// As [`Replica::load`] where the kernel has the name and the inode in memory, so that it needs no thread. `false`:
    /// it has not, or somebody else is at it, and nothing was done.
    pub fn load_resident(&self, shared: &Shared) -> Result<bool, PoolError> {
        let Some(_opening) = self.opening.try_lock() else { return Ok(false) };
        if self.is_loaded() {
            return Ok(true);
        }
        let Ok(found) = shared.store.open_resident(self.file) else { return Ok(false) };
        self.finish_loading(shared, Some(found)).map(|()| true)
    }

    /// Called with `opening` held.
    fn finish_loading(&self, shared: &Shared, found: Option<OwnedFd>) -> Result<(), PoolError> {
        if shared.removed.contains(self.file) {
            self.removed.store(true, Ordering::Release);
        } else {
            let fence = shared.index.fence_of(self.file).unwrap_or_default();
            let labelled = match found {
                Some(found) => self.adopt(shared, found)?,
                None => Epoch::default(),
            };
            self.epoch_recorded.store(fence.max(labelled).0, Ordering::Release);
            self.epoch.fetch_max(fence.max(labelled).0, Ordering::AcqRel);
        }
        self.loaded.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes a file found under the replica's name for the replica, if its label agrees.
    fn adopt(&self, shared: &Shared, found: OwnedFd) -> Result<Epoch, PoolError> {
        let Some(labelled) = self.verify_label(shared, found.as_fd())? else {
            // Made and not labelled when the machine stopped. It reads as what it is, empty; the first write labels it.
            return Ok(Epoch::default());
        };
        let _ = self.open.set(Arc::new(found));
        Ok(labelled)
    }

    /// The epoch of the label; `None` for an empty file without one.
    fn verify_label(&self, shared: &Shared, found: BorrowedFd<'_>) -> Result<Option<Epoch>, PoolError> {
        let refuse = |reason: &str| Err(self.bad_label(shared, reason));
        match label::read(found) {
            Ok(Some(label)) if label.file != self.file => refuse("its label names another file"),
            Ok(Some(label)) if label.instance != shared.store.instance => {
                refuse("its label names another instance")
            }
            Ok(Some(label)) => Ok(Some(label.epoch)),
            Ok(None) => match look_at(found) {
                Ok(extent) if extent.size == 0 => Ok(None),
                Ok(_) => refuse("it has no label"),
                Err(errno) => Err(shared.failure("look at a replica", errno)),
            },
            Err(LabelError::Unreadable(errno)) => Err(shared.failure("read a label", errno)),
            Err(LabelError::Malformed) => refuse("its label cannot be understood"),
        }
    }

    fn bad_label(&self, shared: &Shared, reason: &str) -> PoolError {
        tracing::error!(pool = %shared.id(), file = %self.file, reason, "replica is not what its name says");
        PoolError::Io { pool: shared.id(), operation: "open a replica", reason: reason.to_owned() }
    }

    /// The replica's file, made if there is none. Under `ordering`.
    fn create(&self, shared: &Shared) -> Result<BorrowedFd<'_>, PoolError> {
        let _opening = self.opening.lock();
        if let Some(file) = self.open_file() {
            return Ok(file);
        }
        if self.is_removed() {
            return Err(PoolError::NoReplica(shared.id()));
        }
        if !shared.space.admit_file(shared.store.root()) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let made = shared.store.create(self.file);
        let (file, fresh) = made.map_err(|errno| shared.failure("make a replica", errno))?;
        if !fresh {
            // Only an unfinished one may be there, for a labelled one would have been found.
            self.verify_label(shared, file.as_fd())?;
        }
        let label = shared.store.label(self.file, Epoch(self.epoch.load(Ordering::Acquire)));
        if let Err(errno) = label::write(&file, &label) {
            if fresh {
                let _ = shared.store.unlink(self.file);
            }
            return Err(shared.failure("label a replica", errno));
        }
        shared.counters.replicas.add(1);
        shared.index.note(self.file);
        self.state_known.store(true, Ordering::Release);
        Ok(self.open.get_or_init(|| Arc::new(file)).as_fd())
    }

    pub fn write(&self, shared: &Shared, epoch: Epoch, offset: u64, data: &[u8]) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.load(shared)?;
        self.check_epoch(epoch)?;
        self.check_unbroken(shared)?;
        let failed = |errno| shared.failure("write data", errno);
        let size = match self.open_file() {
            Some(file) => look_at(file).map_err(failed)?.size,
            None => 0,
        };
        // What the write adds behind the end; a hole before it costs nothing.
        let end = offset.saturating_add(data.len() as u64);
        let added = end.saturating_sub(size.max(offset));
        if added > 0 && !shared.space.admit_bytes(shared.store.root(), added) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let file = self.create(shared)?;
        let written = write::write_all(file, data, offset);
        // Also after a failure, which may have come half-way.
        self.note_write();
        shared.index.note(self.file);
        written.map_err(failed)?;
        shared.counters.written_bytes.add(data.len() as u64);
        Ok(())
    }

    /// Brings everything written so far, and the replica's name, to the disk.
    pub fn settle(&self, shared: &Shared) -> Result<(), PoolError> {
        self.check_unbroken(shared)?;
        let Some(file) = self.open_file() else { return Ok(()) };
        let covered = self.written.load(Ordering::Acquire);
        let named = self.named.load(Ordering::Acquire);
        let synced = if named { shared.store.sync_data(file) } else { shared.store.sync_all(file) };
        synced.map_err(|errno| self.fail(shared, file, errno))?;
        if !named {
            if !self.is_removed() {
                let synced = shared.store.sync_name(self.file);
                synced.map_err(|errno| shared.failure("sync a directory", errno))?;
            }
            self.named.store(true, Ordering::Release);
        }
        self.synced.fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// The kernel tells of a failed write-back once and then takes the pages for clean: what the file holds is not
    /// known any more, and every later sync must hear of it.
    fn fail(&self, shared: &Shared, file: BorrowedFd<'_>, errno: Errno) -> PoolError {
        self.broken.store(true, Ordering::Release);
        let recorded = label::mark_broken(file).and_then(|()| shared.store.sync_all(file)).is_ok();
        self.broken_recorded.store(recorded, Ordering::Release);
        let (pool, file) = (shared.id(), self.file);
        tracing::error!(%pool, %file, %errno, recorded, "disk lost written data; the replica is broken");
        PoolError::Io { pool, operation: "sync data", reason: std::io::Error::from(errno).to_string() }
    }

    pub fn facts(&self, shared: &Shared) -> Result<Option<ReplicaFacts>, PoolError> {
        let Some(file) = self.open_file().filter(|_| !self.is_removed()) else { return Ok(None) };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        Ok(Some(ReplicaFacts {
            file: self.file,
            size: extent.size,
            space_used: extent.space_used,
            modified: Some(extent.modified),
        }))
    }

    pub fn truncate(&self, shared: &Shared, size: u64) -> Result<ReplicaFacts, PoolError> {
        if size > write::OFFSET_MAX {
            return Err(PoolError::TooLarge);
        }
        {
            let _ordering = self.ordering.write();
            self.load(shared)?;
            if self.is_removed() {
                return Err(PoolError::NoReplica(shared.id()));
            }
            self.check_unbroken(shared)?;
            if self.open_file().is_none() && size == 0 {
                return Ok(ReplicaFacts { file: self.file, size: 0, space_used: 0, modified: None });
            }
            let failed = |errno| shared.failure("truncate a replica", errno);
            let file = self.create(shared)?;
            if look_at(file).map_err(failed)?.size != size {
                let cut = rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, size));
                self.note_write();
                shared.index.note(self.file);
                cut.map_err(failed)?;
            }
        }
        if self.has_unsynced() {
            self.settle(shared)?;
        }
        let gone = ReplicaFacts { file: self.file, size, space_used: 0, modified: None };
        Ok(self.facts(shared)?.unwrap_or(gone))
    }

    pub fn remove(&self, shared: &Shared) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        let _opening = self.opening.lock();
        if self.is_removed() {
            return Ok(());
        }
        let unlinked = shared.store.unlink(self.file);
        let existed = unlinked.map_err(|errno| shared.failure("remove a replica", errno))?;
        shared.removed.add(self.file);
        self.removed.store(true, Ordering::Release);
        self.loaded.store(true, Ordering::Release);
        if existed {
            shared.counters.replicas.subtract(1);
        }
        shared.index.forget(self.file);
        shared.descriptions.forget(self.file);
        Ok(())
    }

    pub fn fence(&self, shared: &Shared, epoch: Epoch) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        self.load(shared)?;
        if self.is_removed() || epoch.0 <= self.epoch_recorded.load(Ordering::Acquire) {
            return Ok(());
        }
        // Refused from here on, also if it cannot be written down and the caller has to come again.
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
        match self.open_file() {
            Some(file) => {
                let label = shared.store.label(self.file, epoch);
                let written = label::write(file, &label).and_then(|()| shared.store.sync_all(file));
                written.map_err(|errno| shared.failure("write a fence", errno))?;
            }
            None => shared.index.fence(self.file, epoch).map_err(|reason| PoolError::Io {
                pool: shared.id(),
                operation: "write a fence",
                reason,
            })?,
        }
        self.epoch_recorded.fetch_max(epoch.0, Ordering::AcqRel);
        Ok(())
    }
}
