//! The time of a COMMIT after one write of 8 KiB, with and without the write journal. By hand: it needs a directory on the
//! file system to be looked at in `FOREBAY_COMMITS_DIR`. The two take turns, so that a busy machine slows both.
//!
//! ```sh
//! FOREBAY_COMMITS_DIR=/mnt/disk cargo test --release -p forebay-pool --test commits -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used)]

mod pools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{OpenReplica, Stability};
use bytes::Bytes;
use forebay_pool::{Config, JournalPlace, LocalPool};

const WRITE: usize = 8 << 10;
const FILE_WRITES: u64 = 128;
const ROUNDS: usize = 16;
const COMMITS: u64 = 20;

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Blocks that the file has.
    InPlace,
    Growing,
    NewFiles,
}

struct Side {
    _scratch: tempfile::TempDir,
    pool: Arc<LocalPool>,
    next_file: u64,
    elapsed: Vec<Duration>,
}

impl Side {
    async fn new(dir: &PathBuf, journal: JournalPlace) -> Side {
        let scratch = tempfile::tempdir_in(dir).unwrap();
        let config = Config {
            journal,
            open_files_max: 32 << 10,
            queue_len_max: 64 << 10,
            ..pools::config(scratch.path())
        };
        Side { pool: LocalPool::open(config).unwrap(), _scratch: scratch, next_file: 1, elapsed: Vec::new() }
    }

    /// Writers at once, each with files of its own.
    async fn run(&mut self, shape: Shape, writers: u64) {
        let mut opened = Vec::new();
        for _ in 0..writers {
            let files = if matches!(shape, Shape::NewFiles) { COMMITS } else { 1 };
            let mut of_writer = Vec::new();
            for _ in 0..files {
                of_writer.push(pools::writer(&self.pool, self.next_file).await);
                self.next_file += 1;
            }
            if matches!(shape, Shape::InPlace) {
                let data = Bytes::from(vec![1; WRITE * FILE_WRITES as usize]);
                of_writer[0].write_at(0, data, Stability::FileSync).await.unwrap();
            }
            opened.push(of_writer);
        }
        let began = Instant::now();
        let tasks: Vec<_> = opened.into_iter().map(|files| tokio::spawn(commits(files, shape))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        self.elapsed.push(began.elapsed() / COMMITS as u32);
    }

    /// The lower quartile of the rounds: the others are those in which other programs were busy.
    fn time(&mut self) -> Duration {
        self.elapsed.sort_unstable();
        let time = self.elapsed[self.elapsed.len() / 4];
        self.elapsed.clear();
        time
    }
}

async fn commits(files: Vec<Arc<dyn OpenReplica>>, shape: Shape) {
    let data = Bytes::from(vec![2; WRITE]);
    for at in 0..COMMITS {
        let file = &files[at as usize % files.len()];
        let place = match shape {
            Shape::InPlace => at * 37 % FILE_WRITES,
            Shape::Growing => at,
            Shape::NewFiles => 0,
        };
        file.write_at(place * WRITE as u64, data.clone(), Stability::Unstable).await.unwrap();
        file.sync().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "measures a file system"]
async fn a_commit_of_a_small_write_is_timed() {
    let dir = PathBuf::from(std::env::var_os("FOREBAY_COMMITS_DIR").expect("a directory to measure"));
    let mut with = Side::new(&dir, JournalPlace::Pool).await;
    let mut without = Side::new(&dir, JournalPlace::Off).await;
    for shape in [Shape::InPlace, Shape::Growing, Shape::NewFiles] {
        for writers in [1, 16] {
            let before = with.pool.journal().unwrap();
            for _ in 0..ROUNDS {
                with.run(shape, writers).await;
                without.run(shape, writers).await;
            }
            let after = with.pool.journal().unwrap();
            let (journal, file) = (with.time(), without.time());
            let syncs = after.syncs - before.syncs;
            let commits = ROUNDS as u64 * writers * COMMITS;
            println!(
                "{shape:?}, {writers} writers: {journal:?} with, {file:?} without a journal; {syncs} syncs of it for {commits} COMMITs"
            );
        }
    }
}
