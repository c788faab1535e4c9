//! The head: gives tickets and leases, fences files, and ends the tickets of terms before its own.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Term;
use cluster_state::{
    Arrival, HeldTerms, LeaseRules, PoolAtHead, Process, Refusal, Renewal, SessionId, Terms,
};
use types::{Epoch, FileId};

use super::checks::at_head;
use super::{Fences, LOOK, Message, World};
use crate::rules::Plant;
use crate::rules::model::{Check, Failure, place};
use crate::rules::plan::{Copied, FILES, POOLS_MAX};

/// Of fences in one message: fewer than there are files.
const FENCES_MAX: usize = 2;
/// The head looks a few times a second.
const SLACK: Duration = Duration::from_secs(1);

/// Survives the head.
#[derive(Default)]
pub struct HeadDisk {
    term: u64,
    floor: u64,
    longest: Duration,
    epochs: [Epoch; FILES],
}

pub struct Head {
    term: Term,
    floor: Term,
    rules: LeaseRules,
    /// In true time.
    started_at: Duration,
    /// By its clock, as all that follows.
    grace_end: Duration,
    /// The end of leases of the starts before.
    former_end: Duration,
    /// Former tickets have ended.
    is_settled: bool,
    pools: Vec<PoolAtHead>,
    seats: [Seat; POOLS_MAX],
    /// Of connections that are open at this end.
    sessions: BTreeMap<u64, SessionId>,
    /// The last connection that was made to the head before this one.
    before: u64,
    /// Calls that the head waits for: of which pool, and since when.
    waiting: Vec<(usize, Fences, Duration)>,
}

/// A pool as the carrying of messages and the checks know it.
#[derive(Clone, Copy, Default)]
struct Seat {
    /// The connection of the session of now, and when the pool asked on it last.
    control: Option<(u64, Duration)>,
    has_renewed: bool,
    /// The number of starts of the process that dialled last.
    process: Option<u64>,
    /// It has said that it holds no lease.
    was_without_lease: bool,
    has_floor: bool,
}

impl HeadDisk {
    pub fn epoch(&self, file: FileId) -> Epoch {
        self.epochs[place(file)]
    }

    pub fn term(&self) -> Term {
        Term(self.term)
    }
}

impl Head {
    pub fn term(&self) -> Term {
        self.term
    }

    pub fn started_at(&self) -> Duration {
        self.started_at
    }

    pub fn pool(&self, pool: usize) -> &PoolAtHead {
        &self.pools[pool]
    }

    pub fn is_heard(&self, pool: usize, now: Duration) -> bool {
        let is_recent = |(_, heard)| now.saturating_sub(heard) < self.rules.suspect;
        self.seats[pool].control.is_some_and(is_recent)
    }

    /// For a failure.
    pub fn waits_for(&self) -> Option<String> {
        if let Some((pool, fences, _)) = self.waiting.first() {
            return Some(format!("the head waits for pool {pool} to confirm {fences:?}"));
        }
        (!self.is_settled).then(|| format!("tickets of terms before {} have not ended", self.term.0))
    }

    /// Planted: the lease as the pool counts it, without the margin for its clock.
    pub fn early(&self) -> Duration {
        self.rules.lease / 8
    }

    /// A connection of it is lost, and not the one by which it asks.
    pub fn end_session(&mut self, pool: usize) {
        let control = self.seats[pool].control.take();
        let session = control.and_then(|(connection, _)| self.sessions.get(&connection));
        if let Some(session) = session {
            self.pools[pool].disconnect(*session);
        }
    }

    fn terms(&self) -> Terms {
        Terms { term: self.term, floor: self.floor }
    }
}

impl World<'_> {
    pub(super) fn start_head(&mut self, lease_s: u64) {
        if self.head.is_some() {
            return;
        }
        let lease = Duration::from_secs(lease_s);
        let rules = LeaseRules { lease, suspect: lease * 3 / 10 };
        self.disk.term += 1;
        self.disk.longest = self.disk.longest.max(lease);
        let longest = match self.plant {
            Some(Plant::ForgottenLease) => lease,
            _ => self.disk.longest,
        };
        let now = self.head_now();
        self.head = Some(Head {
            term: self.disk.term(),
            floor: Term(self.disk.floor),
            rules,
            started_at: self.now,
            grace_end: now + self.plan.grace,
            former_end: now + at_head(self.disk.longest),
            is_settled: false,
            pools: self.pools.iter().map(|_| PoolAtHead::new(rules, longest, now)).collect(),
            seats: Default::default(),
            sessions: BTreeMap::new(),
            before: self.network.newest_connection(),
            waiting: Vec::new(),
        });
    }

    pub(super) fn kill_head(&mut self) {
        let Some(head) = self.head.take() else { return };
        for (pool, seat) in head.seats.iter().enumerate() {
            if let Some((connection, _)) = seat.control {
                self.pool_end_closes(pool, connection);
            }
        }
    }

    /// Of files of one pool.
    pub(super) fn fence(&mut self, files: &[FileId]) {
        let (now, pool) = (self.head_now(), self.pool_of(files[0]));
        let Some(head) = &mut self.head else { return };
        let mut next = |file: &FileId| {
            let kept = &mut self.disk.epochs[place(*file)];
            *kept = Epoch(kept.0 + 1);
            (*file, *kept)
        };
        let fences: Fences = files.iter().map(&mut next).collect();
        if head.pools[pool].fence(&fences, now).is_err() {
            return;
        }
        head.waiting.push((pool, fences.clone(), now));
        if let Some((connection, _)) = head.seats[pool].control {
            self.send_to_pool(pool, connection, Message::Fence(fences));
        }
    }

    fn deliver_fences(&mut self, pool: usize) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let Some(head) = &mut self.head else { return Ok(()) };
            let missed = head.pools[pool].lease().missed(after, FENCES_MAX);
            let (Some((connection, _)), [(first, _), ..]) = (head.seats[pool].control, &missed[..]) else {
                return Ok(());
            };
            if after.is_some_and(|after| *first <= after) {
                return Err(Failure::of(Check::Bound, pool, format!("is told of {first} again and again")));
            }
            after = missed.last().map(|(file, _)| *file);
            if self.plant == Some(Plant::MissingFence) {
                head.pools[pool].confirm(&missed);
            }
            self.send_to_pool(pool, connection, Message::Fence(missed));
        }
    }

    pub(super) fn take_at_head(
        &mut self,
        pool: usize,
        connection: u64,
        message: Message,
    ) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &mut self.head else { return Ok(()) };
        if connection <= head.before {
            return Ok(());
        }
        let session = head.sessions.get(&connection).copied();
        match (message, session) {
            (Message::Hello { starts, draw, has_lease }, _) => {
                return self.welcome(
                    pool,
                    connection,
                    Arrival { process: Process { starts, draw }, has_lease },
                );
            }
            (Message::Renew(held), Some(session)) => return self.renew(pool, connection, session, held),
            // On disk there, whichever session told it.
            (Message::Confirm(fences), Some(_)) => head.pools[pool].confirm(&fences),
            (Message::Bye, Some(session)) => {
                let is_of_now = head.seats[pool].control.is_some_and(|(control, _)| control == connection);
                let has_ended = head.pools[pool].end(session, now);
                if has_ended != is_of_now || has_ended && !head.pools[pool].lease().is_over(now) {
                    return Err(Failure::of(Check::Session, pool, "has given its lease back in vain"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn renew(
        &mut self,
        pool: usize,
        connection: u64,
        session: SessionId,
        held: HeldTerms,
    ) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &mut self.head else { return Ok(()) };
        let taken = if self.plant == Some(Plant::LateFloor) { all_settled(held) } else { held };
        let renewal = head.pools[pool].renew(session, taken, now);
        let is_of_now = head.seats[pool].control.is_some_and(|(control, _)| control == connection);
        if is_of_now == (renewal == Renewal::Unknown) {
            return Err(Failure::of(Check::Session, pool, format!("gets {renewal:?} over {connection}")));
        }
        if is_of_now {
            head.seats[pool].control = Some((connection, now));
            head.seats[pool].has_renewed = true;
        }
        let terms = head.terms();
        self.say(Some(pool), || format!("the head answers {renewal:?}"));
        if let Renewal::Lease(_) = renewal {
            self.judge_writes(pool)?;
            self.judge_floor(pool, held.terms.floor)?;
        }
        self.send_to_pool(pool, connection, Message::Renewed(renewal, terms));
        if renewal == (Renewal::NotYet { has_missed: true }) { self.deliver_fences(pool) } else { Ok(()) }
    }

    fn welcome(&mut self, pool: usize, connection: u64, arrival: Arrival) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &mut self.head else { return Ok(()) };
        let session = match head.pools[pool].connect(arrival, now) {
            Err(Refusal::Earlier) if self.plant == Some(Plant::OldHello) => {
                let process = Process { starts: u64::MAX - 1, draw: now.as_micros() as u64 };
                let _ = head.pools[pool].connect(Arrival { process, has_lease: false }, now);
                return Ok(());
            }
            Err(_) => {
                self.send_to_pool(pool, connection, Message::Refused);
                return Ok(());
            }
            Ok(session) => session,
        };
        head.sessions.insert(connection, session);
        let starts = arrival.process.starts;
        let seat = &mut head.seats[pool];
        let is_new = seat.process.map_or(!arrival.has_lease, |before| before < starts);
        seat.was_without_lease |= !arrival.has_lease;
        (seat.control, seat.process, seat.has_renewed) = (Some((connection, now)), Some(starts), false);
        let keeps_tickets = !seat.was_without_lease && now < head.grace_end;
        if is_new && !head.pools[pool].lease().is_over(now) {
            let what = "has another process, and the lease of the former one is waited for";
            return Err(Failure::of(Check::Wait, pool, what));
        }
        let terms = head.terms();
        let told = match self.plant {
            Some(Plant::LateFloor) => terms,
            _ => head.pools[pool].welcome(terms),
        };
        if keeps_tickets
            && let Some(before) = self.pools[pool].floor_of(starts)
            && told.floor > terms.floor.max(before)
        {
            let what =
                format!("has a lease, and is told floor {} before the grace period ends", told.floor.0);
            return Err(Failure::of(Check::Refusal, pool, what));
        }
        self.send_to_pool(pool, connection, Message::Welcome(told));
        self.deliver_fences(pool)
    }

    pub(super) fn head_loses(&mut self, pool: usize, connection: u64) {
        let Some(head) = &mut self.head else { return };
        if let Some(session) = head.sessions.remove(&connection) {
            head.pools[pool].disconnect(session);
        }
        let control = &mut head.seats[pool].control;
        if control.is_some_and(|(control, _)| control == connection) {
            *control = None;
        }
    }

    /// The head closes the connection of a pool that has not asked for as long as its lease lasts.
    pub(super) fn look_for_silent_pools(&mut self) {
        let now = self.head_now();
        for pool in 0..self.pools.len() {
            let Some(head) = &self.head else { return };
            if let Some((connection, heard)) = head.seats[pool].control
                && now.saturating_sub(heard) > head.rules.lease
            {
                self.pool_end_closes(pool, connection);
                self.head_loses(pool, connection);
            }
        }
    }

    /// The head goes on where it may.
    pub(super) fn head_goes_on(&mut self, is_look: bool) -> Result<(), Failure> {
        self.go_on_after_fences()?;
        if is_look || self.plan.is_prompt { self.end_former_tickets() } else { Ok(()) }
    }

    fn go_on_after_fences(&mut self) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &self.head else { return Ok(()) };
        if head.waiting.is_empty() {
            return Ok(());
        }
        let early = if self.plant == Some(Plant::EarlyLeaseEnd) { head.early() } else { Duration::ZERO };
        let (term, lease, former_end) = (head.term, head.rules.lease, head.former_end);
        let mut number = 0;
        while let Some(head) = &mut self.head
            && let Some((pool, fences, since)) = head.waiting.get(number)
        {
            let pool = *pool;
            if !head.pools[pool].is_fenced(fences, now + early) {
                if now > former_end.max(*since + lease / 2 + at_head(lease)) + SLACK {
                    let what = format!("holds up fences: {fences:?}");
                    return Err(Failure::of(Check::Wait, pool, what));
                }
                number += 1;
                continue;
            }
            let (_, fences, _) = head.waiting.remove(number);
            for (file, epoch) in &fences {
                self.model.went_on(*file, *epoch, term);
            }
            self.say(Some(pool), || format!("the head goes on after fences: {fences:?}"));
            self.judge_passed(pool)?;
        }
        Ok(())
    }

    fn end_former_tickets(&mut self) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &mut self.head else { return Ok(()) };
        if now < head.grace_end || head.is_settled {
            return Ok(());
        }
        (head.floor, self.disk.floor) = (head.term, head.term.0);
        let (floor, lease) = (head.floor, head.rules.lease);
        let early = if self.plant == Some(Plant::EarlyLeaseEnd) { head.early() } else { Duration::ZERO };
        for (pool, known) in head.pools.iter_mut().enumerate() {
            let seat = &mut head.seats[pool];
            let has_floor = match self.plant {
                Some(Plant::UnnotedFloor) if known.lease().is_over(now) => true,
                Some(Plant::ForgottenFloor) if !seat.has_renewed => known.lease().is_over(now),
                _ => known.has_floor(floor, now + early),
            };
            if std::mem::replace(&mut seat.has_floor, has_floor) && !has_floor {
                let what = format!("is waited for again to have floor {}", floor.0);
                return Err(Failure::of(Check::Wait, pool, what));
            }
            if has_floor {
                continue;
            }
            // A request that was on the way when the floor rose gets a lease. The connection of the session is closed in time.
            if now > head.former_end.max(head.grace_end + lease + LOOK + at_head(lease)) + SLACK {
                let what = format!("holds up the end of tickets of terms before {}", floor.0);
                return Err(Failure::of(Check::Wait, pool, what));
            }
            return Ok(());
        }
        head.is_settled = true;
        self.model.is_settled(floor);
        self.say(None, || format!("the head goes on: tickets of terms before {} have ended", floor.0));
        (0..self.pools.len()).try_for_each(|pool| self.judge_passed(pool))
    }

    /// The head has gone on.
    fn judge_passed(&self, pool: usize) -> Result<(), Failure> {
        let now = self.head_now();
        let Some(head) = &self.head else { return Ok(()) };
        if !self.is_over(head.pools[pool].lease(), now) {
            self.judge_writes(pool)?;
        }
        self.judge_tickets(pool)
    }

    pub(super) fn dial_copy(&mut self, pool: usize, copied: Copied) -> Result<(), Failure> {
        let now = self.head_now();
        let starts = self.pools[pool].starts();
        let Some(head) = &mut self.head else { return Ok(()) };
        let is_known = head.seats[pool].process == Some(starts) && self.pools[pool].is_known_to_head();
        if !is_known {
            return Ok(());
        }
        let (process, refusal) = match copied {
            Copied::Now => (Process { starts, draw: u64::MAX }, Refusal::Copy),
            Copied::Earlier => (Process { starts: starts - 1, draw: u64::MAX }, Refusal::Earlier),
        };
        let arrival = Arrival { process, has_lease: false };
        if head.pools[pool].connect(arrival, now) != Err(refusal) {
            return Err(Failure::of(Check::Copy, pool, "has a copy that was let in"));
        }
        Ok(())
    }
}

/// Planted: the head takes it that the pool holds whichever floor.
fn all_settled(held: HeldTerms) -> HeldTerms {
    let terms = Terms { floor: Term(u64::MAX), ..held.terms };
    HeldTerms { terms, is_settled: true }
}
