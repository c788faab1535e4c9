//! A pool manager over pools that a test gives.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use api::{ClientReport, Grant, Pool, PoolManager, PoolStatus, Purpose, SelectError, Selection};
use types::PoolId;

/// New files go to the first pool with room, and clients to the first location.
pub struct MemoryPools {
    pools: Vec<Arc<dyn Pool>>,
    lost: Mutex<BTreeSet<PoolId>>,
}

impl MemoryPools {
    pub fn of(pools: impl IntoIterator<Item = Arc<dyn Pool>>) -> MemoryPools {
        MemoryPools { pools: pools.into_iter().collect(), lost: Mutex::default() }
    }

    /// From now on the pool cannot be reached. Its files are still granted there: a manager may not know of it yet.
    pub fn lose(&self, pool: PoolId) {
        self.lost().insert(pool);
    }

    fn lost(&self) -> MutexGuard<'_, BTreeSet<PoolId>> {
        self.lost.lock().expect("no thread panics while it holds the lock")
    }

    fn reachable(&self) -> impl Iterator<Item = &Arc<dyn Pool>> {
        let lost = self.lost().clone();
        self.pools.iter().filter(move |pool| !lost.contains(&pool.id()))
    }
}

impl PoolManager for MemoryPools {
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError> {
        if want.purpose != Purpose::Create {
            let first = want.locations.first().ok_or(SelectError::NoLocation)?;
            return Ok(Grant { pool: *first });
        }
        let has_room = |status: &PoolStatus| status.is_writable() && status.free_bytes >= want.bytes.max(1);
        let chosen = self.pools().into_iter().find(has_room).ok_or(SelectError::NoSpace)?;
        Ok(Grant { pool: chosen.id })
    }

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        self.reachable().find(|pool| pool.id() == id).cloned()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.reachable().map(|pool| pool.status()).collect()
    }

    fn report(&self, _: &ClientReport) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_pool::{Limits, MemoryPool};

    fn pools() -> MemoryPools {
        let limits = Limits { capacity_bytes: 10, replica_bytes_max: 10 };
        let small: Arc<dyn Pool> = Arc::new(MemoryPool::with_limits(PoolId(1), limits));
        MemoryPools::of([small, Arc::new(MemoryPool::new(PoolId(2)))])
    }

    fn select(pools: &MemoryPools, purpose: Purpose, locations: &[PoolId], bytes: u64) -> Option<PoolId> {
        let want = Selection { purpose, locations, file: None, bytes, client: None };
        pools.select(&want).ok().map(|grant| grant.pool)
    }

    #[test]
    fn a_new_file_goes_where_it_has_room_and_others_where_they_are() {
        let pools = pools();
        assert_eq!(select(&pools, Purpose::Create, &[], 10), Some(PoolId(1)));
        assert_eq!(select(&pools, Purpose::Create, &[], 11), Some(PoolId(2)));
        assert_eq!(select(&pools, Purpose::Create, &[], u64::MAX), None);
        assert_eq!(select(&pools, Purpose::Read, &[PoolId(2), PoolId(1)], 0), Some(PoolId(2)));
        assert_eq!(select(&pools, Purpose::Write, &[], 0), None);
    }

    #[test]
    fn a_lost_pool_is_granted_and_cannot_be_reached() {
        let pools = pools();
        pools.lose(PoolId(1));
        assert!(pools.pool(PoolId(1)).is_none() && pools.pool(PoolId(2)).is_some());
        assert_eq!(select(&pools, Purpose::Read, &[PoolId(1)], 0), Some(PoolId(1)));
        assert_eq!(select(&pools, Purpose::Create, &[], 1), Some(PoolId(2)));
    }
}
