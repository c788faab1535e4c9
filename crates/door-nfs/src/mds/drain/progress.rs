//! Closed pools, and how far clients have left them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nfs4::ClientId4;
use types::PoolId;

/// Between two looks at all layouts.
const PAUSE: Duration = Duration::from_secs(1);

/// Closed pools and how far they are. Kept behind a leaf lock.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pools: BTreeMap<PoolId, Stage>,
    is_looking: bool,
    /// A layout was granted at a closed pool since the look began.
    is_disturbed: bool,
    looked: Option<Duration>,
    /// Clients being asked for all their layouts, until when: an answer is about one question.
    asked_for_all: BTreeMap<ClientId4, Duration>,
    /// Clients that could not be asked so, as long as they have layouts.
    asked_for_each: BTreeSet<ClientId4>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Files there of which a client had a layout at the last look.
    Leaving(usize),
    Empty,
}

impl Progress {
    /// Notes the pools that are closed now. Returns those to look for layouts of; none if it is not time yet.
    pub fn update(&mut self, closed: &BTreeSet<PoolId>, now: Duration) -> BTreeSet<PoolId> {
        self.pools.retain(|pool, _| closed.contains(pool));
        for pool in closed {
            if !self.pools.contains_key(pool) {
                self.pools.insert(*pool, Stage::Leaving(0));
                // No pause before the first look; one under way began when the pool was open.
                (self.looked, self.is_disturbed) = (None, true);
            }
        }
        let is_due = self.looked.is_none_or(|looked| now >= looked + PAUSE);
        let is_leaving = |(pool, stage): (&PoolId, &Stage)| (*stage != Stage::Empty).then_some(*pool);
        let leaving: BTreeSet<_> = self.pools.iter().filter_map(is_leaving).collect();
        if self.is_looking || !is_due || leaving.is_empty() {
            return BTreeSet::new();
        }
        (self.is_looking, self.is_disturbed) = (true, false);
        leaving
    }

    pub fn disturb(&mut self, pool: PoolId) {
        if let Some(stage) = self.pools.get_mut(&pool) {
            *stage = Stage::Leaving(1);
            self.is_disturbed = true;
            self.looked = None;
        }
    }

    /// Takes the result of a look. Returns the pools that have become empty.
    pub fn found(&mut self, counts: &BTreeMap<PoolId, usize>, now: Duration) -> Vec<PoolId> {
        self.is_looking = false;
        if self.is_disturbed {
            return Vec::new();
        }
        self.looked = Some(now);
        let mut empty = Vec::new();
        for (pool, count) in counts {
            let Some(stage) = self.pools.get_mut(pool) else { continue };
            *stage = if *count == 0 { Stage::Empty } else { Stage::Leaving(*count) };
            if *count == 0 {
                empty.push(*pool);
            }
        }
        empty
    }

    pub fn may_ask_for_all(&self, client: ClientId4) -> bool {
        !self.asked_for_all.contains_key(&client) && !self.asked_for_each.contains(&client)
    }

    pub fn begin_asking_for_all(&mut self, client: ClientId4, deadline: Duration) {
        self.asked_for_all.insert(client, deadline);
    }

    /// Whether the client has neither answered nor returned all, and still has time to. It might take a layout that it is
    /// granted now for one of those that it is asked for.
    pub fn is_asked_for_all(&self, client: ClientId4, now: Duration) -> bool {
        self.asked_for_all.get(&client).is_some_and(|deadline| now < *deadline)
    }

    pub fn has_returned_all(&mut self, client: ClientId4) {
        if let Some(deadline) = self.asked_for_all.get_mut(&client) {
            *deadline = Duration::ZERO;
        }
    }

    pub fn end_asking_for_all(&mut self, client: ClientId4, ask_for_each: bool) {
        self.asked_for_all.remove(&client);
        if ask_for_each {
            self.asked_for_each.insert(client);
        }
    }

    /// Files of which clients still have layouts at each closed pool; zero when it is empty.
    pub fn left_at_each(&self) -> Vec<(PoolId, usize)> {
        let left = |stage: &Stage| match stage {
            // Not looked through yet.
            Stage::Leaving(count) => (*count).max(1),
            Stage::Empty => 0,
        };
        self.pools.iter().map(|(pool, stage)| (*pool, left(stage))).collect()
    }

    pub fn asked_for_each(&self) -> BTreeSet<ClientId4> {
        self.asked_for_each.clone()
    }

    /// These clients may be asked for all again.
    pub fn forget_asked_for_each(&mut self, clients: &BTreeSet<ClientId4>) {
        self.asked_for_each.retain(|client| !clients.contains(client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(3);

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn closed() -> BTreeSet<PoolId> {
        BTreeSet::from([POOL])
    }

    fn counted(count: usize) -> BTreeMap<PoolId, usize> {
        BTreeMap::from([(POOL, count)])
    }

    #[test]
    fn a_closed_pool_is_looked_through_until_nothing_is_left() {
        let mut progress = Progress::default();
        assert_eq!(progress.update(&closed(), at(10)), closed());
        assert!(progress.update(&closed(), at(20)).is_empty(), "one look at a time");
        assert_eq!(progress.found(&counted(5), at(21)), []);
        assert_eq!(progress.left_at_each(), [(POOL, 5)]);
        assert!(progress.update(&closed(), at(21)).is_empty(), "not again at once");
        assert_eq!(progress.update(&closed(), at(22)), closed());
        assert_eq!(progress.found(&counted(0), at(22)), [POOL]);
        assert!(progress.update(&closed(), at(99)).is_empty());
        assert_eq!(progress.left_at_each(), [(POOL, 0)]);
    }

    #[test]
    fn a_layout_granted_during_a_look_is_looked_for() {
        let mut progress = Progress::default();
        assert_eq!(progress.update(&closed(), at(10)), closed());
        progress.disturb(POOL);
        assert_eq!(progress.found(&counted(0), at(11)), []);
        assert_eq!(progress.update(&closed(), at(11)), closed());
        assert_eq!(progress.found(&counted(0), at(11)), [POOL]);
        progress.disturb(POOL);
        assert_eq!(progress.update(&closed(), at(11)), closed(), "also afterwards");
    }

    #[test]
    fn a_pool_that_was_open_during_a_look_is_looked_through_anew() {
        let mut progress = Progress::default();
        assert_eq!(progress.update(&closed(), at(10)), closed());
        assert!(progress.update(&BTreeSet::new(), at(11)).is_empty());
        assert!(progress.update(&closed(), at(11)).is_empty(), "the look is still under way");
        assert_eq!(progress.found(&counted(0), at(12)), [], "layouts may have been granted since it began");
        assert_eq!(progress.update(&closed(), at(12)), closed());
        assert_eq!(progress.found(&counted(0), at(12)), [POOL]);
    }

    #[test]
    fn a_pool_that_is_open_again_is_left_alone_and_one_that_is_closed_again_is_not() {
        let mut progress = Progress::default();
        let _ = progress.update(&closed(), at(10));
        let _ = progress.found(&counted(0), at(10));
        assert!(progress.update(&BTreeSet::new(), at(10)).is_empty() && progress.left_at_each().is_empty());
        assert_eq!(progress.update(&closed(), at(10)), closed());
    }
}
