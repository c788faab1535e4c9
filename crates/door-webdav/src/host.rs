//! The host of a request: where its name is found, and how the client reaches our other listeners by it.

use std::net::SocketAddr;

use http::Uri;
use http::header::{self, HeaderMap, HeaderValue};

/// HTTP/2 has the host in `:authority`, and where a request line names one it counts (RFC 9112 §3.2.2): here it is always
/// found in `Host`. The connection has refused a user name in either, and two that differ over HTTP/2.
pub(crate) fn with_host(mut headers: HeaderMap, uri: &Uri) -> HeaderMap {
    if let Some(Ok(host)) = uri.authority().map(|authority| HeaderValue::try_from(authority.as_str())) {
        headers.insert(header::HOST, host);
    }
    headers
}

/// `host:port` of another of our listeners as this client can reach it: by the name that it used for this one.
pub(crate) fn host_for(headers: &HeaderMap, listener: SocketAddr, local: SocketAddr) -> String {
    if !listener.ip().is_unspecified() && listener.ip() != local.ip() {
        return listener.to_string();
    }
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let name = host.map(|host| match host.rfind(':') {
        // The colons of an IPv6 address stand in brackets.
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    });
    match name {
        Some(name) if !name.is_empty() => format!("{name}:{}", listener.port()),
        _ => SocketAddr::new(local.ip(), listener.port()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_http2_is_found_where_that_of_http1_is() {
        let uri = "https://a.example:8443/f".parse().unwrap();
        let headers = with_host(HeaderMap::new(), &uri);
        assert_eq!(headers[header::HOST], "a.example:8443");
        let named = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("b.example"))]);
        assert_eq!(with_host(named.clone(), &"/f".parse().unwrap())[header::HOST], "b.example");
        assert_eq!(with_host(named, &uri)[header::HOST], "a.example:8443", "the target decides in HTTP/1.1");
    }
}
