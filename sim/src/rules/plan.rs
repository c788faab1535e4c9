//! The schedule of one seed: who does what, and which faults come when. It is drawn first, so that a failure can be shrunk by
//! leaving steps out.

mod draw;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::histories::Schedule;

pub const POOLS_MAX: usize = 4;
pub const FILES: usize = 4;
pub const CLIENTS: usize = 3;
/// Faults come until then.
pub const FAULTS_END: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client asks the head for a ticket to write this file.
    AskTicket(usize, u64),
    /// The client writes with one of its tickets.
    Write(usize, u64),
    /// The head revokes the tickets to write of this file, and waits until none is honoured.
    Fence(u64),
    /// Of all files of this pool, in one call.
    FenceAll(usize),
    /// The head gives leases of this length from then on, for so many seconds.
    RestartHead(u64),
    KillHead,
    StartHead(u64),
    KillPool(usize),
    StartPool(usize),
    /// In order: the head is told.
    StopPool(usize),
    /// The process stands still, its clock goes on.
    Pause(usize, Duration),
    /// The disk ends nothing before that time is over: neither writes nor fences.
    Stall(usize, Duration),
    /// Each message takes long.
    Slow(usize, Duration),
    /// Messages in this direction stay on the way.
    CutToHead(usize),
    CutToPool(usize),
    Heal(usize),
    /// Both ends lose the connection.
    Reset(usize),
    /// The head loses a connection for data, and with it the session.
    LoseData(usize),
    /// Another process on a copy of the pool's directory dials: of the same number of starts, or of an earlier one.
    DialCopy(usize, Copied),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    Now,
    Earlier,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub pools: usize,
    /// Parts in a million that the clocks of the head and of each pool are fast.
    pub rates: [u64; POOLS_MAX + 1],
    pub lease_s: u64,
    /// From the start of a head to the end of the tickets of terms before.
    pub grace: Duration,
    /// The head asks whether former tickets have ended after each event, and otherwise a few times a second.
    pub is_prompt: bool,
    pub steps: Vec<(Duration, Step)>,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        draw::plan(seed)
    }
}

impl Schedule for Plan {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn steps_count(&self) -> usize {
        self.steps.len()
    }

    fn without(&self, steps: Range<usize>) -> Plan {
        let mut fewer = self.clone();
        fewer.steps.drain(steps);
        fewer
    }
}

impl Step {
    /// The pool that it concerns alone.
    pub fn pool(self) -> Option<usize> {
        match self {
            Step::FenceAll(pool)
            | Step::KillPool(pool)
            | Step::StartPool(pool)
            | Step::StopPool(pool)
            | Step::Pause(pool, _)
            | Step::Stall(pool, _)
            | Step::Slow(pool, _)
            | Step::CutToHead(pool)
            | Step::CutToPool(pool)
            | Step::Heal(pool)
            | Step::Reset(pool)
            | Step::LoseData(pool)
            | Step::DialCopy(pool, _) => Some(pool),
            Step::AskTicket(..)
            | Step::Write(..)
            | Step::Fence(_)
            | Step::RestartHead(_)
            | Step::KillHead
            | Step::StartHead(_) => None,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { pools, lease_s, grace, is_prompt, .. } = self;
        let (rates, asks) = (&self.rates[..=*pools], if *is_prompt { "at once" } else { "now and then" });
        writeln!(f, "{pools} pools, lease {lease_s} s, grace {grace:?}, asks {asks}, rates {rates:?}")?;
        for (at, step) in &self.steps {
            writeln!(f, "  {:>10.6} s  {step:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
