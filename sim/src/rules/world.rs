//! One head, its pools and its clients, over a network, in true time. The rules are the product's; what carries them between
//! hosts is simulated.

mod checks;
mod head;
mod network;
mod pool;
mod queue;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use cluster_state::{HeldTerms, Renewal, Terms};
use types::{Epoch, FileId};

use super::Plant;
use super::model::{Failure, Model, Ticket};
use super::plan::{CLIENTS, FAULTS_END, FILES, Plan, Step};
use crate::dice::{TraceHasher, draw_of};
use head::{Head, HeadDisk};
use network::Network;
use pool::PoolHost;
use queue::Queue;

/// After the last fault everything is well again within that time.
const RECOVERY: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(500);
const TICKETS_MAX: usize = 8;

type Fences = Vec<(FileId, Epoch)>;

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
    /// The request of now may be without an answer for too long.
    LookForAnswer,
    Message {
        connection: u64,
        message: Message,
    },
    Lost {
        connection: u64,
    },
    Arrived(Ticket),
    /// It has waited for a lease for too long.
    GiveUpWrite(u64),
    EndWrite(u64),
    EndFence {
        connection: u64,
        fences: Fences,
    },
    /// Of a process that has said that it stops.
    Exit,
}

impl Event {
    fn is_of_fences(&self) -> bool {
        let message = match self {
            Event::AtPool { what: AtPool::Message { message, .. }, .. } | Event::ToHead { message, .. } => {
                message
            }
            _ => return false,
        };
        matches!(message, Message::Fence(_) | Message::Confirm(_))
    }
}

pub struct World<'a> {
    plan: &'a Plan,
    plant: Option<Plant>,
    now: Duration,
    /// Of the plan, that are done.
    steps: usize,
    queue: Queue<Event>,
    events: usize,
    draws: u64,
    hash: TraceHasher,
    lines: Option<Vec<Line>>,
    model: Model,
    disk: HeadDisk,
    head: Option<Head>,
    pools: Vec<PoolHost>,
    network: Network,
    tickets: [Vec<Ticket>; CLIENTS],
}

/// Something that happened.
pub struct Line {
    at: Duration,
    /// `None`: at the head, or to all.
    pub pool: Option<usize>,
    text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.6} s  ", self.at.as_secs_f64())?;
        match self.pool {
            Some(pool) => write!(f, "pool {pool}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// How a run ended.
pub struct Run {
    pub failure: Option<Failure>,
    pub hash: u64,
    pub events: usize,
    pub lines: Vec<Line>,
}

pub fn run(plan: &Plan, plant: Option<Plant>, is_traced: bool) -> Run {
    let mut world = World {
        plan,
        plant,
        now: Duration::ZERO,
        steps: 0,
        queue: Queue::new(),
        events: 0,
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
    Run { failure, hash: world.hash.finish(), events: world.events, lines: world.lines.unwrap_or_default() }
}

impl World<'_> {
    fn live(&mut self) -> Result<(), Failure> {
        self.start_head(self.plan.lease_s);
        for pool in 0..self.pools.len() {
            self.start_pool(pool);
        }
        self.queue.schedule(LOOK, Event::Look);
        let mut is_healing = false;
        while let Some((at, event)) = self.next() {
            if at > FAULTS_END && !is_healing {
                is_healing = true;
                self.now = FAULTS_END;
                self.heal_all();
            }
            self.now = self.now.max(at);
            let is_look = matches!(event, Event::Look);
            self.note(&event);
            self.take(event)?;
            self.go_on(is_look)?;
            if is_look && is_healing {
                match self.has_recovered() {
                    Ok(()) => return Ok(()),
                    Err(failure) if self.now > FAULTS_END + RECOVERY => return Err(failure),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<(Duration, Event)> {
        if let Some((at, _)) = self.plan.steps.get(self.steps)
            && self.queue.next_at().is_none_or(|next| *at <= next)
        {
            self.steps += 1;
            return Some((*at, Event::Step(self.steps - 1)));
        }
        self.queue.pop()
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.queue.schedule(at, event);
    }

    fn at_pool(&mut self, after: Duration, pool: usize, what: AtPool) {
        let starts = self.pools[pool].starts();
        self.schedule(self.now + after, Event::AtPool { pool, starts, what });
    }

    /// The pool on which a file lies.
    fn pool_of(&self, file: FileId) -> usize {
        file.0 as usize % self.pools.len()
    }

    fn files_of(&self, pool: usize) -> impl Iterator<Item = FileId> + use<> {
        (pool as u64..FILES as u64).step_by(self.pools.len()).map(FileId)
    }

    /// Up to `max`, mostly short.
    fn some_time(&mut self, max: Duration) -> Duration {
        let draw = self.draw();
        let max = max.as_micros() as u64;
        let part = if draw.is_multiple_of(8) { max } else { max / 64 };
        Duration::from_micros((draw >> 8) % part.max(1))
    }

    /// Up to `max`.
    fn any_time(&mut self, max: Duration) -> Duration {
        Duration::from_micros(self.draw() % max.as_micros() as u64)
    }

    fn draw(&mut self) -> u64 {
        self.draws += 1;
        draw_of(self.plan.seed, self.draws)
    }

    fn note(&mut self, event: &Event) {
        self.events += 1;
        (self.now, event).hash(&mut self.hash);
        if self.lines.is_none() {
            return;
        }
        match event {
            Event::Step(number) => {
                let step = self.plan.steps[*number].1;
                self.say(step.pool(), || format!("{step:?}"));
            }
            Event::Look => {}
            Event::AtPool { pool, starts, what } => {
                self.say(Some(*pool), || format!("process {starts}: {what:?}"));
            }
            Event::ToHead { pool, connection, message } => {
                self.say(Some(*pool), || format!("the head gets over connection {connection}: {message:?}"));
            }
            Event::HeadLoses { pool, connection } => {
                self.say(Some(*pool), || format!("the head loses connection {connection}"));
            }
        }
    }

    fn say(&mut self, pool: Option<usize>, text: impl FnOnce() -> String) {
        let at = self.now;
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at, pool, text: text() });
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
            Step::Fence(file) => self.fence(&[FileId(file)]),
            Step::FenceAll(pool) => self.fence(&self.files_of(pool).collect::<Vec<_>>()),
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
            Step::Stall(pool, time) => self.pools[pool].stall(self.now + time),
            Step::Slow(pool, time) => self.network.slow(pool, self.now + time),
            Step::CutToHead(pool) => self.network.cut(pool, true),
            Step::CutToPool(pool) => self.network.cut(pool, false),
            Step::Heal(pool) => self.heal(pool),
            Step::Reset(pool) => self.reset(pool),
            Step::LoseData(pool) => self.lose_data(pool),
            Step::DialCopy(pool, copied) => return self.dial_copy(pool, copied),
        }
        if let Some(pool) = step.pool()
            && !matches!(step, Step::FenceAll(_) | Step::DialCopy(..))
        {
            self.pools[pool].disturb(self.now);
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
        let pool = self.pool_of(ticket.file);
        let after = self.some_time(Duration::from_secs(8));
        self.at_pool(after, pool, AtPool::Arrived(ticket));
    }

    fn heal_all(&mut self) {
        self.say(None, || "no more faults from here on".to_owned());
        self.start_head(self.plan.lease_s);
        for pool in 0..self.pools.len() {
            self.heal(pool);
            self.start_pool(pool);
        }
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
    Duration::from_micros(3_600_000_000 + rate * (now.as_micros() as u64) / 1_000_000)
}
