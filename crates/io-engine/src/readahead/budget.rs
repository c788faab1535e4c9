//! The memory that the read-ahead of all files of a pool may fill, and the counts of it.
//!
//! Invariant: issued bytes are used, wasted or outstanding, and the outstanding ones never pass the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
}

impl ReadAheadLimits {
    /// Not measured: starting points.
    pub fn for_memory(pool_bytes_max: u64) -> ReadAheadLimits {
        let age_max = Duration::from_secs(30);
        ReadAheadLimits { window_bytes_max: 8 << 20, fetches_max: 8, pool_bytes_max, age_max }
    }
}

pub struct ReadAheadBudget {
    limits: ReadAheadLimits,
    outstanding_bytes: AtomicU64,
    used_bytes: AtomicU64,
    wasted_bytes: AtomicU64,
    is_tight: AtomicBool,
}

/// Bytes since the start of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCounts {
    pub issued_bytes: u64,
    /// Read after they were asked for.
    pub used_bytes: u64,
    /// Not read in time, or passed over by their stream.
    pub wasted_bytes: u64,
}

impl ReadAheadCounts {
    pub fn outstanding_bytes(&self) -> u64 {
        self.issued_bytes - self.used_bytes - self.wasted_bytes
    }
}

impl ReadAheadBudget {
    pub fn new(limits: ReadAheadLimits) -> Arc<ReadAheadBudget> {
        Arc::new(ReadAheadBudget {
            limits,
            outstanding_bytes: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            wasted_bytes: AtomicU64::new(0),
            is_tight: AtomicBool::new(false),
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
        let issued_bytes = used_bytes + wasted_bytes + load(&self.outstanding_bytes);
        ReadAheadCounts { issued_bytes, used_bytes, wasted_bytes }
    }

    pub(super) fn is_tight(&self) -> bool {
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
}
