//! The way of a pool's bytes, as an operator sees it: the rule, the modes that are possible, and what was decided.

use io_engine::Recorded;
use io_engine::calibration::{Cancel, Stopped};
use io_engine::mode::{Crossover, Kind, Mode, Policy, Thresholds};
use types::FileId;

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

/// The way of the bytes of one file that is in use, or kept for the next use.
#[derive(Clone, Debug, PartialEq)]
pub struct FileIoReport {
    /// `None`: the rule decides.
    pub pinned: Option<Mode>,
    /// The last decisions, oldest first. Requests that no fact takes past the page cache have none.
    pub recorded: Vec<Recorded>,
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
        IoReport {
            policy: path.policy(),
            is_uncached_possible: capabilities.uncached,
            is_direct_possible: capabilities.direct.is_some(),
            decisions: decisions.collect(),
            journal: self.parts().journal.report(),
        }
    }
}
