//! `sim rules`: runs the simulator. The script `sim/run` builds and calls it.

use std::process::ExitCode;

const USAGE: &str = "\
usage: sim rules [--seeds N | --seconds N] [--plant NAME]
       sim rules --seed NUMBER [--trace] [--plant NAME]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = match arguments.split_first() {
        Some((part, rest)) if part == "rules" => sim::rules::command(rest),
        _ => None,
    };
    told.unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}
