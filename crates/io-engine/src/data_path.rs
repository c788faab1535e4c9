//! Decides the mode of each request of a pool, runs it, and counts what ran.
//!
//! Facts are collected only for requests that some threshold lets past the page cache: a shorter one is buffered whatever
//! they say, and pays for nothing but the range lock. All calls may block; they run in the engine's threads.
//!
//! Invariant: every write of a file holds the range lock of its pages, whatever its mode. A buffered write beside a direct
//! one of the same page would make the page dirty while the kernel drops it, which the kernel reports as a lost write.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::ReadData;
use parking_lot::RwLock;
use rustix::io::Errno;
use types::ByteRange;

use crate::Ran;
use crate::aligned::AlignedBuffers;
use crate::capabilities::Capabilities;
use crate::counters::{DecisionCounts, DecisionSnapshot};
use crate::direct::{DirectFile, DirectIo};
use crate::file_io::{FileIo, Recorded};
use crate::mode::{
    Decision, DirectAlignment, FileFacts, Inputs, Kind, Mode, ModeCapabilities, Policy, PoolFacts, Reason,
    Request, Residency, Thresholds, decide,
};
use crate::range_lock::LockRefused;
use crate::read::{Unfinished, size_of};
use crate::residency::{self, residency};
use crate::uncached::{UncachedFailure, UncachedIo};
use crate::write::write_all;

/// Of free aligned buffers.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// An uncached writer of a file waits for its last but one stretch of this size.
const WINDOW_BYTES: u64 = 8 << 20;
/// A stretch of a file that a door sends by itself is judged by its beginning.
const JUDGED_BYTES_MAX: u64 = 1 << 20;
/// Of requests that no fact takes past the page cache.
const SMALL: Decision = Decision { mode: Mode::Buffered, reason: Reason::Small };

pub struct DataPath {
    policy: Policy,
    capabilities: Capabilities,
    /// Copied for each request that may bypass the page cache.
    rule: RwLock<Rule>,
    /// Shorter requests are buffered; `u64::MAX`: all are.
    bypass_bytes_min: AtomicU64,
    direct: Option<DirectIo>,
    uncached: UncachedIo,
    /// Files with a descriptor for direct I/O.
    direct_files: Arc<AtomicUsize>,
    direct_files_max: usize,
    counts: DecisionCounts,
}

#[derive(Clone, Copy)]
struct Rule {
    thresholds: Thresholds,
    pool: PoolFacts,
}

/// The error that stopped a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// Of this write.
    Write(Errno),
    /// Bytes of an earlier write did not reach the disk; no later sync tells so.
    WriteBack(Errno),
    /// Too many writers wait for the same range, or one for too long.
    Busy,
}

impl DataPath {
    pub fn new(policy: Policy, capabilities: Capabilities, direct_files_max: usize) -> DataPath {
        let alignment = capabilities.direct.map_or(1, |direct| direct.memory_bytes as usize);
        let buffers = AlignedBuffers::new(alignment, KEPT_BYTES_MAX);
        let thresholds = policy.thresholds(Thresholds::uncalibrated());
        let pool = PoolFacts { capabilities: modes_of(capabilities), ..PoolFacts::default() };
        DataPath {
            policy,
            capabilities,
            bypass_bytes_min: AtomicU64::new(least_bypass(&thresholds)),
            rule: RwLock::new(Rule { thresholds, pool }),
            direct: capabilities.direct.map(|alignment| DirectIo::new(alignment, Arc::clone(&buffers))),
            uncached: UncachedIo::new(buffers, WINDOW_BYTES, capabilities.uncached),
            direct_files: Arc::default(),
            direct_files_max,
            counts: DecisionCounts::default(),
        }
    }

    /// Everything goes through the page cache.
    pub fn buffered() -> DataPath {
        DataPath::new(Policy::Buffered, Capabilities::NONE, 0)
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub fn thresholds(&self) -> Thresholds {
        self.rule.read().thresholds
    }

    /// From a calibration of the pool's device.
    pub fn set_thresholds(&self, calibrated: Thresholds) {
        let thresholds = self.policy.thresholds(calibrated);
        self.rule.write().thresholds = thresholds;
        self.bypass_bytes_min.store(least_bypass(&thresholds), Ordering::Relaxed);
    }

    /// Takes the last samples of memory and device. The modes that are possible stay.
    pub fn set_pressure(
        &self,
        is_memory_tight: bool,
        dirty_headroom_bytes: Option<u64>,
        queue_latency: Option<Duration>,
    ) {
        let pool = &mut self.rule.write().pool;
        *pool = PoolFacts {
            capabilities: pool.capabilities,
            is_memory_tight,
            dirty_headroom_bytes,
            queue_latency,
        };
    }

    pub fn counts(&self) -> DecisionSnapshot {
        self.counts.snapshot()
    }

    /// A read that the page cache served whole.
    pub fn note_hot(&self, io: &FileIo, offset: u64, bytes: u64) {
        if self.may_bypass(io, bytes) {
            let thresholds = self.rule.read().thresholds.contention;
            io.observe(Kind::Read, offset, bytes, Instant::now(), thresholds);
        }
        self.counts.add(Kind::Read, Decision { mode: Mode::Buffered, reason: Reason::HotRead }, bytes);
    }

    /// Bytes that a door has sent from the page cache.
    pub fn note_sent(&self, bytes: u64) {
        self.counts.add(Kind::Read, Decision { mode: Mode::Buffered, reason: Reason::Sent }, bytes);
    }

    /// The rest of a read of which some pages are not in memory. Waits for the disk.
    pub(crate) fn read(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        rest: Unfinished,
    ) -> Result<ReadData, Errno> {
        let (offset, wanted, size) = (rest.offset(), rest.wanted(), rest.size());
        if !self.may_bypass(io, wanted as u64) {
            let read = rest.finish(file)?;
            self.counts.add(Kind::Read, SMALL, read.data.len() as u64);
            return Ok(read);
        }
        let rule = *self.rule.read();
        let inputs = self.inputs_of_read(file, io, &rule, offset, wanted as u64, size);
        let decision = decide(&inputs, &rule.thresholds);
        // At most READ_BYTES_MAX, so it fits.
        let length = wanted as u32;
        let (read, ran) = match decision.mode {
            Mode::Buffered => (rest.finish(file)?, Ran::Buffered),
            Mode::Uncached => self.uncached.read(file, offset, length)?,
            Mode::Direct => match self.direct_file(file, io)? {
                Some((direct, pair)) => direct.read(pair, offset, length)?,
                None => (rest.finish(file)?, Ran::Buffered),
            },
        };
        self.note(io, inputs, decision, ran, read.data.len() as u64);
        Ok(read)
    }

    /// All of the bytes, or the error that stopped them; then some may have been written. `size`: of the file before it.
    /// Not durable before the file is synced.
    pub fn write(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        size: u64,
        offset: u64,
        data: &[u8],
        is_stable: bool,
    ) -> Result<(), WriteFailure> {
        let now = Instant::now();
        let length = data.len() as u64;
        let _range = io.lock(offset, length, now).map_err(WriteFailure::from)?;
        if !self.may_bypass(io, length) {
            self.counts.add(Kind::Write, SMALL, length);
            return write_all(file, data, offset).map_err(WriteFailure::Write);
        }
        let rule = *self.rule.read();
        let inputs = self.inputs_of_write(file, io, &rule, size, offset, data, is_stable, now);
        let decision = decide(&inputs, &rule.thresholds);
        let ran = match decision.mode {
            Mode::Buffered => write_all(file, data, offset).map(|()| Ran::Buffered)?,
            Mode::Uncached => match io.pace() {
                Some(pace) => self.uncached.write(file, pace, data, offset)?,
                None => write_all(file, data, offset).map(|()| Ran::Buffered)?,
            },
            Mode::Direct => match self.direct_file(file, io)? {
                Some((direct, pair)) => direct.write(pair, data, offset)?,
                None => write_all(file, data, offset).map(|()| Ran::Buffered)?,
            },
        };
        self.note(io, inputs, decision, ran, length);
        Ok(())
    }

    /// Whether a stretch that is about to be read is better read through the page cache, so that a door may send it from
    /// there.
    pub fn suits_page_cache(&self, file: BorrowedFd<'_>, io: &FileIo, range: ByteRange) -> bool {
        let length = range.length().min(JUDGED_BYTES_MAX);
        if !self.may_bypass(io, length) {
            return true;
        }
        let Ok(size) = size_of(file) else { return true };
        let rule = *self.rule.read();
        let inputs = self.inputs_of_read(file, io, &rule, range.offset(), length, size);
        decide(&inputs, &rule.thresholds).mode == Mode::Buffered
    }

    fn may_bypass(&self, io: &FileIo, length: u64) -> bool {
        length >= self.bypass_bytes_min.load(Ordering::Relaxed) || io.pinned().is_some()
    }

    fn note(&self, io: &FileIo, inputs: Inputs, decision: Decision, ran: Ran, bytes: u64) {
        let ran = Mode::from(ran);
        self.counts.add(inputs.request.kind, Decision { mode: ran, ..decision }, bytes);
        io.record(Recorded { inputs, decision, ran, at: Instant::now() });
    }

    fn direct_file<'a>(
        &self,
        file: BorrowedFd<'a>,
        io: &'a FileIo,
    ) -> Result<Option<(&DirectIo, DirectFile<'a>)>, Errno> {
        let Some(direct) = &self.direct else { return Ok(None) };
        let opened = io.direct(file, &self.direct_files, self.direct_files_max)?;
        Ok(opened.map(|opened| (direct, DirectFile { buffered: file, direct: opened })))
    }

    fn inputs_of_read(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        rule: &Rule,
        offset: u64,
        length: u64,
        size: u64,
    ) -> Inputs {
        let now = Instant::now();
        let (observed, is_contended) =
            io.observe(Kind::Read, offset, length, now, rule.thresholds.contention);
        let (residency, is_dirty) = self.pages(file, offset, length);
        Inputs {
            request: Request {
                kind: Kind::Read,
                offset,
                length_bytes: length,
                is_stable: false,
                pattern: observed.pattern,
                memory_alignment_bytes: None,
            },
            file: FileFacts {
                size_bytes: size,
                final_size_bytes: None,
                residency,
                is_dirty,
                reuse: observed.reuse,
                is_contended,
                is_read_after_write_expected: observed.is_read_after_write_expected,
                pinned: io.pinned(),
            },
            pool: rule.pool,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is a fact of the write")]
    fn inputs_of_write(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        rule: &Rule,
        size: u64,
        offset: u64,
        data: &[u8],
        is_stable: bool,
        now: Instant,
    ) -> Inputs {
        let length = data.len() as u64;
        let (observed, is_contended) =
            io.observe(Kind::Write, offset, length, now, rule.thresholds.contention);
        // Behind the end there are no pages.
        let (residency, is_dirty) =
            if offset < size { self.pages(file, offset, length) } else { (Residency::None, false) };
        let address = data.as_ptr().addr() as u64;
        Inputs {
            request: Request {
                kind: Kind::Write,
                offset,
                length_bytes: length,
                is_stable,
                pattern: observed.pattern,
                memory_alignment_bytes: Some(1 << address.trailing_zeros().min(20)),
            },
            file: FileFacts {
                size_bytes: size,
                final_size_bytes: None,
                residency,
                is_dirty,
                reuse: observed.reuse,
                is_contended,
                is_read_after_write_expected: observed.is_read_after_write_expected,
                pinned: io.pinned(),
            },
            pool: rule.pool,
        }
    }

    /// The part of a range that the page cache has, and whether some of that is not on disk.
    fn pages(&self, file: BorrowedFd<'_>, offset: u64, length: u64) -> (Residency, bool) {
        let Some(range) = ByteRange::new(offset, length) else { return (Residency::Unknown, false) };
        let part = |resident: u64, pages: u64| match resident {
            0 => Residency::None,
            all if all == pages => Residency::All,
            part => Residency::Part {
                resident_bytes: (u128::from(length) * u128::from(part) / u128::from(pages)) as u64,
            },
        };
        match residency(file, range, self.capabilities.cachestat) {
            Ok(residency::Residency::Counted(counts)) => {
                (part(counts.resident, counts.pages), counts.dirty > 0)
            }
            Ok(residency::Residency::Probed { pages, resident }) => (part(resident, pages), false),
            Ok(residency::Residency::Unknown) | Err(_) => (Residency::Unknown, false),
        }
    }
}

fn modes_of(capabilities: Capabilities) -> ModeCapabilities {
    let direct = capabilities.direct.map(|direct| DirectAlignment {
        memory_bytes: direct.memory_bytes.into(),
        offset_bytes: direct.offset_bytes.into(),
    });
    ModeCapabilities { is_uncached_possible: capabilities.uncached, direct }
}

fn least_bypass(thresholds: &Thresholds) -> u64 {
    thresholds.bypass_bytes_min().unwrap_or(u64::MAX)
}

impl From<Errno> for WriteFailure {
    fn from(errno: Errno) -> WriteFailure {
        WriteFailure::Write(errno)
    }
}

impl From<UncachedFailure> for WriteFailure {
    fn from(failure: UncachedFailure) -> WriteFailure {
        match failure {
            UncachedFailure::Write(errno) => WriteFailure::Write(errno),
            UncachedFailure::WriteBack(errno) => WriteFailure::WriteBack(errno),
        }
    }
}

impl From<LockRefused> for WriteFailure {
    fn from(refused: LockRefused) -> WriteFailure {
        match refused {
            LockRefused::Busy | LockRefused::TimedOut => WriteFailure::Busy,
        }
    }
}

impl From<Ran> for Mode {
    fn from(ran: Ran) -> Mode {
        match ran {
            Ran::Buffered => Mode::Buffered,
            Ran::Uncached => Mode::Uncached,
            Ran::Direct => Mode::Direct,
        }
    }
}

#[cfg(test)]
mod tests;
