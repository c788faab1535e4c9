//! Histories that follow from seeds, of whatever is simulated: run one or many, shrink one that fails, and report it.

mod options;
#[cfg(test)]
mod tests;

use std::fmt::{Debug, Display};
use std::hash::Hasher;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::dice::TraceHasher;
pub use options::{Options, number};

/// Of a report.
const LINES: usize = 40;
const TIME: Duration = Duration::from_secs(20);

/// A simulation of some part of the product.
pub trait Simulation {
    type Plan: Schedule;
    /// A fault in the simulation, to show that the checks find it. None is in the product.
    type Plant: Copy + PartialEq + 'static;
    type Check: Copy + PartialEq + Debug;

    /// As `sim` and its script call it.
    const NAME: &'static str;
    /// Names the subject of failures and events, before its number.
    const SUBJECT: &'static str;
    const PLANTS: &'static [(&'static str, Self::Plant)];

    fn draw(seed: u64) -> Self::Plan;

    fn run(plan: &Self::Plan, plant: Option<Self::Plant>, is_traced: bool) -> History<Self::Check>;
}

/// The steps of one seed, which are drawn before it is run.
pub trait Schedule: Clone + Display {
    fn seed(&self) -> u64;

    fn steps_count(&self) -> usize;

    /// The same steps without some.
    fn without(&self, steps: Range<usize>) -> Self;
}

/// How a run ended.
pub struct History<C> {
    pub failure: Option<Failure<C>>,
    pub hash: u64,
    pub events: usize,
    /// If it was traced.
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<C> {
    pub check: C,
    /// The number of its subject. `None`: it is about several.
    pub about: Option<u64>,
    pub what: String,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub about: LineSubject,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSubject {
    /// Hosts and faults.
    Everything,
    One(u64),
    /// Bytes on the network, which reports leave out.
    Bytes,
}

impl<C: Debug> Display for Failure<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.check, self.what)
    }
}

/// Does what the arguments ask for. `None`: they are not understood.
pub fn command<S: Simulation>(arguments: &[String]) -> Option<ExitCode> {
    let options = Options::<S>::parse(arguments)?;
    Some(match options.seed {
        Some(seed) => run_one(seed, &options),
        None => run_many(&options),
    })
}

fn run_one<S: Simulation>(seed: u64, options: &Options<S>) -> ExitCode {
    let plan = S::draw(seed);
    let done = S::run(&plan, options.plant, options.is_traced);
    if options.is_traced {
        print!("{plan}");
        done.lines.iter().for_each(|line| println!("{}", line.text));
    }
    println!("seed {seed:#x}: {} events, trace {:016x}", done.events, done.hash);
    match done.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            print!("{}", report::<S>(&plan, &failure, options.plant));
            ExitCode::FAILURE
        }
    }
}

fn run_many<S: Simulation>(options: &Options<S>) -> ExitCode {
    let mut tally = Tally::<S>::new(options.plant);
    let end = Instant::now() + options.time.unwrap_or(TIME);
    let is_over = |tally: &Tally<S>| match options.seeds {
        Some(wanted) => tally.seeds >= wanted,
        None => Instant::now() > end,
    };
    while !is_over(&tally) {
        if let Err(report) = tally.run_next() {
            print!("{report}");
            return ExitCode::FAILURE;
        }
    }
    println!("{tally}");
    ExitCode::SUCCESS
}

/// Seeds that were run one after the other, from 1 on.
pub struct Tally<S: Simulation> {
    plant: Option<S::Plant>,
    seeds: u64,
    events: usize,
    hash: TraceHasher,
    time: Duration,
}

impl<S: Simulation> Tally<S> {
    pub fn new(plant: Option<S::Plant>) -> Tally<S> {
        Tally { plant, seeds: 0, events: 0, hash: TraceHasher::default(), time: Duration::ZERO }
    }

    /// An error is the report of a failure.
    pub fn run_next(&mut self) -> Result<(), String> {
        let began = Instant::now();
        self.seeds += 1;
        let plan = S::draw(self.seeds);
        let done = S::run(&plan, self.plant, false);
        self.events += done.events;
        self.hash.write_u64(done.hash);
        self.time += began.elapsed();
        done.failure.map_or(Ok(()), |failure| Err(report::<S>(&plan, &failure, self.plant)))
    }

    pub fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.run_next()?;
        }
        Ok(())
    }
}

impl<S: Simulation> Display for Tally<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Tally { seeds, events, .. }, hash) = (self, self.hash.finish());
        write!(
            f,
            "sim {}: {seeds} seeds, {events} events, trace {hash:016x}, no failure, {:.1} s",
            S::NAME,
            self.time.as_secs_f64()
        )
    }
}

/// For whoever looks into a failure: the check, the steps without those that it does not need, the last events, the command.
pub fn report<S: Simulation>(plan: &S::Plan, failure: &Failure<S::Check>, plant: Option<S::Plant>) -> String {
    let shrunk = shrink::<S>(plan, failure, plant);
    let done = S::run(&shrunk, plant, true);
    let about = done.failure.as_ref().and_then(|failure| failure.about);
    let is_told = |line: &&Line| match line.about {
        LineSubject::Everything => true,
        LineSubject::One(number) => about.is_none_or(|about| about == number),
        LineSubject::Bytes => false,
    };
    let told: Vec<&str> = done.lines.iter().filter(is_told).map(|line| line.text.as_str()).collect();
    let whose = about.map(|number| format!(" of {} {number}", S::SUBJECT)).unwrap_or_default();
    let planted = S::PLANTS.iter().find(|(_, known)| Some(*known) == plant);
    let planted = planted.map(|(name, _)| format!(" --plant {name}")).unwrap_or_default();
    format!(
        "FAILED {failure}\nsteps that are enough ({} of {}): {shrunk}last events{whose}:\n  {}\nrepeat: sim/run {} --seed {:#x} --trace{planted}\n",
        shrunk.steps_count(),
        plan.steps_count(),
        told[told.len().saturating_sub(LINES)..].join("\n  "),
        S::NAME,
        plan.seed(),
    )
}

/// Leaves out steps, by halves and then singly, as long as the same check fails.
pub fn shrink<S: Simulation>(
    plan: &S::Plan,
    failure: &Failure<S::Check>,
    plant: Option<S::Plant>,
) -> S::Plan {
    let mut shrunk = plan.clone();
    let mut part = shrunk.steps_count() / 2;
    while part > 0 {
        let mut from = 0;
        while from < shrunk.steps_count() {
            let fewer = shrunk.without(from..(from + part).min(shrunk.steps_count()));
            match S::run(&fewer, plant, false).failure {
                Some(found) if found.check == failure.check => shrunk = fewer,
                _ => from += part,
            }
        }
        part /= 2;
    }
    shrunk
}
