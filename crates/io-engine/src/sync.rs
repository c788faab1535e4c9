//! Syncs of one file coalesce: one that is asked for while another runs waits for the next, and one run answers all
//! that came before it began.
//!
//! Invariant: a waiter is answered by a run that began after it asked, so everything written before it is covered.

use api::PoolError;
use parking_lot::Mutex;

/// Told the outcome of the run that covered it.
pub type Waiter = Box<dyn FnOnce(Result<(), PoolError>) + Send>;

#[derive(Default)]
pub struct SyncGate {
    /// Locked to queue and to take waiters; never while a sync runs or a waiter is told.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    waiting: Vec<Waiter>,
}

/// A caller that gets `Lead` must see to it that `SyncGate::run` or `SyncGate::abandon` is called.
#[must_use]
pub enum Asked {
    Lead,
    /// A run is under way; its leader will answer this waiter too.
    Queued,
    /// Too many wait; the caller gets the waiter back to report that.
    Full(Waiter),
}

impl SyncGate {
    /// Waiters for one file; more than any number of sessions would have in flight.
    pub const WAITING_MAX: usize = 16 << 10;

    pub fn ask(&self, waiter: Waiter) -> Asked {
        let mut state = self.state.lock();
        if state.waiting.len() >= Self::WAITING_MAX {
            return Asked::Full(waiter);
        }
        state.waiting.push(waiter);
        if std::mem::replace(&mut state.running, true) { Asked::Queued } else { Asked::Lead }
    }

    /// Syncs until nobody waits. The caller answers the last waiters itself, after it has released the file: a waiter
    /// may want to close the file once the sync is done.
    pub fn run(&self, mut sync: impl FnMut() -> Result<(), PoolError>) -> Answers {
        let mut reset = Reset(Some(self));
        let mut waiting = std::mem::take(&mut self.state.lock().waiting);
        loop {
            let outcome = sync();
            let answers = Answers { waiting, outcome };
            {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    state.running = false;
                    reset.0 = None;
                    return answers;
                }
                waiting = std::mem::take(&mut state.waiting);
            }
            answers.tell();
        }
    }

    /// The leader got no thread to run in: answers all waiters with `error`.
    pub fn abandon(&self, error: &PoolError) {
        let waiting = {
            let mut state = self.state.lock();
            state.running = false;
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting {
            waiter(Err(error.clone()));
        }
    }
}

/// Waiters, and the outcome to answer them with.
#[must_use]
pub struct Answers {
    waiting: Vec<Waiter>,
    outcome: Result<(), PoolError>,
}

impl Answers {
    pub fn tell(self) {
        for waiter in self.waiting {
            waiter(self.outcome.clone());
        }
    }
}

/// A sync that panics must not leave the gate shut for ever; the waiters are dropped, which their callers see.
struct Reset<'a>(Option<&'a SyncGate>);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            let waiting = {
                let mut state = gate.state.lock();
                state.running = false;
                std::mem::take(&mut state.waiting)
            };
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use types::PoolId;

    use super::*;

    fn count(answers: &Arc<AtomicUsize>) -> Waiter {
        let answers = Arc::clone(answers);
        Box::new(move |outcome| {
            assert!(outcome.is_ok());
            answers.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn syncs_asked_while_one_runs_are_answered_by_the_next_and_by_one() {
        let gate = SyncGate::default();
        let answers = Arc::new(AtomicUsize::new(0));
        assert!(matches!(gate.ask(count(&answers)), Asked::Lead));
        let mut runs = 0;
        gate.run(|| {
            runs += 1;
            if runs == 1 {
                for _ in 0..10 {
                    assert!(matches!(gate.ask(count(&answers)), Asked::Queued));
                }
                assert_eq!(answers.load(Ordering::SeqCst), 0);
            } else {
                assert_eq!(
                    answers.load(Ordering::SeqCst),
                    1,
                    "the first run answers only waiters that came before it"
                );
            }
            Ok(())
        })
        .tell();
        assert_eq!((runs, answers.load(Ordering::SeqCst)), (2, 11));
        assert!(matches!(gate.ask(count(&answers)), Asked::Lead));
    }

    #[test]
    fn a_gate_whose_leader_finds_no_thread_tells_all_and_opens_again() {
        let gate = SyncGate::default();
        let told = Arc::new(AtomicUsize::new(0));
        for lead in [true, false] {
            let told = Arc::clone(&told);
            let waiter = Box::new(move |outcome: Result<(), PoolError>| {
                assert!(matches!(outcome, Err(PoolError::Busy(_))));
                told.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(matches!(gate.ask(waiter), Asked::Lead), lead);
        }
        gate.abandon(&PoolError::Busy(PoolId(1)));
        assert_eq!(told.load(Ordering::SeqCst), 2);
        assert!(matches!(gate.ask(count(&told)), Asked::Lead));
    }

    #[test]
    fn a_sync_that_panics_does_not_shut_the_gate() {
        let gate = SyncGate::default();
        let answers = Arc::new(AtomicUsize::new(0));
        assert!(matches!(gate.ask(count(&answers)), Asked::Lead));
        let run = std::panic::AssertUnwindSafe(|| gate.run(|| panic!("expected by this test")).tell());
        assert!(std::panic::catch_unwind(run).is_err());
        assert!(matches!(gate.ask(count(&answers)), Asked::Lead));
    }

    #[test]
    fn waiters_are_bounded() {
        let gate = SyncGate::default();
        assert!(matches!(gate.ask(Box::new(|_| {})), Asked::Lead));
        for _ in 1..SyncGate::WAITING_MAX {
            assert!(matches!(gate.ask(Box::new(|_| {})), Asked::Queued));
        }
        assert!(matches!(gate.ask(Box::new(|_| {})), Asked::Full(_)));
    }
}
