//! The state of one file that decisions and modes need: range locks, history, contention, a descriptor for direct I/O,
//! read-ahead.
//!
//! A file that only has short requests of pages in memory has the locks alone. The first read that misses them makes the
//! read-ahead, the first write that waits for another one makes the contention, and the first request that may bypass the
//! page cache makes the rest.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::param::page_size;
use types::ByteRange;

use crate::contention::Contention;
use crate::counters::ModeCounts;
use crate::history::{History, Observed};
use crate::mode::{ContentionThresholds, Decision, Inputs, Kind, Mode};
use crate::range_lock::{LockKind, LockRefused, RangeGuard, RangeLocks};
use crate::readahead::FileReadAhead;
use crate::reopen::reopen_direct;
use crate::uncached::WritePace;

/// Writers of one file that wait for each other: more than the disk threads of a pool.
const WAITING_MAX: usize = 1024;
/// A thread that holds a range is at the disk; one that does not come back is told of as busy.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Decisions that a file remembers.
const RECORDED_LEN: usize = 16;

pub struct FileIo {
    locks: RangeLocks,
    /// 0: none; else one more than the place of the mode in [`Mode::ALL`].
    pinned: AtomicU8,
    counts: ModeCounts,
    /// Locked for the arithmetic of one request.
    contention: OnceLock<Box<Mutex<Contention>>>,
    facts: OnceLock<Box<Facts>>,
    pub(crate) read_ahead: OnceLock<Arc<FileReadAhead>>,
}

#[derive(Default)]
struct Facts {
    history: History,
    pace: WritePace,
    direct: OnceLock<Option<DirectDescriptor>>,
    /// Locked to add one or to copy all.
    recorded: Mutex<VecDeque<Recorded>>,
}

/// A decision with all that led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    pub inputs: Inputs,
    pub decision: Decision,
    /// The mode that ran: another one if the file system refused the one that was chosen.
    pub ran: Mode,
    pub at: Instant,
}

/// Counted, since each takes a descriptor beside that of the replica.
struct DirectDescriptor {
    file: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl Drop for DirectDescriptor {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for FileIo {
    fn default() -> FileIo {
        FileIo {
            locks: RangeLocks::new(WAITING_MAX),
            pinned: AtomicU8::new(0),
            counts: ModeCounts::default(),
            contention: OnceLock::new(),
            facts: OnceLock::new(),
            read_ahead: OnceLock::new(),
        }
    }
}

impl FileIo {
    /// The mode of all further requests. `None`: the rule decides. Of two that are opened with different modes the last one
    /// counts for both.
    pub fn pin(&self, mode: Option<Mode>) {
        let place = mode.map_or(0, |mode| mode as u8 + 1);
        // Each open comes here: a line of memory that others read is written only if it changes.
        if self.pinned.load(Ordering::Relaxed) != place {
            self.pinned.store(place, Ordering::Relaxed);
        }
    }

    pub fn pinned(&self) -> Option<Mode> {
        let place = usize::from(self.pinned.load(Ordering::Relaxed));
        place.checked_sub(1).map(|place| Mode::ALL[place])
    }

    /// Holds the pages of a range against all other writers of the file. Blocks. `thresholds` are asked for if it waited.
    pub fn lock(
        &self,
        offset: u64,
        length: u64,
        now: Instant,
        thresholds: impl FnOnce() -> ContentionThresholds,
    ) -> Result<RangeGuard<'_>, LockRefused> {
        let page = page_size() as u64;
        let end = offset.saturating_add(length.max(1)).div_ceil(page).saturating_mul(page);
        let range = ByteRange::from_bounds(offset - offset % page, end.max(1));
        let range = range.expect("the end is behind the page that the offset is in");
        let guard = self.locks.acquire(range, LockKind::Exclusive, WAIT_MAX)?;
        if guard.has_waited() {
            let contention =
                self.contention.get_or_init(|| Box::new(Mutex::new(Contention::new(thresholds()))));
            contention.lock().record_wait(now);
        }
        Ok(guard)
    }

    /// Writes that had to wait for another one of the same pages.
    pub fn waits(&self) -> u64 {
        self.locks.waits()
    }

    pub fn is_contended(&self, now: Instant) -> bool {
        self.contention.get().is_some_and(|contention| contention.lock().is_contended(now))
    }

    /// Requests since the file was opened, short ones too.
    pub fn counts(&self) -> &ModeCounts {
        &self.counts
    }

    /// The decisions that were recorded last, oldest first.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.facts.get().map(|facts| facts.recorded.lock().iter().copied().collect()).unwrap_or_default()
    }

    pub(crate) fn record(&self, recorded: Recorded) {
        let Some(facts) = self.facts.get() else { return };
        let mut all = facts.recorded.lock();
        if all.len() == RECORDED_LEN {
            all.pop_front();
        }
        all.push_back(recorded);
    }

    /// Takes note of a request, and tells what is known of the file then.
    pub(crate) fn observe(&self, kind: Kind, offset: u64, length: u64, now: Instant) -> (Observed, bool) {
        let facts = self.facts.get_or_init(Box::default);
        let observed = facts.history.record(kind, offset, length, now);
        (observed, self.is_contended(now))
    }

    pub(crate) fn pace(&self) -> Option<&WritePace> {
        self.facts.get().map(|facts| &facts.pace)
    }

    /// The descriptor for direct I/O. `None`: the file has no direct I/O now.
    pub(crate) fn direct(
        &self,
        file: BorrowedFd<'_>,
        open: &Arc<AtomicUsize>,
        open_max: usize,
    ) -> Result<Option<BorrowedFd<'_>>, Errno> {
        let Some(facts) = self.facts.get() else { return Ok(None) };
        if let Some(direct) = facts.direct.get() {
            return Ok(direct.as_ref().map(|direct| direct.file.as_fd()));
        }
        // Of a file that is open to read only another descriptor takes the place once a change comes.
        if fcntl_getfl(file)? & OFlags::RWMODE != OFlags::RDWR || open.load(Ordering::Acquire) >= open_max {
            return Ok(None);
        }
        let reopened = match reopen_direct(file) {
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Ok(None),
            reopened => reopened?,
        };
        let reopened = reopened.map(|file| {
            open.fetch_add(1, Ordering::AcqRel);
            DirectDescriptor { file, open: Arc::clone(open) }
        });
        // If two threads come at once, the second descriptor is closed again.
        Ok(facts.direct.get_or_init(|| reopened).as_ref().map(|direct| direct.file.as_fd()))
    }
}
