//! Threads that read and write one file in all ways, under range locks: no byte of one is lost by another's, though the
//! ranges share pages and blocks.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use forebay_io_engine::Ran;
use forebay_io_engine::range_lock::{LockKind, RangeLocks};
use types::ByteRange;

use crate::file::{Ways, capabilities, directories};
use crate::steps::{Random, SIZE_MAX, Step};

const WAIT: Duration = Duration::from_secs(60);

struct SharedFile {
    ways: Ways,
    locks: RangeLocks,
    /// The bytes that the file must have; each is written under an exclusive lock on it, and read under any.
    expected: Vec<AtomicU8>,
}

impl SharedFile {
    fn new(directory: &Path) -> SharedFile {
        let ways = Ways::new(directory, capabilities(directory));
        ways.file.set_len(SIZE_MAX).unwrap();
        let expected = (0..SIZE_MAX).map(|_| AtomicU8::new(0)).collect();
        SharedFile { ways, locks: RangeLocks::new(64), expected }
    }

    fn write(&self, way: Ran, offset: u64, length: usize, stamp: u8) {
        let range = ByteRange::new(offset, length as u64).unwrap();
        let _guard = self.locks.acquire(range, LockKind::Exclusive, WAIT).unwrap();
        let data: Vec<u8> = (offset..).take(length).map(|at| stamp.wrapping_add((at % 253) as u8)).collect();
        self.ways.write(way, &data, offset);
        for (expected, byte) in self.expected[offset as usize..].iter().zip(data) {
            expected.store(byte, Ordering::Relaxed);
        }
    }

    fn check(&self, way: Ran, offset: u64, length: u32) {
        let range = ByteRange::new(offset, u64::from(length)).unwrap();
        let _guard = self.locks.acquire(range, LockKind::Shared, WAIT).unwrap();
        let (read, _) = self.ways.read(way, offset, length);
        assert_eq!(read.len(), length as usize);
        let expected = self.expected[offset as usize..].iter().map(|byte| byte.load(Ordering::Relaxed));
        let wrong = read.iter().zip(expected).position(|(read, expected)| *read != expected);
        assert_eq!(wrong, None, "first wrong byte of {way:?} {offset}+{length}");
    }

    fn run(&self, steps: u64, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..steps {
            match Step::of([random.next(), random.next(), random.next()]) {
                Step::Write { way, offset, length, stamp, .. } => self.write(way, offset, length, stamp),
                Step::Read { way, offset, length } => self.check(way, offset, length),
                Step::Sync => self.ways.file.sync_data().unwrap(),
                Step::Truncate(_) | Step::Allocate { .. } | Step::Deallocate { .. } => {}
                Step::Drop => {
                    rustix::fs::fadvise(&self.ways.file, 0, None, rustix::fs::Advice::DontNeed).unwrap()
                }
            }
        }
    }
}

fn run_threads(directory: &Path, steps: u64) -> ([u64; 3], u64) {
    let shared = SharedFile::new(directory);
    thread::scope(|scope| {
        for seed in 1..=4 {
            let shared = &shared;
            scope.spawn(move || shared.run(steps, seed * 77_777));
        }
    });
    for way in [Ran::Direct, Ran::Buffered] {
        shared.check(way, 0, SIZE_MAX as u32);
    }
    // The kernel reports here if pages could not be dropped for a direct write.
    shared.ways.file.sync_data().unwrap();
    (shared.ways.ran(), shared.locks.waits())
}

#[test]
fn neighbouring_writes_by_different_ways_keep_each_others_bytes() {
    for directory in directories() {
        run_threads(&directory, 200);
    }
}

#[test]
#[ignore = "a hundred thousand operations take minutes"]
fn a_long_run_of_threads_keeps_all_bytes() {
    for directory in directories() {
        let (ran, waits) = run_threads(&directory, 25_000);
        println!("{}: buffered, uncached, direct: {ran:?}; {waits} waits for locks", directory.display());
    }
}
