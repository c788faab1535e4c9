//! Scrubs that start by themselves.

use std::sync::Arc;
use std::time::Duration;

use api::{Paths, Pool};
use pool::LocalPool;
use tokio::sync::watch;
use types::Clock;

use super::{PoolScrub, RATE_MIB_S, answer};
use crate::progress::Meter;
use crate::questions::ScrubQuestion;

/// Between two looks whether a scrub is due.
const LOOK: Duration = Duration::from_secs(600);

/// Scrubs the pool each time that the last complete scrub is older than `every`, until the server stops. An interrupted scrub
/// is continued. One that failed waits as long as a complete one: it would mark more and more replicas.
pub async fn run(
    pool: Arc<LocalPool>,
    namespace: Arc<dyn Paths>,
    clock: Arc<dyn Clock>,
    every: Duration,
    mut stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let now_s = u64::try_from(clock.now().seconds).unwrap_or(0);
        let asked = Arc::clone(&pool);
        let is_due = tokio::task::spawn_blocking(move || asked.scrub_is_due(every, now_s)).await;
        if is_due.unwrap_or(false) {
            tokio::select! {
                // The scrub ends soon after this is dropped.
                () = scrub(&pool, &namespace) => {}
                _ = stop.changed() => return,
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.changed() => {}
        }
    }
}

async fn scrub(pool: &Arc<LocalPool>, namespace: &Arc<dyn Paths>) {
    let id = pool.id();
    tracing::info!(pool = %id, "scrub starts by itself");
    let question = ScrubQuestion { pool: id.0, rate_mib_s: RATE_MIB_S, start_over: false };
    match answer(pool, id, Arc::clone(namespace), question, &Meter::new()).await {
        Ok(PoolScrub { totals, problems, .. }) => {
            let (replicas, read_bytes, problems) = (totals.replicas, totals.read_bytes, problems.len());
            tracing::info!(pool = %id, replicas, read_bytes, problems, "scrub is complete");
        }
        Err(error) => tracing::info!(pool = %id, %error, "scrub is not complete"),
    }
}
