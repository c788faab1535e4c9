//! New files, of which a pool makes the replica for the first ticket to write that comes.
//!
//! The head gives out a layout of an empty file without asking the pool. A ticket that somebody keeps must not bring back the
//! replica of a file that is gone, so a pool makes a replica only if it knows of every removal that the file can have had: the
//! file is newer than the pool's process and its session with the head, and nothing is noted of it here.

use std::collections::BTreeSet;

use types::FileId;

/// Files that are noted at most. Beyond that the older half of them counts as old.
const NOTED_MAX: usize = 65_536;

#[derive(Debug)]
pub struct NewFiles {
    /// Files up to this one are old: their replicas are made when the head says so. `None`: all are.
    through: Option<FileId>,
    /// New files whose replicas were made or removed: what is missing there is not made again.
    noted: BTreeSet<FileId>,
    noted_max: usize,
}

impl Default for NewFiles {
    fn default() -> NewFiles {
        NewFiles::with_max(NOTED_MAX)
    }
}

impl NewFiles {
    fn with_max(noted_max: usize) -> NewFiles {
        NewFiles { through: None, noted: BTreeSet::new(), noted_max }
    }

    /// A session with the head begins, which has given no higher number than `newest` to a file before.
    ///
    /// Removals of older files may have been answered by a process of before.
    pub fn begin(&mut self, newest: FileId) {
        self.raise(self.through.map_or(newest, |through| through.max(newest)));
    }

    /// Before a replica is removed, and when it is made.
    pub fn note(&mut self, files: impl IntoIterator<Item = FileId>) {
        let Some(through) = self.through else { return };
        self.noted.extend(files.into_iter().filter(|file| *file > through));
        if self.noted.len() > self.noted_max {
            let middle = self.noted.iter().nth(self.noted.len() / 2).copied();
            self.raise(middle.unwrap_or(through));
        }
    }

    /// Whether a ticket to write may make the replica, if it is missing.
    pub fn may_make(&self, file: FileId) -> bool {
        self.through.is_some_and(|through| file > through) && !self.noted.contains(&file)
    }

    /// The newest file whose replica is made when the head says so, for the head.
    pub fn through(&self) -> Option<FileId> {
        self.through
    }

    fn raise(&mut self, through: FileId) {
        self.through = Some(through);
        self.noted = self.noted.split_off(&FileId(through.0.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(files: &NewFiles, numbers: std::ops::Range<u64>) -> Vec<u64> {
        numbers.filter(|number| files.may_make(FileId(*number))).collect()
    }

    #[test]
    fn a_ticket_makes_replicas_of_files_that_are_newer_than_the_session() {
        let mut files = NewFiles::default();
        assert_eq!(all_of(&files, 0..9), [], "no head has told its newest file");
        files.begin(FileId(5));
        assert_eq!(all_of(&files, 3..9), [6, 7, 8]);
        files.begin(FileId(7));
        assert_eq!(all_of(&files, 3..9), [8]);
        files.begin(FileId(2));
        assert_eq!(all_of(&files, 0..9), [8], "a head of a database that was put back");
    }

    #[test]
    fn a_replica_that_was_made_or_removed_is_not_made_again() {
        let mut files = NewFiles::default();
        files.note([FileId(9)]);
        files.begin(FileId(5));
        files.note([FileId(3), FileId(7)]);
        assert_eq!(all_of(&files, 3..10), [6, 8, 9]);
        assert_eq!(files.noted.len(), 1, "old files need no note");
    }

    #[test]
    fn beyond_the_bound_the_older_half_counts_as_old() {
        let mut files = NewFiles::with_max(4);
        files.begin(FileId(10));
        files.note([20, 13, 11, 17].map(FileId));
        assert_eq!(files.through(), Some(FileId(10)));
        files.note([FileId(15)]);
        assert_eq!(files.through(), Some(FileId(15)));
        assert_eq!(all_of(&files, 9..22), [16, 18, 19, 21]);
        assert_eq!(files.noted.len(), 2);
    }
}
