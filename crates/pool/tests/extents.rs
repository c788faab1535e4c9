//! Extents of files that strided writers leave, with and without delayed allocation. By hand: it needs `filefrag`, and a
//! directory on the file system to be looked at in `FOREBAY_EXTENTS_DIR`.
//!
//! ```sh
//! FOREBAY_EXTENTS_DIR=/mnt/xfs cargo test --release -p forebay-pool --test extents -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used)]

mod pools;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::Stability;
use bytes::Bytes;
use forebay_pool::{Config, GatherPolicy, IoPolicy, LocalPool};

/// As IOR-hard writes.
const RECORD: usize = 47_008;
const FILES: u64 = 4;
const WRITERS: usize = 16;
const RECORDS: usize = 64;
/// Records that a writer is ahead of the slowest one of its file at most.
const DRIFT: usize = 8;

struct Outcome {
    extents: usize,
    elapsed: Duration,
}

/// Records of all files in the order in which they arrive.
fn strided() -> Vec<(u64, u64)> {
    let mut random = 7_u64;
    let mut done = vec![[0_usize; WRITERS]; FILES as usize];
    let mut order = Vec::new();
    while order.len() < FILES as usize * WRITERS * RECORDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (file, writer) = ((random >> 33) as usize % FILES as usize, (random >> 43) as usize % WRITERS);
        let slowest = *done[file].iter().min().unwrap();
        let record = &mut done[file][writer];
        if *record < RECORDS && *record < slowest + DRIFT {
            order.push((file as u64 + 1, ((*record * WRITERS + writer) * RECORD) as u64));
            *record += 1;
        }
    }
    order
}

fn sequential() -> Vec<(u64, u64)> {
    let records = (WRITERS * RECORDS) as u64;
    (0..records).flat_map(|at| (1..=FILES).map(move |file| (file, at * RECORD as u64))).collect()
}

async fn measure(
    dir: &Path,
    io: IoPolicy,
    gather: GatherPolicy,
    order: &[(u64, u64)],
    commit_each: usize,
) -> Outcome {
    let scratch = tempfile::tempdir_in(dir).unwrap();
    let pool = LocalPool::open(Config { io, gather, ..pools::config(scratch.path()) }).unwrap();
    let mut writers = Vec::new();
    for file in 1..=FILES {
        writers.push(pools::writer(&pool, file).await);
    }
    let data = Bytes::from(vec![0x5a; RECORD]);
    let began = Instant::now();
    for batch in order.chunks(commit_each) {
        for window in batch.chunks(16) {
            let of = |file: u64| &writers[file as usize - 1];
            let writes: Vec<_> = window
                .iter()
                .map(|(file, offset)| of(*file).write_at(*offset, data.clone(), Stability::Unstable))
                .collect();
            for write in writes {
                write.await.unwrap();
            }
        }
        for writer in &writers {
            writer.sync().await.unwrap();
        }
    }
    let elapsed = began.elapsed();
    let extents = files_below(&scratch.path().join("data")).iter().map(|path| extents(path)).sum();
    pool.close();
    Outcome { extents, elapsed }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { vec![entry.path()] })
        .collect()
}

fn extents(path: &Path) -> usize {
    let output = Command::new("filefrag").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<_> = text.rsplit(": ").next().unwrap().split(' ').collect();
    words[0].parse().unwrap()
}

#[tokio::test]
#[ignore = "measures a file system"]
async fn strided_writers_leave_few_extents() {
    let dir = PathBuf::from(std::env::var_os("FOREBAY_EXTENTS_DIR").expect("a directory to measure"));
    let orders = [("strided", strided()), ("sequential", sequential())];
    let mib = (FILES as usize * WRITERS * RECORDS * RECORD) as f64 / f64::from(1 << 20);
    for (name, order) in &orders {
        for commit_each in [usize::MAX, 512] {
            for io in [IoPolicy::Buffered, IoPolicy::Uncached, IoPolicy::Direct] {
                for gather in [GatherPolicy::Never, GatherPolicy::Always] {
                    let Outcome { extents, elapsed } = measure(&dir, io, gather, order, commit_each).await;
                    let rate = mib / elapsed.as_secs_f64();
                    let commits = if commit_each == usize::MAX { "at the end" } else { "every 512" };
                    println!(
                        "{name}, COMMIT {commits}, {io}, {gather:?}: {} extents a file, {rate:.0} MiB/s",
                        extents / FILES as usize
                    );
                }
            }
        }
    }
}
