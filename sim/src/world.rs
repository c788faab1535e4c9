//! The real head and pool hosts of `cluster` on one runtime whose time is simulated: over a network that delays, cuts and
//! resets, disks that are slow, fail and lose, and under clients that write at pools and through the head.

mod client;
mod head;
mod host;
mod model;
mod network;
mod panics;
mod plan;
mod pool_host;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use testkit::lossy_disk::{BegunWrite, DiskControl, DiskStep, Fate, LossyDisk};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use types::{FileId, PoolId};

use crate::dice::{TraceHasher, draw_of};
use crate::histories::{History, Line, LineSubject, Simulation};
use client::{Client, Steps};
use head::HeadSite;
use host::SimHost;
use model::{Check, Failure, Model};
use network::{Network, Side};
use plan::{CLIENTS, FAULTS_END, Fault, Plan, Step};
use pool_host::{PoolSite, PoolSites};

/// More events than any history has: time stands still.
const EVENTS_MAX: usize = 2_000_000;
const DISK_TIME_MAX: Duration = Duration::from_millis(400);
const SLOW_DISK_TIME_MAX: Duration = Duration::from_secs(12);
/// A process that is told to stop is killed after so long.
const STOP_TIME: Duration = Duration::from_secs(4);
/// Tasks of a host that has ended are gone by then.
const END_TIME: Duration = Duration::from_millis(1);

/// A fault in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The head goes on without a fence.
    MissingFence,
    /// The disk answers syncs before it has the bytes.
    EarlyReply,
    /// The face of a pool takes writes without a lease.
    LostLease,
    /// A client that had no answer writes again, and has no fence before.
    RepeatedWrite,
    /// The disk confirms fences before it has them.
    EarlyConfirmation,
    /// The head declares former terms settled without asking its pools.
    EarlyFloor,
}

pub struct Worlds;

impl Simulation for Worlds {
    type Plan = Plan;
    type Plant = Plant;
    type Check = Check;

    const NAME: &'static str = "world";
    const SUBJECT: &'static str = "the hosts and file";
    const PLANTS: &'static [(&'static str, Plant)] = &[
        ("missing-fence", Plant::MissingFence),
        ("early-reply", Plant::EarlyReply),
        ("lost-lease", Plant::LostLease),
        ("repeated-write", Plant::RepeatedWrite),
        ("early-confirmation", Plant::EarlyConfirmation),
        ("early-floor", Plant::EarlyFloor),
    ];

    fn draw(seed: u64) -> Plan {
        Plan::draw(seed)
    }

    fn run(plan: &Plan, plant: Option<Plant>, is_traced: bool) -> History<Check> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O starts");
        let watch = panics::Watch::begin();
        let mut history = runtime.block_on(live(plan, plant, is_traced));
        drop(runtime);
        if let Some(what) = watch.end() {
            history.failure = Some(Failure { check: Check::Panic, about: None, what });
        }
        history
    }
}

pub struct World {
    plan: Plan,
    plant: Option<Plant>,
    began: Instant,
    trace: Mutex<Trace>,
    /// Draws so far, by stream: a step that is left out changes no other stream.
    draws: Mutex<BTreeMap<u64, u64>>,
    /// The first one.
    failure: watch::Sender<Option<Failure>>,
    /// The faults are over.
    is_calm: AtomicBool,
    model: Mutex<Model>,
    network: Network,
    wires: AtomicUsize,
    disks: Vec<Arc<LossyDisk>>,
    /// Until when each is slow, and fails.
    slow_until: Mutex<Vec<[Instant; 2]>>,
    head: Mutex<HeadSite>,
    pools: PoolSites,
    /// Operations of clients that have not ended.
    under_way: watch::Sender<usize>,
}

#[derive(Default)]
struct Trace {
    hash: TraceHasher,
    events: usize,
    lines: Option<Vec<Line>>,
}

async fn live(plan: &Plan, plant: Option<Plant>, is_traced: bool) -> History<Check> {
    let world = World::new(plan.clone(), plant, is_traced);
    let mut failed = world.failure.subscribe();
    tokio::select! {
        biased;
        _ = failed.wait_for(Option::is_some) => {}
        () = world.live() => {}
    }
    world.forget_hosts();
    let failure = world.failure.borrow().clone();
    let mut trace = world.trace.lock();
    History {
        failure,
        hash: trace.hash.finish(),
        events: trace.events,
        lines: trace.lines.take().unwrap_or_default(),
    }
}

impl World {
    fn new(plan: Plan, plant: Option<Plant>, is_traced: bool) -> Arc<World> {
        let began = Instant::now();
        let lines = is_traced.then(Vec::new);
        Arc::new_cyclic(|myself: &Weak<World>| {
            let control: Weak<dyn DiskControl> = Weak::clone(myself) as _;
            let disk = |number| LossyDisk::new(PoolId(number as u32), Weak::clone(&control));
            World {
                plant,
                began,
                trace: Mutex::new(Trace { lines, ..Trace::default() }),
                draws: Mutex::default(),
                failure: watch::Sender::new(None),
                is_calm: AtomicBool::new(false),
                model: Mutex::default(),
                network: Network::new(plan.pools),
                wires: AtomicUsize::new(0),
                disks: (0..plan.pools).map(disk).collect(),
                slow_until: Mutex::new(vec![[began; 2]; plan.pools]),
                head: Mutex::default(),
                pools: (0..plan.pools).map(|_| Mutex::new(PoolSite::default())).collect(),
                under_way: watch::Sender::new(0),
                plan,
            }
        })
    }

    /// Processes know their world.
    fn forget_hosts(&self) {
        let head = self.head.lock().process.take();
        let pools: Vec<_> = self.pools.iter().map(|pool| pool.lock().process.take()).collect();
        drop((head, pools));
    }

    async fn live(self: &Arc<Self>) {
        self.start_head(self.plan.lease_s);
        (0..self.plan.pools).for_each(|pool| self.start_pool(pool));
        let clients: Vec<Steps> = (0..CLIENTS).map(|client| Client::start(self, client)).collect();
        for (at, step) in self.plan.steps.clone() {
            sleep_until(self.began + at).await;
            match step {
                Step::Fault(fault) => {
                    self.note(LineSubject::Everything, at, || format!("{fault:?}"));
                    self.have_fault(fault);
                }
                Step::Write { client, .. }
                | Step::Read { client, .. }
                | Step::Fence { client, .. }
                | Step::Stray { client, .. } => {
                    self.under_way.send_modify(|count| *count += 1);
                    let _ = clients[client].send(step);
                }
            }
        }
        sleep_until(self.began + FAULTS_END).await;
        self.recover(clients).await;
    }

    fn have_fault(self: &Arc<Self>, fault: Fault) {
        match fault {
            Fault::KillHead(time, lease_s) => {
                self.kill_head(false);
                self.after(time, move |world| world.start_head(lease_s));
            }
            Fault::CutPowerOfHead(time, lease_s) => {
                self.kill_head(true);
                self.after(time, move |world| world.start_head(lease_s));
            }
            Fault::StopHead(time, lease_s) => {
                self.stop_head();
                self.after(STOP_TIME + time, move |world| world.start_head(lease_s));
            }
            Fault::PauseHead(time) => {
                if let Some(process) = self.head_process() {
                    pause(&process.host, time);
                }
            }
            Fault::KillPool(pool, time) => {
                self.kill_pool(pool, false);
                self.after(time, move |world| world.start_pool(pool));
            }
            Fault::CutPower(pool, time) => {
                self.kill_pool(pool, true);
                self.after(time, move |world| world.start_pool(pool));
            }
            Fault::StopPool(pool, time) => {
                self.stop_pool(pool);
                self.after(STOP_TIME + time, move |world| world.start_pool(pool));
            }
            Fault::PausePool(pool, time) => {
                if let Some(process) = self.pool_process(pool) {
                    pause(&process.host, time);
                }
            }
            Fault::CutToHead(pool, time) => {
                self.cut(pool, Side::Head);
                self.after(time, move |world| world.heal(pool));
            }
            Fault::CutToPool(pool, time) => {
                self.cut(pool, Side::Pool);
                self.after(time, move |world| world.heal(pool));
            }
            Fault::Reset(pool) => self.reset(pool),
            Fault::SlowDisk(pool, time) => self.slow_until.lock()[pool][0] = Instant::now() + time,
            Fault::FailingDisk(pool, time) => self.slow_until.lock()[pool][1] = Instant::now() + time,
        }
    }

    /// If the faults are not over by then: at their end all is well at once.
    fn after(self: &Arc<Self>, time: Duration, act: impl FnOnce(&Arc<World>) + Send + 'static) {
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(time).await;
            if !world.is_calm() {
                act(&world);
            }
        });
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn pool_of(&self, file: u64) -> usize {
        (file % self.plan.pools as u64) as usize
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    fn next_wire(&self) -> u64 {
        self.wires.fetch_add(1, Ordering::Relaxed) as u64
    }

    fn draw(&self, stream: u64) -> u64 {
        let mut draws = self.draws.lock();
        let number = draws.entry(stream).or_default();
        *number += 1;
        draw_of(draw_of(self.plan.seed, stream), *number)
    }

    /// Up to `max`, mostly short.
    fn some_time(&self, stream: u64, max: Duration) -> Duration {
        let draw = self.draw(stream);
        let max = max.as_micros() as u64;
        let part = if draw.is_multiple_of(8) { max } else { max / 64 };
        Duration::from_micros((draw >> 8) % part.max(1))
    }

    /// An event, which goes into the hash of the history.
    fn note(&self, about: LineSubject, what: impl Hash, text: impl FnOnce() -> String) {
        let now = self.now();
        let mut trace = self.trace.lock();
        (now, what).hash(&mut trace.hash);
        trace.events += 1;
        if let Some(lines) = &mut trace.lines {
            lines.push(Line { about, text: format!("{:>10.6} s  {}", now.as_secs_f64(), text()) });
        }
        let events = trace.events;
        drop(trace);
        if events == EVENTS_MAX {
            self.fail(Failure { check: Check::Livelock, about: None, what: format!("{events} events") });
        }
    }

    fn fail(&self, failure: Failure) {
        self.note(LineSubject::Everything, "failure", || failure.to_string());
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    fn judge(&self, judged: Result<(), Failure>) {
        if let Err(failure) = judged {
            self.fail(failure);
        }
    }

    fn note_done(&self) {
        self.under_way.send_modify(|count| *count -= 1);
    }

    /// Ends the tasks of a host, and looks whether they have ended.
    fn end_host(self: &Arc<Self>, host: Arc<SimHost>, name: String) {
        host.end();
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(END_TIME).await;
            let left = host.tasks_left();
            if left > 0 {
                let what = format!("{left} tasks of {name} are left after its end");
                world.fail(Failure { check: Check::Task, about: None, what });
            }
        });
    }
}

/// The host goes on by itself after that time.
fn pause(host: &Arc<SimHost>, time: Duration) {
    host.pause();
    let host = Arc::downgrade(host);
    tokio::spawn(async move {
        sleep(time).await;
        if let Some(host) = host.upgrade() {
            host.resume();
        }
    });
}

impl DiskControl for World {
    fn decide(&self, pool: PoolId, step: DiskStep) -> (Duration, Fate) {
        let number = pool.0 as usize;
        let [slow_until, failing_until] = self.slow_until.lock()[number];
        let stream = 0x3_0000 + pool.0 as u64;
        let now = Instant::now();
        let max = if now < slow_until { SLOW_DISK_TIME_MAX } else { DISK_TIME_MAX };
        let time = self.some_time(stream, max);
        let fate = match (step, self.plant) {
            (DiskStep::Sync, Some(Plant::EarlyReply)) => Fate::AnsweredEarly,
            (DiskStep::Fence, Some(Plant::EarlyConfirmation)) => Fate::AnsweredEarly,
            _ if now < failing_until && self.draw(stream).is_multiple_of(3) => Fate::Fails,
            _ => Fate::Done,
        };
        self.note(LineSubject::Bytes, (pool.0, step, time, fate), || {
            format!("pool {number}: {step:?} takes {time:?}: {fate:?}")
        });
        (time, fate)
    }

    fn survives(&self, pool: PoolId, is_power_cut: bool) -> bool {
        let draw = self.draw(0x4_0000 + pool.0 as u64);
        draw.is_multiple_of(2) || (!is_power_cut && !draw.is_multiple_of(8))
    }

    fn has_begun(&self, pool: PoolId, write: BegunWrite) {
        let BegunWrite { ticket, value, is_direct } = write;
        let file = ticket.file;
        self.note(LineSubject::One(file.0), (pool.0, value), || {
            let from = if is_direct { "a client" } else { "the head" };
            format!(
                "pool {}: begins write {value} of {from} to file {} at epoch {}",
                pool.0, file.0, ticket.epoch.0
            )
        });
        if is_direct {
            let judged = self.model.lock().has_begun(file, ticket.epoch, value);
            self.judge(judged);
        }
    }

    fn becomes(&self, file: FileId, cell: usize, value: u64) {
        self.note(LineSubject::One(file.0), (file.0, cell, value), || {
            format!("file {}: cell {cell} becomes {value}", file.0)
        });
        let judged = self.model.lock().becomes(file, cell, value, self.now());
        self.judge(judged);
    }
}
