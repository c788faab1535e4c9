//! The segments: those in use, oldest first, and the free ones. Records are placed in the newest.
//!
//! Invariants: a segment becomes free only when a tail behind its records is on disk. Records of a pool leave two
//! segments free, notes leave one, and that last one is for making all records void: a full journal can still be settled.

use std::collections::VecDeque;

use crate::segment::DATA_START;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Record,
    Note,
}

impl Need {
    fn free_min(self) -> usize {
        match self {
            Need::Record => 2,
            Need::Note => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse {
    pub number: u32,
    pub first_sequence: u64,
    pub salt: u64,
}

#[derive(Debug)]
pub(crate) struct Chain {
    segment_bytes: u64,
    /// Never empty.
    in_use: VecDeque<InUse>,
    free: VecDeque<u32>,
    /// Where the next record goes in the newest segment.
    offset: u64,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Here,
    /// In this segment, which is to be taken into use first.
    NextSegment(u32),
    None,
}

impl Chain {
    pub fn new(segment_bytes: u64, first: InUse, free: impl IntoIterator<Item = u32>) -> Chain {
        let (in_use, free) = (VecDeque::from([first]), free.into_iter().collect());
        Chain { segment_bytes, in_use, free, offset: DATA_START }
    }

    pub fn room(&self, record_bytes: usize, need: Need) -> Room {
        let fits = self.offset + record_bytes as u64 <= self.segment_bytes;
        let free_after = self.free.len() as isize - isize::from(!fits);
        if free_after < need.free_min() as isize {
            return Room::None;
        }
        if fits { Room::Here } else { Room::NextSegment(self.free[0]) }
    }

    /// Takes the free segment that `room` named, or any other, into use.
    pub fn begin(&mut self, segment: InUse) {
        self.free.retain(|number| *number != segment.number);
        self.in_use.push_back(segment);
        self.offset = DATA_START;
    }

    /// The present segment, and the offset of what is placed there.
    pub fn place(&mut self, record_bytes: usize) -> (InUse, u64) {
        let offset = self.offset;
        self.offset += record_bytes as u64;
        assert!(self.offset <= self.segment_bytes, "room was asked for");
        (*self.in_use.back().expect("a segment is always in use"), offset)
    }

    /// Records before `replay_from` are dead, and that is on disk.
    pub fn free_before(&mut self, replay_from: u64) {
        while self.in_use.get(1).is_some_and(|next| next.first_sequence <= replay_from) {
            let dead = self.in_use.pop_front().expect("there are two");
            self.free.push_back(dead.number);
        }
    }

    pub fn free(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().copied()
    }

    /// Bytes of records that hold room, and the room for records of a pool in all.
    pub fn usage_bytes(&self) -> (u64, u64) {
        let data_bytes = self.segment_bytes - DATA_START;
        let segments = (self.in_use.len() + self.free.len()) as u64;
        let full = self.in_use.len() as u64 - 1;
        (
            full * data_bytes + self.offset - DATA_START,
            segments.saturating_sub(Need::Record.free_min() as u64) * data_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: InUse = InUse { number: 1, first_sequence: 1, salt: 0 };

    /// Fills a segment.
    fn begin(chain: &mut Chain, first_sequence: u64) {
        let Room::NextSegment(number) = chain.room(8000, Need::Record) else { panic!("no room") };
        chain.begin(InUse { number, first_sequence, salt: 0 });
        chain.place(8000);
    }

    #[test]
    fn records_leave_two_segments_and_notes_leave_one() {
        let mut chain = Chain::new(DATA_START + 8000, FIRST, [2, 3, 4]);
        assert_eq!((chain.room(8000, Need::Record), chain.place(8000)), (Room::Here, (FIRST, DATA_START)));
        begin(&mut chain, 2);
        assert_eq!(chain.room(80, Need::Record), Room::None);
        let Room::NextSegment(number) = chain.room(80, Need::Note) else { panic!("no room for notes") };
        chain.begin(InUse { number, first_sequence: 3, salt: 0 });
        assert_eq!(chain.room(80, Need::Note), Room::Here);
        assert_eq!(chain.room(80, Need::Record), Room::None, "the segment of the notes is theirs");
        assert_eq!(chain.room(8001, Need::Note), Room::None);
    }

    #[test]
    fn segments_become_free_oldest_first_and_the_newest_stays() {
        let mut chain = Chain::new(DATA_START + 8000, FIRST, [2, 3, 4, 5, 6]);
        chain.place(8000);
        for first in [10, 20] {
            begin(&mut chain, first);
        }
        chain.free_before(9);
        assert_eq!(chain.free().collect::<Vec<_>>(), [4, 5, 6]);
        chain.free_before(19);
        assert_eq!(chain.free().collect::<Vec<_>>(), [4, 5, 6, 1]);
        chain.free_before(99);
        assert_eq!(chain.free().collect::<Vec<_>>(), [4, 5, 6, 1, 2]);
        assert_eq!(chain.usage_bytes(), (8000, 4 * 8000));
    }
}
