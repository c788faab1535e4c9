//! Decides the mode of each request of a pool, runs it, and counts what ran.
//!
//! Facts are collected only for requests that some threshold lets past the page cache: a shorter one is buffered whatever
//! they say, and pays for nothing but the range lock. Writes and the rest of reads block, and run in the engine's threads.
//!
//! Invariant: every write of a file holds the range lock of its pages, whatever its mode. A buffered write beside a direct
//! one of the same page would make the page dirty while the kernel drops it, which the kernel reports as a lost write.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use aligned::AlignedBuffers;
use api::ReadData;
use parking_lot::RwLock;
use rustix::io::Errno;
use rustix::param::page_size;
use types::ByteRange;

use crate::Ran;
use crate::capabilities::Capabilities;
use crate::counters::{DecisionCounts, DecisionSnapshot, ResidencyBytes, ResidencyCounts};
use crate::cpu::{CpuCounts, CpuTimer};
use crate::direct::{DirectFile, DirectIo};
use crate::file_io::{FileIo, Recorded};
use crate::history::Observed;
use crate::latency::Latencies;
use crate::mode::{
    ContentionThresholds, Decision, FileFacts, Inputs, Kind, Mode, ModeCapabilities, Pattern, Policy,
    PoolFacts, Reason, Request, Residency, Reuse, Thresholds, decide,
};
use crate::range_lock::LockRefused;
use crate::read::{Unfinished, size_of};
use crate::readahead::{Advising, PoolReadAhead, ReadAheadCounts, ReadAheadLimits};
use crate::residency::count_pages;
use crate::uncached::{UncachedIo, WINDOW_BYTES};
use crate::write::{OFFSET_MAX, write_all};

/// Of free aligned buffers.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Of bytes that were read ahead and not yet used: other data had to leave memory for them.
const READ_AHEAD_BYTES_MAX: u64 = 64 << 20;
/// A stretch of a file that a door sends by itself is judged by its beginning.
const JUDGED_BYTES_MAX: u64 = 1 << 20;
/// Of requests that no fact takes past the page cache.
const SMALL: Decision = Decision { mode: Mode::Buffered, reason: Reason::Small };
const HOT: Decision = Decision { mode: Mode::Buffered, reason: Reason::HotRead };
const SENT: Decision = Decision { mode: Mode::Buffered, reason: Reason::Sent };
/// Of reads from the page cache one in so many is timed, after the first ones: two looks at the clock cost a tenth of a
/// short one.
const TIMED_EACH: u64 = 64;

pub struct DataPath {
    policy: Policy,
    contention: ContentionThresholds,
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
    latencies: Latencies,
    cpu: CpuCounts,
    residency: ResidencyCounts,
    /// Of buffered reads only: pages that are read ahead stay in the page cache, which the other modes leave alone.
    read_ahead: PoolReadAhead,
}

/// A read from the page cache that is timed.
pub(crate) struct HotTimer {
    began: Instant,
    /// It stands for so many.
    count: u64,
    cpu: Option<CpuTimer>,
}

#[derive(Clone, Copy)]
struct Rule {
    thresholds: Thresholds,
    pool: PoolFacts,
}

/// The part of a range that the page cache has. By default nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    residency: Residency,
    /// Some of it is not on disk.
    is_dirty: bool,
}

/// The way of a read that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeRead {
    /// The page cache has all, or no other mode is possible.
    TryCache,
    /// A try would start read-ahead into the page cache, whatever mode the read gets then.
    Cold(Pages),
}

/// The error that stopped a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    Write(Errno),
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
            contention: thresholds.contention,
            capabilities,
            bypass_bytes_min: AtomicU64::new(least_bypass(&thresholds)),
            rule: RwLock::new(Rule { thresholds, pool }),
            direct: capabilities.direct.map(|alignment| DirectIo::new(alignment, Arc::clone(&buffers))),
            uncached: UncachedIo::new(buffers, WINDOW_BYTES, capabilities.uncached),
            direct_files: Arc::default(),
            direct_files_max,
            counts: DecisionCounts::default(),
            latencies: Latencies::default(),
            cpu: CpuCounts::default(),
            residency: ResidencyCounts::default(),
            read_ahead: PoolReadAhead::new(ReadAheadLimits::for_memory(READ_AHEAD_BYTES_MAX)),
        }
    }

    /// Other numbers of contention. A calibration does not replace them.
    pub fn with_contention(mut self, contention: ContentionThresholds) -> DataPath {
        self.contention = contention;
        self.rule.get_mut().thresholds.contention = contention;
        self
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
        let thresholds = Thresholds { contention: self.contention, ..self.policy.thresholds(calibrated) };
        self.rule.write().thresholds = thresholds;
        self.bypass_bytes_min.store(least_bypass(&thresholds), Ordering::Relaxed);
    }

    /// Takes the last samples of memory. The modes that are possible stay.
    pub fn set_pressure(&self, is_memory_tight: bool, dirty_headroom_bytes: Option<u64>) {
        self.read_ahead.set_tight(is_memory_tight);
        let pool = &mut self.rule.write().pool;
        *pool = PoolFacts { capabilities: pool.capabilities, is_memory_tight, dirty_headroom_bytes };
    }

    /// Whether any request may leave the page cache, or anything is read ahead, so that memory matters.
    pub fn needs_pressure(&self) -> bool {
        self.bypass_bytes_min.load(Ordering::Relaxed) != u64::MAX || self.read_ahead.needs_pressure()
    }

    /// To be called once a second or so.
    pub fn expire_read_ahead(&self, now: Instant) {
        self.read_ahead.expire(now);
    }

    pub fn read_ahead(&self) -> ReadAheadCounts {
        self.read_ahead.counts()
    }

    pub fn counts(&self) -> DecisionSnapshot {
        self.counts.snapshot()
    }

    /// From a thread of the engine to the bytes: waits for a thread and syncs are not in it.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Of the threads that ran the requests, without syncs.
    pub fn cpu(&self) -> &CpuCounts {
        &self.cpu
    }

    /// Of all bytes that were read.
    pub fn residency(&self) -> ResidencyBytes {
        let counts = self.counts.snapshot();
        let (hot, sent) = (counts.count(Kind::Read, HOT).bytes, counts.count(Kind::Read, SENT).bytes);
        let bytes = self.residency.snapshot(hot);
        ResidencyBytes { unknown: bytes.unknown + sent, ..bytes }
    }

    /// `None`: this one is not timed.
    pub(crate) fn time_hot(&self) -> Option<HotTimer> {
        let before = self.counts.operations(Kind::Read, HOT);
        let count = match before {
            0..TIMED_EACH => 1,
            _ if before % TIMED_EACH == TIMED_EACH - 1 => TIMED_EACH,
            _ => return None,
        };
        Some(HotTimer { began: Instant::now(), count, cpu: CpuTimer::start_hot(before) })
    }

    /// Never waits for the disk.
    pub(crate) fn before_read(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        offset: u64,
        length: u64,
    ) -> BeforeRead {
        let is_asked = !is_pinned_to_cache(io) && self.may_leave_cache(io, length);
        let pages = is_asked.then(|| self.pages(file, offset, length));
        match pages {
            None => BeforeRead::TryCache,
            Some(pages) if pages.residency == Residency::All && !self.is_forced(io) => BeforeRead::TryCache,
            Some(pages) => BeforeRead::Cold(pages),
        }
    }

    /// A read that the page cache served whole. Returns what is to be read ahead then.
    pub(crate) fn note_hot(
        &self,
        io: &FileIo,
        offset: u64,
        bytes: u64,
        timer: Option<HotTimer>,
    ) -> Option<Advising> {
        if bytes == 0 {
            return None;
        }
        if let Some(HotTimer { began, count, cpu }) = timer {
            self.latencies.record(Kind::Read, Mode::Buffered, began.elapsed(), count);
            self.cpu.record(Kind::Read, Mode::Buffered, bytes, cpu);
        }
        if !is_pinned_to_cache(io) && self.may_bypass(io, bytes) {
            io.observe(Kind::Read, offset, bytes, Instant::now());
        }
        self.counts.add(Kind::Read, HOT, bytes);
        io.counts().add_roughly(Kind::Read, HOT.mode, bytes);
        self.read_ahead.note_hit(&io.read_ahead, ByteRange::new(offset, bytes)?)
    }

    /// Bytes that a door has sent from the page cache.
    pub fn note_sent(&self, io: &FileIo, bytes: u64) {
        self.count(io, Kind::Read, SENT, bytes);
    }

    /// The rest of a read of which some pages are not in memory, and what is to be read ahead after it. Waits for the disk.
    pub(crate) fn read(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        rest: Unfinished,
    ) -> Result<(ReadData, Option<Advising>), Errno> {
        let began = Instant::now();
        let (offset, wanted, size) = (rest.offset(), rest.wanted(), rest.size());
        let (is_miss, residency) = (rest.is_miss, rest.residency());
        let cpu = self.cpu.start(Kind::Read, wanted as u64);
        let ahead = |read: &ReadData| {
            let read = ByteRange::new(offset, read.data.len() as u64).filter(|_| is_miss)?;
            self.read_ahead.note_miss(&io.read_ahead, read, size, Instant::now())
        };
        if !self.may_bypass(io, wanted as u64) {
            let read = rest.finish(file)?;
            let bytes = read.data.len() as u64;
            self.count(io, Kind::Read, SMALL, bytes);
            self.latencies.record(Kind::Read, Mode::Buffered, began.elapsed(), 1);
            self.cpu.record(Kind::Read, Mode::Buffered, bytes, cpu);
            self.residency.add(residency, bytes, false);
            let ahead = ahead(&read);
            return Ok((read, ahead));
        }
        let rule = *self.rule.read();
        let observed = io.observe(Kind::Read, offset, wanted as u64, began);
        let inputs =
            rule.inputs(io, read_of(offset, wanted as u64), size, rest.pages.unwrap_or_default(), observed);
        let decision = decide(&inputs, &rule.thresholds);
        // At most READ_BYTES_MAX, so it fits.
        let length = wanted as u32;
        let (read, ran) = match decision.mode {
            Mode::Buffered => (rest.finish(file)?, Ran::Buffered),
            Mode::Uncached => {
                drop(rest);
                self.uncached.read(file, offset, length)?
            }
            Mode::Direct => match self.direct_file(file, io)? {
                Some((direct, pair)) => {
                    drop(rest);
                    direct.read(pair, offset, length)?
                }
                None => (rest.finish(file)?, Ran::Buffered),
            },
        };
        let bytes = read.data.len() as u64;
        self.cpu.record(Kind::Read, ran.into(), bytes, cpu);
        self.residency.add(residency, bytes, Decision { mode: ran.into(), ..decision } == HOT);
        self.note(io, inputs, decision, ran, bytes, began);
        let ahead = if ran == Ran::Buffered { ahead(&read) } else { None };
        Ok((read, ahead))
    }

    /// All of the bytes, or the error that stopped them; then some may have been written. `size`: of the file before it.
    /// Not durable before the file is synced. Returns the way that it took.
    pub fn write(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        size: u64,
        offset: u64,
        data: &[u8],
        is_stable: bool,
    ) -> Result<Ran, WriteFailure> {
        let began = Instant::now();
        check_end(offset, data)?;
        let thresholds = || self.rule.read().thresholds.contention;
        let _range = io.lock(offset, data.len() as u64, began, thresholds).map_err(WriteFailure::from)?;
        self.run_write((file, io), size, (offset, data), is_stable, began).map_err(WriteFailure::from)
    }

    /// As [`DataPath::write`], by a caller that holds the lock of the range.
    pub fn write_locked(
        &self,
        file: BorrowedFd<'_>,
        io: &FileIo,
        size: u64,
        offset: u64,
        data: &[u8],
        is_stable: bool,
    ) -> Result<Ran, Errno> {
        check_end(offset, data)?;
        self.run_write((file, io), size, (offset, data), is_stable, Instant::now())
    }

    fn run_write(
        &self,
        (file, io): (BorrowedFd<'_>, &FileIo),
        size: u64,
        (offset, data): (u64, &[u8]),
        is_stable: bool,
        began: Instant,
    ) -> Result<Ran, Errno> {
        let length = data.len() as u64;
        let cpu = self.cpu.start(Kind::Write, length);
        if !self.may_bypass(io, length) {
            write_all(file, data, offset)?;
            self.cpu.record(Kind::Write, Mode::Buffered, length, cpu);
            self.count(io, Kind::Write, SMALL, length);
            self.latencies.record(Kind::Write, Mode::Buffered, began.elapsed(), 1);
            return Ok(Ran::Buffered);
        }
        let rule = *self.rule.read();
        let address = data.as_ptr().addr() as u64;
        let request = Request {
            kind: Kind::Write,
            offset,
            length_bytes: length,
            is_stable,
            pattern: Pattern::Unknown,
            memory_alignment_bytes: Some(1 << address.trailing_zeros().min(20)),
        };
        let observed = io.observe(Kind::Write, offset, length, began);
        // Behind the end there are no pages. A direct write leaves the pages of its edges in the cache, so that those of
        // neighbouring writes do not count.
        let pages = match whole_pages(offset, length) {
            Some(whole) if offset < size => self.pages(file, whole.offset(), whole.length()),
            _ => Pages::NONE,
        };
        let inputs = rule.inputs(io, request, size, pages, observed);
        let decision = decide(&inputs, &rule.thresholds);
        let buffered = || write_all(file, data, offset).map(|()| Ran::Buffered);
        let direct = match decision.mode {
            Mode::Buffered => None,
            Mode::Uncached | Mode::Direct => self.direct_file(file, io)?,
        };
        let ran = match (decision.mode, direct, io.pace()) {
            (Mode::Uncached, other, Some(pace)) => {
                let other = other.map(|(_, pair)| pair.direct);
                self.uncached.write(file, other, pace, data, offset)?
            }
            (Mode::Direct, Some((direct, pair)), _) => direct.write(pair, data, offset)?,
            _ => buffered()?,
        };
        self.cpu.record(Kind::Write, ran.into(), length, cpu);
        self.note(io, inputs, decision, ran, length, began);
        Ok(ran)
    }

    /// Whether a stretch that is about to be read is better read through the page cache, so that a door may send it from
    /// there.
    pub fn suits_page_cache(&self, file: BorrowedFd<'_>, io: &FileIo, range: ByteRange) -> bool {
        let length = range.length().min(JUDGED_BYTES_MAX);
        if !self.may_leave_cache(io, length) {
            return true;
        }
        let Ok(size) = size_of(file) else { return true };
        let rule = *self.rule.read();
        // A door sends a file from its beginning to its end, and comes here more than once for the same bytes: nothing is
        // recorded.
        let observed = Observed {
            pattern: Pattern::Sequential,
            reuse: Reuse::Unknown,
            is_read_after_write_expected: false,
        };
        let pages = self.pages(file, range.offset(), length);
        let inputs = rule.inputs(io, read_of(range.offset(), length), size, pages, (observed, false));
        decide(&inputs, &rule.thresholds).mode == Mode::Buffered
    }

    /// Whether a read may get another mode than buffered. Without a count of pages only a forced mode does: a cold read
    /// could not be told from a hot one.
    fn may_leave_cache(&self, io: &FileIo, length: u64) -> bool {
        self.may_bypass(io, length) && (self.capabilities.cachestat || self.is_forced(io))
    }

    /// The mode does not depend on the page cache.
    fn is_forced(&self, io: &FileIo) -> bool {
        matches!(self.policy, Policy::Uncached | Policy::Direct) || io.pinned().is_some()
    }

    fn may_bypass(&self, io: &FileIo, length: u64) -> bool {
        length >= self.bypass_bytes_min.load(Ordering::Relaxed) || io.pinned().is_some()
    }

    fn note(&self, io: &FileIo, inputs: Inputs, decision: Decision, ran: Ran, bytes: u64, began: Instant) {
        let (ran, at) = (Mode::from(ran), Instant::now());
        self.latencies.record(inputs.request.kind, ran, at.saturating_duration_since(began), 1);
        self.count(io, inputs.request.kind, Decision { mode: ran, ..decision }, bytes);
        io.record(Recorded { inputs, decision, ran, at });
    }

    fn count(&self, io: &FileIo, kind: Kind, ran: Decision, bytes: u64) {
        self.counts.add(kind, ran, bytes);
        io.counts().add(kind, ran.mode, bytes);
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

    fn pages(&self, file: BorrowedFd<'_>, offset: u64, length: u64) -> Pages {
        let Some(range) = ByteRange::new(offset, length) else { return Pages::default() };
        if !self.capabilities.cachestat {
            return Pages::default();
        }
        let Ok(counts) = count_pages(file, range) else { return Pages::default() };
        let residency = match counts.resident {
            0 => Residency::None,
            all if all == counts.pages => Residency::All,
            part => Residency::Part { resident_bytes: part * page_size() as u64 },
        };
        Pages { residency, is_dirty: counts.dirty > 0 }
    }
}

impl Pages {
    pub(crate) fn residency(self) -> Residency {
        self.residency
    }

    const NONE: Pages = Pages { residency: Residency::None, is_dirty: false };
}

impl Rule {
    /// The pattern of the request is the observed one.
    fn inputs(
        &self,
        io: &FileIo,
        request: Request,
        size_bytes: u64,
        pages: Pages,
        (observed, is_contended): (Observed, bool),
    ) -> Inputs {
        Inputs {
            request: Request { pattern: observed.pattern, ..request },
            file: FileFacts {
                size_bytes,
                final_size_bytes: None,
                residency: pages.residency,
                is_dirty: pages.is_dirty,
                reuse: observed.reuse,
                is_contended,
                is_read_after_write_expected: observed.is_read_after_write_expected,
                pinned: io.pinned(),
            },
            pool: self.pool,
        }
    }
}

/// A read of it that the page cache has pays for nothing more than one of a pool without other modes.
fn is_pinned_to_cache(io: &FileIo) -> bool {
    io.pinned() == Some(Mode::Buffered)
}

fn check_end(offset: u64, data: &[u8]) -> Result<(), Errno> {
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
    end.map(drop).ok_or(Errno::FBIG)
}

/// Those that a write of this range fills.
fn whole_pages(offset: u64, length: u64) -> Option<ByteRange> {
    let page = page_size() as u64;
    ByteRange::from_bounds(offset.next_multiple_of(page), (offset + length) / page * page)
}

fn read_of(offset: u64, length_bytes: u64) -> Request {
    Request {
        kind: Kind::Read,
        offset,
        length_bytes,
        is_stable: false,
        pattern: Pattern::Unknown,
        memory_alignment_bytes: None,
    }
}

fn modes_of(capabilities: Capabilities) -> ModeCapabilities {
    ModeCapabilities { is_uncached_possible: capabilities.uncached, direct: capabilities.direct }
}

fn least_bypass(thresholds: &Thresholds) -> u64 {
    thresholds.bypass_bytes_min().unwrap_or(u64::MAX)
}

impl From<Errno> for WriteFailure {
    fn from(errno: Errno) -> WriteFailure {
        WriteFailure::Write(errno)
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
