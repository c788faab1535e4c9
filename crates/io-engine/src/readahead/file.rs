//! The read-ahead of one open file, shared by the threads that read it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;
use types::ByteRange;

use super::{Advice, Found, Outcome, ReadAhead, ReadAheadBudget};
use crate::range;
use crate::residency::count_pages;

/// The kernel cuts each request for pages short: to its own read-ahead, which is so many bytes by default, or to the
/// largest transfer of the device if that is larger.
const CALL_BYTES_MAX: u64 = 128 << 10;

/// Made by the first read that misses the page cache.
pub struct FileReadAhead {
    budget: Arc<ReadAheadBudget>,
    /// Locked for the arithmetic of one read.
    state: Mutex<State>,
    /// Reads of pages in memory are noted. A file that is all in memory pays for one look at this.
    follows_hits: AtomicBool,
}

struct State {
    rule: ReadAhead,
    /// As the last read that missed found it; longer if later reads hit beyond that.
    file_bytes: u64,
    is_listed: bool,
}

/// Advice that is to be followed in a thread that may wait for the disk. Dropped without that, it is refused.
pub struct Advising {
    file: Arc<FileReadAhead>,
    advice: Advice,
    outcome: Outcome,
}

impl FileReadAhead {
    pub fn new(budget: Arc<ReadAheadBudget>) -> FileReadAhead {
        let rule = ReadAhead::new(Arc::clone(&budget));
        let state = Mutex::new(State { rule, file_bytes: 0, is_listed: false });
        FileReadAhead { budget, state, follows_hits: AtomicBool::new(false) }
    }

    pub fn follows_hits(&self) -> bool {
        self.follows_hits.load(Ordering::Relaxed)
    }

    pub fn miss(&self, read: ByteRange, file_bytes: u64, now: Instant) -> Option<Advice> {
        let mut state = self.state.lock();
        state.file_bytes = file_bytes;
        let advice = state.rule.read(read, Found::Miss, file_bytes, now);
        // The next read may make a stream together with this one, although the kernel has read it ahead.
        self.follows_hits.store(true, Ordering::Relaxed);
        advice
    }

    pub fn hit(&self, read: ByteRange, now: Instant) -> Option<Advice> {
        let mut state = self.state.lock();
        // The file may have grown since the last miss.
        state.file_bytes = state.file_bytes.max(read.end());
        let file_bytes = state.file_bytes;
        let advice = state.rule.read(read, Found::Hit, file_bytes, now);
        self.follows_hits.store(state.rule.follows_hits(), Ordering::Relaxed);
        advice
    }

    /// Whether the file is to be put on the list of those with outstanding advice.
    pub fn enlist(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_listed, true)
    }

    /// Counts old advice as wasted. Whether the file stays on the list.
    pub fn expire(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        state.rule.expire(now);
        state.is_listed = state.rule.has_outstanding();
        state.is_listed
    }

    fn end_advice(&self, advice: &Advice, outcome: Outcome) {
        let mut state = self.state.lock();
        state.rule.end_advice(advice, outcome);
        self.follows_hits.store(state.rule.follows_hits(), Ordering::Relaxed);
    }
}

impl Advising {
    pub fn new(file: Arc<FileReadAhead>, advice: Advice) -> Advising {
        file.budget.begin_advising();
        Advising { file, advice, outcome: Outcome::Refused }
    }

    /// Has the kernel fetch the ranges of `file`. Waits only while the queue of the device is full.
    pub fn follow(mut self, file: BorrowedFd<'_>) {
        if self.advice.ranges.iter().all(|range| is_resident(file, *range)) {
            self.outcome = Outcome::Resident;
            return;
        }
        self.outcome = Outcome::Fetched;
        for range in &self.advice.ranges {
            if fetch(file, *range).is_err() {
                // The read itself meets the error, if there is one.
                return;
            }
        }
    }
}

impl Drop for Advising {
    fn drop(&mut self) {
        self.file.budget.end_advising();
        self.file.end_advice(&self.advice, self.outcome);
    }
}

/// Without a count of pages nothing counts as resident.
fn is_resident(file: BorrowedFd<'_>, range: ByteRange) -> bool {
    count_pages(file, range).is_ok_and(|counts| counts.resident == counts.pages)
}

fn fetch(file: BorrowedFd<'_>, range: ByteRange) -> Result<(), Errno> {
    let mut offset = range.offset();
    while let Some(rest) = ByteRange::from_bounds(offset, range.end()) {
        let end = rest.end().min(offset.saturating_add(CALL_BYTES_MAX));
        let Some(call) = ByteRange::from_bounds(offset, end) else { break };
        range::advise(file, call, api::Advice::WillNeed)?;
        offset = end;
    }
    Ok(())
}
