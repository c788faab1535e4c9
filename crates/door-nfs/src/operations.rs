//! Operations as they are counted and timed, for `status` and the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Observer, Subject};

/// Numbers 3..=75 are operations; the last place counts illegal ones.
const PLACES: usize = 77;

pub(crate) struct Operations {
    counts: [AtomicU64; PLACES],
    door: &'static str,
    observer: Arc<dyn Observer>,
}

impl Operations {
    pub fn new(door: &'static str, observer: Arc<dyn Observer>) -> Operations {
        Operations { counts: std::array::from_fn(|_| AtomicU64::new(0)), door, observer }
    }

    pub fn took(&self, opnum: u32, took: Duration, describe: &dyn Fn() -> Subject) {
        self.observer.took(self.door, nfs4::op::name(opnum), took, describe);
    }

    pub fn count(&self, opnum: u32) {
        let place = usize::try_from(opnum).unwrap_or(PLACES).min(PLACES - 1);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Those that happened, by name.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .map(|(number, count)| (nfs4::op::name(number as u32), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}
