//! The scrub of a pool: all replicas are read from the disk and compared with their block sums. Replicas without sums get them.
//!
//! One runs at a time, in its caller's thread. It goes through the replicas by file id and writes down where it is, so that
//! the next one goes on there after an interruption. A stop of the pool ends it and waits for that.
//!
//! Parts: `sums` (the file of a replica's sums), `digest` (of a whole replica), `known` (sums in memory, for reads), `blocks` (reads past the page cache),
//! `examine` (one replica), `record` (the position and the last result), `pace` (the rate).

mod blocks;
mod digest;
mod examine;
mod known;
mod pace;
mod record;
mod sums;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_engine::calibration::{Cancel, IdlePriority};
use io_engine::capabilities::Capabilities;
use parking_lot::Mutex;
use rustix::fs::syncfs;
use types::{ChecksumKind, FileId};

use self::blocks::BlockReader;
use self::digest::{DigestCounts, Digesting};
use self::examine::{Examiner, Halt, Outcome, state_of};
use self::known::SumsInMemory;
use self::pace::Pace;
use self::record::{Position, Record, mount_of, now_s};
use crate::counters::Counter;
use crate::label::{State, parse_file};
use crate::layout::{SUMS, is_level};
use crate::local::LocalPool;
use crate::parts::PoolParts;
use crate::replicas::Replicas;

pub use self::blocks::DiskReader;
pub use self::examine::{Finding as ScrubFinding, FindingKind as ScrubFindingKind};
pub use self::known::{BlockSums, Differing};
pub use self::record::{BadReplica, CompleteScrub, ScrubTotals};
pub use self::sums::{BLOCK_BYTES, Stamp};

const PAGE: usize = 1000;
/// More than a disk has bad files in a row; marks are for good.
const NEWLY_DAMAGED_MAX: usize = 20;
/// Replicas that reads mark between two complete scrubs, for the same reason.
const MARKED_BY_READS_MAX: u32 = 20;
/// Between two records of the position.
const STORE_PERIOD: Duration = Duration::from_secs(10);
/// Counts for the rate with each replica: a disk seeks for it.
const REPLICA_BYTES: u64 = 16 << 10;
/// While it waits, a scrub looks so often whether it is to end.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Bad replicas that are told; more of them are counted.
const TOLD_MAX: u64 = 1000;
/// 2026. A clock before that is not set yet.
const CLOCK_MIN_S: u64 = 1_767_225_600;
/// Looks of the upkeep between two looks whether bad replicas are gone.
const LOOKS: u32 = 30;

#[derive(Clone, Copy, Debug)]
pub struct ScrubRequest {
    pub bytes_per_s: u64,
    /// From the first replica, whatever an interrupted scrub has done.
    pub start_over: bool,
}

/// Hears of a scrub. Called in its thread.
pub trait ScrubWatch {
    /// Before the first replica. `done_bytes`: of the interrupted scrub that this one continues.
    fn begin(&self, done_bytes: u64, total_bytes: u64);
    fn advance(&self, done_bytes: u64);
    /// The first 1,000 findings. Logging them is up to the caller, who may know the path.
    fn found(&self, finding: &ScrubFinding);
}

/// Why a scrub is not complete.
#[derive(Debug, PartialEq, Eq)]
pub enum ScrubStopped {
    Running,
    /// Its position is kept.
    Cancelled,
    Failed(String),
}

impl fmt::Display for ScrubStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScrubStopped::Running => write!(f, "another scrub of this pool runs"),
            ScrubStopped::Cancelled => write!(f, "it was stopped; the next scrub continues there"),
            ScrubStopped::Failed(reason) => write!(f, "{reason}"),
        }
    }
}

/// The scrubs of a pool, as an operator sees them.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    pub is_running: bool,
    /// Of the one that runs, and of all replicas when it began. 0 if none runs.
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Since the pool was opened.
    pub read_bytes: u64,
    pub bad_blocks: u64,
    /// By reads and copies that were compared with block sums.
    pub verified_bytes: u64,
    /// Digests of whole replicas that scrubs make and compare.
    pub digests: Vec<ChecksumKind>,
    pub last: Option<CompleteScrub>,
    /// Replicas that an interrupted scrub has examined; the next one continues behind them.
    pub interrupted: Option<u64>,
    /// The time from which a scrub starts by itself, in seconds since 1970. `None`: none does.
    pub due_s: Option<u64>,
    pub bad: Vec<BadReplica>,
}

pub struct Scrubbing {
    dir: PathBuf,
    digests: Vec<ChecksumKind>,
    /// Of the pool's end.
    cancel: Cancel,
    /// Held while a scrub runs.
    running: Mutex<()>,
    is_running: AtomicBool,
    /// Leaf lock.
    record: Mutex<Record>,
    /// Held while the record is changed and its file is written. Before `record`.
    storing: Mutex<()>,
    read_bytes: Counter,
    bad_blocks: Counter,
    /// Of the one that runs, or ran last.
    done_bytes: Counter,
    total_bytes: Counter,
    looks: AtomicU32,
    /// A replica may have sums.
    has_sums: AtomicBool,
    in_memory: SumsInMemory,
    verified_bytes: Counter,
    marked_by_reads: AtomicU32,
    /// The interval of scrubs that start by themselves, in seconds; 0: none does.
    every_s: AtomicU64,
}

impl LocalPool {
    /// Reads all replicas and compares them with their sums, or makes these. Blocks, maybe for days. `cancel`: of the caller.
    pub fn scrub(
        &self,
        request: ScrubRequest,
        cancel: &Cancel,
        watch: &dyn ScrubWatch,
    ) -> Result<CompleteScrub, ScrubStopped> {
        self.parts().scrubbing.run(self.parts(), self.table(), request, cancel, watch)
    }

    /// Whether the last complete scrub ended so long ago; without one, whether the first such question was so long ago. It is
    /// kept with the pool. Blocks.
    pub fn scrub_is_due(&self, every: Duration, now_s: u64) -> bool {
        self.parts().scrubbing.is_due(self.parts(), every, now_s)
    }

    pub fn scrub_report(&self) -> ScrubReport {
        self.parts().scrubbing.report()
    }
}

impl Scrubbing {
    /// `digests`: of whole replicas, to be made and compared. `is_clean`: the pool was closed in order.
    pub fn open(
        dir: &Path,
        root: std::os::fd::BorrowedFd<'_>,
        digests: Vec<ChecksumKind>,
        is_clean: bool,
    ) -> Scrubbing {
        let record = Record::open(dir, mount_of(root).as_deref(), is_clean);
        Scrubbing {
            has_sums: AtomicBool::new(record.has_begun()),
            dir: dir.to_owned(),
            digests,
            cancel: Cancel::default(),
            running: Mutex::new(()),
            is_running: AtomicBool::new(false),
            record: Mutex::new(record),
            storing: Mutex::new(()),
            read_bytes: Counter::default(),
            bad_blocks: Counter::default(),
            done_bytes: Counter::default(),
            total_bytes: Counter::default(),
            looks: AtomicU32::new(0),
            in_memory: SumsInMemory::default(),
            verified_bytes: Counter::default(),
            marked_by_reads: AtomicU32::new(0),
            every_s: AtomicU64::new(0),
        }
    }

    pub fn report(&self) -> ScrubReport {
        let is_running = self.is_running.load(Ordering::Relaxed);
        let progress = |bytes: &Counter| if is_running { bytes.value() } else { 0 };
        let record = self.record.lock();
        let every_s = self.every_s.load(Ordering::Relaxed);
        ScrubReport {
            is_running,
            done_bytes: progress(&self.done_bytes),
            total_bytes: progress(&self.total_bytes),
            interrupted: record.position.filter(|_| !is_running).map(|position| position.totals.replicas),
            due_s: if every_s == 0 { None } else { record.due_s(Duration::from_secs(every_s)) },
            read_bytes: self.read_bytes.value(),
            bad_blocks: self.bad_blocks.value(),
            verified_bytes: self.verified_bytes.value(),
            digests: self.digests.clone(),
            last: record.last,
            bad: record.bad.clone(),
        }
    }

    /// Ends what runs, and waits for it.
    pub fn stop(&self) {
        self.cancel.cancel();
        drop(self.running.lock());
    }

    /// Before the pool is closed in order: the times that guard the sums are on disk.
    /// An error: the next start is to take this one for a crash.
    pub fn settle(&self, shared: &PoolParts) -> Result<(), String> {
        if !self.record.lock().has_begun() {
            return Ok(());
        }
        syncfs(shared.store.root()).map_err(|errno| format!("its file system cannot be synced: {errno}"))?;
        // Its generation may have been in memory only.
        self.store(|_| ()).map_err(|error| format!("{} cannot be written: {error}", record::FILE_NAME))
    }

    /// Once a second. Forgets bad replicas that are gone.
    pub fn look(&self, shared: &PoolParts) {
        if self.looks.fetch_add(1, Ordering::Relaxed) % LOOKS == LOOKS - 1 {
            self.forget_gone(shared);
        }
    }

    fn is_due(&self, shared: &PoolParts, every: Duration, now_s: u64) -> bool {
        self.every_s.store(every.as_secs(), Ordering::Relaxed);
        if now_s < CLOCK_MIN_S {
            return false;
        }
        let (due_s, limited) = {
            let record = self.record.lock();
            let mut limited = record.clone();
            limited.limit_to(now_s);
            (limited.due_s(every), limited != *record)
        };
        if limited {
            self.change(shared, |record| record.limit_to(now_s));
        }
        if due_s.is_none() {
            self.change(shared, |record| record.watched_s = Some(now_s));
        }
        due_s.is_some_and(|due_s| due_s <= now_s)
    }

    pub fn has_sums(&self) -> bool {
        self.has_sums.load(Ordering::Relaxed)
    }

    /// Other sums prove nothing.
    pub fn generation(&self) -> u64 {
        self.record.lock().generation
    }

    pub fn in_memory(&self) -> &SumsInMemory {
        &self.in_memory
    }

    pub fn note_verified(&self, bytes: u64) {
        self.verified_bytes.add(bytes);
    }

    /// Whether a read may mark a replica, which it does then.
    pub fn take_mark(&self, shared: &PoolParts, file: FileId) -> bool {
        let more = |marked| (marked <= MARKED_BY_READS_MAX).then_some(marked + 1);
        let marked = self.marked_by_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if marked == Ok(MARKED_BY_READS_MAX) {
            tracing::error!(
                pool = %shared.id(), %file, marked = MARKED_BY_READS_MAX,
                "reads of more replicas differ from their block sums: check the disk and its path, then scrub the pool"
            );
        }
        marked.is_ok_and(|marked| marked < MARKED_BY_READS_MAX)
    }

    /// A read has found blocks that differ on the disk too, and has marked the replica.
    pub fn note_damaged_by_read(&self, shared: &PoolParts, file: FileId, blocks: &[u64]) {
        let pool = shared.id();
        let offsets: Vec<u64> = blocks.iter().map(|block| block * BLOCK_BYTES).collect();
        let (count, offset) = (blocks.len() as u64, offsets.first().copied().unwrap_or_default());
        tracing::error!(
            %pool, %file, offset, blocks = count,
            "replica that was read differs from its block sums: it cannot be read until the file is removed or replaced"
        );
        self.bad_blocks.add(count);
        let finding = ScrubFinding { file, kind: ScrubFindingKind::Damaged, blocks: count, offsets };
        self.change(shared, |record| record.note_bad(&finding));
    }

    fn forget_gone(&self, shared: &PoolParts) {
        let bad = self.record.lock().bad.clone();
        let is_there = |bad: &BadReplica| match state_of(shared, bad.file()) {
            Ok(Some(state)) => !bad.is_damaged || state == State::Damaged,
            Ok(None) => false,
            // It may be there.
            Err(_) => true,
        };
        let gone: Vec<FileId> = bad.iter().filter(|bad| !is_there(bad)).map(BadReplica::file).collect();
        if !gone.is_empty() {
            self.change(shared, |record| gone.iter().for_each(|file| _ = record.forget_bad(*file)));
        }
    }

    /// A record that cannot be written is kept in memory, and costs a repetition at most.
    fn change(&self, shared: &PoolParts, change: impl FnOnce(&mut Record)) {
        if let Err(error) = self.store(change) {
            tracing::debug!(pool = %shared.id(), %error, "record of scrubs cannot be written");
        }
    }

    /// Those who look at the record do not wait for the disk.
    fn store<T>(&self, change: impl FnOnce(&mut Record) -> T) -> io::Result<T> {
        let _storing = self.storing.lock();
        let (changed, copy) = {
            let mut record = self.record.lock();
            let changed = change(&mut record);
            (changed, record.clone())
        };
        copy.store(&self.dir)?;
        Ok(changed)
    }

    fn run(
        &self,
        shared: &PoolParts,
        replicas: &Replicas,
        request: ScrubRequest,
        cancel: &Cancel,
        watch: &dyn ScrubWatch,
    ) -> Result<CompleteScrub, ScrubStopped> {
        let Some(_running) = self.running.try_lock() else { return Err(ScrubStopped::Running) };
        if self.cancel.is_cancelled() {
            return Err(ScrubStopped::Cancelled);
        }
        self.done_bytes.set(0);
        self.total_bytes.set(0);
        self.has_sums.store(true, Ordering::Relaxed);
        let _is_running = RunningFlag::raise(&self.is_running);
        let _idle = IdlePriority::take();
        let begun = Position { begun_s: now_s(), after: 0, totals: ScrubTotals::default() };
        let begin = |record: &mut Record| {
            let position = record.position.filter(|_| !request.start_over).unwrap_or(begun);
            record.position = Some(position);
            (position, record.generation)
        };
        // Sums without a record of their generation would prove nothing.
        let (position, generation) = self.store(begin).map_err(|error| {
            ScrubStopped::Failed(format!("{} cannot be written: {error}", record::FILE_NAME))
        })?;
        let walk = Walk {
            scrubbing: self,
            shared,
            cancel,
            watch,
            pace: Mutex::new((Pace::new(request.bytes_per_s), shared.requests())),
        };
        let totals = walk.run(replicas, position, generation).inspect_err(|stopped| {
            if matches!(stopped, ScrubStopped::Failed(_)) {
                self.change(shared, |record| record.failed_s = Some(now_s()));
            }
        })?;
        self.forget_gone(shared);
        remove_needless(&self.dir, shared, &walk);
        self.marked_by_reads.store(0, Ordering::Relaxed);
        let complete = CompleteScrub { begun_s: position.begun_s, ended_s: now_s(), totals };
        self.change(shared, |record| (record.position, record.last) = (None, Some(complete)));
        Ok(complete)
    }
}

struct RunningFlag<'a>(&'a AtomicBool);

impl RunningFlag<'_> {
    fn raise(flag: &AtomicBool) -> RunningFlag<'_> {
        flag.store(true, Ordering::Relaxed);
        RunningFlag(flag)
    }
}

impl Drop for RunningFlag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

struct Walk<'a> {
    scrubbing: &'a Scrubbing,
    shared: &'a PoolParts,
    cancel: &'a Cancel,
    watch: &'a dyn ScrubWatch,
    /// With the requests of others at the last step. Only the scrub's thread takes it.
    pace: Mutex<(Pace, u64)>,
}

impl Walk<'_> {
    fn run(
        &self,
        replicas: &Replicas,
        mut position: Position,
        generation: u64,
    ) -> Result<ScrubTotals, ScrubStopped> {
        let failed = |reason| ScrubStopped::Failed(format!("replicas cannot be listed: {reason}"));
        if let Err(reason) = self.shared.index.flush(&self.shared.store) {
            tracing::debug!(pool = %self.shared.id(), reason, "replicas are scrubbed without writing the index");
        }
        let done = position.totals.read_bytes;
        let left = self.bytes_behind(FileId(position.after)).map_err(failed)?;
        self.scrubbing.done_bytes.set(done);
        self.scrubbing.total_bytes.set(done.saturating_add(left));
        self.watch.begin(done, done.saturating_add(left));
        let capabilities = Capabilities::probe(self.shared.store.root()).unwrap_or(Capabilities::NONE);
        let mut examiner = Examiner {
            shared: self.shared,
            replicas,
            reader: BlockReader::new(capabilities),
            generation,
            kinds: &self.scrubbing.digests,
            digesting: Digesting::default(),
            digests: DigestCounts::default(),
            step: Box::new(|bytes| self.step(bytes)),
        };
        let mut stored = Instant::now();
        let mut newly_damaged = 0;
        loop {
            let page = self.shared.index.list(FileId(position.after), PAGE).map_err(failed)?;
            if page.is_empty() {
                break;
            }
            for facts in page {
                let outcome = self.step_replica().and_then(|()| examiner.examine(facts.file));
                let Ok(outcome) = outcome else {
                    self.scrubbing.change(self.shared, |record| record.position = Some(position));
                    return Err(ScrubStopped::Cancelled);
                };
                position.after = facts.file.0;
                newly_damaged =
                    if self.is_newly_damaged(facts.file, &outcome) { newly_damaged + 1 } else { 0 };
                self.take(facts.file, outcome, &mut position.totals);
                let DigestCounts { verified, made } = std::mem::take(&mut examiner.digests);
                position.totals.digests_verified += verified;
                position.totals.digests_made += made;
                position.totals.read_bytes = self.scrubbing.done_bytes.value();
                if newly_damaged >= NEWLY_DAMAGED_MAX {
                    self.scrubbing.change(self.shared, |record| record.position = Some(position));
                    let reason = format!(
                        "{newly_damaged} replicas in a row differ from their sums: check the disk and its path first"
                    );
                    return Err(ScrubStopped::Failed(reason));
                }
                if stored.elapsed() >= STORE_PERIOD {
                    self.scrubbing.change(self.shared, |record| record.position = Some(position));
                    stored = Instant::now();
                }
            }
        }
        Ok(position.totals)
    }

    fn is_newly_damaged(&self, file: FileId, outcome: &Outcome) -> bool {
        let Outcome::Bad(finding) = outcome else { return false };
        finding.kind == ScrubFindingKind::Damaged
            && !self.scrubbing.record.lock().bad.iter().any(|bad| bad.file() == file)
    }

    /// About; holes are not read.
    fn bytes_behind(&self, mut after: FileId) -> Result<u64, String> {
        let mut bytes = 0_u64;
        loop {
            let page = self.shared.index.list(after, PAGE)?;
            let Some(last) = page.last() else { return Ok(bytes) };
            after = last.file;
            bytes += page.iter().map(|facts| facts.size.min(facts.space_used)).sum::<u64>();
        }
    }

    fn take(&self, file: FileId, outcome: Outcome, totals: &mut ScrubTotals) {
        match &outcome {
            Outcome::Gone => return,
            Outcome::Verified => totals.verified += 1,
            Outcome::Summed => totals.summed += 1,
            Outcome::LeftOut => totals.left_out += 1,
            Outcome::Bad(finding) => self.take_bad(finding, totals),
        }
        totals.replicas += 1;
        let is_good = matches!(outcome, Outcome::Verified | Outcome::Summed);
        if is_good && self.scrubbing.record.lock().bad.iter().any(|bad| bad.file() == file) {
            self.scrubbing.change(self.shared, |record| _ = record.forget_bad(file));
        }
    }

    fn take_bad(&self, finding: &ScrubFinding, totals: &mut ScrubTotals) {
        match finding.kind {
            ScrubFindingKind::Damaged => totals.damaged_replicas += 1,
            ScrubFindingKind::Unreadable => totals.unreadable_replicas += 1,
            ScrubFindingKind::Doubted => totals.doubted_replicas += 1,
        }
        if finding.kind != ScrubFindingKind::Doubted {
            totals.bad_blocks += finding.blocks;
            self.scrubbing.bad_blocks.add(finding.blocks);
            self.scrubbing.change(self.shared, |record| record.note_bad(finding));
        }
        let found = totals.damaged_replicas + totals.unreadable_replicas + totals.doubted_replicas;
        if found <= TOLD_MAX {
            self.watch.found(finding);
        }
    }

    fn step_replica(&self) -> Result<(), Halt> {
        self.wait(REPLICA_BYTES)
    }

    fn step(&self, bytes: u64) -> Result<(), Halt> {
        self.scrubbing.read_bytes.add(bytes);
        self.scrubbing.done_bytes.add(bytes);
        self.watch.advance(self.scrubbing.done_bytes.value());
        self.wait(bytes)
    }

    fn wait(&self, bytes: u64) -> Result<(), Halt> {
        let requests = self.shared.requests();
        let mut left = {
            let (pace, before) = &mut *self.pace.lock();
            let is_busy = std::mem::replace(before, requests) != requests;
            pace.wait(bytes, is_busy, Instant::now())
        };
        loop {
            if self.is_stopped() {
                return Err(Halt::Stopped);
            }
            if left.is_zero() {
                return Ok(());
            }
            let wait = left.min(WAIT_MAX);
            std::thread::sleep(wait);
            left -= wait;
        }
    }

    fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.scrubbing.cancel.is_cancelled()
    }
}

/// Removes sums of replicas that are gone, and unfinished ones. A failure does no harm.
fn remove_needless(dir: &Path, shared: &PoolParts, walk: &Walk<'_>) {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let levels = |path: &Path| entries(path).filter(|entry| entry.file_name().to_str().is_some_and(is_level));
    for outer in levels(&dir.join(SUMS)) {
        for inner in levels(&outer.path()) {
            if walk.is_stopped() {
                return;
            }
            for entry in entries(&inner.path()) {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let is_needless = match (parse_file(name), name.strip_suffix(".new").and_then(parse_file)) {
                    (Some(file), _) => shared.store.look(file) == Ok(None),
                    (None, unfinished) => unfinished.is_some(),
                };
                if is_needless {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
