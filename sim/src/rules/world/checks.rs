//! The checks that are asked at any time.

use std::time::Duration;

use api::Term;
use cluster_state::{HeadLease, Standing};
use types::{Epoch, FileId};

use super::World;
use crate::rules::Plant;
use crate::rules::model::{Check, Failure, Ticket};
use crate::rules::plan::FILES;

/// A pool that no fault concerns, under a head that goes on, is well again within that time. It waits 5 s for an answer before
/// it dials again.
const CALM: Duration = Duration::from_secs(14);

impl World<'_> {
    pub(super) fn go_on(&mut self, is_look: bool) -> Result<(), Failure> {
        self.head_goes_on(is_look)?;
        if let Some(head) = &self.head {
            let now = self.head_now();
            for (pool, host) in self.pools.iter().enumerate() {
                if self.is_over(head.pool(pool).lease(), now) && host.holds_lease(self.pool_now(pool)) {
                    let what = "holds a lease that the head takes for over";
                    return Err(Failure::of(Check::Lease, pool, what));
                }
            }
        }
        if is_look {
            for pool in 0..self.pools.len() {
                self.look_at_lease(pool)?;
                self.look_at_calm_pool(pool)?;
            }
        }
        Ok(())
    }

    fn look_at_lease(&self, pool: usize) -> Result<(), Failure> {
        let Some(head) = &self.head else { return Ok(()) };
        let (lease, now) = (head.pool(pool).lease(), self.head_now());
        if lease.missed_count() > FILES {
            let what = format!("misses {} fences of {FILES} files", lease.missed_count());
            return Err(Failure::of(Check::Bound, pool, what));
        }
        if lease.is_heard(now) != head.is_heard(pool, now) {
            let what = format!("is heard: {}, says the lease", lease.is_heard(now));
            return Err(Failure::of(Check::Session, pool, what));
        }
        Ok(())
    }

    pub(super) fn is_over(&self, lease: &HeadLease, now: Duration) -> bool {
        let early = match (&self.head, self.plant) {
            (Some(head), Some(Plant::EarlyLeaseEnd)) => head.early(),
            _ => Duration::ZERO,
        };
        lease.is_over(now + early)
    }

    /// `Err`: why it is not well.
    fn is_well(&self, pool: usize) -> Result<(), String> {
        let Some(head) = &self.head else { return Err("has no head".to_owned()) };
        let (at_head, now) = (head.pool(pool), self.head_now());
        if at_head.standing(now) != Standing::Ready {
            return Err(format!("is {:?}", at_head.standing(now)));
        }
        if at_head.lease().missed_count() > 0 {
            return Err(format!("misses {} fences", at_head.lease().missed_count()));
        }
        if !self.pools[pool].holds_lease(self.pool_now(pool)) {
            return Err("holds no lease".to_owned());
        }
        Ok(())
    }

    /// Also while faults come elsewhere.
    fn look_at_calm_pool(&mut self, pool: usize) -> Result<(), Failure> {
        let Some(head) = &self.head else {
            self.pools[pool].disturb(self.now);
            return Ok(());
        };
        let is_calm = self.pools[pool].is_undisturbed(self.now) && self.network.is_calm(pool, self.now);
        match self.is_well(pool) {
            Err(why) if is_calm => {
                let since = self.pools[pool].disturbed().max(head.started_at());
                if self.now.saturating_sub(since) > CALM {
                    return Err(Failure::of(
                        Check::Wait,
                        pool,
                        format!("{why}, {CALM:?} after its last fault"),
                    ));
                }
            }
            _ => self.pools[pool].disturb(self.now),
        }
        Ok(())
    }

    pub(super) fn has_recovered(&self) -> Result<(), Failure> {
        for pool in 0..self.pools.len() {
            self.is_well(pool).map_err(|why| Failure::of(Check::Wait, pool, why))?;
        }
        let Some(head) = &self.head else { return Ok(()) };
        if let Some(what) = head.waits_for() {
            return Err(Failure { check: Check::Wait, pool: None, what });
        }
        for file in (0..FILES as u64).map(FileId) {
            let pool = self.pool_of(file);
            let ticket = Ticket { file, epoch: self.disk.epoch(file), term: head.term() };
            if !self.pools[pool].honours(ticket, self.pool_now(pool)) {
                return Err(Failure::of(
                    Check::Refusal,
                    pool,
                    format!("does not honour the newest {ticket:?}"),
                ));
            }
        }
        Ok(())
    }

    /// A client may bring each ticket that was ever given, at any time. Asked when the head has gone on, and when the pool has
    /// got a lease.
    pub(super) fn judge_tickets(&self, pool: usize) -> Result<(), Failure> {
        let (host, now) = (&self.pools[pool], self.pool_now(pool));
        if !host.holds_lease(now) {
            return Ok(());
        }
        for file in self.files_of(pool) {
            for ticket in self.model.last_void(file).filter(|ticket| host.honours(*ticket, now)) {
                self.model.judge(pool, "would honour", ticket)?;
            }
        }
        Ok(())
    }

    /// A write by a ticket of the floor may wait at the pool for the lease that it gets.
    pub(super) fn judge_floor(&self, pool: usize, floor: Term) -> Result<(), Failure> {
        let lowest = Ticket { file: FileId(0), epoch: Epoch(u32::MAX), term: floor };
        self.model.judge(pool, "gets a lease, and may then do", lowest)
    }

    /// Writes that began in time may still be under way at a pool that the head has passed over, as long as it gets no lease.
    pub(super) fn judge_writes(&self, pool: usize) -> Result<(), Failure> {
        let mut under_way = self.pools[pool].writes_under_way();
        under_way.try_for_each(|ticket| self.model.judge(pool, "may write on, and has under way", ticket))
    }
}

/// The lease as the head counts it.
pub(super) fn at_head(lease: Duration) -> Duration {
    lease + lease / 20
}

/// Of an epoch that no fence is above.
pub(super) fn is_fenced(ticket: Ticket, fences: &[Epoch; FILES]) -> bool {
    ticket.epoch < fences[crate::rules::model::place(ticket.file)]
}
