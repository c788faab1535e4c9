//! The pool manager of one process: which pool serves a file, from the pools' own state in memory.
//!
//! New files are spread by free space: a pool is chosen with a probability in proportion to what it has free above its
//! reserve, so that pools fill evenly and a burst of creates does not go to one disk.

mod avoidance;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{ClientReport, Grant, Pool, PoolManager, PoolStatus, Purpose, SelectError, Selection};
use parking_lot::Mutex;
use types::{Clock, FileId, PoolId, Random};

use avoidance::Avoidance;

pub struct PoolMap {
    pools: Vec<Arc<dyn Pool>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// By the administrator. Leaf lock.
    drained: Mutex<BTreeSet<PoolId>>,
    /// Leaf lock: nothing else is called under it.
    avoidance: Mutex<Avoidance>,
}

impl PoolMap {
    pub fn new(
        pools: Vec<Arc<dyn Pool>>,
        drained: BTreeSet<PoolId>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> PoolMap {
        PoolMap { pools, clock, random, drained: Mutex::new(drained), avoidance: Mutex::default() }
    }

    /// Drained pools get no new files and no clients; the head reads and writes what lies there.
    pub fn set_drained(&self, drained: BTreeSet<PoolId>) {
        *self.drained.lock() = drained;
    }

    pub fn is_drained(&self, pool: PoolId) -> bool {
        self.drained.lock().contains(&pool)
    }

    fn is_avoided(&self, client: Option<u64>, pool: PoolId, file: Option<FileId>) -> bool {
        let Some(client) = client else { return false };
        self.avoidance.lock().is_avoided(client, pool, file, self.clock.monotonic())
    }
}

impl PoolManager for PoolMap {
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError> {
        if want.purpose != Purpose::Create {
            if want.locations.is_empty() {
                return Err(SelectError::NoLocation);
            }
            let usable = |pool: &&Arc<dyn Pool>| {
                want.locations.contains(&pool.id())
                    && !(want.client.is_some() && self.is_drained(pool.id()))
                    && !self.is_avoided(want.client, pool.id(), want.file)
                    && pool.status().offline.is_none()
            };
            let pool = self.pools.iter().find(usable).ok_or(SelectError::Unavailable)?;
            return Ok(Grant { pool: pool.id() });
        }
        let statuses = self.pools.iter().filter(|pool| !self.is_drained(pool.id()));
        let statuses: Vec<_> = statuses.map(|pool| pool.status()).collect();
        let welcome: Vec<_> =
            statuses.iter().filter(|pool| !self.is_avoided(want.client, pool.id, None)).cloned().collect();
        let draw = self.random.u64();
        // A client that cannot reach any pool still creates files: it writes them through the head.
        choose(&welcome, draw).or_else(|| choose(&statuses, draw)).map(|pool| Grant { pool }).ok_or_else(
            || {
                if !statuses.is_empty() && statuses.iter().all(|pool| pool.offline.is_some()) {
                    SelectError::Unavailable
                } else {
                    SelectError::NoSpace
                }
            },
        )
    }

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        self.pools.iter().find(|pool| pool.id() == id).cloned()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.pools.iter().map(|pool| pool.status()).collect()
    }

    fn is_closed(&self, id: PoolId) -> bool {
        self.is_drained(id) || self.pool(id).is_none_or(|pool| pool.status().offline.is_some())
    }

    fn closed(&self) -> BTreeSet<PoolId> {
        self.pools.iter().map(|pool| pool.id()).filter(|pool| self.is_closed(*pool)).collect()
    }

    fn report(&self, report: &ClientReport) {
        self.avoidance.lock().take(report, self.clock.monotonic());
    }
}

/// Draws a pool with space, weighted by free bytes.
fn choose(pools: &[PoolStatus], draw: u64) -> Option<PoolId> {
    let open =
        || pools.iter().filter(|pool| pool.offline.is_none() && pool.free_bytes > 0 && pool.free_files > 0);
    let total: u128 = open().map(|pool| u128::from(pool.free_bytes)).sum();
    // The draw scaled to 0..total.
    let mut point = (u128::from(draw) * total) >> 64;
    for pool in open() {
        let weight = u128::from(pool.free_bytes);
        if point < weight {
            return Some(pool.id);
        }
        point -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(id: u32, free_bytes: u64) -> PoolStatus {
        PoolStatus {
            id: PoolId(id),
            offline: None,
            total_bytes: 1 << 40,
            free_bytes,
            total_files: 1000,
            free_files: 1000,
            replicas: 0,
            read_bytes: 0,
            written_bytes: 0,
            reads: 0,
            writes: 0,
            syncs: 0,
        }
    }

    #[test]
    fn files_spread_in_proportion_to_free_space() {
        let pools = [status(0, 1 << 30), status(1, 3 << 30)];
        let mut counts = [0; 2];
        for step in 0..1000_u64 {
            let draw = step * (u64::MAX / 1000);
            counts[choose(&pools, draw).unwrap().0 as usize] += 1;
        }
        assert!((249..=251).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_full_or_offline_pool_gets_nothing() {
        let full = status(0, 0);
        let offline = PoolStatus { offline: Some("gone".into()), ..status(1, 1 << 30) };
        assert_eq!(choose(&[full.clone(), offline.clone()], 5), None);
        assert_eq!(choose(&[full, offline, status(2, 1)], u64::MAX), Some(PoolId(2)));
    }
}
