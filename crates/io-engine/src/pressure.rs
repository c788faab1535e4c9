//! Looks at the memory that a pool's requests meet: facts for the choice of a mode.
//!
//! A sampler looks at most once in `INTERVAL` and answers from memory between two looks. A look reads files of `/proc`
//! and `/sys`, so it belongs in a thread that may block for a moment. Every file may be absent: a sampler then knows
//! less, and says so by `None`. No sampler fails.
//!
//! Deliberately absent: version 1 of control groups, which count as none, and the latency of the device, which a pool's
//! own streams raise most.

mod control_group;
mod dirty;
mod memory;

use std::time::{Duration, Instant};

pub use memory::{Memory, MemorySampler, Shortage};

/// The shortest time between two looks of a sampler.
pub const INTERVAL: Duration = Duration::from_secs(1);

fn is_due(looked_at: Option<Instant>, now: Instant) -> bool {
    looked_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL)
}
