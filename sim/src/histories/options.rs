//! The arguments of a simulation's command.

use std::time::Duration;

use super::Simulation;

pub struct Options<S: Simulation> {
    pub seeds: Option<u64>,
    pub time: Option<Duration>,
    pub seed: Option<u64>,
    pub is_traced: bool,
    pub plant: Option<S::Plant>,
}

impl<S: Simulation> Options<S> {
    /// `None`: they are not understood.
    pub fn parse(arguments: &[String]) -> Option<Options<S>> {
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
                    options.plant = Some(S::PLANTS.iter().find(|(known, _)| known == name)?.1);
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
