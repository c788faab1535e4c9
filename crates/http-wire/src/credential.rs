//! Credentials in a request: `Authorization` (RFC 7617, RFC 6750), `?authz=` as xrootd and dCache take it
//! for programs that know only a URL, and the cookie of a web session.
//!
//! A cookie comes with a request whether its user wants it or not, so it counts for requests that change nothing, and
//! for others only beside a header that a page of another site cannot add without being asked first (CORS).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use http::{HeaderMap, Method};
use thiserror::Error;

use crate::query::Query;

/// The cookie holds a bearer token.
pub const SESSION_COOKIE: &str = "forebay-session";
/// A page of ours sends it with any value when it changes something.
pub const PAGE_HEADER: HeaderName = HeaderName::from_static("x-forebay-page");
/// Tokens of the grid have some KiB; a header has at most 64 KiB anyway.
const TOKEN_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    Bearer(String),
    Password { user: String, password: String },
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CredentialError {
    #[error("Authorization is given twice, with different values")]
    Repeated,
    #[error("Authorization is not understood")]
    Malformed,
    /// The answer is 401: there are others.
    #[error("the scheme of Authorization is not known here")]
    UnknownScheme,
    #[error("token is longer than 16 KiB")]
    TooLong,
}

/// The first of header, query and cookie counts. The same header said twice is one: curl sends it so when told so, and
/// the WLCG's tests of tokens tell it so.
pub fn given(method: &Method, headers: &HeaderMap, query: &Query) -> Result<Given, CredentialError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        if values.any(|other| other != value) {
            return Err(CredentialError::Repeated);
        }
        return authorization(value.as_bytes());
    }
    if let Some(token) = query.first("authz") {
        // xrootd's clients write the scheme too.
        return bearer(token.strip_prefix("Bearer ").unwrap_or(token));
    }
    let changes_nothing = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND");
    if !changes_nothing && !headers.contains_key(PAGE_HEADER) {
        return Ok(Given::Nothing);
    }
    session(headers).map_or(Ok(Given::Nothing), bearer)
}

/// The session's token, whatever the method.
pub fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == SESSION_COOKIE && !value.is_empty()).then_some(value)
    })
}

fn authorization(value: &[u8]) -> Result<Given, CredentialError> {
    let value = std::str::from_utf8(value).map_err(|_| CredentialError::Malformed)?;
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return bearer(rest);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(CredentialError::UnknownScheme);
    }
    if rest.len() > TOKEN_BYTES_MAX {
        return Err(CredentialError::TooLong);
    }
    let decoded = STANDARD.decode(rest).map_err(|_| CredentialError::Malformed)?;
    let text = String::from_utf8(decoded).map_err(|_| CredentialError::Malformed)?;
    let (user, password) = text.split_once(':').ok_or(CredentialError::Malformed)?;
    Ok(Given::Password { user: user.to_owned(), password: password.to_owned() })
}

fn bearer(token: &str) -> Result<Given, CredentialError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(CredentialError::TooLong);
    }
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CredentialError::Malformed);
    }
    Ok(Given::Bearer(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn bearer(token: &str) -> Result<Given, CredentialError> {
        Ok(Given::Bearer(token.to_owned()))
    }

    #[test]
    fn basic_holds_a_user_and_a_password_which_may_have_colons() {
        let headers = headers(&[("authorization", "Basic YW5uOmE6Yg==")]);
        let expected = Given::Password { user: "ann".to_owned(), password: "a:b".to_owned() };
        assert_eq!(given(&Method::PUT, &headers, &Query::default()), Ok(expected));
    }

    #[test]
    fn the_header_counts_before_the_query_and_the_query_before_the_cookie() {
        let query = Query::parse("authz=Bearer%20q").unwrap();
        let all = headers(&[("authorization", "bearer h"), ("cookie", "forebay-session=c")]);
        assert_eq!(given(&Method::GET, &all, &query), bearer("h"));
        let cookie = headers(&[("cookie", "a=b; forebay-session=c")]);
        assert_eq!(given(&Method::GET, &cookie, &query), bearer("q"));
        assert_eq!(given(&Method::GET, &cookie, &Query::default()), bearer("c"));
    }

    #[test]
    fn a_cookie_changes_nothing_without_the_header_of_our_page() {
        let cookie = headers(&[("cookie", "forebay-session=c")]);
        assert_eq!(given(&Method::DELETE, &cookie, &Query::default()), Ok(Given::Nothing));
        let page = headers(&[("cookie", "forebay-session=c"), ("x-forebay-page", "1")]);
        assert_eq!(given(&Method::DELETE, &page, &Query::default()), bearer("c"));
    }

    #[test]
    fn a_credential_that_is_not_understood_is_an_error_and_not_nobody() {
        let refused = |value| {
            let headers = headers(&[("authorization", value)]);
            given(&Method::GET, &headers, &Query::default()).unwrap_err()
        };
        for bad in ["Basic", "Basic !!", "Basic YW5u", "Bearer ", "Bearer", "Bearer a b"] {
            assert_eq!(refused(bad), CredentialError::Malformed, "{bad}");
        }
        for unknown in ["Negotiate abc", "Negotiate", "Digest username=\"ann\"", "eyJhbGciOiJub25lIn0.e30."] {
            assert_eq!(refused(unknown), CredentialError::UnknownScheme, "{unknown}");
        }
        let twice = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
        assert_eq!(given(&Method::GET, &twice, &Query::default()), Err(CredentialError::Repeated));
    }

    #[test]
    fn the_same_credential_twice_is_one() {
        let twice = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer a")]);
        assert_eq!(given(&Method::GET, &twice, &Query::default()), bearer("a"));
    }
}
