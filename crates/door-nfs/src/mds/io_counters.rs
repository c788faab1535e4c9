//! The increase of a client's I/O counters since its last report (RFC 8435 §9.2).
//!
//! Linux counts from the first I/O under a layout on, and reports the sums each time: in every LAYOUTSTATS, and once
//! more with the layout that it returns. So the last sums are kept and subtracted. A source forgotten at the bound is
//! counted again from its beginning, which makes its average older and no larger.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Transfers;
use nfs4::{FfIoLatency4, FfLayoutUpdate4, NfsTime4};
use types::{FileId, PoolId};

/// Of each of the two halves that are kept.
const HALF_MAX: usize = 8192;

/// The source of counters: one client's I/O of one file at one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    pub client: u64,
    pub file: FileId,
    pub pool: PoolId,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    reads: Transfers,
    writes: Transfers,
}

/// When the younger half is full the older one is forgotten, so that room costs no search.
#[derive(Debug, Default)]
pub(crate) struct IoCounters {
    younger: BTreeMap<Source, Told>,
    older: BTreeMap<Source, Told>,
}

impl IoCounters {
    /// Reads and writes since the source's last report. `None`: its times are invalid.
    pub fn take(
        &mut self,
        source: Source,
        update: &FfLayoutUpdate4,
        now: Duration,
    ) -> Option<(Transfers, Transfers)> {
        let (reads, writes) = (sums(&update.read)?, sums(&update.write)?);
        let began = now.saturating_sub(duration(update.duration)?);
        // Counters that began after that are others, of a later layout.
        let before = self.remove(source).filter(|told| began <= told.at);
        if self.younger.len() >= HALF_MAX {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(source, Told { at: now, reads, writes });
        let Some(told) = before else { return Some((reads, writes)) };
        let news = since(reads, told.reads).zip(since(writes, told.writes));
        Some(news.unwrap_or((reads, writes)))
    }

    /// The layout goes, and its counters with it.
    pub fn forget(&mut self, source: Source) {
        self.remove(source);
    }

    pub fn forget_client(&mut self, client: u64) {
        let at = |file, pool| Source { client, file: FileId(file), pool: PoolId(pool) };
        for half in [&mut self.younger, &mut self.older] {
            half.extract_if(at(0, 0)..=at(u64::MAX, u32::MAX), |_, _| true).for_each(drop);
        }
    }

    #[cfg(any(test, feature = "direct"))]
    pub fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }

    fn remove(&mut self, source: Source) -> Option<Told> {
        let older = self.older.remove(&source);
        self.younger.remove(&source).or(older)
    }
}

fn sums(latency: &FfIoLatency4) -> Option<Transfers> {
    Some(Transfers {
        operations: latency.ops_completed,
        bytes: latency.bytes_completed,
        time: duration(latency.aggregate_completion_time)?,
    })
}

fn duration(time: NfsTime4) -> Option<Duration> {
    let seconds = u64::try_from(time.seconds).ok()?;
    (time.nseconds < 1_000_000_000).then(|| Duration::new(seconds, time.nseconds))
}

/// `None`: they went back, so they are others.
fn since(now: Transfers, before: Transfers) -> Option<Transfers> {
    Some(Transfers {
        operations: now.operations.checked_sub(before.operations)?,
        bytes: now.bytes.checked_sub(before.bytes)?,
        time: now.time.checked_sub(before.time)?,
    })
}

#[cfg(test)]
mod tests {
    use nfs4::{NetAddr4, NfsFh4};

    use super::*;

    const SOURCE: Source = Source { client: 7, file: FileId(1), pool: PoolId(2) };
    const NOTHING: Transfers = Transfers { operations: 0, bytes: 0, time: Duration::ZERO };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn time(seconds: i64) -> NfsTime4 {
        NfsTime4 { seconds, nseconds: 0 }
    }

    /// Writes of one byte and one second each, in counters that began `age` seconds ago.
    fn update(writes: u64, age: i64) -> FfLayoutUpdate4 {
        FfLayoutUpdate4 {
            addr: NetAddr4 { netid: "tcp".into(), addr: "127.0.0.1.8.1".into() },
            fhandle: NfsFh4::from(b"ticket".to_vec()),
            read: FfIoLatency4::default(),
            write: FfIoLatency4 {
                ops_completed: writes,
                bytes_completed: writes,
                aggregate_completion_time: time(writes as i64),
                ..FfIoLatency4::default()
            },
            duration: time(age),
            local: false,
        }
    }

    fn writes(count: u64) -> Option<(Transfers, Transfers)> {
        Some((NOTHING, Transfers { operations: count, bytes: count, time: s(count) }))
    }

    #[test]
    fn sums_that_are_told_again_and_again_count_once() {
        let mut counters = IoCounters::default();
        assert_eq!(counters.take(SOURCE, &update(5, 10), s(100)), writes(5));
        assert_eq!(counters.take(SOURCE, &update(8, 70), s(160)), writes(3));
        assert_eq!(counters.take(SOURCE, &update(8, 71), s(161)), writes(0));
        let other = Source { pool: PoolId(3), ..SOURCE };
        assert_eq!(counters.take(other, &update(8, 70), s(161)), writes(8), "another pool");
    }

    #[test]
    fn counters_of_another_layout_count_from_their_beginning() {
        let mut counters = IoCounters::default();
        counters.take(SOURCE, &update(5, 10), s(100));
        assert_eq!(counters.take(SOURCE, &update(9, 10), s(160)), writes(9), "they began later");
        assert_eq!(counters.take(SOURCE, &update(2, 900), s(170)), writes(2), "they went back");
        counters.forget(SOURCE);
        assert_eq!(counters.take(SOURCE, &update(2, 900), s(171)), writes(2));
    }

    #[test]
    fn a_client_that_is_gone_leaves_no_counters() {
        let mut counters = IoCounters::default();
        for file in 0..HALF_MAX as u64 + 5 {
            for client in [6, 7, 8] {
                counters.take(Source { client, file: FileId(file), ..SOURCE }, &update(1, 1), s(1));
            }
            counters.forget_client(7);
        }
        counters.forget_client(6);
        assert!(counters.younger.keys().chain(counters.older.keys()).all(|source| source.client == 8));
        counters.forget_client(8);
        assert_eq!(counters.len(), 0);
    }

    #[test]
    fn counters_with_an_invalid_time_are_ignored() {
        let mut counters = IoCounters::default();
        assert_eq!(counters.take(SOURCE, &update(5, -1), s(100)), None);
        let mut torn = update(5, 10);
        torn.write.aggregate_completion_time = NfsTime4 { seconds: i64::MIN, nseconds: 0 };
        assert_eq!(counters.take(SOURCE, &torn, s(100)), None);
        torn.write.aggregate_completion_time = NfsTime4 { seconds: 0, nseconds: u32::MAX };
        assert_eq!(counters.take(SOURCE, &torn, s(100)), None);
        assert_eq!(counters.take(SOURCE, &update(5, i64::MAX), s(100)), writes(5), "from before the start");
    }

    #[test]
    fn counters_of_ever_new_files_do_not_grow_the_table() {
        let mut counters = IoCounters::default();
        for file in 0..5 * HALF_MAX as u64 {
            counters.take(Source { file: FileId(file), ..SOURCE }, &update(1, 1), s(1));
            counters.take(SOURCE, &update(5, 1000), s(1));
            assert!(counters.younger.len() <= HALF_MAX && counters.older.len() <= HALF_MAX);
        }
        assert_eq!(
            counters.take(SOURCE, &update(6, 1000), s(2)),
            writes(1),
            "a source that reports often is known"
        );
    }
}
