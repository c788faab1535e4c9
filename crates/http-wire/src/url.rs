//! URLs that name another server or perhaps ours: in `Destination`, `Source`, `If`, `Location`, and where an operator writes
//! them.
//!
//! Strict where it matters for safety: no userinfo (it would put secrets into logs and confuse who is asked), no control
//! bytes, bounded. Lenient where people and servers are sloppy: raw spaces and non-ASCII bytes are encoded. The printed
//! form has no query, which may hold a capability.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use thiserror::Error;

use crate::list::trim;
use crate::target::{Target, TargetError};

const URL_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn parse(name: &str) -> Option<Scheme> {
        // gfal2 and its users write dav and davs for the same two protocols.
        match name.to_ascii_lowercase().as_str() {
            "http" | "dav" => Some(Scheme::Http),
            "https" | "davs" => Some(Scheme::Https),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("`{0}` is not a URL that can be used: {1}")]
    Malformed(String, &'static str),
    #[error("URLs of scheme `{0}` are not supported, use https")]
    Scheme(String),
    /// The URL itself is not repeated: it holds a password.
    #[error("a URL must not hold a user name or password; send a header instead")]
    UserInfo,
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl UrlError {
    pub fn status(&self) -> StatusCode {
        match self {
            UrlError::Scheme(_) => StatusCode::NOT_IMPLEMENTED,
            UrlError::Malformed(..) | UrlError::UserInfo => StatusCode::BAD_REQUEST,
            UrlError::Target(error) => error.status(),
        }
    }
}

/// RFC 4918 §8.3: an absolute URL, or a path on this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Here(Target),
    Absolute(AbsoluteUrl),
}

impl Reference {
    pub fn parse(value: &[u8]) -> Result<Reference, UrlError> {
        let value = String::from_utf8_lossy(trim(value));
        let malformed = |why| UrlError::Malformed(shown(&value), why);
        if value.contains(char::REPLACEMENT_CHARACTER) {
            return Err(malformed("it is not text"));
        }
        if value.contains('#') {
            return Err(malformed("it has a fragment"));
        }
        if !value.starts_with('/') {
            return AbsoluteUrl::parse(&value).map(Reference::Absolute);
        }
        if value.len() > URL_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        // `//host/path` names a host elsewhere (RFC 3986 §4.2), and RFC 4918 does not allow it here.
        if value.starts_with("//") {
            return Err(malformed("it begins with two slashes"));
        }
        let uri: Uri = value.parse().map_err(|_| malformed("its path is wrong"))?;
        Ok(Reference::Here(Target::of_uri(&uri)?))
    }
}

/// An absolute http or https URL without userinfo and fragment, whose parts are in one form: `HTTP://Host:80` is `http://host`.
#[derive(Clone, PartialEq, Eq)]
pub struct AbsoluteUrl {
    scheme: Scheme,
    /// Lower case, without brackets.
    host: String,
    port: u16,
    target: PathAndQuery,
}

impl AbsoluteUrl {
    pub fn parse(text: &str) -> Result<AbsoluteUrl, UrlError> {
        let malformed = |why| UrlError::Malformed(shown(text), why);
        if text.len() > URL_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let (scheme, rest) = text.split_once(':').ok_or(malformed("it is not absolute"))?;
        if scheme.is_empty()
            || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            return Err(malformed("it is not absolute"));
        }
        let known = Scheme::parse(scheme).ok_or_else(|| UrlError::Scheme(shown(scheme)))?;
        let rest = rest.strip_prefix("//").ok_or(malformed("it has no host"))?;
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = split_authority(authority).ok_or(malformed("its host or port is wrong"))?;
        Ok(AbsoluteUrl {
            scheme: known,
            host,
            port: port.unwrap_or(known.default_port()),
            target: parse_target(target).ok_or(malformed("its path is wrong"))?,
        })
    }

    /// Resolves a `Location` that was answered for this URL (RFC 3986 §5).
    pub fn join(&self, location: &str) -> Result<AbsoluteUrl, UrlError> {
        let location = location.trim();
        let scheme_end = location.find([':', '/', '?', '#']);
        if scheme_end.is_some_and(|at| location.as_bytes()[at] == b':') {
            return AbsoluteUrl::parse(location);
        }
        if location.starts_with("//") {
            return AbsoluteUrl::parse(&format!("{}:{location}", self.scheme.name()));
        }
        let own_path = self.target.path();
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.is_empty() || location.starts_with(['?', '#']) {
            format!("{own_path}{location}")
        } else {
            let folder = &own_path[..own_path.rfind('/').map_or(0, |at| at + 1)];
            without_dots(&format!("{folder}{location}"))
        };
        let malformed = || UrlError::Malformed(shown(location), "its path is wrong");
        if path.len() > URL_BYTES_MAX {
            return Err(malformed());
        }
        Ok(AbsoluteUrl { target: parse_target(&path).ok_or_else(malformed)?, ..self.clone() })
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// A name or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// As in the request line.
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.target
    }

    /// The path as names: for a URL that turns out to be ours. Another server's path is its own business.
    pub fn target(&self) -> Result<Target, TargetError> {
        Target::parse(self.target.path(), self.target.query())
    }

    /// As in a `Host` header: without the port where it is the scheme's own.
    pub fn authority(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        };
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Scheme, host and port: what a secret was meant for.
    pub fn is_same_origin(&self, other: &AbsoluteUrl) -> bool {
        self.scheme == other.scheme && self.host == other.host && self.port == other.port
    }
}

/// Without the query: it may hold a capability, and this is for logs and messages.
impl fmt::Display for AbsoluteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority(), self.target.path())
    }
}

impl fmt::Debug for AbsoluteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bounded, without what may be a secret (query, fragment, userinfo) and what could disturb a log.
fn shown(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    if text[..end].contains('@') {
        return "...".to_owned();
    }
    text[..end].chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn split_authority(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (address.parse::<Ipv6Addr>().ok()?.to_string(), port)
        }
        None => {
            let at = authority.find(':').unwrap_or(authority.len());
            let (host, port) = authority.split_at(at);
            let is_name = !host.is_empty()
                && host.len() <= 253
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            if !is_name {
                return None;
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, None)),
        Some("") => Some((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port != 0).map(|port| (host, Some(port)))
        }
        _ => None,
    }
}

fn parse_target(text: &str) -> Option<PathAndQuery> {
    let text = text.split('#').next()?;
    let mut target = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        target.push('/');
    }
    for byte in text.bytes() {
        match byte {
            0..=0x1f | 0x7f | b'\\' => return None,
            b' ' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => {
                target.push_str(&format!("%{byte:02X}"));
            }
            _ => target.push(char::from(byte)),
        }
    }
    PathAndQuery::try_from(target).ok()
}

/// RFC 3986 §5.2.4, for a path with perhaps a query behind it.
fn without_dots(path: &str) -> String {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let (path, query) = path.split_at(end);
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(part),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> AbsoluteUrl {
        AbsoluteUrl::parse(text).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart_and_the_query_kept() {
        let url = parse("https://Door.Example:1094/a%20b/c?authz=x%2By&z#frag");
        assert_eq!((url.host(), url.port(), url.is_encrypted()), ("door.example", 1094, true));
        assert_eq!(url.path_and_query().as_str(), "/a%20b/c?authz=x%2By&z");
        assert_eq!(url.authority(), "door.example:1094");
        assert_eq!(parse("davs://h").path_and_query().as_str(), "/");
        assert_eq!(parse("dav://h:80?q").authority(), "h");
        assert_eq!(parse("http://[2001:DB8::1]:81/x").authority(), "[2001:db8::1]:81");
        assert_eq!(parse("http://h/ü b").path_and_query().as_str(), "/%C3%BC%20b");
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        let error = AbsoluteUrl::parse("https://user:secret@h/x").unwrap_err();
        assert_eq!(error, UrlError::UserInfo);
        assert!(!error.to_string().contains("secret"));
        // A capability in the query is not shown either.
        let error = AbsoluteUrl::parse("https:///x?authz=secret").unwrap_err();
        assert!(!error.to_string().contains("secret"));
        assert!(!parse("https://h/x?authz=secret").to_string().contains("secret"));
        for said in ["https://u:secret@h/x#f", "//u:secret@h/x", "https:/u:secret@h", "https:///x#secret"] {
            let error = Reference::parse(said.as_bytes()).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_http_url_is_refused() {
        assert_eq!(AbsoluteUrl::parse("root://h/x"), Err(UrlError::Scheme("root".into())));
        assert_eq!(AbsoluteUrl::parse("file:///etc/passwd"), Err(UrlError::Scheme("file".into())));
        for text in [
            "",
            "/x",
            "h/x",
            "http:/x",
            "http:h/x",
            "http://",
            "http:///x",
            "http://h:0/",
            "http://h:99999/",
            "http://h:+80/",
            "http://h h/",
            "http://[::1/",
            "http://[::1]x/",
            "http://h\\@evil/",
            "http://h/\r\nX: y",
            "http://h/\0",
        ] {
            assert!(matches!(AbsoluteUrl::parse(text), Err(UrlError::Malformed(..))), "{text:?}");
        }
        assert!(AbsoluteUrl::parse(&format!("http://h/{}", "x".repeat(URL_BYTES_MAX))).is_err());
    }

    #[test]
    fn a_location_is_resolved_against_what_was_asked() {
        let base = parse("https://h:444/a/b/c?q");
        for (location, expected) in [
            ("https://other/x", "https://other/x"),
            ("//other/x", "https://other/x"),
            ("/x", "https://h:444/x"),
            ("x/y", "https://h:444/a/b/x/y"),
            ("../x", "https://h:444/a/x"),
            ("../../../x", "https://h:444/x"),
            ("./", "https://h:444/a/b/"),
            (" /x ", "https://h:444/x"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), expected, "{location}");
        }
        assert_eq!(base.join("?z").unwrap().path_and_query().as_str(), "/a/b/c?z");
        assert_eq!(base.join("x?t=a/../b").unwrap().path_and_query().as_str(), "/a/b/x?t=a/../b");
        assert_eq!(base.join("ftp://h/x"), Err(UrlError::Scheme("ftp".into())));
        assert_eq!(base.join("https://u:p@h/x"), Err(UrlError::UserInfo));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let base = parse("https://h/a");
        assert!(base.is_same_origin(&parse("https://H:443/b")));
        for other in ["http://h/a", "https://h:444/a", "https://h.example/a"] {
            assert!(!base.is_same_origin(&parse(other)), "{other}");
        }
    }

    #[test]
    fn a_url_that_is_ours_has_a_path_of_names() {
        let target = parse("https://[2001:db8::1]:8443/a%20b/?x=1").target().unwrap();
        assert_eq!((target.path[0].as_bytes(), target.trailing_slash), (&b"a b"[..], true));
        assert_eq!(target.query.first("x"), Some("1"));
        assert!(parse("http://a").target().unwrap().path.is_empty());
        assert_eq!(parse("http://a/../b").target(), Err(TargetError::Dot));
    }

    #[test]
    fn a_destination_may_be_a_path_on_this_server() {
        let Ok(Reference::Here(target)) = Reference::parse(b" /a/b%2520/ ") else { panic!("not here") };
        assert_eq!((target.path[1].as_bytes(), target.trailing_slash), (&b"b%20"[..], true));
        assert_eq!(Reference::parse(b"/a/../b"), Err(UrlError::Target(TargetError::Dot)));
        assert!(matches!(Reference::parse(b"http://a/b"), Ok(Reference::Absolute(_))));
        for (text, status) in [
            (&b"//a/b"[..], 400),
            (b"/a\xff", 400),
            (b"/a#b", 400),
            (b"https://a/b#c", 400),
            (b"root://a//b", 501),
        ] {
            assert_eq!(Reference::parse(text).unwrap_err().status(), status, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn one_place_has_one_authority_however_it_is_written() {
        for text in ["http://H.example/x", "HTTP://h.example:80/x", "dav://h.example:080/x"] {
            assert_eq!(parse(text).authority(), "h.example", "{text}");
        }
    }
}
