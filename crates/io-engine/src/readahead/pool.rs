//! The read-ahead of the files of one pool.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use types::ByteRange;

use super::{Advice, Advising, FileReadAhead, ReadAheadBudget, ReadAheadCounts, ReadAheadLimits};

pub struct PoolReadAhead {
    budget: Arc<ReadAheadBudget>,
    /// Files with outstanding advice, each of which holds a part of the budget. Locked to add one, and for a moment once a
    /// second.
    files: Mutex<Vec<Weak<FileReadAhead>>>,
}

impl PoolReadAhead {
    pub fn new(limits: ReadAheadLimits) -> PoolReadAhead {
        PoolReadAhead { budget: ReadAheadBudget::new(limits), files: Mutex::default() }
    }

    /// A read that has waited for the disk, of a file that is `file_bytes` long.
    pub fn note_miss(
        &self,
        place: &OnceLock<Arc<FileReadAhead>>,
        read: ByteRange,
        file_bytes: u64,
        now: Instant,
    ) -> Option<Advising> {
        let file = place.get_or_init(|| Arc::new(FileReadAhead::new(Arc::clone(&self.budget))));
        let advice = file.miss(read, file_bytes, now)?;
        Some(self.admit(file, advice))
    }

    /// A read that the page cache served.
    pub fn note_hit(&self, place: &OnceLock<Arc<FileReadAhead>>, read: ByteRange) -> Option<Advising> {
        let file = place.get().filter(|file| file.follows_hits())?;
        let advice = file.hit(read, Instant::now())?;
        Some(self.admit(file, advice))
    }

    pub fn counts(&self) -> ReadAheadCounts {
        self.budget.counts()
    }

    pub fn set_tight(&self, is_tight: bool) {
        self.budget.set_tight(is_tight);
    }

    /// Whether it matters that memory is tight, or still is.
    pub fn needs_pressure(&self) -> bool {
        self.budget.is_tight() || !self.files.lock().is_empty()
    }

    /// Counts advice that was not read in time as wasted, also of files that are not read any more.
    pub fn expire(&self, now: Instant) {
        let mut files = std::mem::take(&mut *self.files.lock());
        files.retain(|file| file.upgrade().is_some_and(|file| file.expire(now)));
        self.files.lock().append(&mut files);
    }

    fn admit(&self, file: &Arc<FileReadAhead>, advice: Advice) -> Advising {
        if file.enlist() {
            self.files.lock().push(Arc::downgrade(file));
        }
        Advising::new(Arc::clone(file), advice)
    }
}

#[cfg(test)]
mod tests;
