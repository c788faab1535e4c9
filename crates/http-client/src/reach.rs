//! Addresses that a user must not reach through us.
//!
//! A third-party copy makes the server fetch what a user names. Without a rule that is a way to the cloud's metadata
//! service and to daemons that trust their own host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use types::Network;

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Network {
    Network::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(first: u16, last: u16, prefix: u8) -> Network {
    Network::new(IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last)), prefix)
}

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
    Network::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), 128),
    v4(100, 100, 100, 200, 32),
];

/// The host that a translator makes of an address with the well-known prefix (RFC 6052 §2.1).
pub fn behind_nat64(address: IpAddr) -> Option<IpAddr> {
    const PREFIX: Network = Network::new(IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 96);
    match address {
        IpAddr::V6(v6) if PREFIX.contains(address) => Some(Ipv4Addr::from_bits(v6.to_bits() as u32).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_within(networks: &[Network], address: &str) -> bool {
        networks.iter().any(|network| network.contains(address.parse().unwrap()))
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
            assert!(is_within(&NEVER_STORAGE, address), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "131.169.1.1", "2001:db8::1", "fd00::1", "127.0.0.1"] {
            assert!(!is_within(&NEVER_STORAGE, address), "{address}");
        }
        assert!(is_within(&LOOPBACK, "127.9.9.9") && is_within(&LOOPBACK, "::1"));
    }
}
