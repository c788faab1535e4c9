//! The pace of copies: clients come first.
//!
//! While others read or write at the pools, a copy rests after each piece, so that it takes a share of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::PoolManager;
use async_trait::async_trait;
use files::CopyPace;
use parking_lot::Mutex;
use tokio::sync::watch;
use types::{Clock, PoolId};

use super::Drains;

/// The pools are looked at so often.
const PERIOD: Duration = Duration::from_secs(1);
/// Of others in a period: so few do not count.
const IDLE_MAX: u64 = 4;
/// A disk that took very long for a piece rests no longer.
const REST_MAX: Duration = Duration::from_secs(5);

/// Whether others than the copies use the pools.
pub struct Activity {
    pools: Arc<dyn PoolManager>,
    clock: Arc<dyn Clock>,
    share: f64,
    /// Reads and writes that copies have made.
    own: AtomicU64,
    /// Leaf lock.
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    at: Option<Duration>,
    /// Reads and writes of all pools then, and those of copies.
    all: u64,
    own: u64,
    is_used: bool,
}

impl Activity {
    pub fn new(pools: Arc<dyn PoolManager>, clock: Arc<dyn Clock>, share: f64) -> Activity {
        Activity { pools, clock, share, own: AtomicU64::new(0), looked: Mutex::default() }
    }

    /// How long a copy rests that has worked so long.
    fn rest_after(&self, worked: Duration) -> Duration {
        // A read at one pool and, of most pieces, a write at the other.
        self.own.fetch_add(2, Ordering::Relaxed);
        if !self.are_others_active() {
            return Duration::ZERO;
        }
        worked.mul_f64((1.0 / self.share - 1.0).max(0.0)).min(REST_MAX)
    }

    fn are_others_active(&self) -> bool {
        let now = self.clock.monotonic();
        let mut looked = self.looked.lock();
        if looked.at.is_some_and(|at| now.saturating_sub(at) < PERIOD) {
            return looked.is_used;
        }
        let own = self.own.load(Ordering::Relaxed);
        let all: u64 = self.pools.pools().iter().map(|pool| pool.reads + pool.writes).sum();
        // The first look has nothing to compare with: clients come first.
        let others = all.saturating_sub(looked.all).saturating_sub(own - looked.own);
        let is_used = looked.at.is_none() || others > IDLE_MAX;
        *looked = Looked { at: Some(now), all, own, is_used };
        is_used
    }
}

/// Of a file of a pool that is emptied.
pub struct DrainPace<'a> {
    pub drains: &'a Drains,
    pub pool: PoolId,
    pub stop: &'a watch::Receiver<bool>,
}

#[async_trait]
impl CopyPace for DrainPace<'_> {
    async fn rest(&self, worked: Duration) -> bool {
        let rest = self.drains.activity.rest_after(worked);
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        self.drains.is_wanted(self.pool) && !*self.stop.borrow()
    }
}

#[cfg(test)]
mod tests {
    use api::{OpenReplica, Pool, Stability};
    use testkit::clock::ManualClock;
    use testkit::memory_pool::MemoryPool;
    use testkit::memory_pools::MemoryPools;
    use types::FileId;

    use super::*;

    #[tokio::test]
    async fn a_copy_rests_while_others_use_the_pools_and_not_for_its_own_sake() {
        let pool = MemoryPool::new(PoolId(1));
        let replica: Arc<dyn OpenReplica> = pool.writer(FileId(1));
        let pools = Arc::new(MemoryPools::of([Arc::new(pool) as Arc<dyn Pool>]));
        let clock = Arc::new(ManualClock::new(100));
        let activity = Activity::new(pools, clock.clone(), 0.2);
        let work = Duration::from_millis(100);
        let use_pool = async |times: u32| {
            for _ in 0..times {
                replica.write_at(0, "x".into(), Stability::Unstable).await.unwrap();
            }
        };
        assert_eq!(activity.rest_after(work), 4 * work, "nobody knows yet");
        clock.advance(2);
        use_pool(2).await;
        assert_eq!(activity.rest_after(work), Duration::ZERO, "they were its own");
        use_pool(20).await;
        assert_eq!(activity.rest_after(work), Duration::ZERO, "it was looked just now");
        clock.advance(2);
        assert_eq!(activity.rest_after(work), 4 * work);
        clock.advance(2);
        assert_eq!(activity.rest_after(work), Duration::ZERO);
        use_pool(20).await;
        clock.advance(2);
        assert_eq!(activity.rest_after(Duration::from_secs(60)), REST_MAX);
    }
}
