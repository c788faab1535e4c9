//! Histories without a failure, and with each planted fault.

use super::plan::{Cells, Way};
use super::*;
use crate::histories::{Schedule, report, shrink};

fn first_failure(seeds: u64, plant: Option<Plant>) -> Option<(Plan, Failure)> {
    (1..=seeds).find_map(|seed| {
        let plan = Plan::draw(seed);
        let failure = Worlds::run(&plan, plant, false).failure?;
        Some((plan, failure))
    })
}

fn run_steps(pools: usize, steps: &[(u64, Step)]) -> History<Check> {
    let steps = steps.iter().map(|(at, step)| (Duration::from_secs(*at), *step)).collect();
    Worlds::run(&Plan { steps, ..Plan::idle(1, pools, 10) }, None, true)
}

fn has_line(history: &History<Check>, text: &str) -> bool {
    history.lines.iter().any(|line| line.text.contains(text))
}

fn write(client: usize, file: u64, way: Way) -> Step {
    Step::Write { client, cells: Cells { file, first: 2, count: 3 }, way, is_stable: client == 0 }
}

#[test]
fn clients_write_and_read_at_a_pool_and_through_the_head() {
    let steps = [
        (1, write(0, 0, Way::Pool)),
        (2, write(1, 1, Way::Head)),
        (9, Step::Read { client: 2, file: 0, way: Way::Head }),
        (20, Step::Read { client: 2, file: 1, way: Way::Pool }),
        (40, Step::Fence { client: 2, file: 1 }),
    ];
    let done = run_steps(1, &steps);
    assert_eq!(done.failure, None);
    for line in [
        "client 0: is told that 1 is done",
        "client 1: is told that 2 is done",
        "reads [0, 0, 1, 1, 1, 0, 0, 0] of file 0, at the Head",
        "reads [0, 0, 2, 2, 2, 0, 0, 0] of file 1, at the Pool",
        "the fence of file 1 below 1 is Ok(())",
        "4 writes acknowledged",
    ] {
        assert!(has_line(&done, line), "{line}");
    }
}

#[test]
fn a_pool_that_stands_still_or_is_cut_off_loses_its_lease_and_comes_back() {
    let time = Duration::from_secs(20);
    for fault in [Fault::PausePool(0, time), Fault::CutToHead(0, time), Fault::CutToPool(0, time)] {
        let done = run_steps(1, &[(3, Step::Fault(fault)), (10, Step::Fence { client: 0, file: 0 })]);
        assert_eq!(done.failure, None, "{fault:?}");
        let at = |text: &str| {
            let line = done.lines.iter().find(|line| line.text.contains(text)).expect(text);
            line.text.split_whitespace().next().and_then(|time| time.parse::<f64>().ok()).expect(text)
        };
        let fenced = at("the fence of file 0 below 1 is Ok");
        assert!((12.0..15.0).contains(&fenced), "{fault:?}: {fenced}");
        assert!(has_line(&done, "connection 3"), "it dials again");
    }
}

#[test]
fn the_real_hosts_keep_what_they_promise_over_many_histories() {
    let found = first_failure(25, None);
    let told = found.map(|(plan, failure)| report::<Worlds>(&plan, &failure, None));
    assert!(told.is_none(), "{}", told.unwrap());
}

#[test]
fn a_seed_gives_the_same_world_each_time() {
    for seed in 1..=5 {
        let plan = Plan::draw(seed);
        let (first, second) = (Worlds::run(&plan, None, false), Worlds::run(&plan, None, true));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
    let hash = |seed| Worlds::run(&Plan::draw(seed), None, false).hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn each_fault_planted_in_the_world_is_found_and_the_history_of_one_is_shrunk() {
    for (name, plant) in Worlds::PLANTS.iter().copied() {
        let Some((plan, failure)) = first_failure(200, Some(plant)) else { panic!("{name} is not found") };
        // Hundreds of histories: seconds for each fault without optimisation.
        if plant != Plant::LostLease {
            continue;
        }
        let shrunk = shrink::<Worlds>(&plan, &failure, Some(plant));
        let again = Worlds::run(&shrunk, Some(plant), false).failure.expect("the shrunk history fails, too");
        assert_eq!(again.check, failure.check, "{name}");
        assert!(shrunk.steps_count() < plan.steps_count() / 2, "{name}: {} steps", shrunk.steps_count());
    }
}

/// So that a change that has clients do nothing is seen.
#[test]
fn histories_have_faults_and_acknowledged_writes_enough_to_tell() {
    let lines: Vec<_> = (1..=10).flat_map(|seed| Worlds::run(&Plan::draw(seed), None, true).lines).collect();
    let count = |text: &str| lines.iter().filter(|line| line.text.contains(text)).count();
    let (written, fenced, ended) = (count("is told that"), count("Ok(())"), count(": ends"));
    assert!(written > 10 * 25 && fenced > 10 * 5 && ended > 10 * 4, "{written}, {fenced}, {ended}");
}

#[tokio::test]
async fn a_panic_of_a_host_fails_its_history() {
    let watch = panics::Watch::begin();
    assert!(tokio::spawn(async { panic!("of a task") }).await.is_err());
    assert!(watch.end().expect("it was noted").contains("of a task"));
    let watch = panics::Watch::begin();
    assert_eq!(watch.end(), None);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_host_are_gone_after_its_end() {
    let host = SimHost::new();
    host.tasks().spawn(std::future::pending());
    sleep(END_TIME).await;
    assert_eq!(host.tasks_left(), 1);
    host.end();
    sleep(END_TIME).await;
    assert_eq!(host.tasks_left(), 0);
    host.tasks().spawn(std::future::pending());
    sleep(END_TIME).await;
    assert_eq!(host.tasks_left(), 0, "nothing begins after the end");
}
