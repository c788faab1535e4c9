//! Locks on ranges of one replica: shared or exclusive, granted in order of arrival.
//!
//! A caller waits in its own thread, which is a disk thread: a thread that holds a lock runs, so the wait ends. A waiter
//! lets nobody pass whom it conflicts with, so a large range is not starved by small ones; disjoint ranges pass.
//! The order is a rule without threads (`order`); this module adds the waiting.
//!
//! Invariants: no two granted locks conflict. At most `waiting_max` callers wait, each until its deadline at most.

mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::ByteRange;

use order::{Order, Ticket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    Shared,
    Exclusive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefused {
    /// Too many wait already.
    Busy,
    TimedOut,
}

pub struct RangeLocks {
    waiting_max: usize,
    /// Locked to enter and to leave; a waiter sleeps on its own condition and releases it meanwhile.
    order: Mutex<Order<Arc<Condvar>>>,
    waits: AtomicU64,
}

impl RangeLocks {
    pub fn new(waiting_max: usize) -> RangeLocks {
        RangeLocks { waiting_max, order: Mutex::new(Order::new()), waits: AtomicU64::new(0) }
    }

    /// Waits for conflicting locks that were asked for earlier, for `wait_max` at most.
    pub fn acquire(
        &self,
        range: ByteRange,
        kind: LockKind,
        wait_max: Duration,
    ) -> Result<RangeGuard<'_>, LockRefused> {
        let mut order = self.order.lock();
        if !order.has_conflict(range, kind) {
            let ticket = order.enter(range, kind, None);
            return Ok(RangeGuard { locks: self, ticket, has_waited: false });
        }
        if order.waiting() >= self.waiting_max {
            return Err(LockRefused::Busy);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let granted = Arc::new(Condvar::new());
        let ticket = order.enter(range, kind, Some(Arc::clone(&granted)));
        let deadline = Instant::now() + wait_max;
        while !order.is_granted(ticket) {
            let timed_out = granted.wait_until(&mut order, deadline).timed_out();
            if timed_out && !order.is_granted(ticket) {
                wake(order.leave(ticket));
                return Err(LockRefused::TimedOut);
            }
        }
        Ok(RangeGuard { locks: self, ticket, has_waited: true })
    }

    /// `None` if a wait would be needed.
    pub fn try_acquire(&self, range: ByteRange, kind: LockKind) -> Option<RangeGuard<'_>> {
        let mut order = self.order.lock();
        if order.has_conflict(range, kind) {
            return None;
        }
        let ticket = order.enter(range, kind, None);
        Some(RangeGuard { locks: self, ticket, has_waited: false })
    }

    /// Acquisitions that had to wait so far, those that were given up included.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

/// Releases the range when it is dropped.
#[must_use]
pub struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: Ticket,
    has_waited: bool,
}

impl RangeGuard<'_> {
    /// Whether a conflicting lock was in the way: a sign of contention.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        wake(self.locks.order.lock().leave(self.ticket));
    }
}

fn wake(granted: Vec<Arc<Condvar>>) {
    for waiter in granted {
        waiter.notify_one();
    }
}

#[cfg(test)]
mod tests;
