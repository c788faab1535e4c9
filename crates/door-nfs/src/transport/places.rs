//! How many connections a listener has, in all and of one address.
//!
//! No address may have more than are free. Hosts that nothing is exported to share a few places.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use types::shares::Shares;

/// Of all places, what hosts get that nothing is exported to.
const UNSERVED_DIVISOR: usize = 16;

pub(super) struct Places {
    unserved_max: usize,
    /// Held for a count.
    taken: Mutex<Taken>,
}

struct Taken {
    connections: Shares,
    unserved: usize,
}

/// A connection's place; given back when it is dropped.
pub(super) struct ConnectionPlace {
    places: Arc<Places>,
    address: IpAddr,
    is_served: AtomicBool,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Listener,
    /// The address, or its network, has as much as is free.
    Address,
    /// Hosts that nothing is exported to have all that they get.
    Unserved,
}

impl Full {
    pub fn says(self) -> &'static str {
        match self {
            Full::Listener => "too many connections",
            Full::Address => "too many connections of one address, which has as many as are free",
            Full::Unserved => "too many connections of hosts that nothing is exported to",
        }
    }
}

impl Places {
    pub fn new(connections_max: usize) -> Arc<Places> {
        Arc::new(Places {
            unserved_max: (connections_max / UNSERVED_DIVISOR).max(1),
            taken: Mutex::new(Taken { connections: Shares::new(connections_max as u64), unserved: 0 }),
        })
    }

    pub fn admit(self: &Arc<Places>, address: IpAddr, is_served: bool) -> Result<ConnectionPlace, Full> {
        let mut taken = self.taken.lock();
        if taken.connections.is_full() {
            return Err(Full::Listener);
        }
        if !is_served && taken.unserved >= self.unserved_max {
            return Err(Full::Unserved);
        }
        if !taken.connections.may_have(address, 1) {
            return Err(Full::Address);
        }
        taken.connections.take(address, 1);
        taken.unserved += usize::from(!is_served);
        Ok(ConnectionPlace { places: Arc::clone(self), address, is_served: AtomicBool::new(is_served) })
    }
}

impl ConnectionPlace {
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
    }

    /// The host has shown that it is one of those that something is exported to.
    pub fn serve_if(&self, has_shown: bool) {
        if has_shown && !self.is_served() {
            self.serve();
        }
    }

    fn serve(&self) {
        let mut taken = self.places.taken.lock();
        taken.unserved -= usize::from(!self.is_served.swap(true, Ordering::Relaxed));
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.connections.give_back(self.address, 1);
        taken.unserved -= usize::from(!self.is_served());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_takes_no_more_places_than_it_leaves() {
        let places = Places::new(64);
        let mut held = Vec::new();
        let taken = [1, 2, 3].map(|last| {
            let before = held.len();
            held.extend(std::iter::from_fn(|| places.admit(address(last), true).ok()));
            held.len() - before
        });
        assert_eq!(taken, [32, 16, 8]);
        assert_eq!(places.admit(address(1), true).err(), Some(Full::Address));
        drop(held);
        assert_eq!(places.taken.lock().connections.total(), 0);
    }

    #[test]
    fn hosts_without_an_export_share_a_few_places() {
        let places = Places::new(64);
        let held: Vec<_> = (0..64).filter_map(|last| places.admit(address(last), false).ok()).collect();
        assert_eq!(held.len(), 4);
        assert_eq!(places.admit(address(99), false).err(), Some(Full::Unserved));
        assert!(places.admit(address(99), true).is_ok());
        held[0].serve();
        held[0].serve();
        assert!(places.admit(address(99), false).is_ok(), "it counts for one of the others now");
        assert_eq!(Places::new(0).admit(address(1), true).err(), Some(Full::Listener));
    }
}
