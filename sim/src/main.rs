//! `sim rules` and `sim world`: run a part of the simulator. The script `sim/run` builds and calls it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::histories::{Tally, command, number};
use sim::rules::Rules;
use sim::world::Worlds;

const USAGE: &str = "\
usage: sim rules|world [--seeds N | --seconds N] [--plant NAME]
       sim rules|world --seed NUMBER [--trace] [--plant NAME]
       sim --hours N";
/// Of one part, before the other one has its turn.
const TURN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = match arguments.split_first() {
        Some((part, rest)) if part == "rules" => command::<Rules>(rest),
        Some((part, rest)) if part == "world" => command::<Worlds>(rest),
        Some((option, [hours])) if option == "--hours" => number(hours).map(run_both),
        _ => None,
    };
    told.unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}

fn run_both(hours: u64) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(hours * 3_600);
    let (mut rules, mut worlds) = (Tally::<Rules>::new(None), Tally::<Worlds>::new(None));
    while Instant::now() < end {
        if let Err(report) = rules.run_for(TURN).and_then(|()| worlds.run_for(TURN)) {
            print!("{report}");
            return ExitCode::FAILURE;
        }
    }
    println!("{rules}\n{worlds}");
    ExitCode::SUCCESS
}
