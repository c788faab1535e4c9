//! The faults that calls meet, and when.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard};

use api::PoolError;
use types::PoolId;

use super::gate::Gate;
use super::request::{Call, Request};
use crate::dice::Dice;

#[derive(Clone, Debug)]
pub enum Fault {
    /// The call is not made; its caller gets the error.
    Fail(PoolError),
    /// The call is made when the gate lets it pass.
    Delay(Gate),
    /// The call is made, and is answered when the gate lets the answer pass.
    DelayAnswer(Gate),
    /// The call is made; its caller gets `PoolError::Unknown`.
    LoseAnswer,
    /// The first bytes of a write are written; its caller gets the error.
    Tear { bytes: usize, error: PoolError },
    /// The pool crashes before the call, which is then made.
    LoseUnsynced,
    /// The pool is offline from this call on.
    Disappear,
}

/// Clones are the same schedule. Calls are counted by kind. The same calls in the same order meet the same faults.
#[derive(Clone, Default)]
pub struct Schedule(Arc<Mutex<Plan>>);

pub(super) type CrashPool = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Plan {
    pool: Option<PoolId>,
    crash: Option<CrashPool>,
    is_gone: bool,
    /// The first that meets a call is taken.
    rules: Vec<Rule>,
    chance: Option<Chance>,
    counts: BTreeMap<Call, u64>,
    passed: Vec<Request>,
}

struct Rule {
    call: Call,
    /// Of the calls of this kind, the first and the one behind the last.
    from: u64,
    to: u64,
    fault: Fault,
}

struct Chance {
    dice: Dice,
    one_in: u64,
    calls: Vec<Call>,
    faults: Vec<Fault>,
}

/// The way of a call that is made.
#[derive(Debug)]
pub(super) enum Passage {
    Free,
    Delayed(Gate),
    AnsweredLate(Gate),
    Unanswered(PoolError),
    Torn { bytes: usize, error: PoolError },
}

impl Schedule {
    /// Calls of a kind meet a fault, counted from the next, which is 0: `on(Call::Sync, 1..3, fault)`.
    pub fn on(&self, call: Call, which: impl RangeBounds<u64>, fault: Fault) {
        assert!(call == Call::Write || !matches!(fault, Fault::Tear { .. }), "only a write can be torn");
        let mut plan = self.plan();
        let next = plan.count(call);
        let bound = |bound: Bound<&u64>, past: u64, open: u64| match bound {
            Bound::Included(at) => next + at + past,
            Bound::Excluded(at) => next + at + (1 - past),
            Bound::Unbounded => open,
        };
        let (from, to) = (bound(which.start_bound(), 0, next), bound(which.end_bound(), 1, u64::MAX));
        plan.rules.push(Rule { call, from, to: to.max(from), fault });
    }

    /// From now on one in so many calls of these kinds meets one of the faults, as the dice fall. None of them is `Tear`.
    pub fn roll(&self, dice: Dice, one_in: u64, calls: &[Call], faults: &[Fault]) {
        assert!(!faults.is_empty() && !faults.iter().any(|fault| matches!(fault, Fault::Tear { .. })));
        self.plan().chance = Some(Chance { dice, one_in, calls: calls.to_vec(), faults: faults.to_vec() });
    }

    /// Calls of this kind meet no fault from now on, unless the dice give them one.
    pub fn lift(&self, call: Call) {
        self.plan().rules.retain(|rule| rule.call != call);
    }

    /// The pool is there again after `Disappear`.
    pub fn reappear(&self) {
        self.plan().is_gone = false;
    }

    /// Calls of this kind so far, also those that failed.
    pub fn count(&self, call: Call) -> u64 {
        self.plan().count(call)
    }

    /// Calls that were made, in their order.
    pub fn passed(&self) -> Vec<Request> {
        self.plan().passed.clone()
    }

    /// `crash`: how the pool loses the bytes that no sync has covered, if it can.
    pub(super) fn of(pool: PoolId, crash: Option<CrashPool>) -> Schedule {
        let plan = Plan { pool: Some(pool), crash, ..Plan::default() };
        Schedule(Arc::new(Mutex::new(plan)))
    }

    pub(super) fn is_gone(&self) -> bool {
        self.plan().is_gone
    }

    pub(super) fn offline(&self) -> PoolError {
        self.plan().offline()
    }

    pub(super) fn begin(&self, request: Request) -> Result<Passage, PoolError> {
        let (passage, crash) = self.plan().begin(request)?;
        if let Some(crash) = crash {
            crash();
        }
        Ok(passage)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl Plan {
    fn count(&self, call: Call) -> u64 {
        self.counts.get(&call).copied().unwrap_or(0)
    }

    fn offline(&self) -> PoolError {
        PoolError::Offline(self.id())
    }

    fn id(&self) -> PoolId {
        self.pool.unwrap_or(PoolId(0))
    }

    /// Also whether the pool is to crash before the call is made.
    fn begin(&mut self, request: Request) -> Result<(Passage, Option<CrashPool>), PoolError> {
        let call = request.call();
        let number = self.count(call);
        self.counts.insert(call, number + 1);
        let mut crash = None;
        if self.is_gone {
            return Err(self.offline());
        }
        let passage = match self.fault(call, number) {
            None => Passage::Free,
            Some(Fault::Fail(error)) => return Err(error),
            Some(Fault::Delay(gate)) => Passage::Delayed(gate),
            Some(Fault::DelayAnswer(gate)) => Passage::AnsweredLate(gate),
            Some(Fault::LoseAnswer) => Passage::Unanswered(PoolError::Unknown(self.id())),
            Some(Fault::Tear { bytes, error }) => Passage::Torn { bytes, error },
            Some(Fault::LoseUnsynced) => {
                crash = Some(self.crash.clone().expect("the schedule is that of a pool that can crash"));
                Passage::Free
            }
            Some(Fault::Disappear) => {
                self.is_gone = true;
                return Err(self.offline());
            }
        };
        self.passed.push(request);
        Ok((passage, crash))
    }

    fn fault(&mut self, call: Call, number: u64) -> Option<Fault> {
        let meets = |rule: &&Rule| rule.call == call && (rule.from..rule.to).contains(&number);
        if let Some(rule) = self.rules.iter().find(meets) {
            return Some(rule.fault.clone());
        }
        let chance = self.chance.as_mut().filter(|chance| chance.calls.contains(&call))?;
        if chance.dice.below(chance.one_in) != 0 {
            return None;
        }
        let side = chance.dice.below(chance.faults.len() as u64);
        chance.faults.get(side as usize).cloned()
    }
}
