//! How fast clients find the pools, by what they tell of their reads and writes (RFC 8435 §9.2), and which pools are slow.
//!
//! Every client is compared with itself: one that is far away finds all pools slow, and says nothing by that. A pool is
//! slow to a client if its writes there take more than twice as long as at its middle pool, by operation and by MiB as
//! well: the longer the operations are, the more each takes and the less each MiB, so that no pool looks slow for being
//! used in another way. Reads decide nothing, for what is read often comes from the pool's memory. A pool is slow if most
//! of the clients that can compare say so, each with one vote, and two at least: no client alone makes a pool slow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::{TransferReport, Transfers};
use types::PoolId;

/// After this time a report counts half.
const HALF_LIFE: Duration = Duration::from_secs(300);
/// A client that has reported nothing of a pool for this long has no vote on it.
const RECENT: Duration = Duration::from_secs(900);
/// Fewer writes say nothing of a pool.
const OPERATIONS_MIN: f64 = 32.0;
/// So many times as long as at the middle pool.
const SLOW: f64 = 2.0;
const VOTERS_MIN: usize = 2;
/// Of each pool; beyond it the one that told the longest ago is forgotten.
const CLIENTS_MAX: usize = 256;
/// A judgement holds so long.
const JUDGED: Duration = Duration::from_secs(5);

/// Of one operation: beyond these it is no round trip to another machine, or none that a client waits for.
const OPERATION_MIN: Duration = Duration::from_micros(1);
const OPERATION_MAX: Duration = Duration::from_secs(600);
const OPERATION_BYTES_MAX: u64 = 1 << 30;
/// Of one report.
const OPERATIONS_MAX: u64 = 1 << 32;
const MIB: f64 = (1 << 20) as f64;

/// Time per operation and per MiB, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    pub operation_s: f64,
    pub mib_s: f64,
}

/// Medians over the clients that reported on the pool lately. 0: none did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolPace {
    pub reads: Pace,
    pub writes: Pace,
    pub is_slow: bool,
}

#[derive(Debug, Default)]
pub(super) struct Paces {
    told: BTreeMap<(PoolId, u64), Told>,
    judged: Option<Duration>,
    slow: BTreeSet<PoolId>,
}

/// Reports of one client on one pool.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    at: Duration,
    reads: Sums,
    writes: Sums,
}

/// Sums over the reports; older reports weigh less.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    operations: f64,
    bytes: f64,
    seconds: f64,
}

impl Paces {
    /// The pool is one that there is.
    pub(super) fn take(&mut self, report: &TransferReport, now: Duration) {
        let TransferReport { client, pool, reads, writes } = *report;
        if !is_plausible(&reads) && !is_plausible(&writes) {
            return;
        }
        self.make_room(pool, client);
        let told = self.told.entry((pool, client)).or_insert(Told { at: now, ..Told::default() });
        let kept = share_kept(now.saturating_sub(told.at));
        told.at = now;
        told.reads.add(kept, &reads);
        told.writes.add(kept, &writes);
    }

    pub(super) fn forget_client(&mut self, client: u64) {
        self.told.retain(|(_, of), _| *of != client);
    }

    /// Pools that get fewer new files.
    pub(super) fn slow(&mut self, now: Duration) -> &BTreeSet<PoolId> {
        if self.judged.is_none_or(|judged| now.saturating_sub(judged) >= JUDGED) {
            self.judged = Some(now);
            self.slow = self.judge(now);
        }
        &self.slow
    }

    pub(super) fn of_pool(&mut self, pool: PoolId, now: Duration) -> PoolPace {
        let is_slow = self.slow(now).contains(&pool);
        let middle = |of: fn(&Told) -> &Sums| {
            let told = self.told.range((pool, 0)..=(pool, u64::MAX)).map(|(_, told)| told);
            let paces = told.filter(|told| told.is_recent(now)).filter_map(|told| of(told).pace());
            middle(&paces.collect::<Vec<_>>()).unwrap_or_default()
        };
        PoolPace { reads: middle(|told| &told.reads), writes: middle(|told| &told.writes), is_slow }
    }

    fn judge(&self, now: Duration) -> BTreeSet<PoolId> {
        let mut opinions: BTreeMap<u64, Vec<(PoolId, Pace)>> = BTreeMap::new();
        for ((pool, client), told) in &self.told {
            if told.is_recent(now) && told.writes.operations >= OPERATIONS_MIN {
                let pace = told.writes.pace().map(|pace| (*pool, pace));
                opinions.entry(*client).or_default().extend(pace);
            }
        }
        // Per pool: clients that could compare, and clients to which it is slow.
        let mut votes: BTreeMap<PoolId, (usize, usize)> = BTreeMap::new();
        for paces in opinions.into_values().filter(|paces| paces.len() > 1) {
            let all: Vec<Pace> = paces.iter().map(|(_, pace)| *pace).collect();
            let Some(middle) = middle(&all) else { continue };
            for (pool, pace) in paces {
                let (voters, against) = votes.entry(pool).or_default();
                *voters += 1;
                *against += usize::from(pace.is_slower_than(middle));
            }
        }
        let slow = votes
            .into_iter()
            .filter(|(_, (voters, against))| *voters >= VOTERS_MIN && 2 * *against > *voters);
        slow.map(|(pool, _)| pool).collect()
    }

    fn make_room(&mut self, pool: PoolId, client: u64) {
        let of_pool = || self.told.range((pool, 0)..=(pool, u64::MAX));
        if self.told.contains_key(&(pool, client)) || of_pool().count() < CLIENTS_MAX {
            return;
        }
        if let Some(oldest) = of_pool().min_by_key(|(_, told)| told.at).map(|(at, _)| *at) {
            self.told.remove(&oldest);
        }
    }
}

impl Told {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < RECENT
    }
}

impl Sums {
    /// Implausible `news` are left out.
    fn add(&mut self, kept: f64, news: &Transfers) {
        let Sums { operations, bytes, seconds } = self;
        for sum in [&mut *operations, &mut *bytes, &mut *seconds] {
            *sum *= kept;
        }
        if is_plausible(news) {
            *operations += news.operations as f64;
            *bytes += news.bytes as f64;
            *seconds += news.time.as_secs_f64();
        }
    }

    fn pace(&self) -> Option<Pace> {
        let Sums { operations, bytes, seconds } = *self;
        let is_known = operations >= 1.0 && bytes >= 1.0;
        is_known.then(|| Pace { operation_s: seconds / operations, mib_s: seconds / bytes * MIB })
    }
}

impl Pace {
    fn is_slower_than(self, middle: Pace) -> bool {
        self.operation_s > SLOW * middle.operation_s && self.mib_s > SLOW * middle.mib_s
    }
}

fn share_kept(elapsed: Duration) -> f64 {
    (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}

fn is_plausible(told: &Transfers) -> bool {
    let Transfers { operations, bytes, time } = *told;
    let at_most = |each: u128| u128::from(operations) * each;
    bytes > 0
        && operations <= OPERATIONS_MAX
        && u128::from(bytes) <= at_most(OPERATION_BYTES_MAX.into())
        && (at_most(OPERATION_MIN.as_nanos())..=at_most(OPERATION_MAX.as_nanos())).contains(&time.as_nanos())
}

/// Of both figures by itself; of an even number the faster of the two.
fn middle(paces: &[Pace]) -> Option<Pace> {
    let of = |figure: fn(&Pace) -> f64| {
        let mut figures: Vec<f64> = paces.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len().checked_sub(1)? / 2).copied()
    };
    Some(Pace { operation_s: of(|pace| pace.operation_s)?, mib_s: of(|pace| pace.mib_s)? })
}

#[cfg(test)]
mod tests;
