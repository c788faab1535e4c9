//! The records of each file that are not settled, and the notes that are to say which are.
//!
//! A file is *live* while it has records that a replay would bring: from its first record until a note on disk settles the
//! last one. A removal settles nothing: the header of the next segment may reach the disk without it. Spans of sequence
//! numbers stand for records, one for each segment, so a file takes little room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::FileId;

/// A file whose records hold room in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled {
    pub file: FileId,
    /// No record of it before this one is unsettled.
    pub oldest: u64,
    /// Its newest record. To be settled through this, read it before the sync of the file begins.
    pub newest: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    files: BTreeMap<FileId, LiveFile>,
    /// Each file with unsettled records, by the oldest of them.
    oldest: BTreeSet<(u64, FileId)>,
    /// Files that are settled further than a note says.
    to_note: BTreeSet<FileId>,
}

#[derive(Debug, Default)]
struct LiveFile {
    unsettled: VecDeque<Span>,
    newest: u64,
    settled_through: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    segment_sequence: u64,
    oldest: u64,
    newest: u64,
}

impl Ledger {
    pub fn has_room(&self, file: FileId, files_max: usize) -> bool {
        self.files.len() < files_max || self.files.contains_key(&file)
    }

    /// `segment_sequence`: the first sequence of the segment that holds the record.
    pub fn add(&mut self, file: FileId, sequence: u64, segment_sequence: u64) {
        let live = self.files.entry(file).or_default();
        live.newest = sequence;
        match live.unsettled.back_mut() {
            Some(span) if span.segment_sequence == segment_sequence => span.newest = sequence,
            back => {
                if back.is_none() {
                    self.oldest.insert((sequence, file));
                }
                live.unsettled.push_back(Span { segment_sequence, oldest: sequence, newest: sequence });
            }
        }
    }

    pub fn settle(&mut self, file: FileId, through: u64) {
        let Some(live) = self.files.get_mut(&file) else { return };
        let through = through.min(live.newest);
        if through <= live.settled_through {
            return;
        }
        live.settled_through = through;
        if let Some(span) = live.unsettled.front() {
            self.oldest.remove(&(span.oldest, file));
        }
        while live.unsettled.front().is_some_and(|span| span.newest <= through) {
            live.unsettled.pop_front();
        }
        if let Some(span) = live.unsettled.front_mut() {
            span.oldest = span.oldest.max(through + 1);
            self.oldest.insert((span.oldest, file));
        }
        self.to_note.insert(file);
    }

    /// Notes to write, each a file and the sequence through which it is settled.
    pub fn notes(&self) -> Vec<(FileId, u64)> {
        self.to_note.iter().map(|file| (*file, self.files[file].settled_through)).collect()
    }

    pub fn has_notes(&self) -> bool {
        !self.to_note.is_empty()
    }

    /// The note is on its way to the disk.
    pub fn take_note(&mut self, file: FileId) {
        self.to_note.remove(&file);
    }

    /// The note is on disk.
    pub fn noted(&mut self, file: FileId, through: u64) {
        if self.files.get(&file).is_some_and(|live| live.newest <= through) {
            self.files.remove(&file);
            self.to_note.remove(&file);
        }
    }

    /// The oldest record that a replay still needs. `None`: all are settled.
    pub fn tail(&self) -> Option<u64> {
        self.oldest.first().map(|(sequence, _)| *sequence)
    }

    pub fn newest(&self, file: FileId) -> Option<u64> {
        self.files.get(&file).map(|live| live.newest)
    }

    pub fn is_live(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn oldest_unsettled(&self, limit: usize) -> Vec<Unsettled> {
        let unsettled = |(oldest, file): &(u64, FileId)| Unsettled {
            file: *file,
            oldest: *oldest,
            newest: self.files[file].newest,
        };
        self.oldest.iter().take(limit).map(unsettled).collect()
    }

    pub fn clear(&mut self) {
        *self = Ledger::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    #[test]
    fn a_file_is_live_until_the_note_of_its_newest_record_is_on_disk() {
        let mut ledger = Ledger::default();
        ledger.add(A, 1, 1);
        ledger.settle(A, 1);
        assert_eq!((ledger.tail(), ledger.is_live(A)), (None, true));
        ledger.take_note(A);
        ledger.add(A, 2, 1);
        ledger.noted(A, 1);
        assert!(ledger.is_live(A), "a later record is not noted");
        ledger.settle(A, 2);
        assert_eq!(ledger.notes(), [(A, 2)]);
        ledger.take_note(A);
        ledger.noted(A, 2);
        assert!(!ledger.is_live(A));
    }

    #[test]
    fn a_part_that_is_settled_moves_the_tail() {
        let mut ledger = Ledger::default();
        for (file, sequence, segment) in [(A, 1, 1), (B, 2, 1), (A, 3, 1), (A, 4, 4)] {
            ledger.add(file, sequence, segment);
        }
        assert_eq!(ledger.tail(), Some(1));
        ledger.settle(A, 1);
        assert_eq!(ledger.tail(), Some(2));
        ledger.settle(B, 2);
        assert_eq!(ledger.tail(), Some(2), "it may lie before the record, never behind it");
        ledger.settle(A, 3);
        assert_eq!(ledger.tail(), Some(4));
        assert_eq!(ledger.oldest_unsettled(9), [Unsettled { file: A, oldest: 4, newest: 4 }]);
    }

    proptest! {
        /// The tail is never behind a record that is not settled.
        #[test]
        fn no_unsettled_record_lies_before_the_tail(
            steps in proptest::collection::vec((0..4u64, any::<bool>(), any::<prop::sample::Index>()), 1..80)
        ) {
            let mut ledger = Ledger::default();
            let mut unsettled: Vec<(FileId, u64)> = Vec::new();
            let mut sequence = 0;
            for (file, settles, at) in steps {
                let file = FileId(file);
                if settles && !unsettled.is_empty() {
                    let (file, through) = unsettled[at.index(unsettled.len())];
                    ledger.settle(file, through);
                    unsettled.retain(|(other, sequence)| *other != file || *sequence > through);
                } else {
                    sequence += 1;
                    ledger.add(file, sequence, sequence - sequence % 5);
                    unsettled.push((file, sequence));
                }
                let oldest = unsettled.iter().map(|(_, sequence)| *sequence).min();
                prop_assert_eq!(ledger.tail().is_none(), oldest.is_none());
                prop_assert!(ledger.tail() <= oldest);
                for (file, sequence) in &unsettled {
                    prop_assert!(ledger.is_live(*file));
                    prop_assert!(ledger.newest(*file) >= Some(*sequence));
                }
            }
        }
    }
}
