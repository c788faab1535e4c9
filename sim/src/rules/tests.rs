//! Histories without a failure, and with each planted fault.

use super::*;

fn first_failure(seeds: u64, plant: Option<Plant>) -> Option<(Plan, Failure)> {
    (1..=seeds).find_map(|seed| {
        let plan = Plan::draw(seed);
        let failure = run(&plan, plant, false).failure?;
        Some((plan, failure))
    })
}

#[test]
fn the_rules_keep_what_they_promise_over_a_thousand_histories() {
    let found = first_failure(1_000, None);
    let told = found.map(|(plan, failure)| report(&plan, &failure, None));
    assert!(told.is_none(), "{}", told.unwrap());
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 1..=50 {
        let plan = Plan::draw(seed);
        let (first, second) = (run(&plan, None, false), run(&Plan::draw(seed), None, true));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
    assert_ne!(run(&Plan::draw(1), None, false).hash, run(&Plan::draw(2), None, false).hash);
}

#[test]
fn each_planted_fault_is_found_and_its_history_is_shrunk() {
    for (name, plant) in PLANTS {
        let Some((plan, failure)) = first_failure(4_000, Some(plant)) else { panic!("{name} is not found") };
        let shrunk = shrink(&plan, &failure, Some(plant));
        let again = run(&shrunk, Some(plant), false).failure.expect("the shrunk history fails, too");
        assert_eq!(again.check, failure.check, "{name}");
        assert!(shrunk.steps.len() < plan.steps.len() / 2, "{name}: {} steps", shrunk.steps.len());
        let told = report(&plan, &failure, Some(plant));
        assert!(told.contains(&format!("--seed {:#x} --trace --plant {name}", plan.seed)), "{told}");
    }
}

#[test]
fn histories_have_faults_and_writes_enough_to_tell() {
    let plan = Plan::draw(7);
    assert!(plan.steps.len() >= 60);
    let events: usize = (1..=20).map(|seed| run(&Plan::draw(seed), None, false).events).sum();
    assert!(events > 20 * 300, "{events} events in 20 histories");
}
