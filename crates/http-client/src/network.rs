//! Ranges of addresses, and those that a user must not reach through us.
//!
//! A third-party copy makes the server fetch what a user names. Without a rule that is a way to the cloud's metadata
//! service and to daemons that trust their own host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// `a.b.c.d/n` or `x::y/n`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Network {
    Network { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
}

const fn v6(first: u16, last: u16, prefix: u8) -> Network {
    Network { base: IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last)), prefix }
}

impl Network {
    pub const LOOPBACK: [Network; 2] = [v4(127, 0, 0, 0, 8), v6(0, 1, 128)];

    /// Where no storage is: "this host", link-local (the metadata services of clouds), multicast, reserved.
    pub const NEVER_STORAGE: [Network; 8] = [
        v4(0, 0, 0, 0, 8),
        v4(169, 254, 0, 0, 16),
        v4(224, 0, 0, 0, 3),
        v6(0, 0, 128),
        v6(0xfe80, 0, 10),
        v6(0xff00, 0, 8),
        // The metadata service of AWS over IPv6, and Alibaba's over IPv4.
        Network { base: IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), prefix: 128 },
        v4(100, 100, 100, 200, 32),
    ];

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix);
                (u64::from(base.to_bits()) >> shift) == (u64::from(address.to_bits()) >> shift)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                base.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    /// A bare address is a network of one.
    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is not a network like 10.0.0.0/8 or 2001:db8::/32");
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.trim().parse().map_err(|_| wrong())?;
        let bits = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.trim().parse().map_err(|_| wrong())?,
            None => bits,
        };
        if prefix > bits { Err(wrong()) } else { Ok(Network { base, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
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

    fn is_within(networks: &[Network], address: &str) -> bool {
        networks.iter().any(|network| network.contains(address.parse().unwrap()))
    }

    #[test]
    fn a_network_holds_what_shares_its_prefix() {
        let network: Network = "10.1.0.0/16".parse().unwrap();
        assert!(network.contains("10.1.255.1".parse().unwrap()));
        assert!(!network.contains("10.2.0.1".parse().unwrap()));
        assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!("::/0".parse::<Network>().unwrap().contains("2001:db8::1".parse().unwrap()));
        assert!("2001:db8::/32".parse::<Network>().unwrap().contains("2001:db8:1::1".parse().unwrap()));
        assert!("10.0.0.1".parse::<Network>().unwrap().contains("10.0.0.1".parse().unwrap()));
        for text in ["", "10.0.0.0/33", "x/8", "10.0.0.0/", "::/129"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_services_in_any_spelling_are_never_storage() {
        for address in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(is_within(&Network::NEVER_STORAGE, address), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "131.169.1.1", "2001:db8::1", "fd00::1", "127.0.0.1"] {
            assert!(!is_within(&Network::NEVER_STORAGE, address), "{address}");
        }
        assert!(is_within(&Network::LOOPBACK, "127.9.9.9") && is_within(&Network::LOOPBACK, "::1"));
    }
}
