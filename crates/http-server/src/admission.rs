//! How many connections there may be, in all and of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) struct Admission {
    connections_max: usize,
    per_address_max: usize,
    /// Held for a count. At most `connections_max` addresses; of IPv6 the first half, since the other is the client's
    /// to choose.
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    connections: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Given back when dropped.
pub(crate) struct Place {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Admission {
    pub fn new(connections_max: usize, per_address_max: usize) -> Arc<Admission> {
        Arc::new(Admission { connections_max, per_address_max, present: Mutex::default() })
    }

    pub fn admit(self: &Arc<Admission>, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut present = self.present.lock();
        if present.connections >= self.connections_max {
            return None;
        }
        let of_address = present.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.per_address_max {
            return None;
        }
        present.by_address.insert(address, of_address + 1);
        present.connections += 1;
        Some(Place { admission: Arc::clone(self), address })
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = self.admission.present.lock();
        present.connections -= 1;
        if let Some(of_address) = present.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                present.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_per_address_and_come_back() {
        let admission = Admission::new(3, 2);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse::<IpAddr>().unwrap());
        let first = admission.admit(one).unwrap();
        let _second = admission.admit(one).unwrap();
        assert!(admission.admit(one).is_none(), "two of one address");
        let third = admission.admit(two).unwrap();
        assert!(admission.admit(two).is_none(), "three in all");
        drop(third);
        assert_eq!(admission.present.lock().by_address.len(), 1);
        drop(first);
        assert!(admission.admit(one).is_some());
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let admission = Admission::new(9, 1);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let _one = admission.admit(address("2001:db8::1")).unwrap();
        assert!(admission.admit(address("2001:db8::ffff:2")).is_none());
        assert!(admission.admit(address("2001:db8:0:1::1")).is_some());
    }
}
