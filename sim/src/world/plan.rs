//! The schedule of one seed: clients' operations and faults. It is drawn first, so that a failure can be shrunk by leaving
//! steps out.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use testkit::lossy_disk::CELLS;

use crate::dice::Dice;
use crate::histories::Schedule;

pub const POOLS_MAX: usize = 4;
pub const FILES_OF_POOL: u64 = 2;
pub const CLIENTS: usize = 3;
/// Faults come until then.
pub const FAULTS_END: Duration = Duration::from_secs(60);
const STEPS_MIN: u64 = 60;
const STEPS_MORE: u64 = 120;
/// Clocks differ in rate by less than a twentieth.
const RATE_SPREAD: u64 = 24_000;
const LEASES_S: [u64; 4] = [2, 4, 10, 20];

/// Cells of a file, which a write fills with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    pub file: u64,
    pub first: usize,
    pub count: usize,
}

/// A client reaches data at the pool, or through the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Pool,
    Head,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client writes and syncs, and tries until it has an answer.
    Write {
        client: usize,
        cells: Cells,
        way: Way,
        is_stable: bool,
    },
    /// The client reads once.
    Read {
        client: usize,
        file: u64,
        way: Way,
    },
    /// The head revokes the tickets of this file for the client, and tells it when none is honoured.
    Fence {
        client: usize,
        file: u64,
    },
    /// A write by one of the tickets that the client has had, late and waited for by nobody.
    Stray {
        client: usize,
        cells: Cells,
        draw: u64,
    },
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process ends, without or with all of its host, and starts after that time. It gives leases of so many seconds.
    KillHead(Duration, u64),
    CutPowerOfHead(Duration, u64),
    /// In order.
    StopHead(Duration, u64),
    PauseHead(Duration),
    KillPool(usize, Duration),
    CutPower(usize, Duration),
    /// In order: the head is told.
    StopPool(usize, Duration),
    /// The process stands still, its clock goes on.
    PausePool(usize, Duration),
    /// Bytes in this direction stay on the way for so long.
    CutToHead(usize, Duration),
    CutToPool(usize, Duration),
    /// Connections are lost, at both ends.
    Reset(usize),
    SlowDisk(usize, Duration),
    FailingDisk(usize, Duration),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub pools: usize,
    /// Parts of a million by which the clocks of the head and of each pool go.
    pub rates: [u64; POOLS_MAX + 1],
    pub lease_s: u64,
    pub steps: Vec<(Duration, Step)>,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut dice = Dice::new(seed);
        let pools = 1 + dice.below(POOLS_MAX as u64) as usize;
        let rates = [(); POOLS_MAX + 1].map(|()| 1_000_000 + dice.below(2 * RATE_SPREAD) - RATE_SPREAD);
        let lease_s = draw_lease(&mut dice);
        let count = STEPS_MIN + dice.below(STEPS_MORE);
        let mut steps: Vec<_> = (0..count)
            .map(|_| {
                let at = Duration::from_micros(dice.below(FAULTS_END.as_micros() as u64));
                (at, draw_step(&mut dice, pools))
            })
            .collect();
        steps.sort_by_key(|(at, _)| *at);
        Plan { seed, pools, rates, lease_s, steps }
    }

    /// Without steps, for a test.
    pub fn idle(seed: u64, pools: usize, lease_s: u64) -> Plan {
        Plan { seed, pools, rates: [1_000_000; POOLS_MAX + 1], lease_s, steps: Vec::new() }
    }

    pub fn files(&self) -> u64 {
        self.pools as u64 * FILES_OF_POOL
    }
}

fn draw_lease(dice: &mut Dice) -> u64 {
    LEASES_S[dice.below(LEASES_S.len() as u64) as usize]
}

fn draw_step(dice: &mut Dice, pools: usize) -> Step {
    let client = dice.below(CLIENTS as u64) as usize;
    let file = dice.below(pools as u64 * FILES_OF_POOL);
    match dice.below(100) {
        0..42 => {
            let (cells, way, is_stable) = (draw_cells(dice, file), draw_way(dice), dice.one_in(2));
            Step::Write { client, cells, way, is_stable }
        }
        42..54 => Step::Read { client, file, way: draw_way(dice) },
        54..63 => Step::Fence { client, file },
        63..75 => Step::Stray { client, cells: draw_cells(dice, file), draw: dice.draw() },
        _ => Step::Fault(draw_fault(dice, pools)),
    }
}

fn draw_way(dice: &mut Dice) -> Way {
    if dice.one_in(2) { Way::Pool } else { Way::Head }
}

fn draw_cells(dice: &mut Dice, file: u64) -> Cells {
    let first = dice.below(CELLS as u64) as usize;
    let count = 1 + dice.below((CELLS - first) as u64) as usize;
    Cells { file, first, count }
}

fn draw_fault(dice: &mut Dice, pools: usize) -> Fault {
    let pool = dice.below(pools as u64) as usize;
    // Mostly shorter than leases.
    let time = Duration::from_millis(if dice.one_in(3) { dice.below(25_000) } else { dice.below(4_000) });
    match dice.below(30) {
        0..2 => Fault::KillHead(time, draw_lease(dice)),
        2 => Fault::CutPowerOfHead(time, draw_lease(dice)),
        3 => Fault::StopHead(time, draw_lease(dice)),
        4..6 => Fault::PauseHead(time),
        6..8 => Fault::KillPool(pool, time),
        8..10 => Fault::CutPower(pool, time),
        10 => Fault::StopPool(pool, time),
        11..15 => Fault::PausePool(pool, time),
        15..18 => Fault::CutToHead(pool, time),
        18..21 => Fault::CutToPool(pool, time),
        21..25 => Fault::Reset(pool),
        25..28 => Fault::SlowDisk(pool, time),
        _ => Fault::FailingDisk(pool, time / 4),
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

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = &self.rates[..=self.pools];
        writeln!(f, "{} pools, lease {} s, rates {rates:?}", self.pools, self.lease_s)?;
        for (at, step) in &self.steps {
            writeln!(f, "  {:>10.6} s  {step:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
