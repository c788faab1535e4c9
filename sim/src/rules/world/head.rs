//! The head: gives tickets and leases, fences files, and ends the tickets of terms before its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Term;
use cluster_state::{
    Arrival, HeadLease, HeldTerms, LeaseRules, PoolAtHead, Process, Refusal, Renewal, SessionId, Terms,
};
use types::{Epoch, FileId};

use super::{Message, World, pool_of};
use crate::rules::Plant;
use crate::rules::model::{Check, Failure};

const GRACE: Duration = Duration::from_secs(5);
const FENCES_MAX: usize = 64;

/// Survives the head.
#[derive(Default)]
pub struct HeadDisk {
    term: u64,
    floor: u64,
    longest: Duration,
    epochs: BTreeMap<FileId, Epoch>,
}

pub struct Head {
    term: Term,
    floor: Term,
    rules: LeaseRules,
    grace_end: Duration,
    pools: Vec<PoolAtHead>,
    /// Of connections that are open at this end.
    sessions: BTreeMap<u64, SessionId>,
    /// The connection of the session of now, and when the pool asked on it last.
    controls: Vec<Option<(u64, Duration)>>,
    /// Fences that the head waits for.
    waiting: BTreeSet<(FileId, Epoch)>,
}

impl HeadDisk {
    pub fn epoch(&self, file: FileId) -> Epoch {
        self.epochs.get(&file).copied().unwrap_or_default()
    }
}

impl Head {
    pub fn term(&self) -> Term {
        self.term
    }

    pub fn pool(&self, pool: usize) -> &PoolAtHead {
        &self.pools[pool]
    }

    /// For a failure.
    pub fn waits_for(&self) -> Option<String> {
        if let Some((file, epoch)) = self.waiting.first() {
            return Some(format!("the head waits for the fence of {file} at epoch {}", epoch.0));
        }
        (self.floor != self.term)
            .then(|| format!("the floor is {}, and the term {}", self.floor.0, self.term.0))
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
            term: Term(self.disk.term),
            floor: Term(self.disk.floor),
            rules,
            grace_end: now + GRACE,
            pools: self.pools.iter().map(|_| PoolAtHead::new(rules, longest, now)).collect(),
            sessions: BTreeMap::new(),
            controls: self.pools.iter().map(|_| None).collect(),
            waiting: BTreeSet::new(),
        });
    }

    pub(super) fn kill_head(&mut self) {
        let Some(head) = self.head.take() else { return };
        for (pool, control) in head.controls.iter().enumerate() {
            if let Some((connection, _)) = control {
                self.pool_end_closes(pool, *connection);
            }
        }
    }

    pub(super) fn fence(&mut self, file: FileId) {
        let Some(head) = &mut self.head else { return };
        let epoch = Epoch(self.disk.epoch(file).0 + 1);
        self.disk.epochs.insert(file, epoch);
        let pool = pool_of(file, self.pools.len());
        let fence = (file, epoch);
        let now = super::local(self.now, self.plan.rates[0]);
        if head.pools[pool].fence(&[fence], now).is_err() {
            return;
        }
        head.waiting.insert(fence);
        if let Some((connection, _)) = head.controls[pool] {
            self.send_to_pool(pool, connection, Message::Fence(vec![fence]));
        }
    }

    fn deliver_fences(&mut self, pool: usize) {
        let Some(head) = &mut self.head else { return };
        let missed = head.pools[pool].lease().missed(None, FENCES_MAX);
        let Some((connection, _)) = head.controls[pool] else { return };
        if missed.is_empty() {
            return;
        }
        if self.plant == Some(Plant::MissingFence) {
            head.pools[pool].confirm(&missed);
        }
        self.send_to_pool(pool, connection, Message::Fence(missed));
    }

    pub(super) fn take_at_head(
        &mut self,
        pool: usize,
        connection: u64,
        message: Message,
    ) -> Result<(), Failure> {
        let now = self.head_now();
        let plant = self.plant;
        let Some(head) = &mut self.head else { return Ok(()) };
        let session = head.sessions.get(&connection).copied();
        match (message, session) {
            (Message::Hello { starts, draw, has_lease }, _) => {
                let arrival = Arrival { process: Process { starts, draw }, has_lease };
                self.welcome(pool, connection, arrival);
            }
            (Message::Renew(held), Some(session)) => {
                let held = if plant == Some(Plant::LateFloor) { all_settled(held) } else { held };
                let renewal = head.pools[pool].renew(session, held, now);
                let terms = head.terms();
                if let Some((control, heard)) = &mut head.controls[pool]
                    && *control == connection
                {
                    *heard = now;
                }
                self.send_to_pool(pool, connection, Message::Renewed(renewal, terms));
                if renewal == (Renewal::NotYet { has_missed: true }) {
                    self.deliver_fences(pool);
                }
            }
            // On disk there, whichever session told it.
            (Message::Confirm(fences), Some(_)) => head.pools[pool].confirm(&fences),
            (Message::Bye, Some(session)) => {
                head.pools[pool].end(session, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn welcome(&mut self, pool: usize, connection: u64, arrival: Arrival) {
        let now = self.head_now();
        let Some(head) = &mut self.head else { return };
        let session = match head.pools[pool].connect(arrival, now) {
            Err(Refusal::Earlier) if self.plant == Some(Plant::OldHello) => {
                let process = Process { starts: u64::MAX - 1, draw: now.as_micros() as u64 };
                let _ = head.pools[pool].connect(Arrival { process, has_lease: false }, now);
                return;
            }
            Err(_) => return self.send_to_pool(pool, connection, Message::Refused),
            Ok(session) => session,
        };
        head.sessions.insert(connection, session);
        head.controls[pool] = Some((connection, now));
        let terms = head.terms();
        let terms = match self.plant {
            Some(Plant::LateFloor) => terms,
            _ => head.pools[pool].welcome(terms),
        };
        self.send_to_pool(pool, connection, Message::Welcome(terms));
        self.deliver_fences(pool);
    }

    pub(super) fn head_loses(&mut self, pool: usize, connection: u64) {
        let Some(head) = &mut self.head else { return };
        if let Some(session) = head.sessions.remove(&connection) {
            head.pools[pool].disconnect(session);
        }
        if head.controls[pool].is_some_and(|(control, _)| control == connection) {
            head.controls[pool] = None;
        }
    }

    /// The head closes the connection of a pool that has not asked for as long as its lease lasts.
    pub(super) fn look_for_silent_pools(&mut self) {
        let now = self.head_now();
        for pool in 0..self.pools.len() {
            let Some(head) = &self.head else { return };
            if let Some((connection, heard)) = head.controls[pool]
                && now.saturating_sub(heard) > head.rules.lease
            {
                self.pool_end_closes(pool, connection);
                self.head_loses(pool, connection);
            }
        }
    }

    /// The head goes on where it may.
    pub(super) fn head_goes_on(&mut self) {
        let now = self.head_now();
        let pools = self.pools.len();
        let Some(head) = &mut self.head else { return };
        // Planted: the lease as the pool counts it, without the margin for its clock.
        let early =
            if self.plant == Some(Plant::EarlyLeaseEnd) { head.rules.lease / 8 } else { Duration::ZERO };
        let model = &mut self.model;
        head.waiting.retain(|(file, epoch)| {
            let is_fenced = head.pools[pool_of(*file, pools)].is_fenced(&[(*file, *epoch)], now + early);
            if is_fenced {
                model.went_on(*file, *epoch);
            }
            !is_fenced
        });
        if now < head.grace_end {
            return;
        }
        head.floor = head.term;
        let floor = head.floor;
        if self.disk.floor < floor.0 && head.pools.iter_mut().all(|pool| pool.has_floor(floor, now + early)) {
            self.disk.floor = floor.0;
            model.is_settled(floor);
        }
    }

    pub(super) fn is_over(&self, lease: &HeadLease, now: Duration) -> bool {
        let early = match (&self.head, self.plant) {
            (Some(head), Some(Plant::EarlyLeaseEnd)) => head.rules.lease / 8,
            _ => Duration::ZERO,
        };
        lease.is_over(now + early)
    }

    pub(super) fn dial_copy(&mut self, pool: usize) -> Result<(), Failure> {
        let now = self.head_now();
        let process = Process { starts: self.pools[pool].starts(), draw: u64::MAX };
        let Some(head) = &mut self.head else { return Ok(()) };
        let has_original = head.controls[pool].is_some();
        let is_at_head = has_original && head.pools[pool].lease().heard().is_some();
        if is_at_head && self.pools[pool].is_known_to_head() {
            let arrival = Arrival { process, has_lease: false };
            if head.pools[pool].connect(arrival, now) != Err(Refusal::Copy) {
                let what = format!("a copy of pool {pool} was let in");
                return Err(Failure { check: Check::Copy, what });
            }
        }
        Ok(())
    }
}

/// Planted: the head takes it that the pool holds whichever floor.
fn all_settled(held: HeldTerms) -> HeldTerms {
    let terms = Terms { floor: Term(u64::MAX), ..held.terms };
    HeldTerms { terms, is_settled: true }
}
