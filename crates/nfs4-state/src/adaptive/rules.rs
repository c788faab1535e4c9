//! When delegations are offered, and to how many files of a client.

use std::time::Duration;

/// When delegations are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationMode {
    /// Never.
    Off,
    /// Where the client's use of the file says that it pays.
    Adaptive,
    /// With every open, but for files that are quiet.
    Always,
}

/// When delegations to write are offered; nowhere where [`DelegationMode`] says never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDelegations {
    Off,
    /// To clients that ask for one.
    Wanted,
    /// As those to read.
    On,
}

/// How a site wants its delegations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationRules {
    pub mode: DelegationMode,
    pub write: WriteDelegations,
    /// A second access this soon after the one before makes a file active.
    pub window: Duration,
    /// An active file that was not accessed for longer is active no more.
    pub idle: Duration,
    /// Files of one client in eviction; beyond it the least recently used is forgotten.
    pub eviction_max: usize,
    /// Files of one client in active; beyond it the least recently used falls back to eviction.
    pub active_max: usize,
    /// So long after a recall nobody is offered that file.
    pub quiet: Duration,
    /// Files that are quiet at once; beyond it the one recalled first may be offered again.
    pub quiet_files_max: usize,
}

impl Default for DelegationRules {
    fn default() -> DelegationRules {
        DelegationRules {
            mode: DelegationMode::Adaptive,
            write: WriteDelegations::Wanted,
            window: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            eviction_max: 4_096,
            active_max: 4_096,
            quiet: Duration::from_secs(30),
            quiet_files_max: 65_536,
        }
    }
}
