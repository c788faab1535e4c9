//! Where a request may come from: by which name of this instance, and from whose page.
//!
//! Without TLS every client is on this host, or in one of the networks in `http.plain_networks`. But a page of another site
//! can have a browser there send requests, and read the answers if its own name is made to resolve to our address (DNS
//! rebinding). Its Host is then not one of our names. User-Agent does not matter, since pages choose it, too. With TLS the
//! browser has compared the name with the certificate's.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_server::{Request, Response};

/// Names that are made once are found without being parsed for each request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

pub struct Origins {
    /// As in `http.names`, and the host's own.
    names: Vec<String>,
}

impl Origins {
    pub fn new(names: &[String]) -> Origins {
        let mut names = names.to_vec();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if !host.is_empty() {
            names.push(host);
        }
        Origins { names }
    }

    /// Returns the refusal if the request must not be served.
    pub fn refuse(&self, request: &Request) -> Option<Response> {
        let is_own = || request.authority().is_none_or(|name| self.is_own(name.as_str(), name.host()));
        if request.peer.tls.is_none() && !is_own() {
            return Some(Response::text(
                StatusCode::MISDIRECTED_REQUEST,
                "this instance is not known by that name; http.names in its configuration adds names",
            ));
        }
        is_of_another_site(&request.method, &request.headers).then(|| {
            Response::text(
                StatusCode::FORBIDDEN,
                "a page of another site may lead here, and not ask for parts of its own",
            )
        })
    }

    /// Addresses are no names that somebody could make stand for others.
    fn is_own(&self, authority: &str, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok()
            || self
                .names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(authority) || name.eq_ignore_ascii_case(host))
    }
}

/// As browsers tell (Fetch Metadata Request Headers, W3C): anything but that a user followed a link.
fn is_of_another_site(method: &Method, headers: &HeaderMap) -> bool {
    let says =
        |name: HeaderName, word: &str| headers.get(name).map(HeaderValue::as_bytes) == Some(word.as_bytes());
    let is_link = || {
        matches!(*method, Method::GET | Method::HEAD)
            && says(FETCH_MODE, "navigate")
            && says(FETCH_DEST, "document")
    };
    says(FETCH_SITE, "cross-site") && !is_link()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Version;
    use http_server::{Memory, Peer, RequestBody, TlsPeer};

    use super::*;

    #[test]
    fn this_instance_is_known_by_addresses_its_hosts_name_and_those_that_are_configured() {
        let origins = Origins { names: vec!["data.example.org".into(), "other:8080".into()] };
        for (authority, host) in [
            ("localhost:8080", "localhost"),
            ("LocalHost", "LocalHost"),
            ("127.0.0.1:8080", "127.0.0.1"),
            ("[::1]:8080", "[::1]"),
            ("Data.example.org:1", "Data.example.org"),
            ("other:8080", "other"),
        ] {
            assert!(origins.is_own(authority, host), "{authority}");
        }
        for (authority, host) in [
            ("rebound.example.com:8080", "rebound.example.com"),
            ("other:8081", "other"),
            ("localhost.example.com", "localhost.example.com"),
            ("127.0.0.1.example.com", "127.0.0.1.example.com"),
        ] {
            assert!(!origins.is_own(authority, host), "{authority}");
        }
    }

    /// The browser has compared the name with those of the certificate, which may be of other hosts or a wildcard.
    #[test]
    fn over_tls_every_name_leads_here_and_a_page_of_another_site_is_refused_all_the_same() {
        let origins = Origins { names: vec!["data.example.org".into()] };
        let refused = |target: &str, tls: Option<TlsPeer>, headers: &[(&'static str, &'static str)]| {
            origins.refuse(&request(target, tls, headers)).map(|refusal| refusal.status)
        };
        let over_tls = || Some(TlsPeer { certificates: Vec::new() });
        let host = ("host", "other.example.org");
        // In HTTP/2 the name is in the target.
        for (target, host) in [("/file", &[host][..]), ("https://other.example.org/file", &[])] {
            let with = |more: &[_]| [host, more].concat();
            assert_eq!(refused(target, None, host), Some(StatusCode::MISDIRECTED_REQUEST), "{target}");
            assert_eq!(refused(target, over_tls(), host), None, "{target}");
            let own = with(&[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")]);
            assert_eq!(refused(target, over_tls(), &own), None, "a page under that name");
            let foreign = with(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]);
            assert_eq!(refused(target, over_tls(), &foreign), Some(StatusCode::FORBIDDEN), "{target}");
        }
    }

    fn request(target: &str, tls: Option<TlsPeer>, headers: &[(&'static str, &'static str)]) -> Request {
        let at = |port| ([127, 0, 0, 1], port).into();
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        Request {
            method: Method::GET,
            uri: target.parse().unwrap(),
            version: Version::HTTP_11,
            headers: headers.iter().map(pair).collect(),
            peer: Arc::new(Peer { address: at(9), local: at(443), tls, memory: Memory::unbounded() }),
            body: RequestBody::empty(),
        }
    }

    #[test]
    fn a_page_of_another_site_may_link_here_and_nothing_else() {
        let headers = |site: &str, mode: &str, dest: &str| {
            let text = |text: &str| HeaderValue::from_str(text).unwrap();
            let pairs = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), text(value))).collect::<HeaderMap>()
        };
        let link = headers("cross-site", "navigate", "document");
        assert!(!is_of_another_site(&Method::GET, &link));
        assert!(is_of_another_site(&Method::POST, &link));
        for (mode, dest) in [("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")] {
            assert!(is_of_another_site(&Method::GET, &headers("cross-site", mode, dest)), "{mode} {dest}");
            assert!(!is_of_another_site(&Method::GET, &headers("same-origin", mode, dest)), "{mode} {dest}");
        }
        assert!(!is_of_another_site(&Method::DELETE, &HeaderMap::new()), "no browser");
    }
}
