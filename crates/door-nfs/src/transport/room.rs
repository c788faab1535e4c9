//! Bytes that connections share. An address has no more than is free (see [`types::shares`]) and waits for more, behind
//! those that it waits for already.
//!
//! A network that has nothing gets a little in any case, and more from a quarter that is kept for such networks. It waits
//! if that is used up: many hosts that each hold one long reply must not overrun the bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use types::shares::Shares;

/// A network that has nothing gets so much in any case.
const LITTLE_BYTES: u64 = 32 << 10;
/// Part of the bound that is kept beside it for networks that have nothing.
const KEPT_DIVISOR: u64 = 4;
/// A holder of bytes gives them back, or is cut, long before that.
const WAIT_MAX: Duration = Duration::from_secs(600);

pub(crate) struct Room {
    bytes_max: u64,
    /// Held for a count, and to grant what has become free.
    state: Mutex<State>,
}

struct State {
    shares: Shares,
    /// Of each address that waits, in the order of asking. An entry goes before its receiver does.
    waiting: HashMap<IpAddr, BTreeMap<u64, Waiter>>,
    /// The addresses in `waiting`, once each.
    turns: VecDeque<IpAddr>,
    asked: u64,
}

struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<Held>,
}

/// Bytes of a room; given back when it is dropped.
pub(crate) struct Held {
    room: Arc<Room>,
    address: IpAddr,
    bytes: u64,
}

impl Room {
    pub fn new(bytes_max: u64) -> Arc<Room> {
        let state = State {
            shares: Shares::new(bytes_max),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            asked: 0,
        };
        Arc::new(Room { bytes_max, state: Mutex::new(state) })
    }

    pub fn bytes(&self) -> u64 {
        self.state.lock().shares.total()
    }

    /// Waits for so many bytes. `None`: `given_up` was ready first, or the wait took too long.
    pub async fn take(
        self: &Arc<Self>,
        address: IpAddr,
        bytes: u64,
        given_up: impl Future<Output = ()>,
    ) -> Option<Held> {
        let address = address.to_canonical();
        let mut waiting = {
            let mut state = self.state.lock();
            if !state.waiting.contains_key(&address) && self.has_room(&state.shares, address, bytes) {
                return Some(self.hold(&mut state, address, bytes));
            }
            self.enqueue(&mut state, address, bytes)
        };
        tokio::select! {
            held = &mut waiting.granted => held.ok(),
            () = given_up => None,
            () = tokio::time::sleep(WAIT_MAX) => None,
        }
    }

    fn has_room(&self, shares: &Shares, address: IpAddr, bytes: u64) -> bool {
        if shares.may_have(address, bytes) {
            return true;
        }
        let total = shares.total();
        let is_kept = total == 0 || total + bytes <= self.bytes_max + self.bytes_max / KEPT_DIVISOR;
        !shares.has_any(address) && (bytes <= LITTLE_BYTES || is_kept)
    }

    fn hold(self: &Arc<Self>, state: &mut State, address: IpAddr, bytes: u64) -> Held {
        state.shares.take(address, bytes);
        Held { room: Arc::clone(self), address, bytes }
    }

    fn enqueue(self: &Arc<Self>, state: &mut State, address: IpAddr, bytes: u64) -> Waiting {
        let (sender, granted) = oneshot::channel();
        let number = state.asked;
        state.asked += 1;
        let of_address = state.waiting.entry(address).or_default();
        if of_address.is_empty() {
            state.turns.push_back(address);
        }
        of_address.insert(number, Waiter { bytes, granted: sender });
        Waiting { room: Arc::clone(self), address, number, granted }
    }

    /// Grants what there is room for now: one wait of each address in turn, until none of them can be granted.
    fn grant(self: &Arc<Self>, state: &mut State) {
        let mut refused = 0;
        while refused < state.turns.len() {
            let address = state.turns.pop_front().expect("it is longer than the count");
            let of_address = state.waiting.get(&address).expect("an address with a turn waits");
            let bytes =
                of_address.first_key_value().expect("an address that waits waits for something").1.bytes;
            if !self.has_room(&state.shares, address, bytes) {
                state.turns.push_back(address);
                refused += 1;
                continue;
            }
            refused = 0;
            let held = self.hold(state, address, bytes);
            let of_address = state.waiting.get_mut(&address).expect("it was there");
            let (_, waiter) = of_address.pop_first().expect("it was there");
            if of_address.is_empty() {
                state.waiting.remove(&address);
            } else {
                state.turns.push_back(address);
            }
            let is_sent = waiter.granted.send(held).is_ok();
            assert!(is_sent, "an entry goes before its receiver does");
        }
    }
}

/// A place in the queue, left when it is dropped.
struct Waiting {
    room: Arc<Room>,
    address: IpAddr,
    number: u64,
    granted: oneshot::Receiver<Held>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        let Some(of_address) = state.waiting.get_mut(&self.address) else { return };
        if of_address.remove(&self.number).is_none() {
            return;
        }
        if of_address.is_empty() {
            state.waiting.remove(&self.address);
            state.turns.retain(|address| *address != self.address);
        }
        // Those behind it may want less.
        self.room.grant(&mut state);
    }
}

impl Held {
    /// From here on it is so many, with or without room for them.
    pub fn resize(&mut self, bytes: u64) {
        let mut state = self.room.state.lock();
        // The new bytes are counted first, or a host that keeps some would be taken for one without any.
        state.shares.take(self.address, bytes);
        state.shares.give_back(self.address, self.bytes);
        self.bytes = bytes;
        self.room.grant(&mut state);
    }

    /// Whether a network waits that has nothing.
    pub fn is_in_the_way(&self) -> bool {
        let state = self.room.state.lock();
        state.turns.iter().any(|address| !state.shares.has_any(*address))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.shares.give_back(self.address, self.bytes);
        self.room.grant(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn nobody_waits(room: &Room) -> bool {
        let state = room.state.lock();
        state.waiting.is_empty() && state.turns.is_empty() && state.shares.total() == 0
    }

    async fn now(future: impl Future<Output = Option<Held>>) -> Option<Held> {
        tokio::time::timeout(Duration::ZERO, future).await.ok().flatten()
    }

    async fn taken_by(room: &Arc<Room>, host: &str, bytes: u64, held: &mut Vec<Held>) -> usize {
        let before = held.len();
        while let Some(one) = now(room.take(address(host), bytes, pending())).await {
            held.push(one);
        }
        held.len() - before
    }

    #[tokio::test]
    async fn one_host_leaves_room_for_others_in_whatever_form_it_comes() {
        let room = Room::new(16 << 20);
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for host in
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        {
            counts.push(taken_by(&room, host, 1 << 20, &mut held).await);
        }
        assert_eq!(counts, [8, 0, 4, 2, 1, 1, 1]);
        drop(held);
        assert!(nobody_waits(&room));
    }

    #[tokio::test]
    async fn many_hosts_with_one_long_reply_each_overrun_the_bound_by_a_quarter_at_most() {
        let room = Room::new(16 << 20);
        let mut held = Vec::new();
        for last in 0..200 {
            taken_by(&room, &format!("10.0.0.{last}"), 1 << 20, &mut held).await;
        }
        assert_eq!(room.bytes(), 20 << 20);
        assert!(
            now(room.take(address("10.0.1.1"), LITTLE_BYTES, pending())).await.is_some(),
            "a little is had"
        );
        drop(held);
        assert!(nobody_waits(&room));
    }

    #[tokio::test]
    async fn however_long_it_is_the_only_one_is_granted() {
        let room = Room::new(10);
        let first = now(room.take(address("10.0.0.1"), 1 << 20, pending())).await.unwrap();
        let mut second = pin!(room.take(address("10.0.0.2"), 1 << 20, pending()));
        assert!(tokio::time::timeout(Duration::ZERO, second.as_mut()).await.is_err());
        drop(first);
        assert!(second.await.is_some());
        assert!(nobody_waits(&room));
    }

    #[tokio::test]
    async fn room_that_one_network_frees_wakes_waiters_of_others() {
        let room = Room::new(100 << 20);
        let mut held = Vec::new();
        taken_by(&room, "10.0.0.1", 10 << 20, &mut held).await;
        let mut other = Vec::new();
        taken_by(&room, "10.0.0.2", 10 << 20, &mut other).await;
        let mut waiting = pin!(room.take(address("10.0.0.2"), 10 << 20, pending()));
        assert!(tokio::time::timeout(Duration::ZERO, waiting.as_mut()).await.is_err());
        held.clear();
        assert!(tokio::time::timeout(Duration::ZERO, waiting).await.unwrap().is_some());
        other.clear();
        assert!(nobody_waits(&room));
    }

    #[tokio::test]
    async fn an_address_is_granted_in_the_order_of_asking_and_a_short_wait_does_not_overtake() {
        let room = Room::new(20 << 20);
        let host = address("2001:db8::1");
        let first = now(room.take(host, 5 << 20, pending())).await.unwrap();
        let mut long = pin!(room.take(host, 5 << 20, pending()));
        assert!(tokio::time::timeout(Duration::ZERO, long.as_mut()).await.is_err());
        let mut short = pin!(room.take(host, 1, pending()));
        assert!(tokio::time::timeout(Duration::ZERO, short.as_mut()).await.is_err());
        drop(first);
        assert!(tokio::time::timeout(Duration::ZERO, long).await.unwrap().is_some());
        assert!(tokio::time::timeout(Duration::ZERO, short).await.unwrap().is_some());
        assert!(nobody_waits(&room));
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_leaves_the_queue_to_those_behind() {
        let room = Room::new(20 << 20);
        let host = address("10.0.0.1");
        let _first = now(room.take(host, 5 << 20, pending())).await.unwrap();
        let mut short = None;
        {
            let mut long = pin!(room.take(host, 9 << 20, pending()));
            assert!(tokio::time::timeout(Duration::ZERO, long.as_mut()).await.is_err());
            let short = short.insert(Box::pin(room.take(host, 1, pending())));
            assert!(tokio::time::timeout(Duration::ZERO, short.as_mut()).await.is_err());
        }
        assert!(tokio::time::timeout(Duration::ZERO, short.unwrap()).await.unwrap().is_some());
        assert!(room.take(host, 9 << 20, async {}).await.is_none());
        assert!(room.state.lock().waiting.is_empty() && room.state.lock().turns.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let room = Room::new(10);
        let host = address("10.0.0.1");
        let _first = room.take(host, 1 << 20, pending()).await.unwrap();
        assert!(room.take(host, 1 << 20, pending()).await.is_none());
    }
}
