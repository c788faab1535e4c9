//! A pool manager over pools that a test gives, and changes while the clients of the test are served.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use api::{
    ClientReport, Face, Grant, Pool, PoolList, PoolManager, PoolStatus, Purpose, SelectError, Selection,
};
use types::PoolId;

/// New files go to the first pool with room, and clients to the first location.
pub struct MemoryPools {
    list: PoolList,
    lost: Mutex<BTreeSet<PoolId>>,
}

impl MemoryPools {
    pub fn of(pools: impl IntoIterator<Item = Arc<dyn Pool>>) -> MemoryPools {
        let list = PoolList::of(pools).expect("the pools of a test differ");
        MemoryPools { list, lost: Mutex::default() }
    }

    /// To add pools, disable them, change their addresses, and remove them.
    pub fn list(&self) -> &PoolList {
        &self.list
    }

    /// From now on the pool cannot be reached. Its files are still granted there: a manager may not know of it yet.
    pub fn lose(&self, pool: PoolId) {
        self.lost().insert(pool);
    }

    fn lost(&self) -> MutexGuard<'_, BTreeSet<PoolId>> {
        self.lost.lock().expect("no thread panics while it holds the lock")
    }
}

impl PoolManager for MemoryPools {
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError> {
        if want.purpose != Purpose::Create {
            if want.locations.is_empty() {
                return Err(SelectError::NoLocation);
            }
            let closed = self.list.closed();
            let may_serve = |pool: &&PoolId| !want.tried.contains(pool) && !closed.contains(pool);
            let first = want.locations.iter().find(may_serve).ok_or(SelectError::Unavailable)?;
            return Ok(Grant { pool: *first });
        }
        let has_room = |status: &PoolStatus| {
            status.is_writable() && status.free_bytes >= want.bytes.max(1) && !want.tried.contains(&status.id)
        };
        let chosen = self.pools().into_iter().find(has_room).ok_or(SelectError::NoSpace)?;
        Ok(Grant { pool: chosen.id })
    }

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        self.list.pool(id).filter(|_| !self.lost().contains(&id))
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let lost = self.lost().clone();
        self.list.statuses().into_iter().filter(|status| !lost.contains(&status.id)).collect()
    }

    fn address(&self, pool: PoolId, door: &str) -> Option<SocketAddr> {
        self.list.address(pool, door)
    }

    fn face(&self, pool: PoolId, door: &str) -> Option<Face> {
        self.list.face(pool, door)
    }

    fn is_closed(&self, pool: PoolId) -> bool {
        self.list.closed().contains(&pool)
    }

    fn closed(&self) -> BTreeSet<PoolId> {
        self.list.closed()
    }

    fn report(&self, _: &ClientReport) {}
}

#[cfg(test)]
mod tests {
    use api::PoolListError;

    use super::*;
    use crate::memory_pool::{Limits, MemoryPool};

    fn pools() -> MemoryPools {
        let limits = Limits { capacity_bytes: 10, replica_bytes_max: 10 };
        let small: Arc<dyn Pool> = Arc::new(MemoryPool::with_limits(PoolId(1), limits));
        MemoryPools::of([small, Arc::new(MemoryPool::new(PoolId(2)))])
    }

    fn select(pools: &MemoryPools, purpose: Purpose, locations: &[PoolId], bytes: u64) -> Option<PoolId> {
        let want = Selection { locations, bytes, ..Selection::new(purpose) };
        pools.select(&want).ok().map(|grant| grant.pool)
    }

    #[test]
    fn a_list_of_pools_changes_as_a_whole_or_not_at_all() {
        let (pools, gone, address) = (pools(), PoolId(3), ([127, 0, 0, 1], 7).into());
        let list = pools.list();
        assert_eq!(list.remove(gone), Err(PoolListError::Unlisted(gone)));
        assert_eq!(list.set_disabled(gone, true), Err(PoolListError::Unlisted(gone)));
        assert_eq!(list.set_address(gone, "door", address), Err(PoolListError::Unlisted(gone)));
        let again = Arc::new(MemoryPool::new(PoolId(2)));
        assert_eq!(list.add(again), Err(PoolListError::Repeated(PoolId(2))));
        assert_eq!((pools.pools().len(), list.closed()), (2, BTreeSet::new()));
    }

    #[test]
    fn a_pool_has_an_address_for_each_door_and_loses_them_when_it_is_removed() {
        let (pools, pool) = (pools(), PoolId(2));
        let address = |port| ([127, 0, 0, 1], port).into();
        pools.list().set_address(pool, "one", address(1)).unwrap();
        pools.list().set_address(pool, "other", address(2)).unwrap();
        let addresses = || ["one", "other", "third"].map(|door| pools.address(pool, door));
        assert_eq!(addresses(), [Some(address(1)), Some(address(2)), None]);
        pools.list().set_address(pool, "one", address(3)).unwrap();
        assert_eq!(addresses(), [Some(address(3)), Some(address(2)), None]);
        pools.list().remove(pool).unwrap();
        assert!(pools.is_closed(pool) && pools.pool(pool).is_none());
        pools.list().add(Arc::new(MemoryPool::new(pool))).unwrap();
        assert_eq!((addresses(), pools.is_closed(pool)), ([None; 3], false));
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
