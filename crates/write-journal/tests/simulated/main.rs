//! The journal under a pool that keeps its rules, on a disk that loses, reorders and tears what was not synced.
//!
//! A property test makes the pool do anything and crash anywhere, also in a replay, and compares every file with the states
//! that its answers allow. Planted faults show that the test would find them. `journal` has the journal's own behaviour.

#![allow(clippy::unwrap_used)]

mod disk;
mod journal;
mod oracle;
mod pool;

use std::io;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use disk::Dice;
use oracle::SIZE_MAX;
use pool::{Fault, ModelPool};

const SLOTS: usize = 4;
const RUNS_OF_A_FAULT_MAX: usize = 4000;

#[derive(Clone, Debug)]
enum Step {
    Write { slot: usize, offset: usize, len: usize },
    WriteUnstable { slot: usize, offset: usize, len: usize },
    WriteDirect { slot: usize, offset: usize, len: usize },
    Commit { slot: usize },
    Truncate { slot: usize, size: usize, is_journaled: bool },
    Remove { slot: usize },
    Fence { slot: usize },
    Lead,
    WriteBack { ends_with_barrier: bool },
    MakeVoid,
    FailSync,
    GoDownAfter(u64),
    Crash { cuts_power: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let range = (0..SLOTS, 0..SIZE_MAX - 600, 1..600usize);
    prop_oneof![
        12 => range.clone().prop_map(|(slot, offset, len)| Step::Write { slot, offset, len }),
        4 => range.clone().prop_map(|(slot, offset, len)| Step::WriteUnstable { slot, offset, len }),
        3 => range.prop_map(|(slot, offset, len)| Step::WriteDirect { slot, offset, len }),
        3 => slot.clone().prop_map(|slot| Step::Commit { slot }),
        3 => (slot.clone(), 0..SIZE_MAX, any::<bool>())
            .prop_map(|(slot, size, is_journaled)| Step::Truncate { slot, size, is_journaled }),
        2 => slot.clone().prop_map(|slot| Step::Remove { slot }),
        1 => slot.prop_map(|slot| Step::Fence { slot }),
        8 => Just(Step::Lead),
        4 => any::<bool>().prop_map(|ends_with_barrier| Step::WriteBack { ends_with_barrier }),
        1 => Just(Step::MakeVoid),
        1 => Just(Step::FailSync),
        2 => (0..25u64).prop_map(Step::GoDownAfter),
        3 => any::<bool>().prop_map(|cuts_power| Step::Crash { cuts_power }),
    ]
}

fn run() -> impl Strategy<Value = (Vec<Step>, u64)> {
    (proptest::collection::vec(step(), 1..80), any::<u64>())
}

/// The files of the slots; a file id is used once.
struct Slots {
    files: [Option<u64>; SLOTS],
    next_file: u64,
    next_value: u8,
}

impl Slots {
    fn value(&mut self) -> u8 {
        self.next_value = self.next_value.wrapping_add(1).max(1);
        self.next_value
    }

    fn file_to_write(&mut self, pool: &mut ModelPool, slot: usize) -> io::Result<u64> {
        if let Some(file) = self.files[slot] {
            return Ok(file);
        }
        self.next_file += 1;
        self.files[slot] = Some(self.next_file);
        pool.create(self.next_file)?;
        Ok(self.next_file)
    }
}

fn simulate(steps: &[Step], seed: u64, fault: Fault) -> Result<(), String> {
    let mut pool = ModelPool::new(fault, seed);
    let mut dice = Dice::seeded(seed ^ 1);
    let mut slots = Slots { files: [None; SLOTS], next_file: 0, next_value: 0 };
    for step in steps {
        let crash = match step {
            Step::Crash { cuts_power } => Some(*cuts_power),
            step => {
                let has_stopped = perform(&mut pool, &mut slots, step).is_err() || pool.disk.is_down();
                has_stopped.then(|| dice.up_to(2) > 0)
            }
        };
        if let Some(cuts_power) = crash {
            pool.recover(cuts_power, &mut dice)?;
            for slot in &mut slots.files {
                *slot = slot.filter(|file| pool.exists(*file));
            }
        }
    }
    pool.recover(true, &mut dice)
}

fn perform(pool: &mut ModelPool, slots: &mut Slots, step: &Step) -> io::Result<()> {
    match *step {
        Step::Write { slot, offset, len } => {
            let file = slots.file_to_write(pool, slot)?;
            pool.write(file, offset, &vec![slots.value(); len])
        }
        Step::WriteUnstable { slot, offset, len } => {
            let file = slots.file_to_write(pool, slot)?;
            pool.write_unstable(file, offset, &vec![slots.value(); len])
        }
        Step::WriteDirect { slot, offset, len } => {
            let file = slots.file_to_write(pool, slot)?;
            pool.write_unstable(file, offset, &vec![slots.value(); len])?;
            pool.sync_in_place(file)
        }
        Step::Remove { slot } => slots.files[slot].take().map_or(Ok(()), |file| pool.remove(file)),
        Step::Commit { slot } => slots.files[slot].map_or(Ok(()), |file| pool.sync_in_place(file)),
        Step::Truncate { slot, size, is_journaled } => match slots.files[slot] {
            Some(file) if is_journaled => pool.truncate(file, size),
            Some(file) => pool.truncate_unjournaled(file, size),
            None => Ok(()),
        },
        Step::Fence { slot } => {
            let epoch = slots.value().into();
            slots.files[slot].map_or(Ok(()), |file| pool.fence(file, epoch))
        }
        Step::Lead => {
            pool.lead();
            Ok(())
        }
        Step::WriteBack { ends_with_barrier } => pool.write_back(ends_with_barrier),
        Step::MakeVoid => pool.make_void().map(drop),
        Step::FailSync => {
            pool.disk.fail_a_segment_sync();
            Ok(())
        }
        Step::GoDownAfter(steps) => {
            pool.disk.go_down_after(steps);
            Ok(())
        }
        Step::Crash { .. } => unreachable!("the caller crashes"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn stable_data_is_there_after_any_crash((steps, seed) in run()) {
        simulate(&steps, seed, Fault::None).map_err(TestCaseError::fail)?;
    }
}

/// The runs are the same each time.
fn is_found(fault: Fault) -> bool {
    let mut runner = TestRunner::deterministic();
    (0..RUNS_OF_A_FAULT_MAX).any(|_| {
        let (steps, seed) = run().new_tree(&mut runner).expect("steps are made").current();
        simulate(&steps, seed, fault).is_err()
    })
}

#[test]
fn the_model_finds_every_planted_fault() {
    let missed: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| !is_found(*fault)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
