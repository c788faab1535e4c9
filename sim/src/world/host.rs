//! A process on a host: its tasks, which stand still and end together, and its clock.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cluster::{Host, Tasks};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use types::{Clock, Timestamp};

const TASKS_MIN: usize = 64;

#[derive(Default)]
pub struct SimHost(Mutex<HostState>);

#[derive(Default)]
struct HostState {
    has_ended: bool,
    stands_still: bool,
    /// Tasks that were to be polled meanwhile.
    waiting: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    /// Tasks that have ended are forgotten at that many.
    tasks_max: usize,
    /// How often it has stood still.
    pauses: u64,
}

impl SimHost {
    pub fn new() -> Arc<SimHost> {
        Arc::default()
    }

    pub fn tasks(self: &Arc<Self>) -> Tasks {
        Tasks::of_host(Arc::clone(self) as _)
    }

    pub fn pause(&self) {
        let mut state = self.0.lock();
        state.stands_still = true;
        state.pauses += 1;
    }

    pub fn resume(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.stands_still = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    pub fn stands_still(&self) -> bool {
        self.0.lock().stands_still
    }

    pub fn pauses(&self) -> u64 {
        self.0.lock().pauses
    }

    /// Its tasks end the next time that the runtime looks at them.
    pub fn end(&self) {
        let tasks = {
            let mut state = self.0.lock();
            state.has_ended = true;
            state.waiting.clear();
            state.tasks.clone()
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    pub fn tasks_left(&self) -> usize {
        self.0.lock().tasks.iter().filter(|task| !task.is_finished()).count()
    }
}

impl Host for SimHost {
    fn poll_runs(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.has_ended {
            return Poll::Pending;
        }
        if !state.stands_still {
            return Poll::Ready(());
        }
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }

    fn has_begun(&self, task: AbortHandle) {
        let mut state = self.0.lock();
        if state.tasks.len() >= state.tasks_max.max(TASKS_MIN) {
            state.tasks.retain(|task| !task.is_finished());
            state.tasks_max = 2 * state.tasks.len();
        }
        if state.has_ended {
            task.abort();
        }
        state.tasks.push(task);
    }
}

/// A clock that is fast or slow.
pub struct SkewedClock {
    began: Instant,
    /// In parts of a million.
    rate: u64,
}

impl SkewedClock {
    pub fn new(began: Instant, rate: u64) -> Arc<SkewedClock> {
        Arc::new(SkewedClock { began, rate })
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        let seconds = i64::try_from(self.monotonic().as_secs()).unwrap_or(0);
        Timestamp::new(1_800_000_000 + seconds, 0).expect("no nanoseconds are given")
    }

    /// It began an hour ago.
    fn monotonic(&self) -> Duration {
        let passed = u128::from(self.rate) * self.began.elapsed().as_micros() / 1_000_000;
        Duration::from_secs(3_600) + Duration::from_micros(passed as u64)
    }
}
