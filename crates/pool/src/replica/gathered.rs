//! The writes of a replica that are in memory and not yet in its file (delayed allocation).
//!
//! Invariants: an extent is flushed under the lock of its whole range, so one flush of it runs at a time, and under
//! `ordering`, so none lands behind a truncation. A change of a range of the file past the gathered writes first flushes
//! those of the range, under the same lock; those of a range that is freed are forgotten. A reader of the file puts them over its bytes, or flushes first.
//!
//! A flush counts as a change of the file once its bytes are in the page cache ([`Replica::note_change`]); until then
//! `is_empty` is false, which keeps the replica from being given up and COMMIT from having nothing to do.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use api::{PoolError, ReadData, ReplicaFacts, Stretch};
use bytes::Bytes;
use io_engine::gather::{Budget, Bypass, Failure, Flush, FlushId, Gather, Mark, Runs, Together, Verdict};
use io_engine::range::COPY_BYTES_MAX;
use io_engine::range_lock::RangeGuard;
use io_engine::{READ_BYTES_MAX, pool_error, read_all};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use types::{ByteRange, FileId, Timestamp};

use super::Replica;
use crate::parts::PoolParts;
use crate::store::look_at;

/// Gathered bytes of one step of a copy.
const COPIED_BYTES_MAX: u64 = 1 << 20;

/// Of a pool that gathers, made by the first unstable write.
#[derive(Default)]
pub struct Gathered(OnceLock<Box<Mutex<State>>>);

struct State {
    /// After `ordering` and the locks of ranges; nothing is waited for under it.
    gather: Gather,
    /// The time of the last write that was gathered.
    modified: Timestamp,
}

impl Gathered {
    fn state(&self) -> Option<&Mutex<State>> {
        self.0.get().map(|state| &**state)
    }

    fn made(&self, file: FileId, budget: &Arc<Budget>) -> &Mutex<State> {
        self.0.get_or_init(|| {
            let gather = Gather::new(file, Arc::clone(budget));
            Box::new(Mutex::new(State { gather, modified: Timestamp::EPOCH }))
        })
    }

    fn is_empty(&self) -> bool {
        self.state().is_none_or(|state| state.lock().gather.is_empty())
    }

    /// Whether there are gathered bytes in the range.
    fn overlap(&self, range: ByteRange) -> bool {
        self.state().is_some_and(|state| state.lock().gather.first(range).is_some())
    }

    /// The length that readers see, if that of the file is `file_bytes`.
    pub fn length(&self, file_bytes: u64) -> u64 {
        self.state().map_or(file_bytes, |state| state.lock().gather.length(file_bytes))
    }
}

/// The beginning of a stretch that is copied.
pub enum CopyPart {
    Gathered(Vec<u8>),
    /// None of these bytes is in memory.
    InFile {
        length: u64,
    },
}

/// Extents that are handed out to be written. Those that were not told when it is dropped, as after a panic, come back to
/// memory.
struct Untold<'a> {
    state: &'a Mutex<State>,
    shared: &'a PoolParts,
    flushes: Vec<FlushId>,
}

impl Untold<'_> {
    fn tell(&mut self, id: FlushId, outcome: Result<(), Errno>) {
        self.flushes.retain(|untold| *untold != id);
        self.state.lock().gather.written(id, outcome);
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.flushes) {
            self.shared.gathering.note_failed();
            self.state.lock().gather.written(id, Err(Errno::CANCELED));
        }
    }
}

/// `ordering` while extents are flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlushLock {
    Held,
    /// Taken for each: a truncation waits for one extent, and reads and writes that wait behind it, too.
    ByExtent,
}

impl Replica {
    /// Some writes are not in the file yet.
    pub fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// A flush has failed, and may pass.
    pub fn has_failed_flush(&self) -> bool {
        self.gathered
            .state()
            .is_some_and(|state| state.lock().gather.failure().is_some_and(|it| it.is_passing))
    }

    /// The end of the gathered writes; 0: there are none.
    pub fn gathered_end(&self) -> u64 {
        self.gathered.length(0)
    }

    /// A read of the range needs the gathered writes: for their bytes, or to tell where the file ends.
    pub fn needs_gathered(&self, offset: u64, length: u64) -> bool {
        if self.gathered.is_empty() {
            return false;
        }
        if ByteRange::new(offset, length).is_some_and(|range| self.gathered.overlap(range)) {
            return true;
        }
        // A flush may bring the bytes to the file now, and does not make it shorter.
        let size = self.file.open().and_then(|file| look_at(file).ok()).map_or(0, |extent| extent.size);
        offset.saturating_add(length) >= size
    }

    /// Whether the bytes of an unstable write are in memory now, or else go to the file. Under `ordering`.
    pub(super) fn gather(&self, shared: &PoolParts, offset: u64, data: &[u8]) -> bool {
        let Some(budget) = shared.gathering.budget() else { return false };
        if self.file.is_removed() {
            return false;
        }
        let state = self.gathered.made(self.id(), budget);
        let (verdict, ready) = {
            let mut state = state.lock();
            let verdict = state.gather.write(offset, data, Instant::now());
            if matches!(verdict, Verdict::Gathered { .. }) {
                state.modified = file_system_time();
            }
            let ready = match verdict {
                Verdict::Gathered { completes: true } | Verdict::Bypassed(Bypass::Fragmented) => {
                    state.gather.extents_ready()
                }
                _ => Vec::new(),
            };
            (verdict, ready)
        };
        // The bytes are in memory whatever comes of it; COMMIT returns a failure.
        let _ = self.flush_extents(shared, &ready, None, FlushLock::Held);
        match verdict {
            Verdict::Gathered { .. } => true,
            Verdict::Bypassed(reason) => {
                if matches!(reason, Bypass::NoMemory | Bypass::NoFragments) {
                    shared.gathering.note_full();
                }
                false
            }
        }
    }

    /// Brings every write so far to the file. Not to be called with `ordering` held.
    pub fn flush(&self, shared: &PoolParts) -> Result<(), PoolError> {
        self.gathered.state().map_or(Ok(()), |state| self.flush_all(shared, state, FlushLock::ByExtent))
    }

    /// The same, under `ordering`.
    pub(super) fn flush_ordered(&self, shared: &PoolParts) -> Result<(), PoolError> {
        self.gathered.state().map_or(Ok(()), |state| self.flush_all(shared, state, FlushLock::Held))
    }

    fn flush_all(&self, shared: &PoolParts, state: &Mutex<State>, lock: FlushLock) -> Result<(), PoolError> {
        let (extents, mark) = {
            let gather = &state.lock().gather;
            let mark = gather.mark();
            (gather.extents(ByteRange::ALL, mark), mark)
        };
        self.flush_extents(shared, &extents, Some(mark), lock)?;
        // Of an extent that another thread has tried meanwhile.
        match state.lock().gather.failure() {
            None => Ok(()),
            Some(failure) => Err(pool_error(shared.id(), "write data", failure.errno)),
        }
    }

    /// Flushes the extents that were opened until then.
    pub fn flush_opened_until(&self, shared: &PoolParts, opened: Instant) -> Result<(), PoolError> {
        let Some(state) = self.gathered.state() else { return Ok(()) };
        let extents = state.lock().gather.extents_opened_until(opened);
        self.flush_extents(shared, &extents, None, FlushLock::ByExtent)
    }

    /// All of them, also after a failure.
    fn flush_extents(
        &self,
        shared: &PoolParts,
        extents: &[ByteRange],
        mark: Option<Mark>,
        lock: FlushLock,
    ) -> Result<(), PoolError> {
        let mut outcome = Ok(());
        let mut together = Together::default();
        for extent in extents {
            let _ordering = (lock == FlushLock::ByExtent).then(|| self.ordering.read());
            let locked = self.lock(shared, extent.offset(), extent.length());
            let flushed = locked.and_then(|_range| self.flush_locked(shared, *extent, mark, &mut together));
            outcome = outcome.and(flushed);
        }
        if let Some(state) = self.gathered.state() {
            state.lock().gather.note_together(together);
        }
        outcome
    }

    /// `range`: whole extents, locked by the caller.
    fn flush_locked(
        &self,
        shared: &PoolParts,
        range: ByteRange,
        mark: Option<Mark>,
        together: &mut Together,
    ) -> Result<(), PoolError> {
        let Some(state) = self.gathered.state() else { return Ok(()) };
        // There is a file, or nothing could have been gathered.
        let file = self.file.create(shared)?;
        let faults = &self.file.record().faults;
        let is_lost = faults.is_broken() || self.file.is_known_as_orphaned();
        let flushes = {
            let gather = &mut state.lock().gather;
            let mark = mark.unwrap_or_else(|| gather.mark());
            let take = gather.take(range, mark, together);
            assert!(take.behind.is_empty(), "a flush holds the lock of its extent");
            take.flushes
        };
        let mut untold = Untold { state, shared, flushes: flushes.iter().map(|flush| flush.id).collect() };
        let mut outcome = Ok(());
        for Flush { id, pieces } in flushes {
            let written = match is_lost {
                // They go the way of the replica, whose every COMMIT fails.
                true => Ok(()),
                false => pieces.iter().try_for_each(|piece| {
                    shared.store.faults.of_flush()?;
                    let size = look_at(file)?.size;
                    let path = shared.engine.path();
                    path.write_locked(file, &self.io, size, piece.offset, &piece.data, false)?;
                    self.file.record().claim_length(piece.offset + piece.data.len() as u64);
                    Ok(())
                }),
            };
            drop(pieces);
            self.note_change(shared);
            untold.tell(id, written);
            outcome = outcome.and(written);
        }
        match outcome {
            Ok(()) if is_lost => self.file.check_unbroken(shared),
            Ok(()) => Ok(()),
            Err(errno) if Failure::is_passing(errno) => {
                shared.gathering.note_failed();
                Err(shared.write_failure("write data", errno))
            }
            // Some of the bytes may be lost, as after a failed sync.
            Err(errno) => Err(self.unsynced.fail(shared, &self.file, file, errno)),
        }
    }

    /// Locks a range against all other writers, for a change of the file: what was gathered of it is in the file. Under
    /// `ordering`.
    pub(super) fn lock_flushed(
        &self,
        shared: &PoolParts,
        offset: u64,
        length: u64,
    ) -> Result<RangeGuard<'_>, PoolError> {
        let locked = self.lock(shared, offset, length)?;
        let (Some(state), Some(range)) = (self.gathered.state(), ByteRange::new(offset, length)) else {
            return Ok(locked);
        };
        if !self.gathered.overlap(range) {
            return Ok(locked);
        }
        drop(locked);
        let whole = state.lock().gather.whole_extents(range);
        let locked = self.lock(shared, whole.offset(), whole.length())?;
        let mut together = Together::default();
        let flushed = self.flush_locked(shared, whole, None, &mut together);
        state.lock().gather.note_together(together);
        flushed.map(|()| locked)
    }

    /// Forgets what was gathered from `size` on, which the file was cut to. With `ordering` held alone.
    pub(super) fn cut_gathered(&self, size: u64) {
        if let Some(state) = self.gathered.state() {
            let cut = state.lock().gather.cut(size);
            assert!(cut.is_ok(), "flushes hold `ordering`, so none runs");
        }
    }

    /// Forgets what was gathered of a range, whose bytes in the file are zeros now. With the lock of the range. `size`: of the
    /// file, at least.
    pub(super) fn discard_gathered(&self, range: ByteRange, size: u64) {
        if let Some(state) = self.gathered.state() {
            let mut state = state.lock();
            // Behind the end of the file, nothing there has changed.
            state.modified = file_system_time();
            let discarded = state.gather.discard(range, size);
            assert!(discarded.is_ok(), "a flush holds the lock of its extent");
        }
    }

    /// To be taken before a look at the file.
    pub(super) fn gathered_runs(&self) -> Runs {
        self.gathered.state().map_or_else(Runs::default, |state| state.lock().gather.runs(ByteRange::ALL))
    }

    /// So much of a stretch that is copied here that what has to be flushed before is no more than is copied at once.
    pub(super) fn limit_to_flush(&self, stretch: Stretch) -> Stretch {
        let is_gathered =
            ByteRange::new(stretch.to, stretch.length).is_some_and(|range| self.gathered.overlap(range));
        let length_max = if is_gathered { COPY_BYTES_MAX } else { u64::MAX };
        Stretch { length: stretch.length.min(length_max), ..stretch }
    }

    /// The beginning of a stretch of this replica. To be taken before the file is copied: a flush in between takes bytes from
    /// here to there.
    pub(super) fn part_to_copy(&self, from: u64, length: u64) -> CopyPart {
        let (Some(state), Some(wanted)) = (self.gathered.state(), ByteRange::new(from, length)) else {
            return CopyPart::InFile { length };
        };
        let gather = &state.lock().gather;
        let Some(run) = gather.first(wanted) else { return CopyPart::InFile { length } };
        if run.offset() > from {
            return CopyPart::InFile { length: run.offset() - from };
        }
        // At most the constant, so it fits.
        let mut data = vec![0; run.length().min(COPIED_BYTES_MAX) as usize];
        let Some(run) = ByteRange::new(from, data.len() as u64) else { return CopyPart::InFile { length } };
        gather.overlay(run).apply(from, &mut data);
        CopyPart::Gathered(data)
    }

    /// A read of the file with the gathered writes over it.
    pub fn read_gathered(&self, shared: &PoolParts, offset: u64, length: u32) -> Result<ReadData, PoolError> {
        let failed = |errno| shared.failure("read data", errno);
        let _ordering = self.ordering.read();
        let record = self.file.record();
        let known = record.known_length();
        let Some(file) = self.file.open() else {
            return Ok(ReadData { data: Bytes::new(), end_of_file: true });
        };
        // Before the file is read: a flush in between takes the bytes from here to there.
        let wanted = ByteRange::new(offset, u64::from(length.min(READ_BYTES_MAX)));
        let gathered = self.gathered.state().map(|state| {
            let gather = &state.lock().gather;
            (wanted.map(|wanted| gather.overlay(wanted)).unwrap_or_default(), gather.length(0))
        });
        let (overlay, gathered_end) = gathered.unwrap_or_default();
        let file_size = look_at(file).map_err(failed)?.size;
        // Bytes that are missing below the gathered ones are no hole.
        record.check_end(shared, known, file_size)?;
        let size = file_size.max(gathered_end);
        let bytes = size.saturating_sub(offset).min(wanted.map_or(0, ByteRange::length));
        // At most READ_BYTES_MAX, so it fits.
        let mut data = vec![0; bytes as usize];
        read_all(file, &mut data, offset).map_err(failed)?;
        overlay.apply(offset, &mut data);
        let end = offset.saturating_add(if bytes == 0 { u64::from(length) } else { bytes });
        shared.counters.read_bytes.add(bytes);
        Ok(ReadData { data: Bytes::from(data), end_of_file: end >= size })
    }

    /// The facts of the replica with its gathered writes. Waits for a truncation that runs.
    pub fn facts(&self, shared: &PoolParts) -> Result<Option<ReplicaFacts>, PoolError> {
        if !self.has_gathered() {
            return self.file.facts(shared);
        }
        let _ordering = self.ordering.read();
        self.facts_ordered(shared)
    }

    /// As [`Replica::facts`] without a wait. `None`: one would be needed.
    pub fn facts_at_once(&self, shared: &PoolParts) -> Option<Result<Option<ReplicaFacts>, PoolError>> {
        if !self.has_gathered() {
            return Some(self.file.facts(shared));
        }
        let _ordering = self.ordering.try_read()?;
        Some(self.facts_ordered(shared))
    }

    /// Under `ordering`: a truncation cuts the file and then the memory, and facts of the moment between them would have the
    /// old length and the new time.
    fn facts_ordered(&self, shared: &PoolParts) -> Result<Option<ReplicaFacts>, PoolError> {
        // Before the file is looked at, as in a read.
        let gathered = self.gathered.state().and_then(|state| {
            let state = state.lock();
            // A flush gives the file a later time.
            (!state.gather.is_empty()).then(|| (state.gather.length(0), state.modified))
        });
        let facts = self.file.facts(shared)?;
        let Some((length, modified)) = gathered else { return Ok(facts) };
        Ok(facts.map(|facts| ReplicaFacts {
            size: facts.size.max(length),
            modified: facts.modified.max(Some(modified)),
            ..facts
        }))
    }
}

/// By the clock that file systems take their times from.
fn file_system_time() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let nanoseconds = u32::try_from(now.tv_nsec).ok();
    nanoseconds.and_then(|nanoseconds| Timestamp::new(now.tv_sec, nanoseconds)).unwrap_or(Timestamp::EPOCH)
}
