//! A pool host: dials, asks for its lease, takes fences, and honours writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{TermFloor, WritePass};
use cluster_state::{HeldLease, HeldTerms, Renewal};
use types::{Epoch, FileId};

use super::{AtPool, Event, Fences, Message, Ticket, World};
use crate::rules::model::Failure;

const ANSWER: Duration = Duration::from_secs(5);
const DIAL_AGAIN: Duration = Duration::from_millis(500);
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
const FIRST_PERIOD: Duration = Duration::from_millis(50);
/// A write waits so long for a lease.
const PATIENCE: Duration = Duration::from_secs(3);
const DISK_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct PoolHost {
    starts: u64,
    /// On disk: the fences that were confirmed.
    fences: BTreeMap<FileId, Epoch>,
    process: Option<PoolProcess>,
    paused_until: Duration,
}

struct PoolProcess {
    draw: u64,
    lease: HeldLease,
    floor: Arc<TermFloor>,
    fences: BTreeMap<FileId, Epoch>,
    connection: Option<u64>,
    is_welcome: bool,
    requests: u64,
    /// The request that has no answer yet, and when it was sent.
    asked: Option<(u64, Duration)>,
    writes: BTreeMap<u64, Write>,
    writes_begun: u64,
}

struct Write {
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
        self.paused_until = until;
    }

    pub fn holds_lease(&self, now: Duration) -> bool {
        self.process.as_ref().is_some_and(|process| process.lease.holds(now))
    }
}

impl World<'_> {
    pub(super) fn start_pool(&mut self, pool: usize) {
        let seed = self.plan.seed;
        let host = &mut self.pools[pool];
        if host.process.is_some() {
            return;
        }
        host.starts += 1;
        host.process = Some(PoolProcess {
            draw: crate::dice::draw_of(seed, host.starts ^ (pool as u64) << 32),
            lease: HeldLease::default(),
            floor: TermFloor::outliving_terms(),
            fences: host.fences.clone(),
            connection: None,
            is_welcome: false,
            requests: 0,
            asked: None,
            writes: BTreeMap::new(),
            writes_begun: 0,
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
        let host = &self.pools[pool];
        if host.paused_until > self.now {
            return;
        }
        if let (Some(process), Some(connection)) = (&host.process, host.connection()) {
            // No ticket to write is honoured from here on.
            process.lease.end();
            self.send_to_head(pool, connection, Message::Bye);
        }
        self.kill_pool(pool);
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
        let has = process.connection;
        match what {
            AtPool::Dial => self.dial(pool),
            AtPool::Renew { connection } if has == Some(connection) => self.ask_for_lease(pool),
            AtPool::Late { request } if process.asked.is_some_and(|(asked, _)| asked == request) => {
                self.lose_session(pool, DIAL_AGAIN);
            }
            AtPool::Lost { connection } if has == Some(connection) => self.lose_session(pool, DIAL_AGAIN),
            AtPool::Message { connection, message } if has == Some(connection) => {
                return self.take_message(pool, connection, message);
            }
            AtPool::Arrived(ticket) => return self.take_write(pool, ticket),
            AtPool::EndWrite(number) => {
                process.writes.remove(&number);
            }
            AtPool::EndFence { connection, fences } => self.end_fence(pool, connection, fences),
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
        process.requests += 1;
        let request = process.requests;
        process.asked = Some((request, now));
        self.send_to_head(pool, connection, message);
        self.at_pool(ANSWER, pool, AtPool::Late { request });
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
            Message::Refused => self.lose_session(pool, AFTER_REFUSAL),
            Message::Renewed(Renewal::Unknown, _) => self.lose_session(pool, DIAL_AGAIN),
            Message::Renewed(renewal, terms) => {
                // A pool refuses former tickets before it has the right to take others.
                terms.apply(&process.floor);
                let Some((_, asked)) = process.asked.take() else { return Ok(()) };
                let mut period = FIRST_PERIOD;
                if let Renewal::Lease(lease) = renewal {
                    process.lease.grant(asked, lease);
                    period = lease / 10;
                }
                self.at_pool(period, pool, AtPool::Renew { connection });
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
            let kept = process.fences.entry(*file).or_default();
            *kept = (*kept).max(*epoch);
        }
        let after = self.some_time(DISK_MAX);
        self.at_pool(after, pool, AtPool::EndFence { connection, fences });
    }

    fn end_fence(&mut self, pool: usize, connection: u64, fences: Fences) {
        let host = &mut self.pools[pool];
        let Some(process) = &host.process else { return };
        let is_before = |write: &Write| {
            let older =
                |(file, epoch): &(FileId, Epoch)| *file == write.ticket.file && write.ticket.epoch < *epoch;
            write.is_under_way && fences.iter().any(older)
        };
        if process.writes.values().any(is_before) {
            return self.at_pool(Duration::from_millis(20), pool, AtPool::EndFence { connection, fences });
        }
        for (file, epoch) in &fences {
            let kept = host.fences.entry(*file).or_default();
            *kept = (*kept).max(*epoch);
        }
        if process.connection == Some(connection) {
            self.send_to_head(pool, connection, Message::Confirm(fences));
        }
    }

    fn take_write(&mut self, pool: usize, ticket: Ticket) -> Result<(), Failure> {
        let Some(process) = &mut self.pools[pool].process else { return Ok(()) };
        let Ok(pass) = process.floor.begin_write(ticket.term) else { return Ok(()) };
        process.writes_begun += 1;
        let number = process.writes_begun;
        process.writes.insert(number, Write { ticket, is_under_way: false, _pass: pass });
        self.at_pool(PATIENCE, pool, AtPool::EndWrite(number));
        self.begin_waiting_writes(pool)
    }

    fn begin_waiting_writes(&mut self, pool: usize) -> Result<(), Failure> {
        if !self.pools[pool].holds_lease(self.pool_now(pool)) {
            return Ok(());
        }
        let Some(process) = &mut self.pools[pool].process else { return Ok(()) };
        let (mut begun, mut refused) = (Vec::new(), Vec::new());
        for (number, write) in process.writes.iter_mut().filter(|(_, write)| !write.is_under_way) {
            let Ticket { file, epoch, term } = write.ticket;
            if process.fences.get(&file).is_some_and(|fence| epoch < *fence) {
                refused.push(*number);
                continue;
            }
            self.model.honoured(file, epoch, term)?;
            write.is_under_way = true;
            begun.push(*number);
        }
        for number in refused {
            process.writes.remove(&number);
        }
        for number in begun {
            let after = self.some_time(DISK_MAX);
            self.at_pool(after, pool, AtPool::EndWrite(number));
        }
        Ok(())
    }
}
