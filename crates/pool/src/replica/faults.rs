//! The known faults of a replica: lost data, damaged blocks, and a label that does not fit.
//!
//! Invariant: a replica that is broken stays so, and the label says so as far as the disk takes it. One that is damaged is
//! broken, and cannot be read either.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use api::PoolError;
use rustix::io::Errno;
use types::FileId;

use crate::label::{self, State};
use crate::parts::PoolParts;

pub struct Faults {
    file: FileId,
    /// The label has been asked whether the replica is in order.
    state_known: AtomicBool,
    /// Written data was lost on its way to the disk.
    broken: AtomicBool,
    /// The label says so too, so that it may be forgotten here.
    broken_recorded: AtomicBool,
    /// The disk has other bytes than were written.
    damaged: AtomicBool,
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
            damaged: AtomicBool::new(false),
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
        self.check_undamaged(shared)?;
        let reason = "written data was lost in an earlier failure".to_owned();
        Err(PoolError::Io { pool: shared.id(), operation: "keep the replica", reason })
    }

    /// An error if the replica has bytes that nobody wrote: none of them may be read.
    pub fn check_undamaged(&self, shared: &PoolParts) -> Result<(), PoolError> {
        if !self.damaged.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason =
            "a block on the disk differs from its checksum; remove the file or replace it".to_owned();
        Err(PoolError::Io { pool: shared.id(), operation: "use the replica", reason })
    }

    /// From the label, before anybody reads.
    pub fn learn_damage(&self, file: BorrowedFd<'_>) -> Result<(), label::LabelError> {
        match label::state(file)? {
            State::InOrder => {}
            State::Broken => self.note_broken(),
            State::Damaged => {
                self.note_broken();
                self.damaged.store(true, Ordering::Release);
            }
        }
        self.note_known_state();
        Ok(())
    }

    /// As the label says, or of a removed replica, which has none any more: its holders are told that data was lost.
    pub fn note_broken(&self) {
        self.broken.store(true, Ordering::Release);
        self.broken_recorded.store(true, Ordering::Release);
    }

    /// From here on nobody reads or writes. Called with `ordering` held alone.
    pub fn mark_damaged(&self, shared: &PoolParts, file: BorrowedFd<'_>) {
        self.broken_recorded.store(false, Ordering::Release);
        self.broken.store(true, Ordering::Release);
        self.damaged.store(true, Ordering::Release);
        self.note_known_state();
        let recorded = label::mark_damaged(file).and_then(|()| shared.store.sync_all(file)).is_ok();
        self.broken_recorded.store(recorded, Ordering::Release);
    }

    fn learn_state(&self, shared: &PoolParts, open_file: Option<BorrowedFd<'_>>) -> Result<(), PoolError> {
        let Some(file) = open_file else { return Ok(()) };
        self.learn_damage(file).map_err(|error| self.bad_label(shared, &error.to_string()))
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
