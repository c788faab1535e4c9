//! The replicas removed lately: a late write of the head's own must not bring one back.
//!
//! File ids are never reused, so a removed replica is gone for ever, unless its file comes back from another pool. The set is
//! bounded, the oldest is forgotten. Clients'
//! tickets make no replica, so that it matters only to a request of the head that is under way while the file goes.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use types::FileId;

pub struct Removed {
    len_max: usize,
    /// Locked to look up or to add.
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    files: HashSet<FileId>,
    oldest_first: VecDeque<FileId>,
}

impl Removed {
    pub fn new(len_max: usize) -> Removed {
        Removed { len_max, set: Mutex::default() }
    }

    pub fn add(&self, file: FileId) {
        let mut set = self.set.lock();
        if !set.files.insert(file) {
            return;
        }
        set.oldest_first.push_back(file);
        if set.oldest_first.len() > self.len_max
            && let Some(oldest) = set.oldest_first.pop_front()
        {
            set.files.remove(&oldest);
        }
    }

    /// The file is about to have a replica again.
    pub fn forget(&self, file: FileId) {
        let mut set = self.set.lock();
        if set.files.remove(&file) {
            set.oldest_first.retain(|known| *known != file);
        }
    }

    pub fn contains(&self, file: FileId) -> bool {
        self.set.lock().files.contains(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_and_the_oldest_forgotten() {
        let removed = Removed::new(3);
        for file in [1, 1, 2, 3, 4] {
            removed.add(FileId(file));
        }
        assert!(!removed.contains(FileId(1)));
        assert!((2..=4).all(|file| removed.contains(FileId(file))));
        removed.forget(FileId(3));
        removed.add(FileId(5));
        assert_eq!(
            (2..=5).map(|file| removed.contains(FileId(file))).collect::<Vec<_>>(),
            [true, false, true, true]
        );
    }
}
