//! A bounded queue of jobs and the threads that run them.
//!
//! Threads are started when a job finds none idle, up to a bound, and stay. A full queue refuses; it never waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::cpu;
use crate::latency::{Histogram, Times};

pub type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Full,
    Stopped,
}

struct Queued {
    job: Job,
    since: Instant,
}

pub struct Queue {
    name: String,
    threads_max: usize,
    len_max: usize,
    state: Mutex<State>,
    work: Condvar,
    waits: Histogram,
}

/// The work of a lane at one moment, and the waits since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    pub threads_max: usize,
    /// Threads that run a job.
    pub busy: usize,
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// The most that ever waited.
    pub waiting_max: usize,
    /// How long jobs waited for a thread.
    pub waits: Times,
    /// CPU time of the threads.
    pub cpu: Duration,
}

struct State {
    jobs: VecDeque<Queued>,
    waiting_max: usize,
    idle: usize,
    /// Woken for a job that they have not yet taken; keeps two jobs from counting on one idle thread.
    woken: usize,
    threads: Vec<JoinHandle<()>>,
    /// CPU time of the threads that were asked to end.
    ended_cpu: Duration,
    stopping: bool,
}

impl Queue {
    pub fn new(name: String, threads_max: usize, len_max: usize) -> Arc<Queue> {
        assert!(threads_max > 0 && len_max > 0, "a queue without threads or room answers nobody");
        let state = State {
            jobs: VecDeque::new(),
            waiting_max: 0,
            idle: 0,
            woken: 0,
            threads: Vec::new(),
            ended_cpu: Duration::ZERO,
            stopping: false,
        };
        let waits = Histogram::default();
        Arc::new(Queue { name, threads_max, len_max, state: Mutex::new(state), work: Condvar::new(), waits })
    }

    pub fn load(&self) -> QueueLoad {
        let state = self.state.lock();
        QueueLoad {
            threads_max: self.threads_max,
            busy: state.threads.len().saturating_sub(state.idle),
            waiting: state.jobs.len(),
            waiting_max: state.waiting_max,
            waits: self.waits.times(),
            cpu: state.cpu(),
        }
    }

    pub fn push(self: &Arc<Queue>, job: Job) -> Result<(), Refused> {
        let queued = Queued { job, since: Instant::now() };
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        if state.jobs.len() >= self.len_max {
            return Err(Refused::Full);
        }
        if state.idle > state.woken {
            state.woken += 1;
            state.push(queued);
            drop(state);
            self.work.notify_one();
            return Ok(());
        }
        if state.threads.len() < self.threads_max {
            let queue = Arc::clone(self);
            match std::thread::Builder::new().name(self.name.clone()).spawn(move || queue.serve()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    tracing::error!(queue = self.name, %error, "cannot start a disk thread");
                    return Err(Refused::Full);
                }
                // The threads there are will come to it.
                Err(_) => {}
            }
        }
        state.push(queued);
        Ok(())
    }

    /// Refuses new jobs, runs those that are queued, and waits for the threads to end.
    pub fn stop(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.ended_cpu = state.cpu();
            std::mem::take(&mut state.threads)
        };
        self.work.notify_all();
        let own = std::thread::current().id();
        for thread in threads {
            // The last owner of an engine may be a job: a thread cannot wait for itself.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!(queue = self.name, "disk thread panicked");
            }
        }
    }

    fn serve(&self) {
        while let Some(job) = self.take() {
            // A job that panics drops its answer, which its caller sees; the thread goes on for the others.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(queue = self.name, "disk job panicked");
            }
        }
    }

    fn take(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(Queued { job, since }) = state.jobs.pop_front() {
                drop(state);
                self.waits.record(since.elapsed(), 1);
                return Some(job);
            }
            if state.stopping {
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
            state.woken = state.woken.saturating_sub(1);
        }
    }
}

impl State {
    fn cpu(&self) -> Duration {
        self.threads.iter().map(cpu::time_of).fold(self.ended_cpu, |sum, cpu| sum + cpu)
    }

    fn push(&mut self, queued: Queued) {
        self.jobs.push_back(queued);
        self.waiting_max = self.waiting_max.max(self.jobs.len());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_full_queue_refuses_and_loses_none_of_its_jobs() {
        let queue = Queue::new("test".to_owned(), 1, 2);
        let (open, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        queue
            .push(Box::new(move || {
                started.send(()).unwrap();
                let _ = gate.recv();
            }))
            .unwrap();
        running.recv().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = || -> Job {
            let ran = Arc::clone(&ran);
            Box::new(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            })
        };
        queue.push(count()).unwrap();
        queue.push(count()).unwrap();
        assert_eq!(queue.push(count()), Err(Refused::Full));
        let load = queue.load();
        assert_eq!((load.threads_max, load.busy, load.waiting, load.waits.count()), (1, 1, 2, 1));
        drop(open);
        queue.stop();
        let load = queue.load();
        assert_eq!((load.waiting, load.waiting_max, load.waits.count()), (0, 2, 3));
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        assert_eq!(queue.push(count()), Err(Refused::Stopped));
    }

    #[test]
    fn the_cpu_time_of_the_threads_is_known_while_they_run_and_after_they_ended() {
        let queue = Queue::new("test".to_owned(), 2, 4);
        assert_eq!(queue.load().cpu, Duration::ZERO);
        let (ran, done) = mpsc::channel();
        queue.push(Box::new(move || ran.send(()).unwrap())).unwrap();
        done.recv().unwrap();
        let while_running = queue.load().cpu;
        queue.stop();
        assert!(while_running > Duration::ZERO && queue.load().cpu >= while_running);
    }

    #[test]
    fn jobs_that_wait_for_each_other_get_a_thread_each() {
        let queue = Queue::new("test".to_owned(), 4, 16);
        let barrier = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..3 {
            for _ in 0..4 {
                let barrier = Arc::clone(&barrier);
                queue
                    .push(Box::new(move || {
                        barrier.wait();
                    }))
                    .unwrap();
            }
        }
        queue.stop();
    }

    #[test]
    fn a_job_that_panics_leaves_the_thread_to_the_next() {
        let queue = Queue::new("test".to_owned(), 1, 4);
        let (ran, done) = mpsc::channel();
        queue.push(Box::new(|| panic!("expected by this test"))).unwrap();
        queue.push(Box::new(move || ran.send(()).unwrap())).unwrap();
        done.recv().unwrap();
        queue.stop();
    }
}
