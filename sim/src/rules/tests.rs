//! Histories without a failure, and with each planted fault.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::histories::{Failure, report, shrink};
use plan::Step;

fn first_failure(seeds: u64, plant: Option<Plant>) -> Option<(Plan, Failure<Check>)> {
    (1..=seeds).find_map(|seed| {
        let plan = Plan::draw(seed);
        let failure = Rules::run(&plan, plant, false).failure?;
        Some((plan, failure))
    })
}

#[test]
fn the_rules_keep_what_they_promise_over_a_thousand_histories() {
    let found = first_failure(1_000, None);
    let told = found.map(|(plan, failure)| report::<Rules>(&plan, &failure, None));
    assert!(told.is_none(), "{}", told.unwrap());
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 1..=50 {
        let plan = Plan::draw(seed);
        let (first, second) = (Rules::run(&plan, None, false), Rules::run(&Plan::draw(seed), None, true));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
    assert_ne!(Rules::run(&Plan::draw(1), None, false).hash, Rules::run(&Plan::draw(2), None, false).hash);
}

#[test]
fn each_planted_fault_is_found_and_its_history_is_shrunk() {
    for (name, plant) in Rules::PLANTS.iter().copied() {
        let Some((plan, failure)) = first_failure(4_000, Some(plant)) else { panic!("{name} is not found") };
        let shrunk = shrink::<Rules>(&plan, &failure, Some(plant));
        let again = Rules::run(&shrunk, Some(plant), false).failure.expect("the shrunk history fails, too");
        assert_eq!(again.check, failure.check, "{name}");
        assert!(shrunk.steps.len() < plan.steps.len() / 2, "{name}: {} steps", shrunk.steps.len());
        let told = report::<Rules>(&plan, &failure, Some(plant));
        assert!(told.contains(&format!("--seed {:#x} --trace --plant {name}", plan.seed)), "{told}");
    }
}

#[test]
fn a_report_shows_the_events_of_the_head_and_of_the_pool_that_failed() {
    let fails = |seed: &u64| {
        let plan = Plan::draw(*seed);
        let failure = Rules::run(&plan, Some(Plant::MissingFence), false).failure?;
        (plan.pools > 2).then_some((plan, failure))
    };
    let (plan, failure) = (1..2_000).find_map(|seed| fails(&seed)).expect("it is found with several pools");
    let told = report::<Rules>(&plan, &failure, Some(Plant::MissingFence));
    let events = told.split("last events of the head and pool ").nth(1).expect("it names the pool");
    let pool = events.chars().next().unwrap();
    let of_pools: Vec<&str> = events.lines().filter(|line| line.contains(" s  pool ")).collect();
    assert!(
        !of_pools.is_empty() && of_pools.iter().all(|line| line.contains(&format!(" s  pool {pool}: "))),
        "{told}"
    );
}

#[test]
fn plans_have_bursts_and_half_of_the_kinds_of_faults() {
    let kinds = |plan: &Plan| {
        let name = |step: &Step| format!("{step:?}").split('(').next().unwrap().to_owned();
        plan.steps.iter().map(|(_, step)| name(step)).collect::<BTreeSet<_>>()
    };
    let plans: Vec<Plan> = (1..=200).map(Plan::draw).collect();
    let all: BTreeSet<String> = plans.iter().flat_map(kinds).collect();
    assert_eq!(all.len(), 19, "{all:?}");
    assert!(plans.iter().all(|plan| kinds(plan).len() < all.len()));
    let is_burst = |steps: &[(Duration, Step)]| steps[3].0 - steps[0].0 < Duration::from_millis(20);
    let bursts = plans.iter().filter(|plan| plan.steps.windows(4).any(is_burst)).count();
    assert!(bursts > 100, "{bursts} plans with a burst");
    let events: usize = plans.iter().map(|plan| Rules::run(plan, None, false).events).sum();
    assert!(events > 200 * 300, "{events} events in 200 histories");
}
