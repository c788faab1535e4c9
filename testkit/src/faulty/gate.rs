//! Calls that wait until the test lets them pass.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// Clones are the same gate. It lets calls pass in the order in which they came, on the thread that opens it.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<Queue>>);

type Go = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// `None`: every call passes.
    left: Option<u64>,
    waiting: VecDeque<Go>,
    passed: u64,
}

impl Gate {
    pub fn open() -> Gate {
        Gate::default()
    }

    pub fn shut() -> Gate {
        let gate = Gate::default();
        gate.let_pass(0);
        gate
    }

    /// From now on so many calls pass, and others wait.
    pub fn let_pass(&self, calls: u64) {
        self.queue().left = Some(calls);
        self.drain();
    }

    pub fn let_all_pass(&self) {
        self.queue().left = None;
        self.drain();
    }

    /// Lets the calls pass that wait now, and no others.
    pub fn let_waiting_pass(&self) {
        self.let_pass(self.waiting());
    }

    /// Calls that have passed.
    pub fn passed(&self) -> u64 {
        self.queue().passed
    }

    pub fn waiting(&self) -> u64 {
        self.queue().waiting.len() as u64
    }

    /// Calls `go` when the gate lets it pass.
    pub(super) fn enter(&self, go: impl FnOnce() + Send + 'static) {
        self.queue().waiting.push_back(Box::new(go));
        self.drain();
    }

    fn drain(&self) {
        loop {
            // A call may enter the gate again, so none goes under the lock.
            let next = self.queue().next();
            match next {
                Some(go) => go(),
                None => return,
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl Queue {
    fn next(&mut self) -> Option<Go> {
        if self.left == Some(0) {
            return None;
        }
        let go = self.waiting.pop_front()?;
        self.left = self.left.map(|left| left - 1);
        self.passed += 1;
        Some(go)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue();
        write!(f, "Gate {{ left: {:?}, waiting: {} }}", queue.left, queue.waiting.len())
    }
}
