//! One head, its pools and its clients, over a network, in true time. The rules are the product's; what carries them between
//! hosts is simulated.

mod head;
mod network;
mod pool;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use api::Term;
use cluster_state::{HeldTerms, Renewal, Standing, Terms};
use types::{Epoch, FileId};

use super::Plant;
use super::model::{Check, Failure, Model};
use super::plan::{CLIENTS, FAULTS_END, FILES, Plan, Step};
use crate::dice::{TraceHasher, draw_of};
use head::{Head, HeadDisk};
use network::Network;
use pool::PoolHost;

/// After the last fault everything is well again within that time.
const RECOVERY: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(500);
const TICKETS_MAX: usize = 8;

type Fences = Vec<(FileId, Epoch)>;

/// A right to write, as a client has it.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Ticket {
    file: FileId,
    epoch: Epoch,
    term: Term,
}

#[derive(Clone, Debug, Hash)]
enum Message {
    // From a pool.
    Hello { starts: u64, draw: u64, has_lease: bool },
    Renew(HeldTerms),
    Confirm(Fences),
    Bye,
    // From the head.
    Welcome(Terms),
    Refused,
    Renewed(Renewal, Terms),
    Fence(Fences),
}

#[derive(Clone, Debug, Hash)]
enum Event {
    Step(usize),
    Look,
    /// `starts`: of the process that it concerns.
    AtPool {
        pool: usize,
        starts: u64,
        what: AtPool,
    },
    ToHead {
        pool: usize,
        connection: u64,
        message: Message,
    },
    HeadLoses {
        pool: usize,
        connection: u64,
    },
}

#[derive(Clone, Debug, Hash)]
enum AtPool {
    Dial,
    Renew {
        connection: u64,
    },
    /// There is no answer to the request of this number.
    Late {
        request: u64,
    },
    Message {
        connection: u64,
        message: Message,
    },
    Lost {
        connection: u64,
    },
    Arrived(Ticket),
    /// It has waited for a lease for too long, or its bytes are written.
    EndWrite(u64),
    EndFence {
        connection: u64,
        fences: Fences,
    },
}

pub struct World<'a> {
    plan: &'a Plan,
    plant: Option<Plant>,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    events: Vec<Option<Event>>,
    draws: u64,
    hash: TraceHasher,
    lines: Option<Vec<String>>,
    model: Model,
    disk: HeadDisk,
    head: Option<Head>,
    pools: Vec<PoolHost>,
    network: Network,
    tickets: [Vec<Ticket>; CLIENTS],
}

/// How a run ended.
pub struct Run {
    pub failure: Option<Failure>,
    pub hash: u64,
    pub events: usize,
    pub lines: Vec<String>,
}

pub fn run(plan: &Plan, plant: Option<Plant>, is_traced: bool) -> Run {
    let mut world = World {
        plan,
        plant,
        now: Duration::ZERO,
        queue: BinaryHeap::new(),
        events: Vec::new(),
        draws: 0,
        hash: TraceHasher::default(),
        lines: is_traced.then(Vec::new),
        model: Model::default(),
        disk: HeadDisk::default(),
        head: None,
        pools: (0..plan.pools).map(|_| PoolHost::default()).collect(),
        network: Network::new(plan.pools),
        tickets: Default::default(),
    };
    let failure = world.live().err();
    Run {
        failure,
        hash: world.hash.finish(),
        events: world.events.len(),
        lines: world.lines.unwrap_or_default(),
    }
}

/// The pool on which a file lies.
fn pool_of(file: FileId, pools: usize) -> usize {
    file.0 as usize % pools
}

impl World<'_> {
    fn live(&mut self) -> Result<(), Failure> {
        self.start_head(self.plan.lease_s);
        for pool in 0..self.pools.len() {
            self.start_pool(pool);
        }
        for (number, (at, _)) in self.plan.steps.iter().enumerate() {
            self.schedule(*at, Event::Step(number));
        }
        self.schedule(LOOK, Event::Look);
        let mut is_healing = false;
        while let Some(Reverse((at, _, index))) = self.queue.pop() {
            if at > FAULTS_END && !is_healing {
                is_healing = true;
                self.now = FAULTS_END;
                self.heal_all();
            }
            if at > FAULTS_END + RECOVERY {
                return self.has_recovered();
            }
            self.now = self.now.max(at);
            let Some(event) = self.events[index].take() else { continue };
            self.note(&event);
            self.take(event)?;
            self.go_on()?;
        }
        Ok(())
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        let index = self.events.len();
        self.events.push(Some(event));
        self.queue.push(Reverse((at, index as u64, index)));
    }

    fn at_pool(&mut self, after: Duration, pool: usize, what: AtPool) {
        let starts = self.pools[pool].starts();
        self.schedule(self.now + after, Event::AtPool { pool, starts, what });
    }

    /// Up to `max`, mostly short.
    fn some_time(&mut self, max: Duration) -> Duration {
        self.draws += 1;
        let draw = draw_of(self.plan.seed, self.draws);
        let max = max.as_micros() as u64;
        let part = if draw.is_multiple_of(8) { max } else { max / 64 };
        Duration::from_micros((draw >> 8) % part.max(1))
    }

    fn note(&mut self, event: &Event) {
        (self.now, event).hash(&mut self.hash);
        if self.lines.is_some() {
            let text = match event {
                Event::Step(number) => format!("{:?}", self.plan.steps[*number].1),
                Event::Look => return,
                event => format!("{event:?}"),
            };
            self.say(text);
        }
    }

    fn say(&mut self, text: String) {
        let now = self.now.as_secs_f64();
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now:>10.6} s  {text}"));
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Step(number) => self.step(self.plan.steps[number].1),
            Event::Look => {
                self.look_for_silent_pools();
                self.schedule(self.now + LOOK, Event::Look);
                Ok(())
            }
            Event::AtPool { pool, starts, what } => self.take_at_pool(pool, starts, what),
            Event::ToHead { pool, connection, message } => self.take_at_head(pool, connection, message),
            Event::HeadLoses { pool, connection } => {
                self.head_loses(pool, connection);
                Ok(())
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::AskTicket(client, file) => self.ask_ticket(client, FileId(file)),
            Step::Write(client, draw) => self.send_write(client, draw),
            Step::Fence(file) => self.fence(FileId(file)),
            Step::RestartHead(lease_s) => {
                self.kill_head();
                self.start_head(lease_s);
            }
            Step::KillHead => self.kill_head(),
            Step::StartHead(lease_s) => self.start_head(lease_s),
            Step::KillPool(pool) => self.kill_pool(pool),
            Step::StartPool(pool) => self.start_pool(pool),
            Step::StopPool(pool) => self.stop_pool(pool),
            Step::Pause(pool, time) => self.pools[pool].pause(self.now + time),
            Step::CutToHead(pool) => self.network.cut(pool, true),
            Step::CutToPool(pool) => self.network.cut(pool, false),
            Step::Heal(pool) => self.heal(pool),
            Step::Reset(pool) => self.reset(pool),
            Step::DialCopy(pool) => return self.dial_copy(pool),
        }
        Ok(())
    }

    fn ask_ticket(&mut self, client: usize, file: FileId) {
        let Some(head) = &self.head else { return };
        let ticket = Ticket { file, epoch: self.disk.epoch(file), term: head.term() };
        let tickets = &mut self.tickets[client];
        if tickets.len() == TICKETS_MAX {
            tickets.remove(0);
        }
        tickets.push(ticket);
    }

    /// Clients keep tickets that are void, and what they send may be on the way for long.
    fn send_write(&mut self, client: usize, draw: u64) {
        let tickets = &self.tickets[client];
        if tickets.is_empty() {
            return;
        }
        let ticket = tickets[(draw % tickets.len() as u64) as usize];
        let pool = pool_of(ticket.file, self.pools.len());
        let after = self.some_time(Duration::from_secs(8));
        self.at_pool(after, pool, AtPool::Arrived(ticket));
    }

    fn heal_all(&mut self) {
        self.say("no more faults from here on".to_owned());
        let lease_s = self.plan.lease_s;
        self.start_head(lease_s);
        for pool in 0..self.pools.len() {
            self.pools[pool].pause(self.now);
            self.heal(pool);
            self.start_pool(pool);
        }
    }

    fn has_recovered(&self) -> Result<(), Failure> {
        let failed = |what| Err(Failure { check: Check::Wait, what });
        let Some(head) = &self.head else { return failed("the head is down".to_owned()) };
        let now = self.head_now();
        for pool in 0..self.pools.len() {
            let at_head = head.pool(pool);
            if at_head.standing(now) != Standing::Ready {
                return failed(format!("pool {pool} is {:?}", at_head.standing(now)));
            }
            if at_head.lease().missed_count() > 0 {
                return failed(format!("pool {pool} misses {} fences", at_head.lease().missed_count()));
            }
        }
        match head.waits_for() {
            Some(what) => failed(what),
            None => Ok(()),
        }
    }

    /// Looks at all that must be so at any time.
    fn go_on(&mut self) -> Result<(), Failure> {
        self.head_goes_on();
        let Some(head) = &self.head else { return Ok(()) };
        let now = self.head_now();
        for (number, pool) in self.pools.iter().enumerate() {
            let lease = head.pool(number).lease();
            if lease.missed_count() > FILES as usize {
                let what = format!("{} fences of {FILES} files are kept", lease.missed_count());
                return Err(Failure { check: Check::Bound, what });
            }
            if self.is_over(lease, now) && pool.holds_lease(self.pool_now(number)) {
                let what = format!("the head takes the lease of pool {number} for over, and it holds one");
                return Err(Failure { check: Check::Lease, what });
            }
        }
        Ok(())
    }

    fn head_now(&self) -> Duration {
        local(self.now, self.plan.rates[0])
    }

    fn pool_now(&self, pool: usize) -> Duration {
        local(self.now, self.plan.rates[pool + 1])
    }
}

/// A clock's monotonic time. It began an hour ago.
fn local(now: Duration, rate: u64) -> Duration {
    Duration::from_micros(3_600_000_000 + (u128::from(rate) * now.as_micros() / 1_000_000) as u64)
}
