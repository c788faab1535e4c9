//! Shares of addresses in a common resource. An address may have no more than is free, so that the first takes a half
//! at most, the next a half of the rest, and a newcomer always finds some.
//!
//! Addresses of IPv6 are counted twice. A /64 has no more than is free, for which of its addresses a host has is the host's
//! to choose; and within it an address has no more than is free of what the /64 may have, for a network of many hosts is
//! one /64.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug)]
pub struct Shares {
    max: u64,
    total: u64,
    /// Of addresses, and of networks of IPv6; those that have something.
    taken: HashMap<Key, u64>,
}

/// An address, or a network of IPv6. The bits tell them apart.
pub type Key = (IpAddr, u8);

/// The address itself.
pub fn address_key(address: IpAddr) -> Key {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => (address, 32),
        address => (address, 128),
    }
}

/// The network that it is counted in: itself in IPv4.
pub fn network_key(address: IpAddr) -> Key {
    (network(address), if address.to_canonical().is_ipv4() { 32 } else { 64 })
}

/// The first address of its /64, for which of them it has is the host's to choose; in IPv4 the address itself.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Shares {
    pub fn new(max: u64) -> Shares {
        Shares { max, total: 0, taken: HashMap::new() }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn is_full(&self) -> bool {
        self.total >= self.max
    }

    fn of(&self, key: Key) -> u64 {
        self.taken.get(&key).copied().unwrap_or(0)
    }

    /// Whether the address may have so much more.
    pub fn may_have(&self, address: IpAddr, more: u64) -> bool {
        let (key, network) = (address_key(address), network_key(address));
        let of_network = self.of(network);
        let network_max = half(self.max.saturating_sub(self.total - of_network));
        let others = of_network - self.of(key);
        let address_max = if key == network { network_max } else { half(network_max.saturating_sub(others)) };
        of_network + more <= network_max && self.of(key) + more <= address_max
    }

    /// Whether the address's network has anything.
    pub fn has_any(&self, address: IpAddr) -> bool {
        self.of(network_key(address)) > 0
    }

    pub fn take(&mut self, address: IpAddr, more: u64) {
        let (key, network) = (address_key(address), network_key(address));
        self.total += more;
        *self.taken.entry(key).or_default() += more;
        if network != key {
            *self.taken.entry(network).or_default() += more;
        }
    }

    pub fn give_back(&mut self, address: IpAddr, less: u64) {
        let (key, network) = (address_key(address), network_key(address));
        self.total -= less;
        self.lower(key, less);
        if network != key {
            self.lower(network, less);
        }
    }

    fn lower(&mut self, key: Key, less: u64) {
        let Some(taken) = self.taken.get_mut(&key) else { return };
        *taken -= less;
        if *taken == 0 {
            self.taken.remove(&key);
        }
    }
}

/// The most of `all` that leaves as much, or one less.
fn half(all: u64) -> u64 {
    all.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_by(shares: &mut Shares, address: &str) -> u64 {
        let address: IpAddr = address.parse().unwrap();
        let mut count = 0;
        while shares.may_have(address, 1) {
            shares.take(address, 1);
            count += 1;
        }
        count
    }

    #[test]
    fn an_address_takes_no_more_than_it_leaves_in_whatever_form() {
        let mut shares = Shares::new(64);
        let taken = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3", "10.0.0.3"];
        assert_eq!(taken.map(|address| taken_by(&mut shares, address)), [32, 0, 16, 8, 0]);
        assert_eq!(taken_by(&mut Shares::new(1), "10.0.0.1"), 1);
    }

    #[test]
    fn hosts_of_one_network_of_ipv6_leave_room_for_each_other_and_for_others() {
        let mut shares = Shares::new(1024);
        let on_a_lan: u64 = (1..200).map(|host| taken_by(&mut shares, &format!("2001:db8::{host:x}"))).sum();
        assert_eq!(on_a_lan, 512, "as one address of IPv4 has");
        let mut shares = Shares::new(1024);
        let lan = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|host| taken_by(&mut shares, host));
        assert_eq!(lan, [256, 128, 64]);
        assert_eq!(taken_by(&mut shares, "2001:db8:0:1::1"), 144, "of a half of what is left");
        assert_eq!(taken_by(&mut shares, "10.0.0.1"), 216);
    }

    #[test]
    fn a_share_that_is_given_back_leaves_nothing() {
        let mut shares = Shares::new(100);
        for address in ["10.0.0.1", "2001:db8::1"] {
            shares.take(address.parse().unwrap(), 7);
        }
        for address in ["::ffff:10.0.0.1", "2001:db8::1"] {
            shares.give_back(address.parse().unwrap(), 7);
        }
        assert!(shares.total() == 0 && shares.taken.is_empty());
    }
}
