//! The rules of a head and its pools against a model of what happened: many short histories, each from a seed.

mod model;
mod plan;
#[cfg(test)]
mod tests;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use model::Failure;
use plan::Plan;
use world::{Line, run};

/// A fault in the carrying of messages, to show that the checks find it. None is in the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A fence counts as confirmed when it is sent.
    MissingFence,
    /// The head leaves out the margin for the pool's clock.
    EarlyLeaseEnd,
    /// A pool gets a lease before it has the floor of terms.
    LateFloor,
    /// A start of the head forgets longer leases of the starts before.
    ForgottenLease,
    /// A HELLO of a process that has ended counts as that of a new one.
    OldHello,
    /// The head goes on without a pool whose lease is over, and does not note the floor of terms that the pool is to take.
    UnnotedFloor,
    /// A pool that connects anew is waited for again to say that it has settled its writes.
    ForgottenFloor,
}

const PLANTS: [(&str, Plant); 7] = [
    ("missing-fence", Plant::MissingFence),
    ("early-lease-end", Plant::EarlyLeaseEnd),
    ("late-floor", Plant::LateFloor),
    ("forgotten-lease", Plant::ForgottenLease),
    ("old-hello", Plant::OldHello),
    ("unnoted-floor", Plant::UnnotedFloor),
    ("forgotten-floor", Plant::ForgottenFloor),
];
const LINES: usize = 40;

struct Options {
    seeds: Option<u64>,
    time: Option<Duration>,
    seed: Option<u64>,
    is_traced: bool,
    plant: Option<Plant>,
}

/// Runs `sim rules`. `None`: the arguments are not understood.
pub fn command(arguments: &[String]) -> Option<ExitCode> {
    let options = parse(arguments)?;
    Some(match options.seed {
        Some(seed) => run_one(seed, &options),
        None => run_many(&options),
    })
}

fn parse(arguments: &[String]) -> Option<Options> {
    let mut options = Options { seeds: None, time: None, seed: None, is_traced: false, plant: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--trace" => options.is_traced = true,
            "--seeds" => options.seeds = Some(number(rest.next()?)?),
            "--seconds" => options.time = Some(Duration::from_secs(number(rest.next()?)?)),
            "--seed" => options.seed = Some(number(rest.next()?)?),
            "--plant" => {
                let name = rest.next()?;
                options.plant = Some(PLANTS.iter().find(|(known, _)| known == name)?.1);
            }
            _ => return None,
        }
    }
    Some(options)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn run_one(seed: u64, options: &Options) -> ExitCode {
    let plan = Plan::draw(seed);
    let done = run(&plan, options.plant, options.is_traced);
    if options.is_traced {
        print!("{plan}");
        done.lines.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {seed:#x}: {} events, trace {:016x}", done.events, done.hash);
    match done.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            print!("{}", report(&plan, &failure, options.plant));
            ExitCode::FAILURE
        }
    }
}

fn run_many(options: &Options) -> ExitCode {
    let began = Instant::now();
    let is_enough = |seeds: u64| match (options.seeds, options.time) {
        (Some(wanted), _) => seeds >= wanted,
        (None, time) => began.elapsed() > time.unwrap_or(Duration::from_secs(20)),
    };
    let (mut seeds, mut events) = (0, 0);
    while !is_enough(seeds) {
        seeds += 1;
        let plan = Plan::draw(seeds);
        let done = run(&plan, options.plant, false);
        events += done.events;
        if let Some(failure) = done.failure {
            print!("{}", report(&plan, &failure, options.plant));
            return ExitCode::FAILURE;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("sim rules: {seeds} seeds, {events} events, no failure, {seconds:.1} s");
    ExitCode::SUCCESS
}

/// For people who look into a failure: the check, the steps without those that it does not need, the last events of the head
/// and of the pool that the check is about, and the command.
fn report(plan: &Plan, failure: &Failure, plant: Option<Plant>) -> String {
    let shrunk = shrink(plan, failure, plant);
    let done = run(&shrunk, plant, true);
    let about = done.failure.as_ref().unwrap_or(failure);
    let concerns = |line: &&Line| about.pool.is_none() || line.pool.is_none() || line.pool == about.pool;
    let lines: Vec<String> = done.lines.iter().filter(concerns).map(Line::to_string).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n  ");
    let whose = about.pool.map(|pool| format!(" of the head and pool {pool}")).unwrap_or_default();
    let planted = PLANTS.iter().find(|(_, known)| Some(*known) == plant);
    let planted = planted.map(|(name, _)| format!(" --plant {name}")).unwrap_or_default();
    let (seed, left, all) = (plan.seed, shrunk.steps.len(), plan.steps.len());
    format!(
        "FAILED {failure}\nsteps that are enough ({left} of {all}): {shrunk}with these steps: {about}\n\
         last events{whose}:\n  {last}\nrepeat: sim/run rules --seed {seed:#x} --trace{planted}\n",
    )
}

/// Leaves out steps, by halves and then singly, as long as the same check fails.
fn shrink(plan: &Plan, failure: &Failure, plant: Option<Plant>) -> Plan {
    let mut shrunk = plan.clone();
    let mut part = shrunk.steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < shrunk.steps.len() {
            let mut fewer = shrunk.clone();
            fewer.steps.drain(from..(from + part).min(shrunk.steps.len()));
            match run(&fewer, plant, false).failure {
                Some(found) if found.check == failure.check => shrunk = fewer,
                _ => from += part,
            }
        }
        part /= 2;
    }
    shrunk
}
