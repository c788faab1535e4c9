//! A head that a library has read (HTTP/2), held against the rules for one that is read here.
//!
//! Deliberately absent: fragments. The library has dropped them from the path before anybody here sees it.

use http::header::{HOST, HeaderMap};
use http::uri::{Authority, Scheme};
use http::{Method, Uri};

use super::{HeadError, authority_is_sound, method};

/// RFC 9113 §8.3.1, for a connection of this scheme: one host that `:authority` and `Host` agree on, in one spelling for
/// all who look for it, and a path or, for OPTIONS, `*`. The scheme is not known if there is no `:authority`.
pub fn check(asked: &Method, uri: &Uri, headers: &HeaderMap, scheme: &Scheme) -> Result<(), HeadError> {
    method(asked.as_str())?;
    let is_target = uri.path().starts_with('/') || uri.path() == "*" && asked == Method::OPTIONS;
    if !is_target || uri.scheme().is_some_and(|named| named != scheme) {
        return Err(HeadError::Target);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(host), None) => Some(Authority::try_from(host.as_bytes()).map_err(|_| HeadError::Host)?),
        _ => return Err(HeadError::Host),
    };
    let is_one = match (uri.authority(), &host) {
        (Some(named), Some(host)) => authority_is_sound(named) && is_same(named, host, scheme),
        (Some(one), None) | (None, Some(one)) => authority_is_sound(one),
        (None, None) => false,
    };
    if is_one { Ok(()) } else { Err(HeadError::Host) }
}

fn is_same(one: &Authority, other: &Authority, scheme: &Scheme) -> bool {
    let default_port = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default_port);
    authority_is_sound(other) && one.host().eq_ignore_ascii_case(other.host()) && port(one) == port(other)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(asked: &str, uri: &str, hosts: &[&str]) -> Result<(), HeadError> {
        let host = |text: &&str| (HOST, HeaderValue::from_str(text).unwrap());
        let headers: HeaderMap = hosts.iter().map(host).collect();
        check(&asked.parse().unwrap(), &uri.parse().unwrap(), &headers, &Scheme::HTTPS)
    }

    #[test]
    fn a_host_beside_an_authority_is_the_same() {
        for (uri, host) in [
            ("https://a/x", "a"),
            ("https://A.example/x", "a.EXAMPLE:443"),
            ("https://a:443/x", "a"),
            ("https://a:8443/x", "a:8443"),
            ("https://[::1]:1/x", "[::1]:1"),
        ] {
            assert_eq!(checked("GET", uri, &[host]), Ok(()), "{uri} {host}");
        }
        for (uri, host) in [
            ("https://a/x", "b"),
            ("https://a/x", "a:80"),
            ("https://a:8443/x", "a"),
            ("https://a/x", ""),
            ("https://a/x", "user@a"),
            ("https://user@a/x", "user@a"),
        ] {
            assert_eq!(checked("GET", uri, &[host]), Err(HeadError::Host), "{uri} {host}");
        }
    }

    #[test]
    fn one_host_is_named_and_it_is_sound() {
        assert_eq!(checked("GET", "https://a:1/x", &[]), Ok(()));
        assert_eq!(checked("GET", "/x", &["a:1"]), Ok(()));
        for (uri, hosts) in [
            ("/x", &[][..]),
            ("/x", &["a", "a"]),
            ("https://a/x", &["a", "a"]),
            ("/x", &["user@a"]),
            ("https://user@a/x", &[]),
            ("https://user:password@a/x", &[]),
            ("/x", &["a, b"]),
            ("/x", &["a:x"]),
        ] {
            assert_eq!(checked("GET", uri, hosts), Err(HeadError::Host), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn target_scheme_and_method_are_those_of_the_connection() {
        let at = |path: &'static str| {
            let mut parts = http::uri::Parts::default();
            (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), Some(Authority::from_static("a")));
            parts.path_and_query = Some(http::uri::PathAndQuery::from_static(path));
            Uri::from_parts(parts).unwrap()
        };
        let check = |asked: Method, uri: &Uri| check(&asked, uri, &HeaderMap::new(), &Scheme::HTTPS);
        assert_eq!(check(Method::OPTIONS, &at("*")), Ok(()));
        assert_eq!(check(Method::DELETE, &at("*")), Err(HeadError::Target));
        assert_eq!(checked("GET", "http://a/x", &[]), Err(HeadError::Target));
        assert_eq!(checked("GET", "ftp://a/x", &[]), Err(HeadError::Target));
        assert_eq!(checked("CONNECT", "a:1", &[]), Err(HeadError::MethodUnknown));
        assert_eq!(checked(&"M".repeat(33), "https://a/x", &[]), Err(HeadError::MethodUnknown));
    }
}
