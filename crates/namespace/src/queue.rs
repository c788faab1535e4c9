//! Bounded queues between callers and the threads that own database connections: in order for readers (`Queue`), fair
//! for the committer (`FairQueue`).
//!
//! Handing in never waits: a full or closed queue refuses at once. Taking waits, and takes all that is there.

mod fair;
mod turns;

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub use fair::FairQueue;
pub use turns::{Caller, Order};

pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    len_max: usize,
}

struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

/// The queue is full or closed.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

pub struct Taken<T> {
    pub items: Vec<T>,
    /// Nothing will come any more, though what was handed in before may still be there.
    pub is_closed: bool,
}

impl<T> Queue<T> {
    pub fn new(len_max: usize) -> Queue<T> {
        let state = State { items: VecDeque::new(), is_closed: false };
        Queue { state: Mutex::new(state), changed: Condvar::new(), len_max }
    }

    pub fn push(&self, item: T) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if state.is_closed || state.items.len() >= self.len_max {
            return Err(Refused);
        }
        state.items.push_back(item);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for items, the end or `timeout`, then takes at most `len_max` of what is there.
    pub fn take(&self, len_max: usize, timeout: Option<Duration>) -> Taken<T> {
        let mut state = self.state.lock();
        while state.items.is_empty() && !state.is_closed {
            match timeout {
                None => self.changed.wait(&mut state),
                Some(timeout) => {
                    if self.changed.wait_for(&mut state, timeout).timed_out() {
                        break;
                    }
                }
            }
        }
        let len = state.items.len().min(len_max);
        Taken { items: state.items.drain(..len).collect(), is_closed: state.is_closed }
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_at_once() {
        let queue = Queue::new(2);
        assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(Refused)));
        assert_eq!(queue.take(8, None).items, [1, 2]);
        assert_eq!(queue.push(3), Ok(()));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::new(2);
        queue.push(1).unwrap();
        queue.close();
        assert_eq!(queue.push(2), Err(Refused));
        let taken = queue.take(8, None);
        assert!(taken.is_closed);
        assert_eq!(taken.items, [1]);
        assert!(queue.take(8, None).items.is_empty());
    }

    #[test]
    fn no_more_is_taken_than_asked_for() {
        let queue = Queue::new(8);
        for item in 0..5 {
            queue.push(item).unwrap();
        }
        assert_eq!(queue.take(3, None).items, [0, 1, 2]);
        assert_eq!(queue.take(3, None).items, [3, 4]);
    }
}
