//! Reads and copies of a replica are compared with its block sums.
//!
//! A read of a block or more has the sums loaded. From then on each whole block of a read is compared. A block of which a
//! read has a part is not: the rest of it would have to be read too. If a block differs, the verdict is that of a scrub: the
//! replica is damaged if its stamp is that of the sums and the disk has other bytes while nobody can write.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::{PoolError, RangeKind, ReadData, Stretch};
use bytes::Bytes;
use io_engine::range;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, fadvise, fstat};
use rustix::io::Errno;

use super::Replica;
use crate::parts::PoolParts;
use crate::scrub::{BLOCK_BYTES, BlockSums, Differing, DiskReader, Stamp};
use crate::store::read_up_to;

/// Sums that had to leave memory are not loaded again for this time: files that are read in turn would load them each time.
const EVICTED: Duration = Duration::from_secs(30);
/// Read at once before a copy.
const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Default)]
pub struct Compared {
    state: RwLock<State>,
    /// Counts the sums that a scrub has made. Changed with `state` locked.
    made: AtomicU64,
    /// Held while a verdict is found. Before `ordering`.
    verdict: Mutex<()>,
    /// The log says already that good bytes cannot be had.
    told: AtomicBool,
}

#[derive(Default)]
enum State {
    /// Nobody has looked. A replica that was made by this object has none.
    #[default]
    Unknown,
    /// To be looked for: a scrub has made them.
    Wanted,
    /// They had to leave memory then.
    Evicted(Instant),
    /// There are none of the bytes as they are now.
    Absent,
    Loaded(Arc<BlockSums>),
}

enum Verdict {
    /// The replica was written since its sums were made.
    Written,
    Damaged {
        blocks: Vec<u64>,
        /// By this verdict.
        is_marked: bool,
    },
    /// The disk has the right bytes now, or nobody can tell what it has.
    Transient,
}

impl Replica {
    /// A read of so many bytes is to be compared, and the sums are not in memory.
    pub fn needs_sums(&self, shared: &PoolParts, length: u64) -> bool {
        if length < BLOCK_BYTES || !shared.scrubbing.has_sums() {
            return false;
        }
        self.wants_sums(Instant::now)
    }

    fn wants_sums(&self, now: impl FnOnce() -> Instant) -> bool {
        match &*self.compared.state.read() {
            State::Unknown => !self.file.is_fresh(),
            State::Wanted => true,
            State::Evicted(then) => now().saturating_duration_since(*then) >= EVICTED,
            State::Absent | State::Loaded(_) => false,
        }
    }

    /// Of a loaded replica. Blocks.
    pub fn load_sums(self: &Arc<Replica>, shared: &PoolParts) {
        let made = self.compared.made.load(Ordering::Acquire);
        let sums = self.find_sums(shared);
        if self.keep_found(sums.clone(), made)
            && let Some(sums) = sums
        {
            shared.scrubbing.in_memory().note(self, &sums);
        }
    }

    /// In the pool's directory. `None`: there are none of the bytes as they are now.
    fn find_sums(&self, shared: &PoolParts) -> Option<Arc<BlockSums>> {
        let stamp = self.stamp(self.file.open()?).ok()?;
        let generation = shared.scrubbing.generation();
        BlockSums::load(shared.store.root(), &stamp, generation).map(Arc::new)
    }

    /// `made`: as it was before they were looked for. Sums that a scrub has made since are still to be looked for.
    fn keep_found(&self, sums: Option<Arc<BlockSums>>, made: u64) -> bool {
        let mut state = self.compared.state.write();
        if self.compared.made.load(Ordering::Acquire) != made {
            return false;
        }
        *state = sums.map_or(State::Absent, State::Loaded);
        true
    }

    #[cfg(test)]
    pub fn keep_sums(&self, sums: Arc<BlockSums>) {
        *self.compared.state.write() = State::Loaded(sums);
    }

    /// A scrub has made others.
    pub fn forget_sums(&self) {
        let mut state = self.compared.state.write();
        self.compared.made.fetch_add(1, Ordering::AcqRel);
        *state = State::Wanted;
    }

    /// Others need the memory.
    pub fn evict_sums(&self, now: Instant) {
        let mut state = self.compared.state.write();
        if matches!(&*state, State::Loaded(_)) {
            *state = State::Evicted(now);
        }
    }

    #[cfg(test)]
    pub fn has_sums(&self) -> bool {
        self.sums().is_some()
    }

    pub fn sums(&self) -> Option<Arc<BlockSums>> {
        match &*self.compared.state.read() {
            State::Loaded(sums) => Some(Arc::clone(sums)),
            _ => None,
        }
    }

    /// Whether whole blocks in bytes that were read are as their sums say. Never waits.
    pub fn agrees(&self, shared: &PoolParts, data: &[u8], offset: u64) -> bool {
        // Short reads pay nothing.
        if !begins_a_block(data.len(), offset) || !shared.scrubbing.has_sums() {
            return true;
        }
        let compared = match &*self.compared.state.read() {
            State::Loaded(sums) => sums.compare(data, offset),
            _ => return true,
        };
        if let Ok(bytes @ 1..) = compared {
            shared.scrubbing.note_verified(bytes);
        }
        compared.is_ok()
    }

    /// In place of bytes that do not agree: the same, if the replica was written; bytes that agree; or an error. Blocks.
    /// `PoolError::Busy`: another reader does it. Threads for data do not queue for a verdict.
    pub fn reread(&self, shared: &PoolParts, read: ReadData, offset: u64) -> Result<ReadData, PoolError> {
        // They may have left memory since the bytes were compared.
        let sums = self.sums().or_else(|| self.find_sums(shared));
        let (Some(sums), Some(file)) = (sums, self.file.open()) else { return Ok(read) };
        let differing = sums.differing(&read.data, offset);
        if differing.is_empty() {
            return Ok(read);
        }
        let looked = |errno| shared.failure("look at a replica", errno);
        if !sums.stamp.is_of(&self.stamp(file).map_err(looked)?) {
            self.note_written(&sums);
            return Ok(read);
        }
        if sums.are_some_bad(&differing) {
            return Err(differs(shared));
        }
        let Some(_verdict) = self.compared.verdict.try_lock() else {
            return Err(PoolError::Busy(shared.id()));
        };
        // Another reader may have found it.
        self.file.record().faults.check_undamaged(shared)?;
        let verdict = self.examine(shared, file, &sums, &differing)?;
        if let Verdict::Damaged { blocks, is_marked: true } = &verdict {
            shared.scrubbing.note_damaged_by_read(shared, self.id(), blocks);
        }
        // A scrub may have found it.
        self.file.record().faults.check_undamaged(shared)?;
        match verdict {
            Verdict::Written => {
                self.note_written(&sums);
                Ok(read)
            }
            Verdict::Damaged { blocks, .. } => {
                sums.note_bad(&blocks);
                Err(differs(shared))
            }
            Verdict::Transient => self.read_past_memory(shared, file, &sums, (read, offset)),
        }
    }

    fn note_written(&self, sums: &Arc<BlockSums>) {
        let mut state = self.compared.state.write();
        if matches!(&*state, State::Loaded(loaded) if Arc::ptr_eq(loaded, sums)) {
            *state = State::Absent;
        }
    }

    /// While nobody can write, by what the disk has.
    fn examine(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        sums: &BlockSums,
        differing: &[Differing],
    ) -> Result<Verdict, PoolError> {
        let disk = DiskReader::of(shared.store.root(), file);
        let disk = disk.map_err(|errno| shared.failure("open a replica", errno))?;
        let mut verdict = Verdict::Transient;
        let is_damaged = |file: BorrowedFd<'_>| {
            if self.file.record().faults.check_undamaged(shared).is_err() {
                return false;
            }
            if !self.stamp(file).is_ok_and(|stamp| sums.stamp.is_of(&stamp)) {
                verdict = Verdict::Written;
                return false;
            }
            let is_bad = |it: &&Differing| {
                let length = BLOCK_BYTES.min(sums.stamp.length - it.block * BLOCK_BYTES);
                let read = shared.store.faults.of_blocks(it.block, 1).and_then(|()| disk.read(it.block));
                // A block that cannot be read, or through memory only, proves nothing.
                let read = read.ok().flatten().filter(|_| !shared.store.faults.hides_disk());
                read.is_some_and(|bytes| bytes.len() as u64 == length && !it.agrees(&bytes))
            };
            let blocks: Vec<u64> = differing.iter().filter(is_bad).map(|it| it.block).collect();
            if blocks.is_empty() {
                return false;
            }
            let is_marked = shared.scrubbing.take_mark(shared, self.id());
            verdict = Verdict::Damaged { blocks, is_marked };
            is_marked
        };
        self.condemn(shared, is_damaged)?;
        Ok(verdict)
    }

    /// The bytes that were read did not come from the disk like this, or it gives others now.
    pub fn read_past_memory(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        sums: &Arc<BlockSums>,
        (read, offset): (ReadData, u64),
    ) -> Result<ReadData, PoolError> {
        let length = std::num::NonZeroU64::new(read.data.len() as u64);
        // Advice only.
        let _ = fadvise(file, offset, length, Advice::DontNeed);
        let failed = |errno| shared.failure("read data", errno);
        let again = read_up_to(file, offset, read.data.len()).map_err(failed)?;
        let is_good = again.len() == read.data.len() && sums.compare(&again, offset).is_ok();
        if !is_good && !sums.stamp.is_of(&self.stamp(file).map_err(failed)?) {
            // Since the verdict.
            self.note_written(sums);
            let end_of_file = read.end_of_file || again.len() < read.data.len();
            return Ok(ReadData { data: Bytes::from(again), end_of_file });
        }
        let (pool, file) = (shared.id(), self.id());
        if !is_good && self.compared.told.swap(true, Ordering::Relaxed) {
            return Err(differs(shared));
        }
        if !is_good {
            tracing::error!(%pool, %file, offset, "bytes that were read differ from their block sums, and those of the disk do not, or cannot be had");
            return Err(differs(shared));
        }
        tracing::info!(%pool, %file, offset, "bytes that were read differed from their block sums, and do not any more");
        Ok(ReadData { data: Bytes::from(again), ..read })
    }

    /// Before bytes are copied past the replica: the whole blocks that one call of [`Replica::copy_from`] copies agree with
    /// their sums, if there are any. Blocks.
    pub fn compare_to_copy(
        self: &Arc<Replica>,
        shared: &PoolParts,
        stretch: Stretch,
    ) -> Result<(), PoolError> {
        let length = stretch.length.min(range::COPY_BYTES_MAX);
        if self.needs_sums(shared, length) {
            self.load_sums(shared);
        }
        let (Some(_), Some(file)) = (self.sums(), self.file.open()) else { return Ok(()) };
        let end = stretch.from.saturating_add(length);
        let mut from = stretch.from;
        // A copy takes one run of data, or one hole; with writes in memory between them, several.
        let is_of_several = self.has_gathered();
        while from < end {
            let seek = |offset, kind| range::seek(file, offset, kind).ok().flatten();
            let Some(data) = seek(from, RangeKind::Data) else { break };
            if data >= end || (data > stretch.from && !is_of_several) {
                break;
            }
            let hole = seek(data, RangeKind::Hole).unwrap_or(end).clamp(data + 1, end);
            self.compare_run(shared, file, (data, hole), end)?;
            from = hole;
        }
        Ok(())
    }

    /// The blocks that begin within the run, and end before `end`. So runs in turn have each block read once.
    fn compare_run(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        (data, hole): (u64, u64),
        end: u64,
    ) -> Result<(), PoolError> {
        let mut offset = data.next_multiple_of(BLOCK_BYTES);
        while offset < hole {
            let chunk_end = (offset + CHUNK_BYTES).min(hole.next_multiple_of(BLOCK_BYTES)).min(end);
            let bytes = read_up_to(file, offset, (chunk_end - offset) as usize)
                .map_err(|errno| shared.failure("read data", errno))?;
            if bytes.is_empty() {
                break;
            }
            if !self.agrees(shared, &bytes, offset) {
                self.reread(shared, ReadData { data: Bytes::from(bytes), end_of_file: false }, offset)?;
            }
            offset = chunk_end;
        }
        Ok(())
    }

    fn stamp(&self, file: BorrowedFd<'_>) -> Result<Stamp, Errno> {
        Ok(Stamp::of(self.id(), self.file.record().birth(), &fstat(file)?))
    }
}

/// Only then can a whole block be in it, the short one at the end included.
fn begins_a_block(length: usize, offset: u64) -> bool {
    offset.checked_next_multiple_of(BLOCK_BYTES).is_some_and(|block| block - offset < length as u64)
}

fn differs(shared: &PoolParts) -> PoolError {
    let reason = "a block that was read differs from its checksum".to_owned();
    PoolError::Io { pool: shared.id(), operation: "read data", reason }
}

#[cfg(test)]
mod tests {
    use types::FileId;

    use super::*;

    /// Files read in turn whose sums are more than the bound loaded megabytes with each read.
    #[test]
    fn sums_that_had_to_leave_memory_are_not_loaded_again_at_once() {
        let replica = Replica::new(FileId(1));
        let now = Instant::now();
        let wants_sums = |now| replica.wants_sums(|| now);
        assert!(wants_sums(now));
        replica.evict_sums(now);
        assert!(wants_sums(now), "it had none");
        replica.keep_sums(Arc::new(BlockSums::of_hole()));
        assert!(!wants_sums(now + EVICTED));
        replica.evict_sums(now);
        assert!(!wants_sums(now) && wants_sums(now + EVICTED));
        replica.forget_sums();
        assert!(wants_sums(now), "a scrub has made others");
    }

    /// The replica was compared with the old ones, or none, until it was closed.
    #[test]
    fn sums_that_a_scrub_makes_while_others_are_loaded_are_loaded_too() {
        let replica = Replica::new(FileId(1));
        for found in [None, Some(Arc::new(BlockSums::of_hole()))] {
            let made = replica.compared.made.load(Ordering::Acquire);
            replica.forget_sums();
            assert!(!replica.keep_found(found.clone(), made));
            assert!(replica.wants_sums(Instant::now));
            assert!(replica.keep_found(found, made + 1));
            assert!(!replica.wants_sums(Instant::now));
        }
    }

    #[test]
    fn a_range_without_the_beginning_of_a_block_has_no_whole_block() {
        let block = BLOCK_BYTES as usize;
        for (length, offset) in [(1, 0), (block, 5), (2, BLOCK_BYTES - 1), (4096, 3 * BLOCK_BYTES)] {
            assert!(begins_a_block(length, offset), "{length} bytes at {offset}");
        }
        for (length, offset) in [(0, 0), (4096, 4096), (1, BLOCK_BYTES - 1), (block - 1, 1), (9, u64::MAX)] {
            assert!(!begins_a_block(length, offset), "{length} bytes at {offset}");
        }
    }
}
