//! The mode of each request: through the page cache, through it without staying there, or past it.
//!
//! Pure data and a pure rule: no system call, no clock, no state. Callers collect [`Inputs`], and an operator replays
//! recorded inputs against other [`Thresholds`]. The rule is a table at [`decide`].

mod facts;
mod reason;
mod rule;
mod thresholds;

#[cfg(test)]
mod tests;

pub use facts::{FileFacts, Inputs, Kind, ModeCapabilities, Pattern, PoolFacts, Request, Residency, Reuse};
pub use reason::Reason;
pub use rule::decide;
pub use thresholds::{ContentionThresholds, Crossover, Policy, Thresholds};

use serde::{Deserialize, Serialize};

/// How the bytes of a request go to and from the disk. The order is how far a mode keeps away from the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Through the page cache, and the pages stay.
    Buffered,
    /// Through the page cache with `RWF_DONTCACHE`: pages that the request brought in are dropped after it.
    Uncached,
    /// `O_DIRECT`.
    Direct,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Buffered, Mode::Uncached, Mode::Direct];

    /// The name in configuration, counters and recorded decisions.
    pub fn label(self) -> &'static str {
        match self {
            Mode::Buffered => "buffered",
            Mode::Uncached => "uncached",
            Mode::Direct => "direct",
        }
    }
}

/// The mode of a request, and the rule that chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub mode: Mode,
    pub reason: Reason,
}

impl Decision {
    fn buffered(reason: Reason) -> Decision {
        Decision { mode: Mode::Buffered, reason }
    }
}
