//! Reports of clients about their I/O at the pools (RFC 8435 §9): errors, tallied by pool, and counters.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Transfers;
use nfs4::{ClientId4, FfLayoutUpdate4};
use parking_lot::Mutex;
use types::PoolId;

use super::io_counters::{IoCounters, Source};

/// One line of log for a pool's errors in this time.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// Device ids come from clients; no instance has more pools.
const POOLS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub errors: u64,
    warned: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct Reports {
    /// Leaf lock.
    tallies: Mutex<BTreeMap<PoolId, Tally>>,
    /// Leaf lock.
    counters: Mutex<IoCounters>,
}

impl Reports {
    /// Whether this error is worth a line in the log.
    pub fn take_error(&self, pool: PoolId, now: Duration) -> bool {
        self.with(pool, |tally| {
            tally.errors += 1;
            let is_due = tally.warned.is_none_or(|warned| now.saturating_sub(warned) >= WARN_INTERVAL);
            if is_due {
                tally.warned = Some(now);
            }
            is_due
        })
    }

    /// Reads and writes since the source's last report.
    pub fn take_counters(
        &self,
        source: Source,
        update: &FfLayoutUpdate4,
        now: Duration,
    ) -> Option<(Transfers, Transfers)> {
        self.counters.lock().take(source, update, now)
    }

    pub fn forget_counters(&self, source: Source) {
        self.counters.lock().forget(source);
    }

    pub fn forget_client(&self, client: ClientId4) {
        self.counters.lock().forget_client(client.0);
    }

    /// The number of sources whose counters are kept.
    #[cfg(feature = "direct")]
    pub fn counters(&self) -> usize {
        self.counters.lock().len()
    }

    pub fn snapshot(&self) -> Vec<(PoolId, Tally)> {
        self.tallies.lock().iter().map(|(pool, tally)| (*pool, *tally)).collect()
    }

    fn with(&self, pool: PoolId, change: impl FnOnce(&mut Tally) -> bool) -> bool {
        let mut tallies = self.tallies.lock();
        if tallies.len() >= POOLS_MAX && !tallies.contains_key(&pool) {
            return false;
        }
        change(tallies.entry(pool).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_errors_of_a_pool_are_counted_all_and_told_now_and_then() {
        let reports = Reports::default();
        let told = |second| reports.take_error(PoolId(1), Duration::from_secs(second));
        assert_eq!([told(5), told(6), told(16)], [true, false, true]);
        assert_eq!(reports.snapshot()[0].1.errors, 3);
    }

    #[test]
    fn invented_pools_do_not_grow_the_table() {
        let reports = Reports::default();
        for pool in 0..2 * POOLS_MAX as u32 {
            reports.take_error(PoolId(pool), Duration::ZERO);
        }
        assert_eq!(reports.snapshot().len(), POOLS_MAX);
    }
}
