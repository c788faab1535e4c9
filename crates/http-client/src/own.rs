//! The addresses of this host, as the kernel routes them: its interfaces', and whatever else it takes for itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{fs, io};

use types::Network;

/// Routes of IPv4 as a tree of which the leaves tell what they are (Linux, `fib_trie.rst`). `/proc/net` is not there where
/// a service sees processes only (`ProcSubset=pid`); this is.
const V4: &str = "/proc/self/net/fib_trie";
/// Routes of IPv6, one a line: destination, its prefix, and the flags before the device, all in hexadecimal.
const V6: &str = "/proc/self/net/ipv6_route";

/// Flags of routes to this host (`RTF_LOCAL`, `RTF_ANYCAST`).
const TO_THIS_HOST: u32 = 0x8000_0000 | 0x0010_0000;

/// As they are now. Without IPv6 there are no routes of it; whatever else cannot be read is an error, for nobody would be
/// refused.
pub fn networks() -> io::Result<Vec<Network>> {
    let read = |path| {
        fs::read_to_string(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
    };
    let mut networks = of_routes(&read(V4)?);
    match read(V6) {
        Ok(routes) => networks.extend(of_v6_routes(&routes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(networks)
}

fn of_routes(text: &str) -> Vec<Network> {
    let mut leaf = None;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.trim_end().parse::<Ipv4Addr>().ok();
        } else if let (Some(address), Some(kind)) = (leaf, line.strip_prefix('/')) {
            let mut words = kind.split_whitespace();
            let prefix = words.next().and_then(|prefix| prefix.parse().ok());
            if let (Some(prefix @ 0..=32), Some("LOCAL")) = (prefix, words.nth(1)) {
                found.push(Network::new(IpAddr::V4(address), prefix));
            }
        }
    }
    found
}

fn of_v6_routes(text: &str) -> impl Iterator<Item = Network> {
    let own = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[destination, prefix, .., flags, _device] = &words[..] else { return None };
        let address = Ipv6Addr::from_bits(u128::from_str_radix(destination, 16).ok()?);
        let prefix = u8::from_str_radix(prefix, 16).ok().filter(|prefix| *prefix <= 128)?;
        let is_own = u32::from_str_radix(flags, 16).ok()? & TO_THIS_HOST != 0;
        is_own.then(|| Network::new(IpAddr::V6(address), prefix))
    };
    text.lines().filter_map(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Local:
  +-- 0.0.0.0/0 2 0 2
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.0
           /24 link UNICAST
        |-- 192.0.2.7
           /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
     |-- 198.51.100.0
        /24 host LOCAL
";

    #[test]
    fn networks_of_this_host_are_found_and_no_others() {
        let own = of_routes(ROUTES);
        let is_own = |address: &str| own.iter().any(|network| network.contains(address.parse().unwrap()));
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "198.51.100.9"] {
            assert!(is_own(address), "{address}");
        }
        for address in ["192.0.2.8", "192.0.2.255", "0.0.0.0", "203.0.113.1", "::1"] {
            assert!(!is_own(address), "{address}");
        }
    }

    #[test]
    fn routes_to_this_host_are_found_and_no_others() {
        const NONE: &str = "00000000000000000000000000000000";
        let route = |destination: &str, flags: &str| {
            format!("{destination} {NONE} 00 {NONE} 00000400 00000001 00000000 {flags} eth0\n")
        };
        let text = [
            route("20010db8000000000000000000000007 80", "80200001"),
            // Any address of a network that was routed to lo.
            route("20010db8007700000000000000000000 30", "80000001"),
            route("20010db8000000000000000000000000 80", "00300001"),
            route("20010db8000000000000000000000000 40", "00000001"),
            route("00000000000000000000000000000000 00", "00000003"),
            "nonsense\n".to_owned(),
        ];
        let own: Vec<Network> = of_v6_routes(&text.concat()).collect();
        let expected = ["2001:db8::7/128", "2001:db8:77::/48", "2001:db8::/128"];
        assert_eq!(own, expected.map(|network| network.parse().unwrap()));
    }

    #[test]
    fn this_host_has_loopback_at_least() {
        assert!(networks().unwrap().iter().any(|network| network.contains("127.0.0.1".parse().unwrap())));
    }
}
