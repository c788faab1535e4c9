//! Draws a plan. Each seed has about half of the kinds of faults, so that some kinds come often where others do not end what
//! they began. Faults come in bursts, many of them about when a grace period ends. They last until then, for about a lease, or
//! for any time.

use std::time::Duration;

use super::{CLIENTS, Copied, FAULTS_END, FILES, POOLS_MAX, Plan, Step};
use crate::dice::Dice;

/// Clocks differ in rate by less than a twentieth.
const RATE_SPREAD: u64 = 24_000;
const LEASES_S: [u64; 4] = [2, 4, 7, 12];
/// Zero: nobody could reclaim.
const GRACES_S: [u64; 4] = [0, 1, 5, 18];
const SOON: Duration = Duration::from_secs(19);
/// Messages that a stall held back arrive behind its end.
const SLOW_LONGER: Duration = Duration::from_secs(2);
const WIDTHS_MS: [u64; 4] = [20, 200, 1_000, 4_000];

#[derive(Clone, Copy)]
enum Fault {
    RestartHead,
    /// Each start ends about when its grace period would.
    RestartHeadAgain,
    KillHead,
    KillPool,
    StopPool,
    Pause,
    Stall,
    Slow,
    Cut,
    Reset,
    /// The pool has no lease about the end of a grace period, and its session goes on.
    Lapse,
    /// Connections of one pool, or of all in turn, are lost again and again.
    Flap,
    Copy,
}

const FAULTS: [Fault; 13] = [
    Fault::RestartHead,
    Fault::RestartHeadAgain,
    Fault::KillHead,
    Fault::KillPool,
    Fault::StopPool,
    Fault::Pause,
    Fault::Stall,
    Fault::Slow,
    Fault::Cut,
    Fault::Reset,
    Fault::Lapse,
    Fault::Flap,
    Fault::Copy,
];

pub(super) fn plan(seed: u64) -> Plan {
    let mut dice = Dice::new(seed);
    let pools = 1 + dice.below(POOLS_MAX as u64) as usize;
    let plan = Plan {
        seed,
        pools,
        rates: [(); POOLS_MAX + 1].map(|()| 1_000_000 + dice.below(2 * RATE_SPREAD) - RATE_SPREAD),
        lease_s: one_of(&mut dice, &LEASES_S),
        grace: Duration::from_secs(one_of(&mut dice, &GRACES_S)),
        is_prompt: dice.one_in(2),
        steps: Vec::with_capacity(128),
    };
    let faults = FAULTS.into_iter().filter(|_| dice.one_in(2)).collect();
    let spared = dice.one_in(2).then(|| (dice.below(pools as u64) as usize, any_moment(&mut dice) / 2));
    let mut drawing = Drawing { dice, plan, faults, spared, ends: Vec::new() };
    for _ in 0..10 + drawing.dice.below(10) {
        let at = any_moment(&mut drawing.dice);
        drawing.work(at);
    }
    for _ in 0..3 + drawing.dice.below(6) {
        drawing.burst();
    }
    let mut plan = drawing.plan;
    plan.steps.retain(|(at, _)| *at < FAULTS_END);
    plan.steps.sort_by_key(|(at, _)| *at);
    plan
}

struct Drawing {
    dice: Dice,
    plan: Plan,
    faults: Vec<Fault>,
    /// A pool that no fault concerns from then on.
    spared: Option<(usize, Duration)>,
    /// Of grace periods, and of the leases that a start of the head waits for.
    ends: Vec<Duration>,
}

impl Drawing {
    fn add(&mut self, at: Duration, step: Step) {
        self.plan.steps.push((at, step));
    }

    fn work(&mut self, at: Duration) {
        let client = self.dice.below(CLIENTS as u64) as usize;
        let file = self.dice.below(FILES as u64);
        let step = match self.dice.below(16) {
            0..6 => Step::AskTicket(client, file),
            6..12 => Step::Write(client, self.dice.draw()),
            12..15 => Step::Fence(file),
            _ => Step::FenceAll(file as usize % self.plan.pools),
        };
        self.add(at, step);
    }

    fn burst(&mut self) {
        let at = any_moment(&mut self.dice);
        let begin = self.about_an_end(at).filter(|_| self.dice.one_in(2)).unwrap_or(at);
        let width = one_of(&mut self.dice, &WIDTHS_MS);
        for _ in 0..1 + self.dice.below(4) {
            let at = begin + self.within(width);
            self.fault(at);
        }
        for _ in 0..2 + self.dice.below(5) {
            let at = begin + self.within(width);
            self.work(at);
        }
        if self.dice.one_in(6) {
            self.fence_often(begin);
        }
    }

    /// Files of one pool, for some seconds.
    fn fence_often(&mut self, at: Duration) {
        let pools = self.plan.pools;
        let (pool, gap_ms) = (self.dice.below(pools as u64) as usize, 200 + self.dice.below(1_200));
        let files = (FILES - pool).div_ceil(pools) as u64;
        let mut at = at;
        for _ in 0..5 + self.dice.below(8) {
            let file = pool as u64 + pools as u64 * self.dice.below(files);
            let step = if self.dice.one_in(3) { Step::FenceAll(pool) } else { Step::Fence(file) };
            self.add(at, step);
            at += self.within(gap_ms);
        }
    }

    fn fault(&mut self, at: Duration) {
        if self.faults.is_empty() {
            return;
        }
        let fault = self.faults[self.dice.below(self.faults.len() as u64) as usize];
        let pool = self.dice.below(self.plan.pools as u64) as usize;
        let end = self.some_end(at).min(FAULTS_END.max(at));
        match fault {
            Fault::RestartHead => self.restart_head(at),
            Fault::RestartHeadAgain => self.restart_head_again(at),
            Fault::KillHead => {
                let lease_s = self.some_lease();
                self.add(at, Step::KillHead);
                self.add(end, Step::StartHead(lease_s));
                self.head_starts(end);
            }
            Fault::Flap => self.flap(at, pool),
            Fault::Lapse => self.lapse(at, pool),
            _ if self.is_spared(pool, end) => {}
            fault => self.fault_of_pool(fault, pool, at, end),
        }
    }

    fn fault_of_pool(&mut self, fault: Fault, pool: usize, at: Duration, end: Duration) {
        let (step, repair) = match fault {
            Fault::KillPool => (Step::KillPool(pool), Some(Step::StartPool(pool))),
            Fault::StopPool => (Step::StopPool(pool), Some(Step::StartPool(pool))),
            Fault::Pause => (Step::Pause(pool, end - at), None),
            Fault::Stall => {
                // One that hangs ends the lease, and not the session.
                let fenced = at + self.within(500);
                self.add(fenced, Step::Fence(pool as u64));
                if self.dice.one_in(2) {
                    self.add(at, Step::Slow(pool, end - at + SLOW_LONGER));
                }
                (Step::Stall(pool, end - at), None)
            }
            Fault::Slow => (Step::Slow(pool, end - at), None),
            Fault::Copy => {
                let copied = if self.dice.one_in(2) { Copied::Now } else { Copied::Earlier };
                (Step::DialCopy(pool, copied), None)
            }
            Fault::Cut => match self.dice.below(3) {
                0 => (Step::CutToHead(pool), Some(Step::Heal(pool))),
                1 => (Step::CutToPool(pool), Some(Step::Heal(pool))),
                _ => {
                    self.add(at, Step::CutToHead(pool));
                    (Step::CutToPool(pool), Some(Step::Heal(pool)))
                }
            },
            _ if self.dice.one_in(3) => (Step::LoseData(pool), None),
            _ => (Step::Reset(pool), None),
        };
        self.add(at, step);
        if let Some(repair) = repair {
            self.add(end, repair);
        }
    }

    fn restart_head(&mut self, at: Duration) {
        let lease_s = self.some_lease();
        self.add(at, Step::RestartHead(lease_s));
        self.head_starts(at);
    }

    fn head_starts(&mut self, at: Duration) {
        let lease_end = at + Duration::from_millis(self.plan.lease_s * 1_050);
        self.ends.extend([at + self.plan.grace, lease_end]);
    }

    fn restart_head_again(&mut self, at: Duration) {
        let grace_ms = self.plan.grace.as_millis() as u64;
        let mut at = at;
        for _ in 0..2 + self.dice.below(4) {
            self.restart_head(at);
            // Clocks differ in rate, too.
            at += Duration::from_millis(grace_ms * (94 + self.dice.below(12)) / 100 + self.dice.below(600));
        }
    }

    fn flap(&mut self, at: Duration, pool: usize) {
        let (is_in_turn, gap_ms) = (self.dice.one_in(2), 100 + self.dice.below(1_400));
        let mut at = at;
        for turn in 0..4 + self.dice.below(12) as usize {
            let pool = if is_in_turn { turn % self.plan.pools } else { pool };
            if !self.is_spared(pool, at) {
                self.add(at, Step::Reset(pool));
            }
            at += self.within(2 * gap_ms);
        }
    }

    fn lapse(&mut self, at: Duration, pool: usize) {
        // Pools keep their leases, and so their floor.
        self.add(at, Step::RestartHead(self.plan.lease_s));
        self.head_starts(at);
        let end = at + self.plan.grace + self.within(600);
        let lease_ms = self.plan.lease_s * 1_000;
        let percent = self.dice.below(100);
        // A fence that hangs; or requests come late, and before the head closes the connection.
        let hangs = self.dice.one_in(2);
        let part = if hangs { 160 + percent } else { 100 + percent / 5 };
        let begin = end.saturating_sub(Duration::from_millis(lease_ms * part / 100));
        if begin <= at || self.is_spared(pool, end) {
            return;
        }
        if hangs {
            self.add(begin, Step::Stall(pool, end - begin));
            self.add(begin, Step::Fence(pool as u64));
            self.add(begin, Step::Slow(pool, end - begin + SLOW_LONGER));
        } else {
            self.add(begin, Step::Pause(pool, end - begin));
        }
    }

    fn is_spared(&self, pool: usize, at: Duration) -> bool {
        self.spared.is_some_and(|(spared, from)| spared == pool && at > from)
    }

    fn within(&mut self, ms: u64) -> Duration {
        Duration::from_micros(self.dice.below(ms * 1_000))
    }

    /// Of a fault: one of the ends, after one or two leases, or after 10 ms to 10 s.
    fn some_end(&mut self, at: Duration) -> Duration {
        match self.dice.below(4) {
            0 if let Some(end) = self.about_an_end(at) => end,
            1 => at + Duration::from_millis(self.plan.lease_s * 10 * (90 + self.dice.below(130))),
            _ => {
                let power = self.dice.below(9) as u32;
                at + Duration::from_millis((10 + self.dice.below(30)) << power)
            }
        }
    }

    /// Behind `at`, and soon.
    fn about_an_end(&mut self, at: Duration) -> Option<Duration> {
        let is_soon = |end: &Duration| *end > at && *end < at + SOON;
        let behind: Vec<Duration> = self.ends.iter().copied().filter(is_soon).collect();
        if behind.is_empty() {
            return None;
        }
        let end = behind[self.dice.below(behind.len() as u64) as usize];
        Some((end + self.within(600)).saturating_sub(Duration::from_millis(300)).max(at))
    }

    fn some_lease(&mut self) -> u64 {
        if self.dice.one_in(2) { self.plan.lease_s } else { one_of(&mut self.dice, &LEASES_S) }
    }
}

fn any_moment(dice: &mut Dice) -> Duration {
    Duration::from_micros(dice.below(FAULTS_END.as_micros() as u64))
}

fn one_of(dice: &mut Dice, choices: &[u64]) -> u64 {
    choices[dice.below(choices.len() as u64) as usize]
}
