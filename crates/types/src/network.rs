//! IP addresses that begin alike: whom a rule is for.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// `a.b.c.d/n` or `x::y/n`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// For constants; more bits than the address has are all of them.
    pub const fn new(address: IpAddr, prefix_bits: u8) -> Network {
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        Network { address, prefix_bits: if prefix_bits < bits_max { prefix_bits } else { bits_max } }
    }

    /// An IPv4 address that came over IPv6 is taken for what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |ours: u128, theirs: u128, width: u32| {
            // A shift by the whole width is none: an empty prefix holds everything.
            let rest = width - u32::from(self.prefix_bits);
            ours.checked_shr(rest) == theirs.checked_shr(rest)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                same(ours.to_bits().into(), theirs.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(ours.to_bits(), theirs.to_bits(), 128),
            _ => false,
        }
    }

    /// How many bits an address must share. Of two networks with an address the one with more bits is the narrower.
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Whether both hold the same addresses, however they are written.
    pub fn is_same(&self, other: &Network) -> bool {
        self.prefix_bits == other.prefix_bits && self.contains(other.address)
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        let address = address.to_canonical();
        Network { address, prefix_bits: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Network {
    type Err = String;

    /// `10.0.0.0/8`, `2001:db8::/32`, or one address.
    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr = address
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is no address or network (as 10.0.0.0/8)"))?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(bits_max), |bits| bits.trim().parse());
        match prefix_bits {
            Ok(prefix_bits) if prefix_bits <= bits_max => Ok(Network { address, prefix_bits }),
            _ => Err(format!("{text:?} has no prefix length of 0 to {bits_max}")),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_alike() {
        let holds = |text: &str, address: &str| network(text).contains(address.parse().unwrap());
        assert!(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.6"));
        assert!(holds("0.0.0.0/0", "203.0.113.9") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "2001:db8::1"));
    }

    #[test]
    fn an_invalid_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "10.0.0.0/-1", "host"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::/0"] {
            assert_eq!(network(text).to_string(), text);
        }
        assert_eq!(network("192.0.2.7").to_string(), "192.0.2.7/32");
        assert_eq!(Network::new([10, 0, 0, 0].into(), 200), network("10.0.0.0/32"));
    }

    #[test]
    fn networks_of_the_same_addresses_are_the_same() {
        assert!(network("10.1.2.3/8").is_same(&network("10.0.0.0/8")));
        assert!(!network("10.0.0.0/8").is_same(&network("10.0.0.0/9")));
        let address: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert!(Network::from(address).is_same(&network("192.0.2.7")));
    }
}
