//! Range locks held by one thread, and by many.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::mpsc;
use std::thread;

use super::LockKind::{Exclusive, Shared};
use super::*;

const LONG: Duration = Duration::from_secs(60);

fn range(offset: u64, end: u64) -> ByteRange {
    ByteRange::from_bounds(offset, end).unwrap()
}

/// Returns when so many callers wait.
fn until_waiting(locks: &RangeLocks, count: usize) {
    while locks.order.lock().waiting() < count {
        thread::yield_now();
    }
}

#[test]
fn disjoint_and_shared_ranges_do_not_wait() {
    let locks = RangeLocks::new(0);
    let first = locks.acquire(range(0, 10), Exclusive, LONG).unwrap();
    let second = locks.acquire(range(10, 20), Shared, LONG).unwrap();
    let third = locks.acquire(range(15, 30), Shared, LONG).unwrap();
    assert!(!first.has_waited() && !second.has_waited() && !third.has_waited());
    assert_eq!(locks.waits(), 0);
}

#[test]
fn a_full_queue_is_busy() {
    let locks = RangeLocks::new(0);
    let held = locks.acquire(range(0, 10), Shared, LONG).unwrap();
    assert_eq!(locks.acquire(range(9, 11), Exclusive, LONG).err(), Some(LockRefused::Busy));
    assert!(locks.try_acquire(range(9, 11), Exclusive).is_none());
    drop(held);
    assert!(locks.try_acquire(range(9, 11), Exclusive).is_some());
}

#[test]
fn a_wait_ends_at_its_deadline_and_leaves_nothing_behind() {
    let locks = RangeLocks::new(1);
    let held = locks.acquire(range(0, 10), Exclusive, LONG).unwrap();
    let late = locks.acquire(range(5, 6), Shared, Duration::ZERO);
    assert_eq!(late.err(), Some(LockRefused::TimedOut));
    assert_eq!((locks.waits(), locks.order.lock().waiting()), (1, 0));
    drop(held);
    assert!(locks.try_acquire(ByteRange::ALL, Exclusive).is_some());
}

#[test]
fn a_waiting_large_range_is_not_passed_by_small_ones() {
    let locks = Arc::new(RangeLocks::new(2));
    let held = locks.acquire(range(0, 10), Shared, LONG).unwrap();
    let (tell, told) = mpsc::channel();
    let run = |name: &'static str, range: ByteRange, kind| {
        let (locks, tell) = (Arc::clone(&locks), tell.clone());
        thread::spawn(move || {
            let guard = locks.acquire(range, kind, LONG).unwrap();
            tell.send((name, guard.has_waited())).unwrap();
        })
    };
    let large = run("large", range(0, 1000), Exclusive);
    until_waiting(&locks, 1);
    let small = run("small", range(5, 6), Shared);
    until_waiting(&locks, 2);
    assert!(told.try_recv().is_err(), "neither is granted yet");
    drop(held);
    assert_eq!(told.recv().unwrap(), ("large", true));
    assert_eq!(told.recv().unwrap(), ("small", true));
    large.join().unwrap();
    small.join().unwrap();
}

/// Per block: -1 while written, else the number of readers.
struct Blocks(Vec<AtomicI64>);

impl Blocks {
    fn enter(&self, range: ByteRange, kind: LockKind) {
        for block in &self.0[range.offset() as usize..range.end() as usize] {
            let is_alone = match kind {
                Shared => block.fetch_add(1, Ordering::SeqCst) >= 0,
                Exclusive => block.fetch_sub(1, Ordering::SeqCst) == 0,
            };
            assert!(is_alone, "two conflicting locks are held");
        }
    }

    fn leave(&self, range: ByteRange, kind: LockKind) {
        for block in &self.0[range.offset() as usize..range.end() as usize] {
            block.fetch_add(if kind == Shared { -1 } else { 1 }, Ordering::SeqCst);
        }
    }
}

#[test]
fn many_threads_never_hold_conflicting_locks() {
    const BLOCKS: u64 = 64;
    let locks = RangeLocks::new(64);
    let blocks = Blocks((0..BLOCKS).map(|_| AtomicI64::new(0)).collect());
    let granted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for seed in 1_u64..=8 {
            let (locks, blocks, granted) = (&locks, &blocks, &granted);
            scope.spawn(move || {
                let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
                for _ in 0..4000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let (offset, length) = (random % BLOCKS, 1 + random / 64 % 16);
                    let range = range(offset, (offset + length).min(BLOCKS));
                    let kind = if random >> 40 & 3 == 0 { Exclusive } else { Shared };
                    let guard = locks.acquire(range, kind, LONG).unwrap();
                    blocks.enter(range, kind);
                    if random >> 50 & 7 == 0 {
                        thread::yield_now();
                    }
                    blocks.leave(range, kind);
                    drop(guard);
                    granted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 32_000);
    assert!(locks.try_acquire(ByteRange::ALL, Exclusive).is_some());
}
