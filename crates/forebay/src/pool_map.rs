//! The pool manager of one process: which pool serves a file, from the pools' own state in memory.
//!
//! New files are spread by free space: a pool is chosen with a probability in proportion to what it has free above its
//! reserve, so that pools fill evenly and a burst of creates does not go to one disk. One that clients find slow counts
//! for half of its space: it gets fewer, and never none.

mod avoidance;
mod pace;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use api::{
    ClientReport, Face, Grant, Pool, PoolList, PoolManager, PoolStatus, Purpose, SelectError, Selection,
    TransferReport,
};
use parking_lot::Mutex;
use types::{Clock, FileId, PoolId, Random};

use avoidance::Avoidance;
#[cfg(test)]
pub use pace::Pace;
use pace::Paces;
pub use pace::PoolPace;

pub struct PoolMap {
    list: Arc<PoolList>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// By the administrator. Leaf lock.
    drained: Mutex<BTreeSet<PoolId>>,
    /// Leaf lock: nothing else is called under it.
    avoidance: Mutex<Avoidance>,
    /// Leaf lock.
    paces: Mutex<Paces>,
}

impl PoolMap {
    pub fn new(
        list: Arc<PoolList>,
        drained: BTreeSet<PoolId>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> PoolMap {
        PoolMap {
            list,
            clock,
            random,
            drained: Mutex::new(drained),
            avoidance: Mutex::default(),
            paces: Mutex::default(),
        }
    }

    /// To add pools, disable them, change their addresses, and remove them.
    pub fn list(&self) -> &Arc<PoolList> {
        &self.list
    }

    /// Drained pools get no new files and no clients; the head reads and writes what lies there.
    pub fn set_drained(&self, drained: BTreeSet<PoolId>) {
        *self.drained.lock() = drained;
    }

    pub fn is_drained(&self, pool: PoolId) -> bool {
        self.drained.lock().contains(&pool)
    }

    /// How fast clients find a pool.
    pub fn pace(&self, pool: PoolId) -> PoolPace {
        self.paces.lock().of_pool(pool, self.clock.monotonic())
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
            let is_candidate = |id: PoolId| want.locations.contains(&id) && !want.tried.contains(&id);
            let usable = |pool: &Arc<dyn Pool>| {
                is_candidate(pool.id())
                    && !(want.client.is_some() && self.is_drained(pool.id()))
                    && !self.is_avoided(want.client, pool.id(), want.file)
                    && pool.status().offline.is_none()
            };
            let enabled = self.list.enabled();
            if let Some(pool) = enabled.iter().find(|pool| usable(pool)) {
                return Ok(Grant { pool: pool.id() });
            }
            let is_away = enabled.iter().any(|pool| is_candidate(pool.id()) && pool.status().is_away);
            return Err(if is_away { SelectError::Away } else { SelectError::Unavailable });
        }
        let enabled = self.list.enabled();
        let statuses = enabled.iter().filter(|pool| !self.is_drained(pool.id()));
        let untried = statuses.filter(|pool| !want.tried.contains(&pool.id()));
        let statuses: Vec<_> = untried.map(|pool| pool.status()).collect();
        let welcome: Vec<_> =
            statuses.iter().filter(|pool| !self.is_avoided(want.client, pool.id, None)).cloned().collect();
        let slow = self.paces.lock().slow(self.clock.monotonic()).clone();
        let draw = self.random.u64();
        // A client that cannot reach any pool still creates files: it writes them through the head.
        let draw = |pools: &[PoolStatus]| choose(pools, want.bytes, &slow, draw);
        let chosen = draw(&welcome).or_else(|| draw(&statuses));
        chosen.map(|pool| Grant { pool }).ok_or_else(|| {
            if !statuses.is_empty() && statuses.iter().all(|pool| !pool.is_writable()) {
                let is_away = statuses.iter().any(|pool| pool.is_away);
                if is_away { SelectError::Away } else { SelectError::Unavailable }
            } else {
                SelectError::NoSpace
            }
        })
    }

    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        self.list.pool(id)
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.list.statuses()
    }

    fn address(&self, pool: PoolId, door: &str) -> Option<SocketAddr> {
        self.list.address(pool, door)
    }

    fn face(&self, pool: PoolId, door: &str) -> Option<Face> {
        self.list.face(pool, door)
    }

    fn is_closed(&self, id: PoolId) -> bool {
        self.is_drained(id) || self.pool(id).is_none_or(|pool| pool.status().offline.is_some())
    }

    fn closed(&self) -> BTreeSet<PoolId> {
        let open_or_not = self.list.enabled().into_iter().map(|pool| pool.id());
        self.list.closed().into_iter().chain(open_or_not.filter(|pool| self.is_closed(*pool))).collect()
    }

    fn report(&self, report: &ClientReport) {
        self.avoidance.lock().take(report, self.clock.monotonic());
    }

    fn report_transfers(&self, report: &TransferReport) {
        if self.pool(report.pool).is_some() {
            self.paces.lock().take(report, self.clock.monotonic());
        }
    }

    fn forget_client(&self, client: u64) {
        self.paces.lock().forget_client(client);
    }
}

/// Draws a pool with space for `bytes`, and at least for one, weighted by free bytes, of which those of a slow pool count half.
fn choose(pools: &[PoolStatus], bytes: u64, slow: &BTreeSet<PoolId>, draw: u64) -> Option<PoolId> {
    let has_room = |pool: &PoolStatus| pool.free_bytes >= bytes.max(1) && pool.free_files > 0;
    let open = || pools.iter().filter(|pool| pool.is_writable() && has_room(pool));
    let weigh = |pool: &PoolStatus| {
        let free = u128::from(pool.free_bytes);
        if slow.contains(&pool.id) { free.div_ceil(2) } else { free }
    };
    let total: u128 = open().map(weigh).sum();
    // The draw scaled to 0..total.
    let mut point = (u128::from(draw) * total) >> 64;
    for pool in open() {
        let weight = weigh(pool);
        if point < weight {
            return Some(pool.id);
        }
        point -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::{LeaseRules, RemotePool};
    use testkit::clock::ManualClock;
    use testkit::memory_pool::MemoryPool;

    use super::*;
    use crate::system::SystemRandom;

    const POOLS: [PoolId; 2] = [PoolId(0), PoolId(1)];

    fn map() -> PoolMap {
        let pools = POOLS.map(|id| Arc::new(MemoryPool::new(id)) as Arc<dyn Pool>);
        let clock = Arc::new(ManualClock::new(1_000));
        let list = Arc::new(PoolList::of(pools).unwrap());
        PoolMap::new(list, BTreeSet::new(), clock, Arc::new(SystemRandom))
    }

    fn reads(map: &PoolMap, tried: &[PoolId]) -> Option<PoolId> {
        let want = Selection { locations: &POOLS, tried, ..Selection::new(Purpose::Read) };
        map.select(&want).ok().map(|grant| grant.pool)
    }

    /// Pools that a few new files get.
    fn created(map: &PoolMap, tried: &[PoolId]) -> BTreeSet<PoolId> {
        let want = Selection { tried, ..Selection::new(Purpose::Create) };
        (0..100).filter_map(|_| map.select(&want).ok()).map(|grant| grant.pool).collect()
    }

    #[test]
    fn a_retry_goes_to_a_pool_that_was_not_tried() {
        let map = map();
        assert_eq!(reads(&map, &[]), Some(POOLS[0]));
        assert_eq!(reads(&map, &POOLS[..1]), Some(POOLS[1]));
        assert_eq!(reads(&map, &POOLS), None);
        assert_eq!(created(&map, &[]), BTreeSet::from(POOLS));
        assert_eq!(created(&map, &POOLS[..1]), BTreeSet::from([POOLS[1]]));
        assert_eq!(created(&map, &POOLS), BTreeSet::new());
    }

    #[test]
    fn the_pools_may_change_while_they_are_asked_for() {
        let (map, third) = (map(), PoolId(2));
        let [first, second] = POOLS;
        map.list().set_disabled(first, true).unwrap();
        assert_eq!((reads(&map, &[]), created(&map, &[])), (Some(second), BTreeSet::from([second])));
        assert!(map.is_closed(first) && map.pool(first).is_none());
        assert_eq!(map.pools()[0].offline.as_deref(), Some("it is disabled"));
        assert_eq!(map.list().ids(), BTreeSet::from(POOLS));
        map.list().remove(second).unwrap();
        assert_eq!((reads(&map, &[]), created(&map, &[])), (None, BTreeSet::new()));
        assert_eq!((map.closed(), map.pools().len()), (BTreeSet::from(POOLS), 1));
        assert_eq!(map.list().ids(), BTreeSet::from([first]));
        map.list().add(Arc::new(MemoryPool::new(third))).unwrap();
        assert_eq!(created(&map, &[]), BTreeSet::from([third]));
        map.list().set_disabled(first, false).unwrap();
        map.list().add(Arc::new(MemoryPool::new(second))).unwrap();
        assert_eq!(created(&map, &[]), BTreeSet::from([first, second, third]));
        assert_eq!(map.closed(), BTreeSet::new());
    }

    fn status(id: u32, free_bytes: u64) -> PoolStatus {
        PoolStatus {
            total_bytes: 1 << 40,
            free_bytes,
            total_files: 1000,
            free_files: 1000,
            ..PoolStatus::untold(PoolId(id))
        }
    }

    /// How many of a thousand files each pool gets.
    fn spread(pools: &[PoolStatus], slow: &BTreeSet<PoolId>) -> Vec<usize> {
        let mut counts = vec![0; pools.len()];
        for step in 0..1000_u64 {
            let draw = step * (u64::MAX / 1000);
            counts[choose(pools, 0, slow, draw).unwrap().0 as usize] += 1;
        }
        counts
    }

    /// Callers of the one come again, and those of the other get an error.
    #[tokio::test]
    async fn a_pool_whose_host_is_silent_is_told_from_one_that_has_failed() {
        let clock = Arc::new(ManualClock::new(1_000));
        let rules = LeaseRules { lease: Duration::from_secs(10), suspect: Duration::from_secs(3) };
        let silent = RemotePool::new(POOLS[1], rules, Arc::clone(&clock) as _);
        let list = Arc::new(PoolList::of([silent as Arc<dyn Pool>]).unwrap());
        let map = PoolMap::new(list, BTreeSet::new(), clock, Arc::new(SystemRandom));
        let outcome = |purpose| {
            let want = Selection { locations: &POOLS[1..], ..Selection::new(purpose) };
            map.select(&want).map(|grant| grant.pool)
        };
        assert!(matches!(outcome(Purpose::Read), Err(SelectError::Away)));
        assert!(matches!(outcome(Purpose::Create), Err(SelectError::Away)));
        map.list().set_disabled(POOLS[1], true).unwrap();
        assert!(matches!(outcome(Purpose::Read), Err(SelectError::Unavailable)));
    }

    #[test]
    fn files_spread_in_proportion_to_free_space() {
        let counts = spread(&[status(0, 1 << 30), status(1, 3 << 30)], &BTreeSet::new());
        assert!((249..=251).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_slow_pool_gets_half_as_many_files_and_never_none() {
        let pools = [status(0, 1 << 30), status(1, 1 << 30)];
        let counts = spread(&pools, &BTreeSet::from([PoolId(0)]));
        assert!((332..=334).contains(&counts[0]), "{counts:?}");
        let all = BTreeSet::from([PoolId(0), PoolId(1)]);
        assert!((499..=501).contains(&spread(&pools, &all)[0]), "nothing to choose between");
        assert_eq!(
            choose(&[status(0, 1), status(1, 0)], 0, &all, u64::MAX),
            Some(PoolId(0)),
            "the last byte"
        );
    }

    #[test]
    fn a_full_or_offline_pool_gets_nothing() {
        let none = BTreeSet::new();
        let full = status(0, 0);
        let read_only = PoolStatus { read_only: Some("remounted".into()), ..status(1, 1 << 30) };
        assert_eq!(choose(std::slice::from_ref(&read_only), 0, &BTreeSet::new(), 0), None);
        assert_eq!(read_only.trouble().as_deref(), Some("takes no writes: remounted"));
        let offline = PoolStatus { offline: Some("gone".into()), ..status(1, 1 << 30) };
        assert_eq!(choose(&[full.clone(), offline.clone()], 0, &none, 5), None);
        assert_eq!(choose(&[full, offline, status(2, 1)], 0, &none, u64::MAX), Some(PoolId(2)));
    }

    #[test]
    fn a_file_goes_where_all_of_it_has_room() {
        let (pools, none) = ([status(0, 100), status(1, 10)], BTreeSet::new());
        assert_eq!(choose(&pools, 11, &none, u64::MAX), Some(PoolId(0)));
        assert_eq!(choose(&pools, 10, &none, u64::MAX), Some(PoolId(1)));
        assert_eq!(choose(&pools, 101, &none, 0), None);
    }
}
