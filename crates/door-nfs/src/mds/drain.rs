//! Pools that are closed to clients, drained by the administrator or offline: layouts of files there come back (RFC 8881
//! §12.5.5), or are revoked in time as after any recall, and then clients are told to forget the pool's device (§20.12).
//!
//! A pool is closed first and looked through afterwards; a LAYOUTGET that had chosen it before looks once more when it
//! has granted, and starts another look. So nothing is left out when a look finds nothing.

mod bulk_recall;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::NamespaceError;
use nfs4::ClientId4;
use parking_lot::Mutex;
use tokio::time::Instant;
use types::{FileId, PoolId};

use super::clients::Clients;
use super::device::Devices;
use super::recalls::Recalls;

use progress::Progress;

/// Holders that have as many recalls under way as they can be asked are waited for so long when none of them gets on, and not
/// any longer: they are told later, and have less time.
const ROOM_WAIT: Duration = Duration::from_secs(5);
const ROOM_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Drain {
    clients: Arc<Clients>,
    recalls: Arc<Recalls>,
    devices: Arc<Devices>,
    /// Leaf lock.
    progress: Arc<Mutex<Progress>>,
}

impl Drain {
    pub fn new(recalls: Arc<Recalls>, devices: Arc<Devices>) -> Drain {
        Drain { clients: Arc::clone(&recalls.clients), recalls, devices, progress: Arc::default() }
    }

    /// Has the layouts at closed pools called back; returns at once.
    pub fn keep_clients_away(self: &Arc<Self>) {
        let fs = &self.clients.fs;
        let closed = fs.files.pools().closed();
        let leaving = self.progress.lock().update(&closed, fs.clock.monotonic());
        if leaving.is_empty() {
            return;
        }
        let looking = {
            let drain = Arc::downgrade(self);
            async move {
                let Some(drain) = drain.upgrade() else { return };
                let counts = drain.look_through(leaving).await;
                let empty = drain.progress.lock().found(&counts, drain.clients.fs.clock.monotonic());
                for pool in empty {
                    tracing::info!(%pool, "no client has a layout at the closed pool any more");
                    drain.devices.forget(pool);
                }
            }
        };
        self.clients.spawn_call(looking);
    }

    /// A layout was granted at a pool: it may have been closed since it was chosen, or opened and closed again.
    pub fn judge_granted(&self, pool: PoolId) {
        self.progress.lock().disturb(pool);
    }

    /// Files of which clients still have layouts at each closed pool; zero when it is empty.
    pub fn left_at_each(&self) -> Vec<(PoolId, usize)> {
        self.progress.lock().left_at_each()
    }

    /// Whether the client has neither answered nor returned all that it was asked for, and still has time to.
    pub fn is_asked_for_all(&self, client: ClientId4, now: Duration) -> bool {
        self.progress.lock().is_asked_for_all(client, now)
    }

    pub fn has_returned_all(&self, client: ClientId4) {
        self.progress.lock().has_returned_all(client);
    }

    /// Recalls all layouts of files at these pools; of how many files at each there were any.
    async fn look_through(&self, pools: BTreeSet<PoolId>) -> BTreeMap<PoolId, usize> {
        let mut counts: BTreeMap<_, _> = pools.into_iter().map(|pool| (pool, 0)).collect();
        let files: BTreeSet<FileId> =
            self.clients.fs.files.table().all_layouts().map(|(file, ..)| file).collect();
        let mut to_recall = Vec::new();
        for file in files {
            let pools = match self.clients.fs.files.pools().of_file(file).await {
                Ok(pools) => pools,
                Err(NamespaceError::Stale(_)) => continue,
                Err(error) => {
                    tracing::warn!(%file, %error, "cannot find out whether a layout is at a closed pool, will try again");
                    counts.values_mut().for_each(|count| *count += 1);
                    continue;
                }
            };
            let here: Vec<_> = pools.into_iter().filter(|pool| counts.contains_key(pool)).collect();
            if here.is_empty() {
                continue;
            }
            here.iter().for_each(|pool| *counts.entry(*pool).or_default() += 1);
            // Recalls that were sent already are repeated elsewhere (`Recalls::repeat`), if need be.
            if self.clients.fs.files.table().file(file).layout_holders_to_recall().next().is_some() {
                to_recall.push(file);
            }
        }
        self.call_back(&to_recall).await;
        counts
    }

    async fn call_back(&self, files: &[FileId]) {
        let mut without_layouts = self.progress.lock().asked_for_each();
        let fs = &self.clients.fs;
        without_layouts.retain(|client| fs.files.table().holders().held(fs.holder(*client)).layouts == 0);
        self.progress.lock().forget_asked_for_each(&without_layouts);
        bulk_recall::call_back(&self.recalls, &self.progress, files);
        let mut waiting = Waiting::default();
        for file in files {
            if self.clients.fs.files.table().file(*file).layout_holders_to_recall().next().is_some() {
                waiting.offer(
                    *file,
                    |file| self.recalls.busy_holder(file),
                    |file| self.clients.fs.files.call_back_layouts(file),
                );
            }
        }
        self.call_back_as_there_is_room(waiting).await;
    }

    /// The files of busy holders, as the others answer. When none has done so for some time they are not waited for.
    async fn call_back_as_there_is_room(&self, mut waiting: Waiting) {
        let mut until = Instant::now() + ROOM_WAIT;
        while !waiting.is_empty() && Instant::now() < until {
            tokio::time::sleep(ROOM_PAUSE).await;
            let is_any_called = waiting.go_on(
                |client| self.recalls.is_busy(client),
                |file| self.recalls.busy_holder(file),
                |file| self.clients.fs.files.call_back_layouts(file),
            );
            if is_any_called {
                until = Instant::now() + ROOM_WAIT;
            }
        }
        waiting.into_files().for_each(|file| self.clients.fs.files.call_back_layouts(file));
    }
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
}
