//! The cluster of a head: which hosts have joined as pools, and the tokens with which others may.
//!
//! A data directory becomes a cluster by `forebay up --cluster`, and stays one.

mod authorities;
pub mod book;
pub mod command;
pub mod cuts;
mod faces;
mod head;

pub use head::ClusterHead;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::config::Config;

/// Where pool hosts reach the head, which listens on `port`, for tokens.
pub fn address(config: &Config, port: u16) -> String {
    match config.cluster.address.as_str() {
        "" => SocketAddr::new(own_address(config.listen), port).to_string(),
        address if has_port(address) => address.to_owned(),
        address => match address.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port).to_string(),
            Err(_) => format!("{address}:{port}"),
        },
    }
}

fn has_port(address: &str) -> bool {
    let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
    address.parse::<IpAddr>().is_err() && address.rsplit_once(':').is_some_and(is_port)
}

/// That of the interface with the default route, if all are listened to.
fn own_address(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    // Nothing is sent: the kernel chooses the address that it would send from.
    let chosen = UdpSocket::bind((listen, 0)).and_then(|socket| {
        socket.connect(if listen.is_ipv4() { "192.0.2.1:9" } else { "[2001:db8::1]:9" })?;
        Ok(socket.local_addr()?.ip())
    });
    chosen.unwrap_or(listen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_the_configured_address_with_the_port() {
        let of = |listen: &str, configured: &str| {
            let mut config = Config { listen: listen.parse().unwrap(), ..Config::default() };
            configured.clone_into(&mut config.cluster.address);
            address(&config, 7413)
        };
        assert_eq!(of("192.0.2.7", ""), "192.0.2.7:7413");
        assert_eq!(of("::1", ""), "[::1]:7413");
        assert_eq!(of("0.0.0.0", "head1"), "head1:7413");
        assert_eq!(of("0.0.0.0", "head1:1"), "head1:1");
        assert_eq!(of("0.0.0.0", "2001:db8::7"), "[2001:db8::7]:7413");
        assert_eq!(of("0.0.0.0", "[2001:db8::7]:2"), "[2001:db8::7]:2");
    }
}
