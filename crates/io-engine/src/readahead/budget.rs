//! The memory and threads that the read-ahead of all files of a pool may fill, and the counts of it.
//!
//! Invariant: issued bytes are used, wasted, dropped or outstanding, and the outstanding ones never pass the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Requests have the other threads of the pool.
const ADVISING_MAX: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAheadLimits {
    /// How far ahead of its reader one stream is read.
    pub window_bytes_max: u64,
    /// Ranges that one read may ask for.
    pub fetches_max: usize,
    /// Bytes of all files that were asked for and not read yet.
    pub pool_bytes_max: u64,
    /// Bytes that were not read this long after they were asked for are wasted: the kernel may have dropped them.
    pub age_max: Duration,
    /// A forward stream in order that is alone in its file is left to the kernel, whose pages for it are larger.
    pub is_kernel_trusted: bool,
}

impl ReadAheadLimits {
    /// Not measured: starting points.
    pub fn for_memory(pool_bytes_max: u64) -> ReadAheadLimits {
        let age_max = Duration::from_secs(30);
        ReadAheadLimits {
            window_bytes_max: 8 << 20,
            fetches_max: 8,
            pool_bytes_max,
            age_max,
            is_kernel_trusted: true,
        }
    }
}

pub struct ReadAheadBudget {
    limits: ReadAheadLimits,
    outstanding_bytes: AtomicU64,
    used_bytes: AtomicU64,
    wasted_bytes: AtomicU64,
    dropped_bytes: AtomicU64,
    is_tight: AtomicBool,
    /// Advice that waits for a thread, or is in one.
    advising: AtomicUsize,
}

/// Bytes since the start of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCounts {
    pub issued_bytes: u64,
    /// Read after they were asked for.
    pub used_bytes: u64,
    /// Not read in time, or passed over by their stream.
    pub wasted_bytes: u64,
    /// Not fetched: the page cache had them, or the queue of the disk threads was full.
    pub dropped_bytes: u64,
}

impl ReadAheadCounts {
    pub fn outstanding_bytes(&self) -> u64 {
        self.issued_bytes - self.used_bytes - self.wasted_bytes - self.dropped_bytes
    }
}

impl ReadAheadBudget {
    pub fn new(limits: ReadAheadLimits) -> Arc<ReadAheadBudget> {
        Arc::new(ReadAheadBudget {
            limits,
            outstanding_bytes: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            wasted_bytes: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            is_tight: AtomicBool::new(false),
            advising: AtomicUsize::new(0),
        })
    }

    pub fn limits(&self) -> &ReadAheadLimits {
        &self.limits
    }

    /// While the memory of the host is tight, nothing is read ahead.
    pub fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    pub fn counts(&self) -> ReadAheadCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (used_bytes, wasted_bytes) = (load(&self.used_bytes), load(&self.wasted_bytes));
        let dropped_bytes = load(&self.dropped_bytes);
        let issued_bytes = used_bytes + wasted_bytes + dropped_bytes + load(&self.outstanding_bytes);
        ReadAheadCounts { issued_bytes, used_bytes, wasted_bytes, dropped_bytes }
    }

    /// While the threads are busy, streams wait with their advice.
    pub(super) fn is_busy(&self) -> bool {
        self.advising.load(Ordering::Relaxed) >= ADVISING_MAX
    }

    pub(super) fn begin_advising(&self) {
        self.advising.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_advising(&self) {
        self.advising.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, if there is room for all of them.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let room = |outstanding: u64| {
            outstanding.checked_add(bytes).filter(|outstanding| *outstanding <= self.limits.pool_bytes_max)
        };
        self.outstanding_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn note_used(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.outstanding_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_wasted(&self, bytes: u64) {
        self.wasted_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.outstanding_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_dropped(&self, bytes: u64) {
        self.dropped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.outstanding_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
