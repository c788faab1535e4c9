//! The queue of the committer. If all items fit into one group, they are taken in order of arrival; otherwise callers
//! take turns (`turns`).
//!
//! Places are bounded, and no caller gets all of them: a caller that has more than `SHARE` times as many as are left is
//! refused. One caller alone gets nearly all, and each further caller still finds some.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::turns::{Caller, Order, Turns};
use super::{Refused, Taken};

const SHARE: usize = 8;

pub struct FairQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    len_max: usize,
}

struct State<T> {
    /// Not sorted into `turns`, which is needed only when more waits than one group takes.
    arrived: VecDeque<(Order, T)>,
    turns: Turns<T>,
    /// Of both.
    len: usize,
    /// How many of them each caller has.
    of_caller: HashMap<Caller, usize>,
    /// The taker need not be woken for less.
    wake_len: usize,
    is_closed: bool,
    is_nudged: bool,
    /// The taker is not done with what it took.
    is_taken: bool,
}

impl<T> FairQueue<T> {
    pub fn new(len_max: usize) -> FairQueue<T> {
        let state = State {
            arrived: VecDeque::new(),
            turns: Turns::default(),
            len: 0,
            of_caller: HashMap::new(),
            wake_len: 1,
            is_closed: false,
            is_nudged: false,
            is_taken: false,
        };
        FairQueue { state: Mutex::new(state), changed: Condvar::new(), len_max }
    }

    pub fn push(&self, order: Order, item: T) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let free = self.len_max.saturating_sub(state.len);
        if state.is_closed || free == 0 {
            return Err(Refused);
        }
        let of_caller = state.of_caller.entry(order.caller()).or_insert(0);
        if *of_caller >= free.saturating_mul(SHARE) {
            return Err(Refused);
        }
        *of_caller += 1;
        state.arrived.push_back((order, item));
        state.len += 1;
        let is_awaited = state.len >= state.wake_len;
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.state.lock().len
    }

    /// Nothing waits or is under way, so a caller that comes now overtakes nobody.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.len == 0 && !state.is_taken && !state.is_closed
    }

    /// Waits until so many are there, or for so long, or until nothing more will come; how many there are then.
    pub fn wait_for_len(&self, len: usize, time_max: Duration) -> usize {
        let end = Instant::now() + time_max;
        let mut state = self.state.lock();
        state.wake_len = len;
        while state.len < len && !state.is_closed {
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.wake_len = 1;
        state.len
    }

    /// Waits for items, a nudge, the end or `timeout`, then takes at most `group_len_max` of what is there.
    pub fn take(&self, group_len_max: usize, timeout: Option<Duration>) -> Taken<T> {
        let mut state = self.state.lock();
        while state.len == 0 && !state.is_closed && !state.is_nudged {
            match timeout {
                None => self.changed.wait(&mut state),
                Some(timeout) => {
                    if self.changed.wait_for(&mut state, timeout).timed_out() {
                        break;
                    }
                }
            }
        }
        state.is_nudged = false;
        let items = state.take(group_len_max);
        state.is_taken = !items.is_empty();
        Taken { items, is_closed: state.is_closed }
    }

    /// The taken items are done.
    pub fn finish(&self) {
        self.state.lock().is_taken = false;
    }

    /// Wakes a taker without an item: its timeout may have to be another now.
    pub fn nudge(&self) {
        self.state.lock().is_nudged = true;
        self.changed.notify_one();
    }

    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Closes and throws away what waits: the taker died.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let thrown = (std::mem::take(&mut state.arrived), std::mem::take(&mut state.turns));
        (state.len, state.of_caller) = (0, HashMap::new());
        drop(state);
        drop(thrown);
        self.changed.notify_all();
    }
}

impl<T> State<T> {
    fn take(&mut self, group_len_max: usize) -> Vec<T> {
        if self.turns.is_empty() && self.arrived.len() <= group_len_max {
            self.len = 0;
            self.of_caller.clear();
            return self.arrived.drain(..).map(|(_, item)| item).collect();
        }
        for (order, item) in self.arrived.drain(..) {
            self.turns.add(order, item);
        }
        let mut items = Vec::with_capacity(group_len_max.min(self.len));
        while items.len() < group_len_max
            && let Some((caller, item)) = self.turns.take()
        {
            items.push(item);
            self.len -= 1;
            if let Some(count) = self.of_caller.get_mut(&caller) {
                *count -= 1;
                if *count == 0 {
                    self.of_caller.remove(&caller);
                }
            }
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use types::FileId;

    use super::*;

    fn by(user: u32) -> Order {
        Order::Turn { caller: Caller::User(user), dir: FileId(1) }
    }

    #[test]
    fn items_of_one_group_are_taken_in_order_of_arrival() {
        let queue = FairQueue::new(8);
        for (user, item) in [(1, 'a'), (1, 'b'), (2, 'c'), (1, 'd')] {
            queue.push(by(user), item).unwrap();
        }
        queue.push(Order::Behind, 'e').unwrap();
        assert_eq!(queue.take(8, None).items, ['a', 'b', 'c', 'd', 'e']);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn one_operation_does_not_wait_for_ten_thousand_of_another_caller() {
        let queue = FairQueue::new(20_000);
        for number in 0..10_000 {
            queue.push(by(1), (1, number)).unwrap();
        }
        queue.push(by(2), (2, 0)).unwrap();
        assert!(queue.take(64, None).items.contains(&(2, 0)));
        // Also one that comes when turns are being taken already.
        queue.push(by(3), (3, 0)).unwrap();
        let second = queue.take(64, None).items;
        assert!(second.contains(&(3, 0)));
        let left: Vec<_> =
            std::iter::from_fn(|| (queue.len() > 0).then(|| queue.take(64, None).items)).collect();
        let of_first: Vec<_> =
            second.into_iter().chain(left.into_iter().flatten()).filter(|item| item.0 == 1).collect();
        assert_eq!(of_first.last(), Some(&(1, 9_999)));
        assert!(of_first.is_sorted(), "a caller's own order is kept");
        assert!(queue.state.lock().of_caller.is_empty());
    }

    #[test]
    fn one_caller_does_not_get_all_places() {
        let queue = FairQueue::new(900);
        let pushed = |user| std::iter::from_fn(|| queue.push(by(user), user).ok()).count();
        assert_eq!(pushed(1), 800);
        assert!(pushed(2) > 80, "who comes second finds some");
        assert!((3..10).all(|user| queue.push(by(user), user).is_ok()), "and so does who comes later");
        assert_eq!(queue.push(by(1), 1), Err(Refused));
    }

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_gives_what_it_has() {
        let queue = FairQueue::new(2);
        assert_eq!([1, 2, 3].map(|item| queue.push(by(1), item)), [Ok(()), Ok(()), Err(Refused)]);
        assert_eq!(queue.take(1, None).items, [1]);
        assert_eq!(queue.push(by(1), 3), Ok(()));
        queue.close();
        assert_eq!(queue.push(by(1), 4), Err(Refused));
        let taken = queue.take(8, None);
        assert_eq!((taken.items, taken.is_closed), (vec![2, 3], true));
        assert!(queue.take(8, None).items.is_empty());
    }

    #[test]
    fn it_is_idle_when_nothing_waits_and_what_was_taken_is_done() {
        let queue = FairQueue::new(8);
        assert!(queue.is_idle());
        queue.push(by(1), 1).unwrap();
        assert!(!queue.is_idle());
        queue.take(8, None);
        assert!(!queue.is_idle(), "what was taken is under way");
        queue.finish();
        assert!(queue.is_idle());
        queue.close();
        assert!(!queue.is_idle());
    }

    #[test]
    fn waiting_for_more_ends_with_enough_and_with_the_end() {
        let queue = FairQueue::new(8);
        let hour = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|item| queue.push(by(1), item).unwrap()));
            assert_eq!(queue.wait_for_len(3, hour), 3);
            scope.spawn(|| queue.close());
            assert_eq!(queue.wait_for_len(4, hour), 3);
        });
        assert_eq!(FairQueue::<()>::new(1).wait_for_len(1, Duration::ZERO), 0);
    }
}
