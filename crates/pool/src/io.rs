//! The way of a pool's bytes, as an operator sees it: the rule, the modes that are possible, and what was decided.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use io_engine::calibration::{Cancel, Stopped};
use io_engine::counters::{Count, ResidencyBytes};
use io_engine::cpu::CpuTime;
use io_engine::latency::Times;
use io_engine::mode::{Crossover, Kind, Mode, Policy, Thresholds};
use io_engine::readahead::ReadAheadCounts;
use io_engine::{FileIo, QueueLoad, Recorded};
use types::{FileId, IoMode};

use crate::gathering::GatherReport;
use crate::journal::JournalReport;
use crate::local::LocalPool;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoReport {
    pub policy: Policy,
    /// By kernel and file system.
    pub is_uncached_possible: bool,
    pub is_direct_possible: bool,
    /// Decisions taken since the pool was opened, by kind, mode and reason.
    pub decisions: Vec<DecisionCount>,
    /// `None`: the pool has no write journal.
    pub journal: Option<JournalReport>,
    /// By kind and mode, those that there were.
    pub latencies: Vec<Latency>,
    /// By kind and mode, those that were measured.
    pub cpu: Vec<RequestCpu>,
    /// Of the bytes that were read.
    pub residency: ResidencyBytes,
    /// Files whose writers contend for the same pages now.
    pub contended_files: usize,
    /// The lanes of the pool's threads.
    pub lanes: [(&'static str, QueueLoad); 2],
    pub read_ahead: ReadAheadCounts,
    /// `None`: the pool has no delayed allocation.
    pub gather: Option<GatherReport>,
}

/// The times of requests of one kind in one mode, without waits for a thread and without syncs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    pub kind: Kind,
    pub mode: Mode,
    pub times: Times,
}

/// The CPU time of the threads that ran the requests of one kind in one mode, without syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCpu {
    pub kind: Kind,
    pub mode: Mode,
    pub cpu: CpuTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    pub kind: Kind,
    /// `buffered`, `uncached`, `direct`.
    pub mode: &'static str,
    /// The rule that chose the mode.
    pub reason: &'static str,
    pub operations: u64,
    pub bytes: u64,
}

/// `None`: the rule decides.
pub(crate) fn pinned_by(io: IoMode) -> Option<Mode> {
    match io {
        IoMode::Auto => None,
        IoMode::Buffered => Some(Mode::Buffered),
        IoMode::Uncached => Some(Mode::Uncached),
        IoMode::Direct => Some(Mode::Direct),
    }
}

/// The way of the bytes of one file that is in use, or kept for the next use.
#[derive(Clone, Debug, PartialEq)]
pub struct FileIoReport {
    /// `None`: the rule decides.
    pub pinned: Option<Mode>,
    /// The last decisions, oldest first. Requests that no fact takes past the page cache have none.
    pub recorded: Vec<Recorded>,
}

/// The requests of one file that is in use, or kept for the next use, since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCounts {
    pub file: FileId,
    /// By kind and mode, those that there were.
    pub counts: Vec<FileCount>,
    /// Writes that waited for another one of the same pages.
    pub waits: u64,
    /// So many of them that the rule takes note.
    pub is_contended: bool,
}

impl FileCounts {
    pub fn bytes(&self) -> u64 {
        self.counts.iter().map(|count| count.bytes).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCount {
    pub kind: Kind,
    pub mode: Mode,
    pub operations: u64,
    pub bytes: u64,
}

/// The sizes in bytes from which requests leave the page cache, other facts aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSizes {
    pub write: Crossover,
    pub read_sequential: Crossover,
    pub read_random: Crossover,
}

impl From<Thresholds> for IoSizes {
    fn from(thresholds: Thresholds) -> IoSizes {
        let Thresholds { write, read_sequential, read_random, .. } = thresholds;
        IoSizes { write, read_sequential, read_random }
    }
}

fn kinds_and_modes() -> impl Iterator<Item = (Kind, Mode)> {
    Kind::ALL.into_iter().flat_map(|kind| Mode::ALL.map(|mode| (kind, mode)))
}

impl FileCounts {
    fn of(file: FileId, io: &FileIo, now: Instant) -> FileCounts {
        let counts = kinds_and_modes().map(|(kind, mode)| {
            let Count { operations, bytes } = io.counts().count(kind, mode);
            FileCount { kind, mode, operations, bytes }
        });
        FileCounts {
            file,
            counts: counts.filter(|count| count.operations > 0).collect(),
            waits: io.waits(),
            is_contended: io.is_contended(now),
        }
    }
}

impl LocalPool {
    /// Measures the pool's disk beside whatever else it does, and takes the sizes that follow. Blocks, for about 20 s.
    pub fn calibrate(&self, cancel: &Cancel) -> Result<IoSizes, Stopped> {
        let parts = self.parts();
        let capabilities = parts.engine.path().capabilities();
        if !capabilities.uncached && capabilities.direct.is_none() {
            let reason = "the disk has no mode but buffered, or took no writes when the server was started";
            return Err(Stopped::Io(std::io::Error::other(reason)));
        }
        parts.calibrating.run(parts, cancel, &|| false).map(|calibration| calibration.thresholds.into())
    }

    /// Those that the rule decides with now.
    pub fn thresholds(&self) -> Thresholds {
        self.parts().engine.path().thresholds()
    }

    /// `None`: the file was not used since the pool was opened, or was closed to make room for others.
    pub fn file_io(&self, file: FileId) -> Option<FileIoReport> {
        let replica = self.table().find(file)?;
        let io = replica.io();
        Some(FileIoReport { pinned: io.pinned(), recorded: io.recorded() })
    }

    /// The files with the most bytes, the busiest first, at most `top`.
    pub fn busiest(&self, top: usize) -> Vec<FileCounts> {
        let mut busiest = BinaryHeap::new();
        self.table().each(&mut |replica| {
            let bytes = replica.io().counts().bytes();
            if bytes > 0 {
                busiest.push(Reverse((bytes, replica.id())));
            }
            if busiest.len() > top {
                busiest.pop();
            }
        });
        let sorted = busiest.into_sorted_vec().into_iter().map(|Reverse((_, file))| file);
        // One that was closed in between is left out.
        let found = sorted.filter_map(|file| self.table().find(file));
        found.map(|replica| FileCounts::of(replica.id(), replica.io(), Instant::now())).collect()
    }

    /// `None`: the pool has none.
    pub fn journal(&self) -> Option<JournalReport> {
        self.parts().journal.report()
    }

    pub fn io(&self) -> IoReport {
        let path = self.parts().engine.path();
        let capabilities = path.capabilities();
        let counts = path.counts();
        let decisions = counts.iter().map(|count| DecisionCount {
            kind: count.kind,
            mode: count.decision.mode.label(),
            reason: count.decision.reason.label(),
            operations: count.count.operations,
            bytes: count.count.bytes,
        });
        let latencies = kinds_and_modes().map(|(kind, mode)| {
            let times = path.latencies().times(kind, mode);
            Latency { kind, mode, times }
        });
        let cpu = kinds_and_modes().map(|(kind, mode)| {
            let cpu = path.cpu().time(kind, mode);
            RequestCpu { kind, mode, cpu }
        });
        IoReport {
            policy: path.policy(),
            is_uncached_possible: capabilities.uncached,
            is_direct_possible: capabilities.direct.is_some(),
            decisions: decisions.collect(),
            journal: self.journal(),
            latencies: latencies.filter(|latency| latency.times.count() > 0).collect(),
            cpu: cpu.filter(|request| request.cpu.bytes > 0).collect(),
            residency: path.residency(),
            contended_files: self.parts().contended.now(Instant::now()).len(),
            lanes: self.parts().engine.loads(),
            read_ahead: path.read_ahead(),
            gather: self.parts().gathering.report(),
        }
    }
}
