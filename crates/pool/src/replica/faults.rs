//! The known faults of a replica: lost data, and a label that does not fit.
//!
//! Invariant: a replica that is broken stays so, and the label says so as far as the disk takes it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use api::PoolError;
use rustix::io::Errno;
use types::FileId;

use crate::label;
use crate::parts::PoolParts;

pub struct Faults {
    file: FileId,
    /// The label has been asked whether the replica is in order. Reading does not need to know.
    state_known: AtomicBool,
    /// Written data was lost on its way to the disk.
    broken: AtomicBool,
    /// The label says so too, so that it may be forgotten here.
    broken_recorded: AtomicBool,
    /// The log says already that something is missing.
    told: AtomicBool,
}

impl Faults {
    pub fn new(file: FileId) -> Faults {
        Faults {
            file,
            state_known: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            broken_recorded: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    pub fn check_unbroken(
        &self,
        shared: &PoolParts,
        open_file: Option<BorrowedFd<'_>>,
    ) -> Result<(), PoolError> {
        if !self.state_known.load(Ordering::Acquire) {
            self.learn_state(shared, open_file)?;
        }
        if !self.is_broken() {
            return Ok(());
        }
        let reason = "written data was lost in an earlier failure".to_owned();
        Err(PoolError::Io { pool: shared.id(), operation: "keep the replica", reason })
    }

    fn learn_state(&self, shared: &PoolParts, open_file: Option<BorrowedFd<'_>>) -> Result<(), PoolError> {
        let Some(file) = open_file else { return Ok(()) };
        if label::is_broken(file).map_err(|error| self.bad_label(shared, &error.to_string()))? {
            self.broken.store(true, Ordering::Release);
            self.broken_recorded.store(true, Ordering::Release);
        }
        self.note_known_state();
        Ok(())
    }

    /// The label needs no further look: it was just read or written.
    pub fn note_known_state(&self) {
        self.state_known.store(true, Ordering::Release);
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub fn is_broken_recorded(&self) -> bool {
        self.broken_recorded.load(Ordering::Acquire)
    }

    /// The kernel tells of a failed write-back once and then takes the pages for clean: what the file holds is not
    /// known any more, and every later sync must hear of it. Called with `syncing` held, so that no other sync misses it.
    pub fn fail(&self, shared: &PoolParts, file: BorrowedFd<'_>, errno: Errno) -> PoolError {
        shared.writability.note(shared.id(), errno);
        self.broken.store(true, Ordering::Release);
        let recorded = label::mark_broken(file).and_then(|()| shared.store.sync_all(file)).is_ok();
        self.broken_recorded.store(recorded, Ordering::Release);
        let (pool, file) = (shared.id(), self.file);
        tracing::error!(%pool, %file, %errno, recorded, "disk lost written data; the replica is broken");
        PoolError::Io { pool, operation: "sync data", reason: std::io::Error::from(errno).to_string() }
    }

    pub fn lost(&self, shared: &PoolParts, reason: &str) -> PoolError {
        let (pool, file) = (shared.id(), self.file);
        if !self.told.swap(true, Ordering::AcqRel) {
            tracing::error!(%pool, %file, reason, "data of a file is missing");
        }
        PoolError::Io { pool, operation: "find the data of the file", reason: reason.to_owned() }
    }

    pub fn bad_label(&self, shared: &PoolParts, reason: &str) -> PoolError {
        tracing::error!(pool = %shared.id(), file = %self.file, reason, "replica is not what its name says");
        PoolError::Io { pool: shared.id(), operation: "open a replica", reason: reason.to_owned() }
    }
}
