//! The end of a history: all faults are over, and everything has to work again in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::Stability;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use types::FileId;

use super::World;
use super::client::Steps;
use super::model::{Check, Failure};
use super::plan::{Cells, FAULTS_END};
use crate::histories::LineSubject;

const RECOVERY: Duration = Duration::from_secs(45);
/// Then a call to each pool is done in that time.
const CALL_TIME: Duration = Duration::from_secs(5);
/// Operations of clients are over by then: one may wait for others of its client.
const CLIENTS_TIME: Duration = Duration::from_secs(240);
/// Tasks that nobody owns end by themselves.
const LAST_TASKS: Duration = Duration::from_secs(30);

impl World {
    pub async fn recover(self: &Arc<Self>, clients: Vec<Steps>) {
        self.note(LineSubject::Everything, "calm", || "no more faults from here on".to_owned());
        self.end_faults();
        drop(clients);
        sleep_until(self.began + FAULTS_END + RECOVERY).await;
        if let Err(failure) = self.has_recovered().await {
            return self.fail(failure);
        }
        self.end_all().await;
    }

    fn end_faults(self: &Arc<Self>) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.slow_until.lock().fill([Instant::now(); 2]);
        if let Some(head) = self.head_process() {
            head.host.resume();
        }
        for pool in 0..self.plan.pools {
            if let Some(process) = self.pool_process(pool) {
                process.host.resume();
            }
            self.heal(pool);
        }
        let world = Arc::clone(self);
        tokio::spawn(async move {
            // One that was told to stop before has its time for it.
            for _ in 0..2 {
                world.start_head(world.plan.lease_s);
                (0..world.plan.pools).for_each(|pool| world.start_pool(pool));
                sleep(CALL_TIME).await;
            }
        });
    }

    async fn has_recovered(self: &Arc<Self>) -> Result<(), Failure> {
        let failed = |what| Err(Failure { check: Check::Wait, about: None, what });
        let Some(head) = self.head_process() else { return failed("the head is down".to_owned()) };
        if let Some(trouble) = (0..self.plan.pools).find_map(|pool| head.trouble(pool)) {
            return failed(trouble);
        }
        if !head.is_settled() {
            return failed("former terms are not settled".to_owned());
        }
        let mut idle = self.under_way.subscribe();
        if timeout(CLIENTS_TIME, idle.wait_for(|count| *count == 0)).await.is_err() {
            return failed(format!("{} operations of clients do not end", *self.under_way.borrow()));
        }
        for pool in 0..self.plan.pools {
            // A file that had no faults.
            let file = self.plan.files() + pool as u64;
            if timeout(CALL_TIME, self.try_pool(file)).await != Ok(true) {
                return failed(format!("pool {pool} does not do a write, a read and a fence"));
            }
        }
        Ok(())
    }

    async fn try_pool(self: &Arc<Self>, file: u64) -> bool {
        let cells = Cells::all_of(file);
        let value = self.model.lock().begin(cells, self.now());
        let write = self.ask_head(0, move |head| head.write(value, cells, Stability::Unstable)).await;
        if !matches!(write, Some(Ok(()))) {
            return false;
        }
        self.acknowledge(value);
        let read = self.ask_head(0, move |head| head.read(file)).await;
        let is_read = matches!(read, Some(Ok(values)) if values.iter().all(|read| *read == value));
        is_read
            && self.try_face(cells).await
            && matches!(self.ask_head(0, move |head| head.fence(file)).await, Some(Ok(())))
    }

    /// Power fails everywhere: bytes that were acknowledged are there afterwards, and no task is left.
    async fn end_all(self: &Arc<Self>) {
        (0..self.plan.pools).for_each(|pool| self.kill_pool(pool, true));
        self.kill_head(true);
        sleep(LAST_TASKS).await;
        let left = Handle::current().metrics().num_alive_tasks();
        if left > 0 {
            let what = format!("{left} tasks are left after the end of all hosts");
            self.fail(Failure { check: Check::Task, about: None, what });
        }
        let acknowledged = self.model.lock().acknowledged_count();
        let values = (0..self.plan.files()).map(|file| self.disks[self.pool_of(file)].values(FileId(file)));
        let values: Vec<_> = values.collect();
        self.note(LineSubject::Everything, (acknowledged, values), || {
            format!("{acknowledged} writes acknowledged")
        });
    }
}
