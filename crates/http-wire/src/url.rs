//! The URLs that clients put into `Destination` and `Source`: ours, or those of another server.

use std::fmt;

use http::uri::Authority;
use http::{StatusCode, Uri};
use thiserror::Error;

use crate::head::authority_is_sound;
use crate::list::trim;
use crate::target::{Target, TargetError};

const URL_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("the URL is malformed, or neither absolute nor a path")]
    Malformed,
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the URL contains a user name; use a token")]
    UserInfo,
    #[error("the URL contains a fragment")]
    Fragment,
    #[error("only http and https are implemented")]
    SchemeUnknown,
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl UrlError {
    pub fn status(self) -> StatusCode {
        match self {
            UrlError::SchemeUnknown => StatusCode::NOT_IMPLEMENTED,
            UrlError::Malformed | UrlError::TooLong | UrlError::UserInfo | UrlError::Fragment => {
                StatusCode::BAD_REQUEST
            }
            UrlError::Target(error) => error.status(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    /// Grid tools write `dav` and `davs`.
    fn by_name(name: &str) -> Option<Scheme> {
        match name.to_ascii_lowercase().as_str() {
            "http" | "dav" => Some(Scheme::Http),
            "https" | "davs" => Some(Scheme::Https),
            _ => None,
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
        let text = std::str::from_utf8(trim(value)).map_err(|_| UrlError::Malformed)?;
        if !text.starts_with('/') {
            return AbsoluteUrl::parse(text).map(Reference::Absolute);
        }
        check(text)?;
        // `//host/path` names a host elsewhere (RFC 3986 §4.2), and RFC 4918 does not allow it here.
        if text.starts_with("//") {
            return Err(UrlError::Malformed);
        }
        let uri: Uri = text.parse().map_err(|_| UrlError::Malformed)?;
        Ok(Reference::Here(Target::of_uri(&uri)?))
    }
}

/// An http or https URL with a host, without userinfo and fragment. `dav` and `davs` have been replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsoluteUrl {
    scheme: Scheme,
    authority: Authority,
    uri: Uri,
}

impl AbsoluteUrl {
    pub fn parse(text: &str) -> Result<AbsoluteUrl, UrlError> {
        check(text)?;
        let (name, rest) = text.split_once("://").ok_or(UrlError::Malformed)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            return Err(UrlError::Malformed);
        }
        let scheme = Scheme::by_name(name).ok_or(UrlError::SchemeUnknown)?;
        let uri: Uri = format!("{}://{rest}", scheme.name()).parse().map_err(|_| UrlError::Malformed)?;
        let authority = uri.authority().cloned().ok_or(UrlError::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        if !authority_is_sound(&authority) {
            return Err(UrlError::Malformed);
        }
        Ok(AbsoluteUrl { scheme, authority, uri })
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host and port as written.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// An IPv6 address has its brackets.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(self.scheme.default_port())
    }

    /// To connect to, with its query.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The path as names: for a URL that turns out to be ours. Another server's path is its own business.
    pub fn target(&self) -> Result<Target, TargetError> {
        Target::of_uri(&self.uri)
    }
}

impl fmt::Display for AbsoluteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.uri, f)
    }
}

fn check(text: &str) -> Result<(), UrlError> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    if text.contains('#') { Err(UrlError::Fragment) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> AbsoluteUrl {
        AbsoluteUrl::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn a_url_has_host_port_path_and_query() {
        let found = url("https://[2001:db8::1]:8443/a%20b/?x=1");
        assert_eq!((found.scheme(), found.host(), found.port()), (Scheme::Https, "[2001:db8::1]", 8443));
        let target = found.target().unwrap();
        assert_eq!((target.path[0].as_bytes(), target.trailing_slash), (&b"a b"[..], true));
        assert_eq!(target.query.first("x"), Some("1"));
        assert_eq!((url("http://a").port(), url("HTTPS://a/").port()), (80, 443));
        assert!(url("http://a").target().unwrap().path.is_empty());
    }

    #[test]
    fn the_schemes_of_grid_tools_are_replaced() {
        assert_eq!(url("davs://a:1/b?c").to_string(), "https://a:1/b?c");
        assert_eq!(url("dav://a/b").to_string(), "http://a/b");
    }

    #[test]
    fn a_url_that_is_not_plain_is_refused() {
        for (text, expected, status) in [
            ("gsiftp://a/b", UrlError::SchemeUnknown, 501),
            ("root://a//b", UrlError::SchemeUnknown, 501),
            ("file:///etc/passwd", UrlError::SchemeUnknown, 501),
            ("https://u:p@a/b", UrlError::UserInfo, 400),
            ("https://u@a/b", UrlError::UserInfo, 400),
            ("https://a/b#c", UrlError::Fragment, 400),
            ("https://a:0x1/b", UrlError::Malformed, 400),
            ("https://a:99999/b", UrlError::Malformed, 400),
            ("https:///b", UrlError::Malformed, 400),
            ("https://a/b c", UrlError::Malformed, 400),
            ("://a/b", UrlError::Malformed, 400),
            ("a/b", UrlError::Malformed, 400),
            ("", UrlError::Malformed, 400),
        ] {
            let found = AbsoluteUrl::parse(text).unwrap_err();
            assert_eq!((found, found.status().as_u16()), (expected, status), "{text}");
        }
        assert_eq!(AbsoluteUrl::parse(&format!("https://a/{}", "b".repeat(20_000))), Err(UrlError::TooLong));
    }

    #[test]
    fn a_destination_may_be_a_path_on_this_server() {
        let Ok(Reference::Here(target)) = Reference::parse(b" /a/b%2520/ ") else { panic!("not here") };
        assert_eq!((target.path[1].as_bytes(), target.trailing_slash), (&b"b%20"[..], true));
        assert_eq!(Reference::parse(b"//a/b"), Err(UrlError::Malformed));
        assert_eq!(Reference::parse(b"/a/../b"), Err(UrlError::Target(TargetError::Dot)));
        assert_eq!(Reference::parse(b"/a\xff"), Err(UrlError::Malformed));
        assert!(matches!(Reference::parse(b"http://a/b"), Ok(Reference::Absolute(_))));
    }
}
