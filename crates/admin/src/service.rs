//! The interface as the binary makes it and asks it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Authenticator, Namespace};
use http_server::{Request, Response};
use types::Clock;

use crate::Instance;
use crate::metrics::Recorder;
use crate::page::Page;

pub struct AdminServices {
    pub instance: Arc<dyn Instance>,
    pub namespace: Arc<dyn Namespace>,
    pub authenticator: Arc<dyn Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Recorder,
}

#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Shown as the title of the page.
    pub site: String,
    /// The web page is served; `/ui` is 404 otherwise.
    pub has_page: bool,
    /// Who may read metrics and the reasons of health without a login, besides this host.
    pub metrics_networks: Vec<Network>,
    /// How long a login to the page lasts at most.
    pub session_validity_max: Duration,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

pub struct Admin {
    pub(crate) services: AdminServices,
    pub(crate) config: AdminConfig,
    pub(crate) page: Option<Page>,
}

impl Admin {
    pub fn new(services: AdminServices, config: AdminConfig) -> Arc<Admin> {
        let page = config.has_page.then(|| Page::new(&services, &config));
        Arc::new(Admin { services, config, page })
    }

    pub async fn serve(&self, request: Request) -> Response {
        self.route(request).await
    }

    /// To be called every second or so.
    pub fn tick(&self) {
        self.services.metrics.tick();
    }
}

/// Whether the path is answered here and not by the namespace's door.
pub fn owns(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    matches!(first, Some("health" | "api" | "ui")) || path == "/metrics"
}

impl std::str::FromStr for Network {
    type Err = String;

    /// `10.0.0.0/8`, `2001:db8::/32`, or one address.
    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("{text:?} is no address or network (as 10.0.0.0/8)"))?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(bits_max), str::parse);
        match prefix_bits {
            Ok(prefix_bits) if prefix_bits <= bits_max => Ok(Network { address, prefix_bits }),
            _ => Err(format!("{text:?} has no prefix length of 0 to {bits_max}")),
        }
    }
}

impl Network {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_components_are_ours() {
        for path in
            ["/metrics", "/health", "/health/live", "/api", "/api/v1/status", "/ui", "/ui/", "/ui/files/a"]
        {
            assert!(owns(path), "{path}");
        }
        for path in ["/", "/metrics/", "/metricsx", "/healthy", "/apis", "/uid", "/a/ui", "//ui", "", "*"] {
            assert!(!owns(path), "{path}");
        }
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_alike() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.6"));
        assert!(holds("0.0.0.0/0", "203.0.113.9") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "2001:db8::1"));
    }

    #[test]
    fn what_is_no_network_is_refused_with_words() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "10.0.0.0/-1", "host"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
