//! Any order of writes, truncations, removals, syncs and restarts gives what a list of byte strings gives, in each mode of
//! I/O, with and without delayed allocation.

#![allow(clippy::unwrap_used)]

mod pools;

use std::collections::HashMap;
use std::sync::Arc;

use api::{ANSWER_TIME, Advice, OpenReplica, Pool, PoolError, RangeKind, Source, Stability, Stretch};
use bytes::Bytes;
use forebay_pool::{GatherPolicy, IoPolicy, JournalPlace, LocalPool};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use types::{ByteRange, FileId};

#[derive(Clone, Debug)]
enum Step {
    Write {
        file: u64,
        offset: u64,
        data: Vec<u8>,
        stable: bool,
    },
    Truncate {
        file: u64,
        size: u64,
    },
    Read {
        file: u64,
        offset: u64,
        length: u32,
    },
    Remove {
        file: u64,
    },
    Sync {
        file: u64,
    },
    /// Drops the pages of a file that are on disk.
    Forget {
        file: u64,
    },
    /// Within a file.
    Copy {
        file: u64,
        from: u64,
        to: u64,
        length: u64,
    },
    Deallocate {
        file: u64,
        offset: u64,
        length: u64,
    },
    Seek {
        file: u64,
        offset: u64,
    },
    Restart {
        clean: bool,
    },
}

impl Step {
    fn of_later_file(mut self, more: u64) -> Step {
        match &mut self {
            Step::Write { file, .. }
            | Step::Truncate { file, .. }
            | Step::Read { file, .. }
            | Step::Remove { file }
            | Step::Sync { file }
            | Step::Forget { file }
            | Step::Copy { file, .. }
            | Step::Deallocate { file, .. }
            | Step::Seek { file, .. } => *file += more,
            Step::Restart { .. } => {}
        }
        self
    }
}

/// Around the beginning of a file, and around the borders of its first extents (1 MiB).
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..20_000_u64, 2 => (1_u64 << 20) - 20_000..(1 << 20) + 20_000, 1 => (2_u64 << 20)..(2 << 20) + 9_000]
}

fn step() -> impl Strategy<Value = Step> {
    let file = 1..5_u64;
    prop_oneof![
        6 => (file.clone(), offset(), prop::collection::vec(any::<u8>(), 1..300), any::<bool>())
            .prop_map(|(file, offset, data, stable)| Step::Write { file, offset, data, stable }),
        3 => (file.clone(), offset(), 4096..40_000_usize, any::<u8>(), any::<bool>()).prop_map(
            |(file, offset, length, byte, stable)| Step::Write { file, offset, data: vec![byte; length], stable }
        ),
        2 => (file.clone(), offset()).prop_map(|(file, size)| Step::Truncate { file, size }),
        1 => (file.clone(), offset(), offset(), 1..30_000_u64)
            .prop_map(|(file, from, to, length)| Step::Copy { file, from, to, length }),
        1 => (file.clone(), offset(), 1..30_000_u64)
            .prop_map(|(file, offset, length)| Step::Deallocate { file, offset, length }),
        6 => (file.clone(), offset(), 0..1_200_000_u32)
            .prop_map(|(file, offset, length)| Step::Read { file, offset, length }),
        2 => (file.clone(), offset()).prop_map(|(file, offset)| Step::Seek { file, offset }),
        1 => file.clone().prop_map(|file| Step::Remove { file }),
        1 => file.clone().prop_map(|file| Step::Sync { file }),
        1 => file.prop_map(|file| Step::Forget { file }),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

/// Records that come out of order, so that a pool that gathers has the later ones in memory.
fn disordered() -> impl Iterator<Item = Step> {
    [(2 << 20, 1), (1 << 20, 2), (40_000, 3), (5000, 4), (20_000, 5)]
        .into_iter()
        .map(|(offset, byte)| Step::Write { file: 1, offset, data: vec![byte; 5000], stable: false })
}

/// `None`: removed, for ever. No entry: never written.
type Model = HashMap<u64, Option<Vec<u8>>>;

async fn run(steps: Vec<Step>, io: IoPolicy, journal: JournalPlace, gather: GatherPolicy) {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let config =
            forebay_pool::Config { io, gather, journal: journal.clone(), ..pools::config(dir.path()) };
        LocalPool::open(config).unwrap()
    };
    let mut pool = open();
    let mut model = Model::new();
    let mut gathered_writes = 0;
    for step in disordered().chain(steps) {
        match step {
            Step::Write { file, offset, data, stable } => {
                let Some(expected) = model.entry(file).or_insert_with(|| Some(Vec::new())) else { continue };
                let end = offset as usize + data.len();
                expected.resize(expected.len().max(end), 0);
                expected[offset as usize..end].copy_from_slice(&data);
                let stability = if stable { Stability::FileSync } else { Stability::Unstable };
                pools::writer(&pool, file)
                    .await
                    .write_at(offset, Bytes::from(data), stability)
                    .await
                    .unwrap();
            }
            Step::Truncate { file, size } => match model.get_mut(&file) {
                Some(None) => {}
                None if size == 0 => {
                    pool.truncate(&[(FileId(file), 0)], ANSWER_TIME).await.sole().unwrap();
                }
                _ => {
                    let expected = model.entry(file).or_insert_with(|| Some(Vec::new()));
                    expected.as_mut().unwrap().resize(size as usize, 0);
                    assert_eq!(
                        pool.truncate(&[(FileId(file), size)], ANSWER_TIME).await.sole().unwrap().size,
                        size
                    );
                }
            },
            Step::Read { file, offset, length } => {
                let nothing = Vec::new();
                let expected = match model.get(&file) {
                    Some(None) => continue,
                    Some(Some(expected)) => expected,
                    None => &nothing,
                };
                let from = expected.len().min(offset as usize);
                let to = expected.len().min(offset as usize + length as usize);
                let read = pools::writer(&pool, file).await.read_at(offset, length).await.unwrap();
                assert!(read.data == expected[from..to], "file {file}, {length} bytes at {offset}");
                assert_eq!(read.end_of_file, offset + u64::from(length) >= expected.len() as u64);
            }
            Step::Remove { file } => {
                model.insert(file, None);
                pool.remove(&[FileId(file)], ANSWER_TIME).await.sole().unwrap();
                pool.sync_removals(&[FileId(file)], ANSWER_TIME).await.unwrap();
                assert!(matches!(
                    pool.truncate(&[(FileId(file), 1)], ANSWER_TIME).await.sole(),
                    Err(PoolError::NoReplica(_))
                ));
            }
            Step::Sync { file } => {
                if model.get(&file) != Some(&None) {
                    pools::writer(&pool, file).await.sync().await.unwrap();
                }
            }
            Step::Forget { file } => {
                if model.get(&file) != Some(&None) {
                    let replica = pools::writer(&pool, file).await;
                    replica.sync().await.unwrap();
                    let all = ByteRange::new(0, 1 << 20).unwrap();
                    replica.ranges().unwrap().advise(all, Advice::DontNeed).await.unwrap();
                }
            }
            Step::Copy { file, from, to, length } => {
                let Some(Some(expected)) = model.get_mut(&file) else { continue };
                let (from_at, end) = (from as usize, (from + length) as usize);
                if end > expected.len() || from + length > to && to + length > from {
                    continue;
                }
                let copied = expected[from_at..end].to_vec();
                expected.resize(expected.len().max((to + length) as usize), 0);
                expected[to as usize..(to + length) as usize].copy_from_slice(&copied);
                let replica = pools::writer(&pool, file).await;
                let mut done = 0;
                while done < length {
                    let stretch = Stretch { from: from + done, to: to + done, length: length - done };
                    let source = Source::Local(pool.id(), FileId(file));
                    done += replica.ranges().unwrap().copy_from(source, stretch).await.unwrap();
                }
            }
            Step::Deallocate { file, offset, length } => {
                let Some(Some(expected)) = model.get_mut(&file) else { continue };
                let size = expected.len();
                expected[size.min(offset as usize)..size.min((offset + length) as usize)].fill(0);
                let range = ByteRange::new(offset, length).unwrap();
                pools::writer(&pool, file).await.ranges().unwrap().deallocate(range).await.unwrap();
            }
            Step::Seek { file, offset } => {
                let Some(Some(expected)) = model.get(&file) else { continue };
                check_seek(&pools::writer(&pool, file).await, expected, offset).await;
            }
            Step::Restart { clean } => {
                gathered_writes += writes_gathered(&pool);
                if clean {
                    pool.close();
                } else if journal != JournalPlace::Off || gather == GatherPolicy::Always {
                    // The start may apply an older stable write over one that was not yet stable, and gathered writes
                    // are lost.
                    for file in model.iter().filter(|(_, content)| content.is_some()).map(|(file, _)| *file) {
                        pools::writer(&pool, file).await.sync().await.unwrap();
                    }
                }
                drop(pool);
                pool = open();
            }
        }
        check(&pool, &model).await;
    }
    gathered_writes += writes_gathered(&pool);
    assert_eq!(gathered_writes > 0, gather == GatherPolicy::Always, "{gathered_writes} gathered writes");
}

fn writes_gathered(pool: &LocalPool) -> u64 {
    pool.io().gather.map_or(0, |gather| gather.counts.gathered_writes)
}

/// Only zeros are skipped, or found in place of data: the file system rounds data to blocks.
async fn check_seek(replica: &Arc<dyn OpenReplica>, expected: &[u8], offset: u64) {
    let ranges = replica.ranges().unwrap();
    let from = expected.len().min(offset as usize);
    let data = ranges.seek(offset, RangeKind::Data).await.unwrap();
    assert!(data.is_none_or(|data| data >= offset && data < expected.len() as u64), "{data:?}");
    let behind = data.map_or(expected.len(), |data| data as usize);
    assert!(expected[from..behind].iter().all(|byte| *byte == 0), "data before {behind} from {from}");
    let hole = ranges.seek(offset, RangeKind::Hole).await.unwrap().unwrap();
    assert!(hole >= offset && hole <= offset.max(expected.len() as u64), "{hole}");
    assert!(expected.get(hole as usize).is_none_or(|byte| *byte == 0), "data at {hole}");
}

async fn check(pool: &LocalPool, model: &Model) {
    let mut expected: Vec<_> =
        model.iter().filter_map(|(file, content)| Some((*file, content.as_ref()?.len() as u64))).collect();
    expected.sort_unstable();
    let listed = pool.replicas(FileId(0), 100).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|facts| (facts.file.0, facts.size)).collect();
    assert_eq!(listed, expected);
    assert_eq!(pool.status().replicas, expected.len() as u64);
}

const WAYS: [(IoPolicy, JournalPlace, GatherPolicy); 7] = [
    (IoPolicy::Auto, JournalPlace::Off, GatherPolicy::Never),
    (IoPolicy::Uncached, JournalPlace::Off, GatherPolicy::Never),
    (IoPolicy::Direct, JournalPlace::Off, GatherPolicy::Never),
    (IoPolicy::Auto, JournalPlace::Pool, GatherPolicy::Never),
    (IoPolicy::Direct, JournalPlace::Pool, GatherPolicy::Never),
    (IoPolicy::Auto, JournalPlace::Off, GatherPolicy::Always),
    (IoPolicy::Direct, JournalPlace::Pool, GatherPolicy::Always),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_is_a_list_of_byte_strings(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (io, journal, gather) in WAYS {
            runtime.block_on(run(steps.clone(), io, journal, gather));
        }
    }
}

/// By hand, as docs/dev/conformance.md says. `FOREBAY_MODEL_STEPS` and `FOREBAY_MODEL_SEED` set the number and the order.
#[test]
#[ignore = "takes many minutes"]
fn a_pool_is_a_list_of_byte_strings_over_a_million_steps() {
    const TOGETHER: usize = 200;
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (goal, seed) = (number("FOREBAY_MODEL_STEPS", 1_000_000), number("FOREBAY_MODEL_SEED", 1));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (round, (io, journal, gather)) in (1..).zip(WAYS.iter().cycle()) {
        let steps = prop::collection::vec(step(), TOGETHER).new_tree(&mut runner).unwrap().current();
        // A file that was removed never comes back, so others take over.
        let steps = steps.into_iter().enumerate().map(|(at, step)| step.of_later_file(at as u64 / 25 * 5));
        runtime.block_on(run(steps.collect(), *io, journal.clone(), *gather));
        let done = round * TOGETHER as u64;
        if round % 50 == 0 || done >= goal {
            println!("{done} steps of seed {seed}");
        }
        if done >= goal {
            return;
        }
    }
}
