//! How fast passwords may be guessed: leaky buckets per address and user, and per address.
//!
//! Nobody can lock a user out from elsewhere, since a bucket belongs to an address. The tables are bounded; at the bound
//! a stranger's oldest record is forgotten, which gives an attacker with thousands of addresses a few more guesses and
//! takes nothing from anybody else. Rules only: time is an argument.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use quick_cache::unsync::Cache;

/// Wrong passwords in a row for one user from one address, and then one each interval.
pub const PAIR_BURST: u32 = 5;
const PAIR_INTERVAL: Duration = Duration::from_secs(12);
/// For all users together, from one address.
const ADDRESS_BURST: u32 = 100;
const ADDRESS_INTERVAL: Duration = Duration::from_secs(1);
const RECORDS_MAX: usize = 10_000;

pub struct Throttle {
    pairs: Cache<(IpAddr, u64), Pair>,
    addresses: Cache<IpAddr, Bucket>,
    names: RandomState,
}

#[derive(Clone, Copy, Default)]
struct Pair {
    bucket: Bucket,
    /// It was right here once: guesses for other users from the same address do not count against it.
    is_known: bool,
}

/// Runs empty by itself, one drop each interval.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// When it is empty, in the monotonic clock.
    empty_at: Duration,
}

impl Bucket {
    fn take(&mut self, now: Duration, interval: Duration, burst: u32) -> Result<(), Duration> {
        let level = self.empty_at.saturating_sub(now);
        let limit = interval * (burst - 1);
        if level > limit {
            return Err(level - limit);
        }
        self.empty_at = self.empty_at.max(now) + interval;
        Ok(())
    }

    fn give_back(&mut self, interval: Duration) {
        self.empty_at = self.empty_at.saturating_sub(interval);
    }
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle {
            pairs: Cache::new(RECORDS_MAX),
            addresses: Cache::new(RECORDS_MAX),
            names: RandomState::new(),
        }
    }
}

impl Throttle {
    /// Counts one guess before it is made, so that guesses at once count too. `Err`: how long to wait.
    pub fn take(&mut self, from: IpAddr, name: &str, now: Duration) -> Result<(), Duration> {
        let from = site(from);
        let key = (from, self.names.hash_one(name));
        let mut pair = self.pairs.get(&key).copied().unwrap_or_default();
        pair.bucket.take(now, PAIR_INTERVAL, PAIR_BURST)?;
        if !pair.is_known {
            let mut address = self.addresses.get(&from).copied().unwrap_or_default();
            address.take(now, ADDRESS_INTERVAL, ADDRESS_BURST)?;
            self.addresses.insert(from, address);
        }
        self.pairs.insert(key, pair);
        Ok(())
    }

    /// The guess that was counted was right, or was not made.
    pub fn give_back(&mut self, from: IpAddr, name: &str, was_right: bool) {
        let from = site(from);
        let key = (from, self.names.hash_one(name));
        let Some(mut pair) = self.pairs.get(&key).copied() else { return };
        if !pair.is_known
            && let Some(mut address) = self.addresses.get(&from).copied()
        {
            address.give_back(ADDRESS_INTERVAL);
            self.addresses.insert(from, address);
        }
        pair.bucket.give_back(PAIR_INTERVAL);
        pair.is_known |= was_right;
        self.pairs.insert(key, pair);
    }
}

/// One customer of a provider: an IPv4 address, or an IPv6 network of 64 bits.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_each_interval() {
        let (mut throttle, from) = (Throttle::default(), address("192.0.2.1"));
        for _ in 0..PAIR_BURST {
            assert_eq!(throttle.take(from, "anna", NOW), Ok(()));
        }
        assert_eq!(throttle.take(from, "anna", NOW), Err(PAIR_INTERVAL));
        assert_eq!(throttle.take(from, "bert", NOW), Ok(()));
        let later = NOW + PAIR_INTERVAL;
        assert_eq!(throttle.take(from, "anna", later), Ok(()));
        assert_eq!(throttle.take(from, "anna", later), Err(PAIR_INTERVAL));
    }

    #[test]
    fn an_ipv6_network_is_one_guesser() {
        let mut throttle = Throttle::default();
        for host in 0..PAIR_BURST {
            assert_eq!(throttle.take(address(&format!("2001:db8::{host}")), "anna", NOW), Ok(()));
        }
        assert!(throttle.take(address("2001:db8::ffff"), "anna", NOW).is_err());
        assert!(throttle.take(address("2001:db8:0:1::1"), "anna", NOW).is_ok());
    }

    #[test]
    fn spraying_over_users_is_bounded_and_spares_who_was_right_before() {
        let (mut throttle, from) = (Throttle::default(), address("192.0.2.1"));
        throttle.take(from, "anna", NOW).unwrap();
        throttle.give_back(from, "anna", true);
        for user in 0..ADDRESS_BURST {
            assert_eq!(throttle.take(from, &user.to_string(), NOW), Ok(()));
        }
        assert!(throttle.take(from, "bert", NOW).is_err());
        assert_eq!(throttle.take(from, "anna", NOW), Ok(()));
    }

    #[test]
    fn being_right_costs_nothing() {
        let (mut throttle, from) = (Throttle::default(), address("192.0.2.1"));
        for _ in 0..1_000 {
            assert_eq!(throttle.take(from, "anna", NOW), Ok(()));
            throttle.give_back(from, "anna", true);
        }
    }

    #[test]
    fn the_tables_are_bounded() {
        let mut throttle = Throttle::default();
        for n in 0..30_000u32 {
            let _ = throttle.take(IpAddr::V4(n.into()), "anna", NOW);
        }
        assert!(throttle.pairs.len() <= RECORDS_MAX + 64 && throttle.addresses.len() <= RECORDS_MAX + 64);
    }
}
