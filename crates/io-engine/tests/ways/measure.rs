//! Figures of a machine, for the notes of a change; nothing is asserted.
//! `cargo test --release -p forebay-io-engine --test ways -- --ignored --nocapture measure` prints them.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use aligned::AlignedBuffers;
use forebay_io_engine::Ran;
use forebay_io_engine::range_lock::{LockKind, RangeLocks};
use forebay_io_engine::reopen::reopen_direct;
use forebay_io_engine::residency::count_pages;
use forebay_io_engine::uncached::{UncachedIo, WritePace};
use types::ByteRange;

use crate::file::{Ways, capabilities, directories};
use crate::steps::Random;

const WRITE_BYTES: usize = 1 << 20;
const THREADS: u64 = 4;
const WRITES: u64 = 512;

/// Megabytes per second, and the median, the 99th percentile and the longest of the writes.
fn paced(window_bytes: u64) -> (u64, [Duration; 3]) {
    let directory = directories().remove(0);
    let io = UncachedIo::new(AlignedBuffers::new(4096, 0), window_bytes, true);
    let begun = Instant::now();
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let writer = || {
            let (file, pace) = (tempfile::tempfile_in(&directory).unwrap(), WritePace::default());
            let data = vec![7; WRITE_BYTES];
            let reopened = reopen_direct(file.as_fd()).unwrap();
            let other = reopened.as_ref().map(AsFd::as_fd);
            let write = |at| {
                let begun = Instant::now();
                io.write(file.as_fd(), other, &pace, &data, at * WRITE_BYTES as u64).unwrap();
                begun.elapsed()
            };
            let times: Vec<Duration> = (0..WRITES).map(write).collect();
            file.sync_data().unwrap();
            times
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(writer)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let rate = (THREADS * WRITES) as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate as u64, [times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]])
}

#[test]
#[ignore = "it measures"]
fn pacing_of_uncached_writes() {
    for round in 0..3 {
        for window_bytes in [2 << 20, 8 << 20, 32 << 20, u64::MAX] {
            let (rate, times) = paced(window_bytes);
            println!("round {round} window {window_bytes}: {rate} MiB/s, p50 p99 max {times:?}");
        }
    }
}

fn per_call(count: u32, mut call: impl FnMut(u32)) -> Duration {
    let begun = Instant::now();
    (0..count).for_each(&mut call);
    begun.elapsed() / count
}

#[test]
#[ignore = "it measures"]
fn cost_of_range_locks_and_residency() {
    let locks = RangeLocks::new(64);
    let range = |offset: u64| ByteRange::new(offset, 4096).unwrap();
    let lock =
        |at: u32| drop(black_box(locks.acquire(range(u64::from(at)), LockKind::Exclusive, Duration::ZERO)));
    println!("range lock, alone: {:?}", per_call(1_000_000, lock));
    let _others: Vec<_> = (0..8)
        .map(|at| locks.acquire(range((1 << 40) + at * 4096), LockKind::Exclusive, Duration::ZERO))
        .collect();
    println!("range lock, beside eight others: {:?}", per_call(1_000_000, lock));

    let file: File = tempfile::tempfile_in(directories().remove(0)).unwrap();
    file.write_all_at(&vec![7; 4 << 20], 0).unwrap();
    file.sync_all().unwrap();
    for length in [4096, 128 << 10, 1 << 20, 4 << 20] {
        let range = ByteRange::new(0, length).unwrap();
        let cost = per_call(20_000, |_| {
            let _ = black_box(count_pages(file.as_fd(), range));
        });
        println!("pages of {length} resident bytes: {cost:?}");
    }
}

#[test]
#[ignore = "it measures"]
fn time_of_writes_by_way_and_size() {
    let directory = directories().remove(0);
    let mut random = Random::new(5);
    for (length, shift) in
        [(4096, 0), (32 << 10, 0), (47_008, 1), (128 << 10, 0), (128 << 10, 1), (1 << 20, 0), (1 << 20, 1)]
    {
        let mut source = AlignedBuffers::new(4096, 0).take(length + 1);
        source.bytes_mut().fill(7);
        let count = (64 << 20) / length as u32;
        for way in [Ran::Buffered, Ran::Uncached, Ran::Direct] {
            let ways = Ways::new(&directory, capabilities(&directory));
            let first = random.next() % 2;
            let begun = Instant::now();
            for at in 0..u64::from(count) {
                ways.write(
                    way,
                    &source.bytes()[shift..shift + length],
                    first * 8192 + at * (length + shift) as u64,
                );
            }
            ways.file.sync_data().unwrap();
            let rate = 64.0 / begun.elapsed().as_secs_f64();
            println!("{length} bytes, unaligned by {shift}, {way:?}: {rate:.0} MiB/s, ran {:?}", ways.ran());
        }
    }
}
