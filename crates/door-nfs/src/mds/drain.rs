//! Pools that are closed to clients, drained by the administrator or offline: layouts of files there come back (RFC 8881
//! §12.5.5), or are revoked in time as after any recall, and then clients are told to forget the pool's device (§20.12).
//!
//! A pool is closed first and looked through afterwards; a LAYOUTGET that had chosen it before looks once more when it
//! has granted, and starts another look. So nothing is left out when a look finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::NamespaceError;
use nfs4::ClientId4;
use nfs4_state::stateid::holder;
use tokio::time::Instant;
use types::{FileId, PoolId};

use super::{Head, bulk_recall, device, recall};

/// Between two looks at all layouts.
const PAUSE: Duration = Duration::from_secs(1);
/// Holders that have as many recalls under way as they can be asked are waited for so long when none of them gets on, and not
/// any longer: they are told later, and have less time.
const ROOM_WAIT: Duration = Duration::from_secs(5);
const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Closed pools and how far they are. Kept by the head behind a leaf lock.
#[derive(Debug, Default)]
pub(crate) struct Drain {
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

impl Drain {
    /// Notes the pools that are closed now. Returns those to look for layouts of; none if it is not time yet.
    fn update(&mut self, closed: &BTreeSet<PoolId>, now: Duration) -> BTreeSet<PoolId> {
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

    fn disturb(&mut self, pool: PoolId) {
        if let Some(stage) = self.pools.get_mut(&pool) {
            *stage = Stage::Leaving(1);
            self.is_disturbed = true;
            self.looked = None;
        }
    }

    /// Takes the result of a look. Returns the pools that have become empty.
    fn found(&mut self, counts: &BTreeMap<PoolId, usize>, now: Duration) -> Vec<PoolId> {
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

    pub(super) fn may_ask_for_all(&self, client: ClientId4) -> bool {
        !self.asked_for_all.contains_key(&client) && !self.asked_for_each.contains(&client)
    }

    pub(super) fn begin_asking_for_all(&mut self, client: ClientId4, deadline: Duration) {
        self.asked_for_all.insert(client, deadline);
    }

    /// Whether the client has neither answered nor returned all, and still has time to. It might take a layout that it is
    /// granted now for one of those that it is asked for.
    pub(super) fn is_asked_for_all(&self, client: ClientId4, now: Duration) -> bool {
        self.asked_for_all.get(&client).is_some_and(|deadline| now < *deadline)
    }

    pub(super) fn has_returned_all(&mut self, client: ClientId4) {
        if let Some(deadline) = self.asked_for_all.get_mut(&client) {
            *deadline = Duration::ZERO;
        }
    }

    pub(super) fn end_asking_for_all(&mut self, client: ClientId4, ask_for_each: bool) {
        self.asked_for_all.remove(&client);
        if ask_for_each {
            self.asked_for_each.insert(client);
        }
    }

    /// Files of which clients still have layouts at each closed pool; zero when it is empty.
    pub(crate) fn progress(&self) -> Vec<(PoolId, usize)> {
        let left = |stage: &Stage| match stage {
            // Not looked through yet.
            Stage::Leaving(count) => (*count).max(1),
            Stage::Empty => 0,
        };
        self.pools.iter().map(|(pool, stage)| (*pool, left(stage))).collect()
    }
}

/// Has the layouts at closed pools called back; returns at once.
pub(crate) fn keep_clients_away(head: &Arc<Head>) {
    let closed = head.pools.closed();
    let leaving = head.drain.lock().update(&closed, head.clock.monotonic());
    if leaving.is_empty() {
        return;
    }
    let looking = {
        let head = Arc::downgrade(head);
        async move {
            let Some(head) = head.upgrade() else { return };
            let counts = look_through(&head, leaving).await;
            let empty = head.drain.lock().found(&counts, head.clock.monotonic());
            for pool in empty {
                tracing::info!(%pool, "no client has a layout at the closed pool any more");
                device::forget(&head, pool);
            }
        }
    };
    head.spawn_call(looking);
}

/// A layout was granted at a pool: it may have been closed since it was chosen, or opened and closed again.
pub(super) fn judge_granted(head: &Head, pool: PoolId) {
    head.drain.lock().disturb(pool);
}

/// Recalls all layouts of files at these pools; of how many files at each there were any.
async fn look_through(head: &Arc<Head>, pools: BTreeSet<PoolId>) -> BTreeMap<PoolId, usize> {
    let mut counts: BTreeMap<_, _> = pools.into_iter().map(|pool| (pool, 0)).collect();
    let files: BTreeSet<FileId> = head.access.table().layouts().map(|(file, ..)| file).collect();
    let mut to_recall = Vec::new();
    for file in files {
        let locality = match head.locations.locality(file).await {
            Ok(locality) => locality,
            Err(NamespaceError::Stale(_)) => continue,
            Err(error) => {
                tracing::warn!(%file, %error, "cannot find out whether a layout is at a closed pool, will try again");
                counts.values_mut().for_each(|count| *count += 1);
                continue;
            }
        };
        let here: Vec<_> = locality.pools().filter(|pool| counts.contains_key(pool)).collect();
        if here.is_empty() {
            continue;
        }
        here.iter().for_each(|pool| *counts.entry(*pool).or_default() += 1);
        // Recalls that were sent already are repeated elsewhere (`recall::repeat_recalls`), if need be.
        if head.access.table().has_layouts_to_recall(file) {
            to_recall.push(file);
        }
    }
    call_back(head, &to_recall).await;
    counts
}

async fn call_back(head: &Arc<Head>, files: &[FileId]) {
    let mut asked_for_each = head.drain.lock().asked_for_each.clone();
    asked_for_each.retain(|client| head.access.table().held(holder(*client)).layouts == 0);
    head.drain.lock().asked_for_each.retain(|client| !asked_for_each.contains(client));
    bulk_recall::call_back(head, files);
    let mut waiting = Waiting::default();
    for file in files {
        if head.access.table().has_layouts_to_recall(*file) {
            waiting.offer(
                *file,
                |file| recall::busy_holder(head, file),
                |file| head.access.call_back_layouts(file),
            );
        }
    }
    call_back_as_there_is_room(head, waiting).await;
}

/// The files of busy holders, as the others answer. When none has done so for some time they are not waited for.
async fn call_back_as_there_is_room(head: &Head, mut waiting: Waiting) {
    let mut until = Instant::now() + ROOM_WAIT;
    while !waiting.is_empty() && Instant::now() < until {
        tokio::time::sleep(ROOM_PAUSE).await;
        let is_any_called = waiting.go_on(
            |client| recall::is_busy(head, client),
            |file| recall::busy_holder(head, file),
            |file| head.access.call_back_layouts(file),
        );
        if is_any_called {
            until = Instant::now() + ROOM_WAIT;
        }
    }
    waiting.into_files().for_each(|file| head.access.call_back_layouts(file));
}

/// Files whose layouts are not called back yet, by a holder that has as many recalls under way as it can be asked.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<ClientId4, Vec<FileId>>);

impl Waiting {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn into_files(self) -> impl Iterator<Item = FileId> {
        self.0.into_values().flatten()
    }

    /// Calls back the layouts of the file, unless one of its holders is busy. `true`: they are.
    fn offer(
        &mut self,
        file: FileId,
        busy_holder: impl Fn(FileId) -> Option<ClientId4>,
        call_back: impl Fn(FileId),
    ) -> bool {
        let busy = busy_holder(file);
        match busy {
            Some(client) => self.0.entry(client).or_default().push(file),
            None => call_back(file),
        }
        busy.is_none()
    }

    /// Calls back what those who are not busy any more have room for. Whether that was anything.
    fn go_on(
        &mut self,
        is_busy: impl Fn(ClientId4) -> bool,
        busy_holder: impl Fn(FileId) -> Option<ClientId4>,
        call_back: impl Fn(FileId),
    ) -> bool {
        let mut is_any_called = false;
        let clients: Vec<ClientId4> = self.0.keys().copied().collect();
        for client in clients {
            while !is_busy(client)
                && let Some(file) = self.0.get_mut(&client).and_then(Vec::pop)
            {
                is_any_called |= self.offer(file, &busy_holder, &call_back);
            }
            if self.0.get(&client).is_some_and(Vec::is_empty) {
                self.0.remove(&client);
            }
        }
        is_any_called
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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
        let mut drain = Drain::default();
        assert_eq!(drain.update(&closed(), at(10)), closed());
        assert!(drain.update(&closed(), at(20)).is_empty(), "one look at a time");
        assert_eq!(drain.found(&counted(5), at(21)), []);
        assert_eq!(drain.progress(), [(POOL, 5)]);
        assert!(drain.update(&closed(), at(21)).is_empty(), "not again at once");
        assert_eq!(drain.update(&closed(), at(22)), closed());
        assert_eq!(drain.found(&counted(0), at(22)), [POOL]);
        assert!(drain.update(&closed(), at(99)).is_empty());
        assert_eq!(drain.progress(), [(POOL, 0)]);
    }

    #[test]
    fn a_layout_granted_during_a_look_is_looked_for() {
        let mut drain = Drain::default();
        assert_eq!(drain.update(&closed(), at(10)), closed());
        drain.disturb(POOL);
        assert_eq!(drain.found(&counted(0), at(11)), []);
        assert_eq!(drain.update(&closed(), at(11)), closed());
        assert_eq!(drain.found(&counted(0), at(11)), [POOL]);
        drain.disturb(POOL);
        assert_eq!(drain.update(&closed(), at(11)), closed(), "also afterwards");
    }

    #[test]
    fn a_pool_that_was_open_during_a_look_is_looked_through_anew() {
        let mut drain = Drain::default();
        assert_eq!(drain.update(&closed(), at(10)), closed());
        assert!(drain.update(&BTreeSet::new(), at(11)).is_empty());
        assert!(drain.update(&closed(), at(11)).is_empty(), "the look is still under way");
        assert_eq!(drain.found(&counted(0), at(12)), [], "layouts may have been granted since it began");
        assert_eq!(drain.update(&closed(), at(12)), closed());
        assert_eq!(drain.found(&counted(0), at(12)), [POOL]);
    }

    /// Files 1 to 9 are of client 1, which answers nothing, and 11 to 19 of client 2.
    #[test]
    fn a_client_that_answers_nothing_does_not_keep_the_others_from_being_asked() {
        let (asked, called) = (RefCell::new(BTreeMap::<ClientId4, usize>::new()), RefCell::new(Vec::new()));
        let holder = |file: FileId| ClientId4(1 + file.0 / 10);
        let is_busy = |client| asked.borrow().get(&client).is_some_and(|count| *count >= 2);
        let busy_holder = |file| Some(holder(file)).filter(|client| is_busy(*client));
        let call_back = |file| {
            *asked.borrow_mut().entry(holder(file)).or_default() += 1;
            called.borrow_mut().push(file.0);
        };
        let mut waiting = Waiting::default();
        for file in (1..10).chain(11..20) {
            waiting.offer(FileId(file), busy_holder, call_back);
        }
        assert_eq!(*called.borrow(), [1, 2, 11, 12], "each is asked what it can be asked");
        assert!(!waiting.go_on(is_busy, busy_holder, call_back), "nobody has answered");
        while called.borrow().len() < 2 + 9 {
            asked.borrow_mut().remove(&ClientId4(2));
            assert!(waiting.go_on(is_busy, busy_holder, call_back));
        }
        assert!(!waiting.go_on(is_busy, busy_holder, call_back));
        assert_eq!(waiting.into_files().count(), 7, "of the silent one");
    }

    #[test]
    fn a_pool_that_is_open_again_is_left_alone_and_one_that_is_closed_again_is_not() {
        let mut drain = Drain::default();
        let _ = drain.update(&closed(), at(10));
        let _ = drain.found(&counted(0), at(10));
        assert!(drain.update(&BTreeSet::new(), at(10)).is_empty() && drain.progress().is_empty());
        assert_eq!(drain.update(&closed(), at(10)), closed());
    }
}
