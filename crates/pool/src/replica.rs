//! One replica: its file, its fencing epoch, and what is known of it going wrong.
//!
//! All methods that touch the file block and run in the engine's threads. Data goes under a shared `ordering`;
//! truncation, removal and fencing take it alone, so each of them has a before and an after: when a fence is answered
//! no older write is running, and none comes.

mod birth;
mod length;
mod ranges;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use api::{Birth, PoolError, Presence, ReplicaFacts, Ticket};
use io_engine::{SyncGate, write};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use types::{Epoch, FileId};

use crate::label::{self, Label, LabelError};
use crate::parts::PoolParts;
use crate::store::look_at;

pub use self::length::KnownLength;
use self::length::Length;

/// The claims of a ticket about its replica.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub epoch: Epoch,
    pub birth: Birth,
    pub presence: Presence,
}

impl Claim {
    pub fn of(ticket: &Ticket) -> Claim {
        Claim { epoch: ticket.epoch, birth: ticket.birth, presence: ticket.presence }
    }
}

pub struct Replica {
    file: FileId,
    /// Set once, when the file is found or made. Shared with those who send from it, so that it is not closed before
    /// they are through, whatever becomes of this object.
    open: OnceLock<Arc<OwnedFd>>,
    /// `open` is to read only, for the disk took no writes when it was opened.
    is_to_read: AtomicBool,
    /// Takes the place of such a one, once a change comes and the disk takes it.
    reopened: OnceLock<Arc<OwnedFd>>,
    /// The disk has been asked whether there is a file.
    loaded: AtomicBool,
    removed: AtomicBool,
    /// Somebody else than the head has removed the file that is open.
    orphaned: AtomicBool,
    /// Of its file ([`Birth`]); 0 as long as it is not known.
    birth: AtomicU32,
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
    /// Held while the disk is asked for a sync, until what it tells is remembered. After `ordering`.
    syncing: Mutex<()>,
    length: Length,
}

/// The extent of a sync.
#[derive(Clone, Copy)]
enum Scope {
    /// The written bytes, and where they are.
    Data,
    /// The same, and everything about the file.
    All,
    /// The label. The caller has `ordering` alone, so that every write that was begun is counted.
    Label,
}

impl Replica {
    pub fn new(file: FileId) -> Replica {
        Replica {
            file,
            open: OnceLock::new(),
            is_to_read: AtomicBool::new(false),
            reopened: OnceLock::new(),
            loaded: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            birth: AtomicU32::new(0),
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
            syncing: Mutex::new(()),
            length: Length::default(),
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
        self.lent().map(|file| file.as_fd())
    }

    /// The same, to be held without the replica.
    pub fn lend_file(&self) -> Option<Arc<OwnedFd>> {
        self.lent().cloned()
    }

    fn lent(&self) -> Option<&Arc<OwnedFd>> {
        self.reopened.get().or_else(|| self.open.get())
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
        let files = [self.open.get(), self.reopened.get()];
        if files.into_iter().flatten().any(|file| Arc::strong_count(file) > 1) {
            return false;
        }
        if self.orphaned.load(Ordering::Acquire) {
            // Nothing of it comes to the disk. A ticket that knows of its bytes finds them missing.
            return true;
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

    fn check_epoch(&self, epoch: Epoch) -> Result<(), PoolError> {
        if epoch.0 < self.epoch.load(Ordering::Acquire) { Err(PoolError::Fenced) } else { Ok(()) }
    }

    pub fn check_unbroken(&self, shared: &PoolParts) -> Result<(), PoolError> {
        if !self.state_known.load(Ordering::Acquire) {
            self.learn_state(shared)?;
        }
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = "written data was lost in an earlier failure".to_owned();
        Err(PoolError::Io { pool: shared.id(), operation: "keep the replica", reason })
    }

    fn learn_state(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let Some(file) = self.open_file() else { return Ok(()) };
        if label::is_broken(file).map_err(|error| self.bad_label(shared, &error.to_string()))? {
            self.broken.store(true, Ordering::Release);
            self.broken_recorded.store(true, Ordering::Release);
        }
        self.state_known.store(true, Ordering::Release);
        Ok(())
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
        let found = shared.store.open(self.file).map_err(failed)?;
        if let Some(found) = &found {
            let is_to_write = fcntl_getfl(found).map_err(failed)?.contains(OFlags::RDWR);
            self.is_to_read.store(!is_to_write, Ordering::Release);
        }
        self.finish_loading(shared, found)
    }

    /// As [`Replica::load`] where the kernel has the name and the inode in memory, so that it needs no thread. `false`:
    /// it has not, or somebody else is at it, and nothing was done.
    pub fn load_resident(&self, shared: &PoolParts) -> Result<bool, PoolError> {
        let Some(_opening) = self.opening.try_lock() else { return Ok(false) };
        if self.is_loaded() {
            return Ok(true);
        }
        let Ok(found) = shared.store.open_resident(self.file) else { return Ok(false) };
        self.finish_loading(shared, Some(found)).map(|()| true)
    }

    /// Called with `opening` held.
    fn finish_loading(&self, shared: &PoolParts, found: Option<OwnedFd>) -> Result<(), PoolError> {
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
    fn adopt(&self, shared: &PoolParts, found: OwnedFd) -> Result<Epoch, PoolError> {
        let Some(labelled) = self.verify_label(shared, found.as_fd())? else {
            // Made and not labelled when the machine stopped. It reads as what it is, empty; the first write labels it.
            return Ok(Epoch::default());
        };
        self.learn_length(labelled.length);
        self.learn_birth(labelled.birth);
        let _ = self.open.set(Arc::new(found));
        Ok(labelled.epoch)
    }

    /// The label; `None` for an empty file without one.
    fn verify_label(&self, shared: &PoolParts, found: BorrowedFd<'_>) -> Result<Option<Label>, PoolError> {
        let refuse = |reason: &str| Err(self.bad_label(shared, reason));
        if !is_regular(found).map_err(|errno| shared.failure("look at a replica", errno))? {
            return refuse("it is not a regular file");
        }
        match label::read(found) {
            Ok(Some(label)) if label.file != self.file => refuse("its label names another file"),
            Ok(Some(label)) if label.instance != shared.store.instance => {
                refuse("its label names another instance")
            }
            Ok(Some(label)) => Ok(Some(label)),
            Ok(None) => match look_at(found) {
                Ok(extent) if extent.size == 0 => Ok(None),
                Ok(_) => refuse("it has no label"),
                Err(errno) => Err(shared.failure("look at a replica", errno)),
            },
            Err(LabelError::Unreadable(errno)) => Err(shared.failure("read a label", errno)),
            Err(LabelError::Malformed) => refuse("its label cannot be understood"),
        }
    }

    fn bad_label(&self, shared: &PoolParts, reason: &str) -> PoolError {
        tracing::error!(pool = %shared.id(), file = %self.file, reason, "replica is not what its name says");
        PoolError::Io { pool: shared.id(), operation: "open a replica", reason: reason.to_owned() }
    }

    /// The replica's file, open to be written, and made if there is none. Under `ordering`.
    fn create(&self, shared: &PoolParts) -> Result<BorrowedFd<'_>, PoolError> {
        let _opening = self.opening.lock();
        if let Some(file) = self.open_file() {
            let is_to_read = self.is_to_read.load(Ordering::Acquire) && self.reopened.get().is_none();
            return if is_to_read { self.reopen(shared, file) } else { Ok(file) };
        }
        if self.is_removed() {
            return Err(PoolError::NoReplica(shared.id()));
        }
        if !shared.space.admit_file(shared.store.root()) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let made = shared.store.create(self.file);
        let (file, fresh) = made.map_err(|errno| shared.write_failure("make a replica", errno))?;
        if !fresh {
            // Only an unfinished one may be there, for a labelled one would have been found.
            self.verify_label(shared, file.as_fd())?;
        }
        if let Err(errno) = self.write_label(shared, file.as_fd()) {
            if fresh {
                let _ = shared.store.unlink(self.file);
            }
            return Err(shared.write_failure("label a replica", errno));
        }
        shared.counters.replicas.add(1);
        shared.index.note(self.file);
        self.state_known.store(true, Ordering::Release);
        Ok(self.open.get_or_init(|| Arc::new(file)).as_fd())
    }

    /// A file that was opened to read only, opened to be written. Called with `opening` held.
    fn reopen(&self, shared: &PoolParts, file: BorrowedFd<'_>) -> Result<BorrowedFd<'_>, PoolError> {
        let failed = |errno| shared.write_failure("open a replica", errno);
        let reopened = shared.store.open_to_write(self.file).map_err(failed)?;
        let (old, new) = (fstat(file).map_err(failed)?, fstat(&reopened).map_err(failed)?);
        if (old.st_dev, old.st_ino) != (new.st_dev, new.st_ino) {
            return Err(self.bad_label(shared, "another file has its name"));
        }
        Ok(self.reopened.get_or_init(|| Arc::new(reopened)).as_fd())
    }

    /// An empty file, if there is none.
    pub fn make(&self, shared: &PoolParts, birth: Birth) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.load(shared)?;
        if self.is_removed() {
            return Err(PoolError::NoReplica(shared.id()));
        }
        self.check_birth(shared, birth)?;
        self.learn_birth(birth);
        self.create(shared).map(drop)
    }

    pub fn write(&self, shared: &PoolParts, claim: Claim, offset: u64, data: &[u8]) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        let end = offset.saturating_add(data.len() as u64);
        let extent = self.admit_write(shared, claim, offset, end)?;
        self.admit_bytes(shared, extent, offset, end)?;
        let failed = |errno| shared.write_failure("write data", errno);
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
    pub fn settle(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let syncing = self.syncing.lock();
        self.check_unbroken(shared)?;
        let Some(file) = self.open_file() else { return Ok(()) };
        let covered = self.written.load(Ordering::Acquire);
        let named = self.named.load(Ordering::Acquire);
        let length = self.length_to_sync(shared, file)?;
        self.sync(shared, file, if named { Scope::Data } else { Scope::All }, &syncing)?;
        if !named {
            if !self.is_removed() {
                let synced = shared.store.sync_name(self.file);
                synced.map_err(|errno| self.fail(shared, file, errno))?;
            }
            self.named.store(true, Ordering::Release);
        }
        self.synced.fetch_max(covered, Ordering::AcqRel);
        drop(syncing);
        self.note_synced(shared, file, length);
        Ok(())
    }

    /// The only way to sync a replica. The disk reports lost data once, to the first sync: another one that runs
    /// meanwhile would get no error, so one runs at a time and the next finds the replica broken.
    fn sync(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        scope: Scope,
        _syncing: &MutexGuard<'_, ()>,
    ) -> Result<(), PoolError> {
        let synced = match scope {
            Scope::Data => shared.store.sync_data(file),
            Scope::All | Scope::Label => shared.store.sync_all(file),
        };
        synced.map_err(|errno| match scope {
            // No data can have been lost.
            Scope::Label if !self.has_unsynced() => shared.write_failure("write a label", errno),
            _ => self.fail(shared, file, errno),
        })
    }

    /// The kernel tells of a failed write-back once and then takes the pages for clean: what the file holds is not
    /// known any more, and every later sync must hear of it. Called with `syncing` held.
    fn fail(&self, shared: &PoolParts, file: BorrowedFd<'_>, errno: Errno) -> PoolError {
        shared.writability.note(shared.id(), errno);
        self.broken.store(true, Ordering::Release);
        let recorded = label::mark_broken(file).and_then(|()| shared.store.sync_all(file)).is_ok();
        self.broken_recorded.store(recorded, Ordering::Release);
        let (pool, file) = (shared.id(), self.file);
        tracing::error!(%pool, %file, %errno, recorded, "disk lost written data; the replica is broken");
        PoolError::Io { pool, operation: "sync data", reason: std::io::Error::from(errno).to_string() }
    }

    /// `None`: the replica does not exist, or cannot be opened any more.
    pub fn facts(&self, shared: &PoolParts) -> Result<Option<ReplicaFacts>, PoolError> {
        let Some(file) = self.open_file().filter(|_| !self.is_removed()) else { return Ok(None) };
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        if extent.is_unlinked {
            return Ok(None);
        }
        Ok(Some(ReplicaFacts {
            file: self.file,
            birth: self.birth(),
            size: extent.size,
            space_used: extent.space_used,
            modified: Some(extent.modified),
        }))
    }

    fn facts_of_none(&self, size: u64) -> ReplicaFacts {
        ReplicaFacts { file: self.file, birth: self.birth(), size, space_used: 0, modified: None }
    }

    pub fn truncate(&self, shared: &PoolParts, size: u64) -> Result<ReplicaFacts, PoolError> {
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
                return Ok(self.facts_of_none(0));
            }
            let failed = |errno| shared.write_failure("truncate a replica", errno);
            let file = self.create(shared)?;
            let known = self.known();
            let extent = look_at(file).map_err(failed)?;
            self.check_linked(shared, extent)?;
            let before = extent.size;
            if before < size {
                self.check_end(shared, known, before)?;
            }
            if before != size {
                let cut = self.cut(shared, file, size);
                self.note_write();
                shared.index.note(self.file);
                cut.map_err(failed)?;
            }
        }
        // Also what an earlier process wrote and did not sync: from here on it is a length that somebody was promised.
        if self.has_unsynced() || !self.is_known_to(size) {
            self.settle(shared)?;
        }
        let gone = self.facts_of_none(size);
        Ok(self.facts(shared)?.unwrap_or(gone))
    }

    pub fn remove(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        let _opening = self.opening.lock();
        if self.is_removed() {
            return Ok(());
        }
        let unlinked = shared.store.unlink(self.file);
        let existed = unlinked.map_err(|errno| shared.write_failure("remove a replica", errno))?;
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

    pub fn fence(&self, shared: &PoolParts, epoch: Epoch) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        self.load(shared)?;
        if self.is_removed() || epoch.0 <= self.epoch_recorded.load(Ordering::Acquire) {
            return Ok(());
        }
        // Refused from here on, also if it cannot be written down and the caller has to come again.
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
        match self.open_file() {
            Some(file) => {
                let failed = |errno| shared.write_failure("write a fence", errno);
                self.write_label(shared, file).map_err(failed)?;
                self.sync(shared, file, Scope::Label, &self.syncing.lock())?;
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

fn is_regular(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode).is_file())
}
