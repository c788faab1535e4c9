//! Counters of a pool's work since it was opened. Read for status only, so the order between counters does not matter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    pub fn subtract(&self, amount: u64) {
        // Saturates: a status of 2⁶⁴ replicas would be worse than one that is off by one.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |value| Some(value.saturating_sub(amount)));
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Default)]
pub struct Counters {
    pub replicas: Counter,
    pub reads: Counter,
    pub read_bytes: Counter,
    pub writes: Counter,
    pub written_bytes: Counter,
    pub syncs: Counter,
}
