//! Bytes that a listener keeps in memory for its clients: responses on their way, requests, streams, documents. Each kind has
//! a budget of its own, so that none takes the place of another.
//!
//! All connections share a budget. No address, no /64 of IPv6 and no payer (the login or link that a response is for) may hold
//! more of it than is free: so the first takes a half at most, the next a half of the rest, and a newcomer always finds some.
//! The addresses of a /64 share its part in the same way, as in [`types::Shares`].
//! Only a connection that holds nothing overruns the budget, by [`FLOOR_BYTES`]: every connection gets on, however
//! slowly, and a connection that waits, waits for its own bytes to be sent and for nobody else's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use types::shares::{Key, address_key, network_key};

/// A connection that holds nothing always gets this much; less is not worth a turn.
pub(crate) const FLOOR_BYTES: usize = 16 << 10;

pub(crate) struct Budget {
    bytes_max: usize,
    /// Of one connection.
    connection_bytes_max: usize,
    /// Held for a count. Entries go when their count is zero.
    held: Mutex<Held>,
    /// Some bytes were given back.
    freed: Notify,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// Of addresses, and of networks of IPv6.
    by_address: HashMap<Key, usize>,
    by_payer: HashMap<u64, usize>,
}

/// A connection's part in it.
pub(crate) struct Account {
    budget: Arc<Budget>,
    address: Key,
    /// The address itself in IPv4.
    network: Key,
    /// Of this connection; changed with `held` locked.
    bytes: AtomicUsize,
    /// Some of its bytes were given back.
    freed: Notify,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Charge {
    account: Arc<Account>,
    payer: Option<u64>,
    bytes: usize,
}

impl Budget {
    pub fn new(bytes_max: usize, connection_bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, connection_bytes_max, held: Mutex::default(), freed: Notify::new() })
    }

    pub fn account(self: &Arc<Budget>, address: IpAddr) -> Arc<Account> {
        Arc::new(Account {
            budget: Arc::clone(self),
            address: address_key(address),
            network: network_key(address),
            bytes: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.held.lock().bytes
    }
}

impl Held {
    /// How many more bytes this connection may have, and whether it has any.
    fn room(&self, budget: &Budget, account: &Account, payer: Option<u64>) -> (usize, bool) {
        let free = budget.bytes_max.saturating_sub(self.bytes);
        let of_network = count(&self.by_address, &account.network);
        let of_payer = payer.map_or(0, |payer| count(&self.by_payer, &payer));
        let of_connection = account.bytes.load(Ordering::Relaxed);
        // Half of what is left, so that what was given is never more than what is free then.
        let mut room = (free.saturating_sub(of_network.max(of_payer)) / 2)
            .min(budget.connection_bytes_max.saturating_sub(of_connection));
        if account.address != account.network {
            let of_address = count(&self.by_address, &account.address);
            let free_in_network = free.saturating_sub(of_network) / 2;
            room = room.min(free_in_network.saturating_sub(of_address) / 2);
        }
        (room, of_connection > 0)
    }

    fn add(&mut self, account: &Account, payer: Option<u64>, bytes: usize) {
        self.bytes += bytes;
        *self.by_address.entry(account.address).or_default() += bytes;
        if account.network != account.address {
            *self.by_address.entry(account.network).or_default() += bytes;
        }
        account.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(payer) = payer {
            *self.by_payer.entry(payer).or_default() += bytes;
        }
    }

    fn subtract(&mut self, account: &Account, payer: Option<u64>, bytes: usize) {
        self.bytes -= bytes;
        subtract(&mut self.by_address, account.address, bytes);
        if account.network != account.address {
            subtract(&mut self.by_address, account.network, bytes);
        }
        account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(payer) = payer {
            subtract(&mut self.by_payer, payer, bytes);
        }
    }
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, bytes: usize) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= bytes;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Account {
    /// Up to `wanted` bytes, and at least the smaller of that and [`FLOOR_BYTES`]; `None` where there is no room for so
    /// many and the connection has some already.
    pub fn take_now(self: &Arc<Account>, payer: Option<u64>, wanted: usize) -> Option<Charge> {
        let mut held = self.budget.held.lock();
        let (room, has_some) = held.room(&self.budget, self, payer);
        let least = wanted.min(FLOOR_BYTES);
        let bytes = if room >= least {
            room.min(wanted)
        } else if !has_some {
            least
        } else {
            return None;
        };
        held.add(self, payer, bytes);
        drop(held);
        Some(Charge { account: Arc::clone(self), payer, bytes })
    }

    /// As [`Account::take_now`], but waits until enough of the connection's own bytes are gone.
    pub async fn take(self: &Arc<Account>, payer: Option<u64>, wanted: usize) -> Charge {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before looking, or what goes in between would be missed.
            freed.as_mut().enable();
            if let Some(charge) = self.take_now(payer, wanted) {
                return charge;
            }
            freed.await;
        }
    }

    /// All of `bytes` or nothing.
    pub fn take_whole(self: &Arc<Account>, payer: Option<u64>, bytes: usize) -> Option<Charge> {
        let mut held = self.budget.held.lock();
        let (room, has_some) = held.room(&self.budget, self, payer);
        if bytes > room && (has_some || bytes > FLOOR_BYTES) {
            return None;
        }
        held.add(self, payer, bytes);
        drop(held);
        Some(Charge { account: Arc::clone(self), payer, bytes })
    }

    /// As [`Account::take_whole`], but waits for others to give back theirs.
    pub async fn take_whole_within(
        self: &Arc<Account>,
        payer: Option<u64>,
        bytes: usize,
        patience: Duration,
    ) -> Option<Charge> {
        let taking = async {
            loop {
                let freed = self.budget.freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if let Some(charge) = self.take_whole(payer, bytes) {
                    return charge;
                }
                freed.await;
            }
        };
        timeout(patience, taking).await.ok()
    }

    /// Makes the charge one of `bytes`, if there is memory for what is lacking.
    pub fn grow(self: &Arc<Account>, charge: &mut Option<Charge>, bytes: usize) -> bool {
        let charged = charge.as_ref().map_or(0, Charge::bytes);
        if bytes <= charged {
            return true;
        }
        let Some(more) = self.take_whole(None, bytes - charged) else { return false };
        match charge {
            Some(charge) => charge.merge(more),
            None => *charge = Some(more),
        }
        true
    }
}

impl Charge {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Both together.
    pub fn merge(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back what was not used.
    pub fn shrink(&mut self, bytes: usize) {
        let unused = self.bytes.saturating_sub(bytes);
        if unused > 0 {
            self.account.budget.held.lock().subtract(&self.account, self.payer, unused);
            self.bytes -= unused;
            self.account.freed.notify_waiters();
            self.account.budget.freed.notify_waiters();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

struct Charged {
    bytes: Bytes,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes; the charge goes with the last reference to the last of them.
pub(crate) fn charged(parts: Vec<Bytes>, charge: Charge) -> impl Iterator<Item = Bytes> {
    let charge = Arc::new(charge);
    parts.into_iter().map(move |bytes| Bytes::from_owner(Charged { bytes, _charge: Arc::clone(&charge) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_leaves_others_as_much_as_it_has() {
        let budget = Budget::new(16 * MIB, MIB);
        let greedy: Vec<Charge> =
            (0..64).filter_map(|_| budget.account(address(1)).take_now(None, MIB)).collect();
        assert!(budget.bytes() <= 9 * MIB, "{}", budget.bytes());
        let before = budget.bytes();
        let other = budget.account(address(2)).take_now(None, MIB).unwrap();
        assert_eq!((other.bytes(), budget.bytes()), (MIB, before + MIB));
        drop((greedy, other));
        let held = budget.held.lock();
        assert!(held.bytes == 0 && held.by_address.is_empty());
    }

    #[test]
    fn a_host_of_a_network_of_ipv6_leaves_its_neighbours_and_other_networks_some() {
        let budget = Budget::new(16 * MIB, MIB);
        let take = |address: &str| budget.account(address.parse().unwrap()).take_now(None, MIB);
        let greedy: Vec<Charge> = (0..64).filter_map(|_| take("2001:db8::1")).collect();
        assert!(budget.bytes() <= 5 * MIB, "{}", budget.bytes());
        assert_eq!(take("2001:db8::2").unwrap().bytes(), MIB, "a neighbour");
        let hosts: Vec<Charge> =
            (8..64).filter_map(|host| take(&format!("2001:db8::{:x}", host / 4))).collect();
        assert!(budget.bytes() <= 10 * MIB, "{}", budget.bytes());
        assert_eq!(take("2001:db8:0:1::1").unwrap().bytes(), MIB, "another network");
        drop((greedy, hosts));
        assert!(budget.held.lock().by_address.is_empty());
    }

    #[test]
    fn an_identity_has_one_share_from_however_many_addresses() {
        let budget = Budget::new(16 * MIB, MIB);
        let charges: Vec<Charge> =
            (0..64).filter_map(|i| budget.account(address(i)).take_now(Some(7), MIB)).collect();
        assert!(budget.bytes() <= 9 * MIB, "{}", budget.bytes());
        assert_eq!(budget.account(address(99)).take_now(Some(8), MIB).unwrap().bytes(), MIB);
        drop(charges);
        assert!(budget.held.lock().by_payer.is_empty());
    }

    #[tokio::test]
    async fn a_connection_with_nothing_gets_on_and_one_with_some_waits_for_its_own() {
        let budget = Budget::new(0, MIB);
        let account = budget.account(address(1));
        let first = account.take(None, MIB).await;
        assert_eq!(first.bytes(), FLOOR_BYTES);
        assert!(account.take_now(None, 1).is_none());
        let other = budget.account(address(1)).take(None, 100).await;
        assert_eq!(other.bytes(), 100, "another connection does not wait");
        let waiting = tokio::spawn({
            let account = Arc::clone(&account);
            async move { account.take(None, 5).await.bytes() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let last = charged(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")], first).last().unwrap();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "a part of it is still there");
        drop(last);
        assert_eq!(waiting.await.unwrap(), 5);
    }
}
