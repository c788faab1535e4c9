//! A simulation of nothing: a history fails if it has a step 7 behind a step 3.

use super::*;

struct Numbers;

#[derive(Clone)]
struct Steps(Vec<u64>);

impl Display for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.0)
    }
}

impl Schedule for Steps {
    fn seed(&self) -> u64 {
        0x2a
    }

    fn steps_count(&self) -> usize {
        self.0.len()
    }

    fn without(&self, steps: Range<usize>) -> Steps {
        let mut fewer = self.clone();
        fewer.0.drain(steps);
        fewer
    }
}

impl Simulation for Numbers {
    type Plan = Steps;
    type Plant = u64;
    type Check = char;

    const NAME: &'static str = "numbers";
    const SUBJECT: &'static str = "file";
    const PLANTS: &'static [(&'static str, u64)] = &[("seven", 7)];

    fn draw(seed: u64) -> Steps {
        Steps((0..20 + seed).collect())
    }

    fn run(plan: &Steps, plant: Option<u64>, _: bool) -> History<char> {
        let at = |wanted: u64| plan.0.iter().position(|step| *step == wanted);
        let fails = matches!((at(3), plant.and_then(at)), (Some(three), Some(seven)) if three < seven);
        let failure = fails.then(|| Failure { check: 'a', about: Some(1), what: "seven".to_owned() });
        let line = |about, text: &str| Line { about, text: text.to_owned() };
        let lines = vec![
            line(LineSubject::One(1), "of the file"),
            line(LineSubject::One(2), "of another"),
            line(LineSubject::Bytes, "bytes"),
            line(LineSubject::Everything, "a host"),
        ];
        History { failure, hash: 0, events: plan.0.len(), lines }
    }
}

#[test]
fn a_failure_is_shrunk_to_the_steps_that_it_needs_and_told_with_its_file_and_command() {
    let plan = Numbers::draw(1);
    let failure = Numbers::run(&plan, Some(7), false).failure.unwrap();
    assert_eq!(shrink::<Numbers>(&plan, &failure, Some(7)).0, [3, 7]);
    let told = report::<Numbers>(&plan, &failure, Some(7));
    assert!(told.contains("(2 of 21): [3, 7]") && told.contains("of the file\n  a host\n"), "{told}");
    assert!(told.contains("repeat: sim/run numbers --seed 0x2a --trace --plant seven\n"), "{told}");
}

#[test]
fn seeds_are_run_one_after_the_other_until_one_fails() {
    let mut tally = Tally::<Numbers>::new(None);
    assert!((0..3).all(|_| tally.run_next().is_ok()));
    assert!(tally.to_string().starts_with("sim numbers: 3 seeds, 66 events, trace "), "{tally}");
    assert!(Tally::<Numbers>::new(Some(7)).run_next().is_err());
}

#[test]
fn arguments_that_are_not_understood_are_refused() {
    let parse = |text: &str| {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::<Numbers>::parse(&arguments)
    };
    let options = parse("--seed 0x17 --trace --plant seven").unwrap();
    assert_eq!((options.seed, options.is_traced, options.plant), (Some(0x17), true, Some(7)));
    for wrong in ["--seed", "--seed x", "--plant eight", "--hours 1", "17"] {
        assert!(parse(wrong).is_none(), "{wrong}");
    }
}
