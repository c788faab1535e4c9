//! The schedule of one seed: who does what, and which faults come when. It is drawn first, so that a failure can be shrunk by
//! leaving steps out.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;

pub const POOLS_MAX: usize = 4;
pub const FILES: u64 = 4;
pub const CLIENTS: usize = 3;
/// Faults come until then.
pub const FAULTS_END: Duration = Duration::from_secs(60);
const STEPS_MIN: u64 = 60;
const STEPS_MORE: u64 = 60;
/// Clocks differ in rate by less than a twentieth.
const RATE_SPREAD: u64 = 24_000;
const LEASES_S: [u64; 4] = [2, 4, 10, 20];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client asks the head for a ticket to write this file.
    AskTicket(usize, u64),
    /// The client writes with one of its tickets.
    Write(usize, u64),
    /// The head revokes the tickets to write of this file, and waits until none is honoured.
    Fence(u64),
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
    /// Messages in this direction stay on the way.
    CutToHead(usize),
    CutToPool(usize),
    Heal(usize),
    /// Both ends lose the connection.
    Reset(usize),
    /// Another process on a copy of the pool's directory dials.
    DialCopy(usize),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub pools: usize,
    /// Parts in a million that the clocks of the head and of each pool are fast.
    pub rates: [u64; POOLS_MAX + 1],
    pub lease_s: u64,
    pub steps: Vec<(Duration, Step)>,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut dice = Dice::new(seed);
        let pools = 1 + dice.below(POOLS_MAX as u64) as usize;
        let rates = [(); POOLS_MAX + 1].map(|()| 1_000_000 + dice.below(2 * RATE_SPREAD) - RATE_SPREAD);
        let lease_s = LEASES_S[dice.below(4) as usize];
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
}

fn draw_step(dice: &mut Dice, pools: usize) -> Step {
    let client = dice.below(CLIENTS as u64) as usize;
    let file = dice.below(FILES);
    let pool = dice.below(pools as u64) as usize;
    match dice.below(100) {
        0..22 => Step::AskTicket(client, file),
        22..52 => Step::Write(client, dice.draw()),
        52..64 => Step::Fence(file),
        64..67 => Step::RestartHead(LEASES_S[dice.below(4) as usize]),
        67..69 => Step::KillHead,
        69..73 => Step::StartHead(LEASES_S[dice.below(4) as usize]),
        73..76 => Step::KillPool(pool),
        76..80 => Step::StartPool(pool),
        80..81 => Step::StopPool(pool),
        81..85 => Step::Pause(pool, Duration::from_millis(dice.below(25_000))),
        85..88 => Step::CutToHead(pool),
        88..91 => Step::CutToPool(pool),
        91..96 => Step::Heal(pool),
        96..99 => Step::Reset(pool),
        _ => Step::DialCopy(pool),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} pools, lease {} s, rates {:?}",
            self.pools,
            self.lease_s,
            &self.rates[..=self.pools]
        )?;
        for (at, step) in &self.steps {
            writeln!(f, "  {:>10.6} s  {step:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
