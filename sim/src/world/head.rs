//! The head: the real port, seats and remote pools of `cluster`, and in place of namespace and doors a list of epochs, which
//! it fences as `Files` does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{
    ANSWER_TIME, Birth, Conditions, Demand, KeyGeneration, Pool, PoolError, Presence, Stability, Term,
    Ticket, TicketKeys, TicketMode,
};
use async_trait::async_trait;
use bytes::Bytes;
use cluster::trust::Fingerprint;
use cluster::{
    Certified, HttpFace, Join, Joined, Key, KeyRegistry, Keys, LeaseRules, Registry, RemotePool, Seat,
    Standing, Terms, serve_at,
};
use parking_lot::Mutex;
use testkit::lossy_disk::{CELL_BYTES, CELLS};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use types::{Clock, Epoch, FileId, IoMode, PoolId};

use super::host::{SimHost, SkewedClock};
use super::model::{Check, Failure};
use super::network::{Side, SimPort, key_of};
use super::plan::Cells;
use super::pool_host::{bytes_of, values_of};
use super::{Plant, World};
use crate::histories::LineSubject;

pub const CLUSTER: [u8; 16] = [7; 16];
pub const ADDRESS: &str = "head";
const GRACE: Duration = Duration::from_secs(5);
const SETTLE_PERIOD: Duration = Duration::from_millis(250);
const STOP_TIME: Duration = Duration::from_secs(1);
/// Beyond what the lease explains, a call takes the time of slow disks and of messages.
const CALL_TIME: Duration = Duration::from_secs(60);
const FENCE_TIME: Duration = Duration::from_secs(5);

/// The head's host: what is on its disk, and its process.
#[derive(Default)]
pub struct HeadSite {
    term: u64,
    floor: u64,
    longest_lease: Duration,
    epochs: BTreeMap<u64, Epoch>,
    pub process: Option<Arc<HeadProcess>>,
}

pub struct HeadProcess {
    world: Arc<World>,
    pub host: Arc<SimHost>,
    term: Term,
    rules: LeaseRules,
    /// Of all starts.
    longest_lease: Duration,
    keys: TicketKeys,
    /// As pools are told. Leaf lock.
    floor: Mutex<Term>,
    seats: Vec<(Fingerprint, Arc<Seat>)>,
    stop: watch::Sender<bool>,
}

/// A ticket as a client gets it.
#[derive(Clone, Debug)]
pub struct Layout {
    pub sealed: Bytes,
    pub epoch: Epoch,
    pub term: Term,
}

impl HeadProcess {
    /// Called in a task of the host.
    fn start(world: &Arc<World>, host: Arc<SimHost>, lease: Duration) -> Arc<HeadProcess> {
        let clock: Arc<dyn Clock> = SkewedClock::new(world.began, world.plan.rates[0]);
        let rules = LeaseRules { lease, suspect: lease * 3 / 10 };
        let (term, floor, longest_lease) = {
            let mut site = world.head.lock();
            site.term += 1;
            site.longest_lease = site.longest_lease.max(lease);
            (Term(site.term), Term(site.floor), site.longest_lease)
        };
        let seat = |pool| {
            let remote = RemotePool::known(PoolId(pool as u32), rules, longest_lease, Arc::clone(&clock));
            (key_of(pool), Seat::new(remote))
        };
        let seats = (0..world.plan.pools).map(seat).collect();
        let (keys, stop) = (TicketKeys::new(&[3; 32], term, KeyGeneration::FIRST), watch::Sender::new(false));
        let (world, floor) = (Arc::clone(world), Mutex::new(floor));
        Arc::new(HeadProcess { world, host, term, rules, longest_lease, keys, floor, seats, stop })
    }

    async fn run(self: Arc<Self>) {
        self.host.tasks().spawn(Arc::clone(&self).settle_former_terms());
        let port = SimPort(Arc::clone(&self.world));
        serve_at(&port, Arc::clone(&self) as _, self.stop.subscribe()).await;
        sleep(STOP_TIME).await;
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self));
        tokio::spawn(async move { world.end_head(&process) });
    }

    /// When the time to reclaim is over, tickets to write of former terms are void, and then this is written down.
    async fn settle_former_terms(self: Arc<Self>) {
        sleep(GRACE).await;
        *self.floor.lock() = self.term;
        let is_early = self.world.plant == Some(Plant::EarlyFloor);
        while !is_early && !self.seats.iter().all(|(_, seat)| seat.has_floor(self.term)) {
            sleep(SETTLE_PERIOD).await;
        }
        self.world.head.lock().floor = self.term.0;
        self.world.model.lock().is_settled(self.term, self.world.now());
        let term = self.term.0;
        self.world
            .note(LineSubject::Everything, ("settled", term), || format!("head: term {term} is settled"));
    }

    pub fn is_settled(&self) -> bool {
        self.world.head.lock().floor == self.term.0
    }

    pub fn remote(&self, pool: usize) -> &Arc<RemotePool> {
        &self.seats[pool].1.pool
    }

    /// For a failure: why a pool is not in order.
    pub fn trouble(&self, pool: usize) -> Option<String> {
        let report = self.remote(pool).report();
        let is_well = report.standing == Standing::Ready && report.missed_fences == 0;
        (!is_well).then(|| format!("pool {pool} is {report:?}"))
    }

    fn epoch(&self, file: u64) -> Epoch {
        self.world.head.lock().epochs.get(&file).copied().unwrap_or_default()
    }

    fn ticket(&self, file: u64, mode: TicketMode) -> Ticket {
        Ticket {
            file: FileId(file),
            birth: Birth(1),
            pool: PoolId(self.world.pool_of(file) as u32),
            mode,
            epoch: self.epoch(file),
            presence: Presence::Written,
            io: IoMode::Auto,
        }
    }

    pub async fn layout(self: Arc<Self>, file: u64, mode: TicketMode) -> Layout {
        let ticket = self.ticket(file, mode);
        let sealed = self.keys.seal(&ticket, Conditions::of_sole_replica(Demand(0)));
        Layout { sealed: Bytes::copy_from_slice(&sealed), epoch: ticket.epoch, term: self.term }
    }

    /// Revokes all tickets of the file, and returns when none of them is honoured.
    pub async fn fence(self: Arc<Self>, file: u64) -> Result<(), PoolError> {
        let epoch = {
            let mut site = self.world.head.lock();
            let epoch = site.epochs.entry(file).or_default();
            *epoch = Epoch(epoch.0 + 1);
            *epoch
        };
        let of_file = LineSubject::One(file);
        self.world.note(of_file, ("fence", file, epoch.0), || {
            format!("head: fences file {file} below {}", epoch.0)
        });
        let pool = self.world.pool_of(file);
        if self.world.plant != Some(Plant::MissingFence) {
            let bound = self.longest_lease * 2 + FENCE_TIME;
            let fencing = self.within("fence", file, bound, async {
                let fences = [(FileId(file), epoch)];
                let fenced = timeout(ANSWER_TIME, self.remote(pool).fence(&fences, ANSWER_TIME)).await;
                fenced.map_or_else(|_| Err(PoolError::Unknown(PoolId(pool as u32))), |fenced| fenced.sole())
            });
            let fenced = fencing.await;
            let text = || format!("head: the fence of file {file} below {} is {fenced:?}", epoch.0);
            self.world.note(of_file, ("fenced", file, epoch.0, fenced.is_ok()), text);
            fenced?;
        }
        self.go_on(file, epoch);
        Ok(())
    }

    fn go_on(&self, file: u64, epoch: Epoch) {
        let (world, pool) = (&self.world, self.world.pool_of(file));
        let (disk, process) = (&world.disks[pool], world.pool_process(pool));
        let has_lease = process.is_some_and(|process| process.holds_lease());
        let is_on_disk = disk.fence_on_disk(FileId(file)) >= epoch;
        if has_lease && (!is_on_disk || disk.has_writes_below(FileId(file), epoch)) {
            let what = format!(
                "the head goes on past the fence of file {file} below {}, and pool {pool} has a lease, {} on its disk",
                epoch.0,
                if is_on_disk { "a write under way and the fence" } else { "and not the fence" }
            );
            world.fail(Failure { check: Check::Confirmation, about: Some(file), what });
        }
        world.model.lock().went_on(file, epoch, world.now());
    }

    /// Of a client that reaches the data through the head.
    pub async fn write(
        self: Arc<Self>,
        value: u64,
        cells: Cells,
        stability: Stability,
    ) -> Result<(), PoolError> {
        let ticket = self.ticket(cells.file, TicketMode::ReadWrite);
        let pool = self.remote(self.world.pool_of(cells.file));
        let bound = self.rules.lease * 3 + CALL_TIME;
        let replica = self.within("open", cells.file, bound, pool.open(&ticket)).await?;
        let write = replica.write_at(cells.offset(), bytes_of(value, cells), stability);
        let done = self.within("write", cells.file, bound, write).await?;
        if done == Stability::Unstable {
            let synced = self.within("sync", cells.file, bound, replica.sync()).await?;
            if synced != replica.verifier() {
                return Err(PoolError::Unknown(PoolId(self.world.pool_of(cells.file) as u32)));
            }
        }
        Ok(())
    }

    pub async fn read(self: Arc<Self>, file: u64) -> Result<Vec<u64>, PoolError> {
        let bound = self.rules.lease * 3 + CALL_TIME;
        let pool = self.remote(self.world.pool_of(file));
        let replica =
            self.within("open", file, bound, pool.open(&self.ticket(file, TicketMode::Read))).await?;
        let length = (CELLS * CELL_BYTES) as u32;
        let read = self.within("read", file, bound, replica.read_at(0, length)).await?;
        Ok(values_of(&read.data))
    }

    /// A call that ends in time, unless the head stands still meanwhile.
    async fn within<T>(&self, name: &str, file: u64, bound: Duration, call: impl Future<Output = T>) -> T {
        let (from, pauses) = (self.world.now(), self.host.pauses());
        let done = call.await;
        let took = self.world.now() - from;
        if took > bound && pauses == self.host.pauses() {
            let what = format!("{name} of file {file} through the head took {took:?}, {bound:?} at most");
            self.world.fail(Failure { check: Check::Bound, about: Some(file), what });
        }
        done
    }
}

/// Keys are not rotated in the world.
#[async_trait]
impl KeyRegistry for HeadProcess {
    fn generation(&self) -> u32 {
        0
    }

    async fn certify(&self, _: PoolId, _: &[u8]) -> Result<Certified, String> {
        Err("keys are not rotated here".to_owned())
    }

    async fn used(&self, _: PoolId, _: Fingerprint) {}

    fn refusal(&self, pool: PoolId) -> String {
        format!("{pool} is not known")
    }
}

#[async_trait]
impl Registry for HeadProcess {
    fn cluster(&self) -> [u8; 16] {
        CLUSTER
    }

    async fn join(&self, _: Join, _: SocketAddr) -> Result<Joined, String> {
        Err("pool hosts have joined before".to_owned())
    }

    fn seat(&self, pool: PoolId, key: Fingerprint) -> Option<Arc<Seat>> {
        let (known, seat) = self.seats.get(pool.0 as usize)?;
        (*known == key).then(|| Arc::clone(seat))
    }

    fn arrived(&self, _: PoolId, _: SocketAddr, _: Option<&HttpFace>) {}

    fn keys(&self, pool: PoolId) -> Keys {
        Keys { newest: Key::of(&self.keys.material(pool, KeyGeneration::FIRST)), former: None }
    }

    fn terms(&self) -> Terms {
        Terms::of(self.term, *self.floor.lock())
    }

    // Files of the world have their replicas from the start.
    fn newest_file(&self) -> FileId {
        FileId(u64::MAX)
    }

    fn nfs_lease(&self) -> Duration {
        Duration::from_secs(90)
    }

    fn lease(&self) -> Duration {
        self.rules.lease
    }
}

impl World {
    pub fn head_process(&self) -> Option<Arc<HeadProcess>> {
        self.head.lock().process.clone()
    }

    pub fn start_head(self: &Arc<Self>, lease_s: u64) {
        if self.head_process().is_some() {
            return;
        }
        let host = SimHost::new();
        let (world, tasks) = (Arc::clone(self), host.tasks());
        let lease = Duration::from_secs(lease_s);
        // In a task of the host: remote pools begin theirs as its own.
        let process = tasks.enter(|| HeadProcess::start(&world, Arc::clone(&host), lease));
        let term = process.term.0;
        self.note(LineSubject::Everything, ("head", term), || {
            format!("head: starts term {term}, leases of {lease_s} s")
        });
        self.head.lock().process = Some(Arc::clone(&process));
        self.network.open_port();
        tasks.spawn(process.run());
    }

    pub fn stop_head(&self) {
        if let Some(process) = self.head_process() {
            self.note(LineSubject::Everything, "stop head", || "head: is told to stop".to_owned());
            process.stop.send_replace(true);
        }
    }

    pub fn kill_head(self: &Arc<Self>, is_power_cut: bool) {
        if let Some(process) = self.head_process() {
            if is_power_cut {
                (0..self.plan.pools).for_each(|pool| self.silence(pool, Side::Head));
            }
            self.end_head(&process);
        }
    }

    fn end_head(self: &Arc<Self>, process: &Arc<HeadProcess>) {
        {
            let mut site = self.head.lock();
            if !site.process.as_ref().is_some_and(|now| Arc::ptr_eq(now, process)) {
                return;
            }
            site.process = None;
        }
        self.note(LineSubject::Everything, "head ends", || "head: ends".to_owned());
        self.network.close_port();
        self.end_host(Arc::clone(&process.host), "the head".to_owned());
    }
}
