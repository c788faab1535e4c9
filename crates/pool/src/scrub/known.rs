//! Block sums in memory, for reads and copies that are compared with them.
//!
//! Invariants: they are of the current generation, and were those of the replica when they were loaded. They stay in memory
//! when the replica is written; a difference is a doubt and no verdict. All of a pool together have a bound.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::sums::{BLOCK_BYTES, Segment, Stamp, Sums, sum};
use crate::replica::Replica;

/// Replicas that are longer are left to scrubs: their sums would take more than 4 MiB.
const LENGTH_MAX: u64 = 64 << 30;
/// Of all replicas: sums of 1 TiB.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Bad blocks that are remembered with the sums of a replica.
const BAD_MAX: usize = 1000;

#[derive(Debug)]
pub struct BlockSums {
    pub stamp: Stamp,
    /// In ascending order. Blocks in none of them are zeros.
    segments: Vec<Segment>,
    /// Some of the blocks that a verdict has found bad, of a replica that could not be marked.
    bad: Mutex<BTreeSet<u64>>,
}

/// A whole block of a read that is not as its sum says; `sum` is `None` for zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differing {
    pub block: u64,
    pub sum: Option<u32>,
}

impl Differing {
    pub fn agrees(&self, bytes: &[u8]) -> bool {
        match self.sum {
            Some(expected) => sum(bytes) == expected,
            None => bytes.iter().all(|byte| *byte == 0),
        }
    }
}

impl BlockSums {
    /// `None`: there are none of this state of the replica, they prove nothing, or they are too many.
    pub fn load(root: BorrowedFd<'_>, stamp: &Stamp, generation: u64) -> Option<BlockSums> {
        if stamp.length > LENGTH_MAX {
            return None;
        }
        let mut sums = Sums::open(root, stamp.file)?;
        if sums.generation != generation || !sums.stamp.is_of(stamp) {
            return None;
        }
        let mut segments = Vec::new();
        while let Some(segment) = sums.next_segment().ok()? {
            segments.push(segment);
        }
        Some(BlockSums { stamp: sums.stamp, segments, bad: Mutex::default() })
    }

    #[cfg(test)]
    pub fn of_hole() -> BlockSums {
        let (file, birth) = (types::FileId(1), api::Birth(1));
        let stamp = Stamp { file, birth, length: 1, modified_s: 1, modified_ns: 0 };
        BlockSums { stamp, segments: Vec::new(), bad: Mutex::default() }
    }

    pub fn note_bad(&self, blocks: &[u64]) {
        let mut bad = self.bad.lock();
        let room = BAD_MAX.saturating_sub(bad.len());
        bad.extend(blocks.iter().take(room));
    }

    pub fn are_some_bad(&self, differing: &[Differing]) -> bool {
        let bad = self.bad.lock();
        !bad.is_empty() && differing.iter().any(|it| bad.contains(&it.block))
    }

    /// The whole blocks of the replica within the bytes from `offset` on, as a read gave them.
    fn whole_blocks<'a>(
        &'a self,
        data: &'a [u8],
        offset: u64,
    ) -> impl Iterator<Item = (Differing, &'a [u8])> + 'a {
        let end = self.stamp.length.min(offset.saturating_add(data.len() as u64));
        let blocks = offset.div_ceil(BLOCK_BYTES)..end.div_ceil(BLOCK_BYTES);
        blocks.filter_map(move |block| {
            let from = block * BLOCK_BYTES;
            let to = (from + BLOCK_BYTES).min(self.stamp.length);
            // The last one may be cut by the read.
            let bytes = (to <= end).then(|| &data[(from - offset) as usize..(to - offset) as usize])?;
            Some((Differing { block, sum: self.sum_of(block) }, bytes))
        })
    }

    /// The number of bytes that were compared. `Err`: some are not as their sums say.
    pub fn compare(&self, data: &[u8], offset: u64) -> Result<u64, ()> {
        let mut compared = 0;
        for (expected, bytes) in self.whole_blocks(data, offset) {
            if !expected.agrees(bytes) {
                return Err(());
            }
            compared += bytes.len() as u64;
        }
        Ok(compared)
    }

    pub fn differing(&self, data: &[u8], offset: u64) -> Vec<Differing> {
        let blocks = self.whole_blocks(data, offset);
        blocks.filter(|(expected, bytes)| !expected.agrees(bytes)).map(|(expected, _)| expected).collect()
    }

    fn sum_of(&self, block: u64) -> Option<u32> {
        let behind = self.segments.partition_point(|segment| segment.first <= block);
        let segment = &self.segments[behind.checked_sub(1)?];
        segment.sums.get((block - segment.first) as usize).copied()
    }

    /// With the replica, whose memory may stay as long.
    fn memory_bytes(&self) -> usize {
        let segments = self.segments.len() * size_of::<Segment>();
        let sums: usize = self.segments.iter().map(|segment| segment.sums.capacity() * 4).sum();
        size_of::<Replica>() + size_of::<BlockSums>() + segments + sums
    }
}

/// The bound on the sums that replicas have in memory. The first that were loaded are the first to go.
#[derive(Default)]
pub struct SumsInMemory {
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    replicas: VecDeque<(Weak<Replica>, usize)>,
    bytes: usize,
}

impl SumsInMemory {
    pub fn note(&self, replica: &Arc<Replica>, sums: &BlockSums) {
        self.note_bytes(replica, sums.memory_bytes(), MEMORY_BYTES_MAX);
    }

    fn note_bytes(&self, replica: &Arc<Replica>, bytes: usize, bytes_max: usize) {
        let mut evicted = Vec::new();
        {
            let mut loaded = self.loaded.lock();
            loaded.replicas.push_back((Arc::downgrade(replica), bytes));
            loaded.bytes += bytes;
            while loaded.bytes > bytes_max && loaded.replicas.len() > 1 {
                let Some((replica, bytes)) = loaded.replicas.pop_front() else { break };
                loaded.bytes -= bytes;
                evicted.push(replica);
            }
        }
        for evicted in evicted.iter().filter_map(Weak::upgrade) {
            // It may have come in twice.
            if !Arc::ptr_eq(&evicted, replica) {
                evicted.evict_sums(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Birth;
    use types::FileId;

    use super::*;

    const BLOCK: usize = BLOCK_BYTES as usize;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at / 5 % 249) as u8).collect()
    }

    /// Of `bytes`, with block 1 in a hole.
    fn sums(bytes: &mut [u8]) -> BlockSums {
        bytes[BLOCK..2 * BLOCK].fill(0);
        let length = bytes.len() as u64;
        let stamp = Stamp { file: FileId(1), birth: Birth(1), length, modified_s: 1, modified_ns: 0 };
        let all: Vec<u32> = bytes.chunks(BLOCK).map(sum).collect();
        let segment =
            |first: usize, end: usize| Segment { first: first as u64, sums: all[first..end].into() };
        let segments = vec![segment(0, 1), segment(2, all.len())];
        BlockSums { stamp, segments, bad: Mutex::default() }
    }

    #[test]
    fn each_whole_block_of_a_read_is_compared_and_parts_of_blocks_are_not() {
        let mut whole = bytes(3 * BLOCK + 100);
        let sums = sums(&mut whole);
        let compared = |from: usize, to: usize| sums.compare(&whole[from..to], from as u64);
        assert_eq!(compared(0, whole.len()), Ok(whole.len() as u64));
        assert_eq!(compared(0, 3 * BLOCK), Ok(3 * BLOCK_BYTES));
        assert_eq!(compared(1, 2 * BLOCK), Ok(BLOCK_BYTES));
        assert_eq!(compared(1, BLOCK), Ok(0));
        assert_eq!(compared(3 * BLOCK, whole.len()), Ok(100));
        assert_eq!(compared(3 * BLOCK, whole.len() - 1), Ok(0));
        assert_eq!(compared(3 * BLOCK + 1, whole.len()), Ok(0));
        assert_eq!(sums.compare(&[], 7), Ok(0));
        assert_eq!(sums.compare(&[1], u64::MAX), Ok(0));
        for at in [0, BLOCK + 7, 3 * BLOCK - 1, 3 * BLOCK + 99] {
            whole[at] ^= 1;
            assert_eq!(sums.compare(&whole, 0), Err(()), "byte {at}");
            let differing: Vec<u64> = sums.differing(&whole, 0).iter().map(|it| it.block).collect();
            assert_eq!(differing, [(at / BLOCK) as u64]);
            whole[at] ^= 1;
        }
    }

    #[test]
    fn bad_blocks_are_remembered_within_a_bound() {
        let sums = sums(&mut bytes(2 * BLOCK));
        let differing = |block| [Differing { block, sum: None }];
        assert!(!sums.are_some_bad(&differing(3)));
        sums.note_bad(&[3]);
        sums.note_bad(&(5..10_000).collect::<Vec<u64>>());
        assert!(sums.are_some_bad(&differing(3)) && sums.are_some_bad(&differing(5)));
        assert!(!sums.are_some_bad(&differing(4)) && !sums.are_some_bad(&differing(9_000)));
        assert_eq!(sums.bad.lock().len(), BAD_MAX);
    }

    #[test]
    fn bytes_behind_the_end_that_the_sums_know_are_not_compared() {
        let mut whole = bytes(3 * BLOCK + 100);
        let sums = sums(&mut whole);
        whole.extend([1; 2 * BLOCK]);
        assert_eq!(sums.compare(&whole, 0), Ok(3 * BLOCK_BYTES + 100));
        assert_eq!(sums.compare(&whole[4 * BLOCK..], 4 * BLOCK_BYTES), Ok(0));
    }

    #[test]
    fn the_sums_in_memory_have_a_bound_and_the_first_loaded_go_first() {
        let memory = SumsInMemory::default();
        let replicas: Vec<_> = (0..4).map(|file| Arc::new(Replica::new(FileId(file)))).collect();
        let mut whole = bytes(2 * BLOCK);
        let sums = Arc::new(sums(&mut whole));
        for replica in &replicas {
            replica.keep_sums(Arc::clone(&sums));
            memory.note_bytes(replica, 30, 100);
        }
        let kept: Vec<bool> = replicas.iter().map(|replica| replica.has_sums()).collect();
        assert_eq!(kept, [false, true, true, true]);
        drop(replicas);
        let last = Arc::new(Replica::new(FileId(9)));
        last.keep_sums(sums);
        memory.note_bytes(&last, 1000, 100);
        assert!(last.has_sums());
        let loaded = memory.loaded.lock();
        assert_eq!((loaded.replicas.len(), loaded.bytes), (1, 1000));
    }
}
