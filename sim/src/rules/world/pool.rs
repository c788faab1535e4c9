//! A pool host: dials, asks for its lease, takes fences, and honours writes.

use std::sync::Arc;
use std::time::Duration;

use api::{Term, TermFloor, WritePass};
use cluster_state::{HeldLease, HeldTerms, Renewal};
use types::Epoch;

use super::checks::is_fenced;
use super::{AtPool, Event, Fences, Message, World};
use crate::rules::model::{Check, Failure, Ticket, place};
use crate::rules::plan::FILES;

const ANSWER: Duration = Duration::from_secs(5);
const DIAL_AGAIN: Duration = Duration::from_millis(500);
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// Clocks differ in rate: a look that comes so little before its time has come.
const LEFT_MIN: Duration = Duration::from_millis(200);
/// Both are longer than in the product: there are fewer events, and more time between two of them.
const FIRST_PERIOD: Duration = Duration::from_millis(150);
const RENEWALS: u32 = 6;
/// A write waits so long for a lease.
const PATIENCE: Duration = Duration::from_secs(3);
/// A process that stops waits so long for what is under way.
const EXIT_MAX: Duration = Duration::from_secs(1);
const DISK_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct PoolHost {
    starts: u64,
    /// On disk: the fences that were confirmed.
    fences: [Epoch; FILES],
    process: Option<PoolProcess>,
    paused_until: Duration,
    stalled_until: Duration,
    /// The last time at which a fault concerned it, or at which it was well.
    disturbed: Duration,
}

struct PoolProcess {
    draw: u64,
    lease: HeldLease,
    floor: Arc<TermFloor>,
    fences: [Epoch; FILES],
    connection: Option<u64>,
    is_welcome: bool,
    is_stopping: bool,
    /// When the request that has no answer yet was sent, by the pool's clock.
    asked: Option<Duration>,
    looks_for_answer: bool,
    writes: Vec<Write>,
    writes_begun: u64,
    /// Fences that are on disk, and by which connection they came. They are confirmed when older writes have ended.
    ending: Vec<(u64, Fences)>,
}

struct Write {
    number: u64,
    ticket: Ticket,
    is_under_way: bool,
    _pass: Option<WritePass>,
}

impl PoolHost {
    pub fn starts(&self) -> u64 {
        self.starts
    }

    pub fn connection(&self) -> Option<u64> {
        self.process.as_ref()?.connection
    }

    pub fn is_known_to_head(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.is_welcome && process.connection.is_some())
    }

    pub fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
    }

    pub fn stall(&mut self, until: Duration) {
        self.stalled_until = self.stalled_until.max(until);
    }

    pub fn disturb(&mut self, now: Duration) {
        self.disturbed = self.disturbed.max(now);
    }

    pub fn disturbed(&self) -> Duration {
        self.disturbed
    }

    pub fn is_undisturbed(&self, now: Duration) -> bool {
        let runs = self.process.as_ref().is_some_and(|process| !process.is_stopping);
        runs && self.paused_until <= now && self.stalled_until <= now
    }

    pub fn holds_lease(&self, now: Duration) -> bool {
        self.process.as_ref().is_some_and(|process| process.lease.holds(now))
    }

    /// A write with the ticket that came now would be done.
    pub fn honours(&self, ticket: Ticket, now: Duration) -> bool {
        let does = |process: &PoolProcess| {
            process.lease.holds(now)
                && process.floor.admits(ticket.term)
                && !is_fenced(ticket, &process.fences)
        };
        self.process.as_ref().is_some_and(does)
    }

    /// The floor of the process of that number, if it runs.
    pub fn floor_of(&self, starts: u64) -> Option<Term> {
        let process = self.process.as_ref().filter(|_| self.starts == starts);
        process.map(|process| process.floor.lowest())
    }

    pub fn writes_under_way(&self) -> impl Iterator<Item = Ticket> {
        let writes = self.process.iter().flat_map(|process| &process.writes);
        writes.filter(|write| write.is_under_way).map(|write| write.ticket)
    }
}

impl World<'_> {
    pub(super) fn start_pool(&mut self, pool: usize) {
        let seed = self.plan.seed;
        if self.pools[pool].process.as_ref().is_some_and(|process| process.is_stopping) {
            self.kill_pool(pool);
        }
        let host = &mut self.pools[pool];
        if host.process.is_some() {
            return;
        }
        host.starts += 1;
        host.process = Some(PoolProcess {
            draw: crate::dice::draw_of(seed, host.starts ^ (pool as u64) << 32),
            lease: HeldLease::default(),
            floor: TermFloor::outliving_terms(),
            fences: host.fences,
            connection: None,
            is_welcome: false,
            is_stopping: false,
            asked: None,
            looks_for_answer: false,
            writes: Vec::new(),
            writes_begun: 0,
            ending: Vec::new(),
        });
        self.at_pool(Duration::ZERO, pool, AtPool::Dial);
    }

    pub(super) fn kill_pool(&mut self, pool: usize) {
        let connection = self.pools[pool].connection();
        if self.pools[pool].process.take().is_some()
            && let Some(connection) = connection
        {
            self.head_end_closes(pool, connection);
        }
        self.pools[pool].paused_until = self.now;
    }

    pub(super) fn stop_pool(&mut self, pool: usize) {
        let host = &mut self.pools[pool];
        let Some(process) = host.process.as_mut().filter(|_| host.paused_until <= self.now) else { return };
        if std::mem::replace(&mut process.is_stopping, true) {
            return;
        }
        // No ticket to write is honoured from here on.
        process.lease.end();
        if let Some(connection) = process.connection {
            self.send_to_head(pool, connection, Message::Bye);
        }
        let after = self.some_time(EXIT_MAX);
        self.at_pool(after, pool, AtPool::Exit);
    }

    pub(super) fn take_at_pool(&mut self, pool: usize, starts: u64, what: AtPool) -> Result<(), Failure> {
        let host = &mut self.pools[pool];
        let Some(process) = &mut host.process else { return Ok(()) };
        if host.starts != starts {
            return Ok(());
        }
        if host.paused_until > self.now {
            let at = host.paused_until;
            self.schedule(at, Event::AtPool { pool, starts, what });
            return Ok(());
        }
        if host.stalled_until > self.now && matches!(what, AtPool::EndWrite(_) | AtPool::EndFence { .. }) {
            let at = host.stalled_until;
            self.schedule(at, Event::AtPool { pool, starts, what });
            return Ok(());
        }
        let has = process.connection;
        match what {
            AtPool::Exit => self.kill_pool(pool),
            AtPool::Dial
            | AtPool::Renew { .. }
            | AtPool::LookForAnswer
            | AtPool::Lost { .. }
            | AtPool::Message {
                message: Message::Welcome(_) | Message::Renewed(..) | Message::Refused,
                ..
            } if process.is_stopping => {}
            AtPool::Dial => self.dial(pool),
            AtPool::Renew { connection } if has == Some(connection) => self.ask_for_lease(pool),
            AtPool::LookForAnswer => self.look_for_answer(pool),
            AtPool::Lost { connection } if has == Some(connection) => self.lose_session(pool, DIAL_AGAIN),
            AtPool::Message { connection, message } if has == Some(connection) => {
                return self.take_message(pool, connection, message);
            }
            AtPool::Arrived(ticket) => return self.take_write(pool, ticket),
            AtPool::GiveUpWrite(number) => {
                process.writes.retain(|write| write.number != number || write.is_under_way);
            }
            AtPool::EndWrite(number) => {
                process.writes.retain(|write| write.number != number);
                self.confirm_fences(pool);
            }
            AtPool::EndFence { connection, fences } => {
                process.ending.push((connection, fences));
                self.confirm_fences(pool);
            }
            _ => {}
        }
        Ok(())
    }

    fn dial(&mut self, pool: usize) {
        if !self.network.is_whole(pool) || self.head.is_none() {
            return self.at_pool(DIAL_AGAIN, pool, AtPool::Dial);
        }
        let (now, starts) = (self.pool_now(pool), self.pools[pool].starts);
        let connection = self.network.connect(pool);
        let Some(process) = &mut self.pools[pool].process else { return };
        if process.connection.is_some() {
            return;
        }
        process.connection = Some(connection);
        let has_lease = process.lease.holds(now);
        let hello = Message::Hello { starts, draw: process.draw, has_lease };
        self.ask(pool, connection, hello);
    }

    fn ask(&mut self, pool: usize, connection: u64, message: Message) {
        let now = self.pool_now(pool);
        let Some(process) = &mut self.pools[pool].process else { return };
        process.asked = Some(now);
        if !std::mem::replace(&mut process.looks_for_answer, true) {
            self.at_pool(ANSWER, pool, AtPool::LookForAnswer);
        }
        self.send_to_head(pool, connection, message);
    }

    fn look_for_answer(&mut self, pool: usize) {
        let now = self.pool_now(pool);
        let Some(process) = &mut self.pools[pool].process else { return };
        process.looks_for_answer = false;
        let Some(asked) = process.asked else { return };
        let left = (asked + ANSWER).saturating_sub(now);
        if left < LEFT_MIN {
            return self.lose_session(pool, DIAL_AGAIN);
        }
        process.looks_for_answer = true;
        self.at_pool(left, pool, AtPool::LookForAnswer);
    }

    fn ask_for_lease(&mut self, pool: usize) {
        let Some(process) = &self.pools[pool].process else { return };
        if let (Some(connection), held) = (process.connection, HeldTerms::of(&process.floor)) {
            self.ask(pool, connection, Message::Renew(held));
        }
    }

    fn lose_session(&mut self, pool: usize, pause: Duration) {
        let Some(process) = &mut self.pools[pool].process else { return };
        (process.asked, process.is_welcome) = (None, false);
        if let Some(connection) = process.connection.take() {
            self.head_end_closes(pool, connection);
        }
        self.at_pool(pause, pool, AtPool::Dial);
    }

    fn take_message(&mut self, pool: usize, connection: u64, message: Message) -> Result<(), Failure> {
        let Some(process) = &mut self.pools[pool].process else { return Ok(()) };
        match message {
            Message::Welcome(terms) => {
                terms.apply(&process.floor);
                (process.asked, process.is_welcome) = (None, true);
                self.ask_for_lease(pool);
            }
            Message::Refused => {
                self.pools[pool].disturb(self.now + AFTER_REFUSAL);
                self.lose_session(pool, AFTER_REFUSAL);
            }
            Message::Renewed(Renewal::Unknown, _) => self.lose_session(pool, DIAL_AGAIN),
            Message::Renewed(renewal, terms) => {
                // A pool refuses former tickets before it has the right to take others.
                terms.apply(&process.floor);
                let Some(asked) = process.asked.take() else { return Ok(()) };
                let mut period = FIRST_PERIOD;
                if let Renewal::Lease(lease) = renewal {
                    process.lease.grant(asked, lease);
                    period = lease / RENEWALS;
                }
                self.at_pool(period, pool, AtPool::Renew { connection });
                self.judge_tickets(pool)?;
                return self.begin_waiting_writes(pool);
            }
            Message::Fence(fences) => self.take_fence(pool, connection, fences),
            _ => {}
        }
        Ok(())
    }

    /// Writes that begin from here on need the later epoch. Those under way are waited for.
    fn take_fence(&mut self, pool: usize, connection: u64, fences: Fences) {
        let Some(process) = &mut self.pools[pool].process else { return };
        for (file, epoch) in &fences {
            let kept = &mut process.fences[place(*file)];
            *kept = (*kept).max(*epoch);
        }
        let after = self.some_time(DISK_MAX);
        self.at_pool(after, pool, AtPool::EndFence { connection, fences });
    }

    fn confirm_fences(&mut self, pool: usize) {
        let host = &mut self.pools[pool];
        let Some(process) = &mut host.process else { return };
        if process.ending.is_empty() {
            return;
        }
        let writes = &process.writes;
        let is_waited_for = |(file, epoch): &(_, Epoch)| {
            let is_before = |write: &Write| write.ticket.file == *file && write.ticket.epoch < *epoch;
            writes.iter().any(|write| write.is_under_way && is_before(write))
        };
        let has_ended = |(_, fences): &mut (u64, Fences)| !fences.iter().any(is_waited_for);
        let confirmed: Vec<_> = process.ending.extract_if(.., has_ended).collect();
        for (file, epoch) in confirmed.iter().flat_map(|(_, fences)| fences) {
            let kept = &mut host.fences[place(*file)];
            *kept = (*kept).max(*epoch);
        }
        let has = process.connection;
        for (connection, fences) in confirmed {
            if has == Some(connection) {
                self.send_to_head(pool, connection, Message::Confirm(fences));
            }
        }
    }

    fn take_write(&mut self, pool: usize, ticket: Ticket) -> Result<(), Failure> {
        let Some(process) = &mut self.pools[pool].process else { return Ok(()) };
        let Ok(pass) = process.floor.begin_write(ticket.term) else {
            return self.may_refuse(pool, ticket);
        };
        process.writes_begun += 1;
        let number = process.writes_begun;
        process.writes.push(Write { number, ticket, is_under_way: false, _pass: pass });
        self.at_pool(PATIENCE, pool, AtPool::GiveUpWrite(number));
        self.begin_waiting_writes(pool)
    }

    fn begin_waiting_writes(&mut self, pool: usize) -> Result<(), Failure> {
        let now = self.pool_now(pool);
        let Some(process) = self.pools[pool].process.as_mut().filter(|process| process.lease.holds(now))
        else {
            return Ok(());
        };
        let fences = process.fences;
        let is_refused = |write: &mut Write| !write.is_under_way && is_fenced(write.ticket, &fences);
        let refused: Vec<_> = process.writes.extract_if(.., is_refused).collect();
        let mut begun = Vec::new();
        for write in process.writes.iter_mut().filter(|write| !write.is_under_way) {
            write.is_under_way = true;
            begun.push((write.number, write.ticket));
        }
        refused.into_iter().try_for_each(|write| self.may_refuse(pool, write.ticket))?;
        for (number, ticket) in begun {
            self.model.judge(pool, "honours", ticket)?;
            let after = self.some_time(DISK_MAX);
            self.at_pool(after, pool, AtPool::EndWrite(number));
        }
        Ok(())
    }

    fn may_refuse(&self, pool: usize, ticket: Ticket) -> Result<(), Failure> {
        if (ticket.term, ticket.epoch) == (self.disk.term(), self.disk.epoch(ticket.file)) {
            return Err(Failure::of(Check::Refusal, pool, format!("refuses the newest {ticket:?}")));
        }
        Ok(())
    }
}
