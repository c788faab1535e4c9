//! The short headers of WebDAV: Depth, Overwrite, Timeout, Lock-Token (RFC 4918 §10).

use std::fmt;

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DavHeaderError {
    #[error("Depth is not one of 0, 1 and infinity")]
    Depth,
    #[error("Overwrite is not one of T and F")]
    Overwrite,
    #[error("Lock-Token is not a URL between angle brackets")]
    LockToken,
    #[error("If is not what RFC 4918 section 10.4 describes: {0}")]
    If(&'static str),
    /// The answer is 431.
    #[error("If holds more than this server looks at")]
    IfTooLong,
}

/// Where it is missing, the method decides: infinity for COPY, MOVE, DELETE, LOCK and PROPFIND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Depth {
    Zero,
    One,
    Infinity,
}

impl Depth {
    /// §10.2. Windows says `1,noroot`, which is understood as 1.
    pub fn parse(value: &[u8]) -> Result<Depth, DavHeaderError> {
        match value.trim_ascii() {
            b"0" => Ok(Depth::Zero),
            b"1" => Ok(Depth::One),
            word if word.eq_ignore_ascii_case(b"infinity") => Ok(Depth::Infinity),
            word if word.eq_ignore_ascii_case(b"1,noroot") => Ok(Depth::One),
            _ => Err(DavHeaderError::Depth),
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Depth::Zero => "0",
            Depth::One => "1",
            Depth::Infinity => "infinity",
        })
    }
}

/// §10.6: whether a COPY or MOVE may replace what is there. A missing header means yes.
pub fn overwrite(value: Option<&[u8]>) -> Result<bool, DavHeaderError> {
    match value.map(<[u8]>::trim_ascii) {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(_) => Err(DavHeaderError::Overwrite),
    }
}

/// How long a lock is to live, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timeout {
    Seconds(u32),
    Infinite,
}

impl Timeout {
    /// §10.7: the first wish of the list that is understood. A server need not follow it, so nothing is refused.
    pub fn parse(value: &[u8]) -> Option<Timeout> {
        let value = std::str::from_utf8(value).ok()?;
        value.split(',').map(str::trim).find_map(|wish| {
            if wish.eq_ignore_ascii_case("infinite") {
                return Some(Timeout::Infinite);
            }
            let (word, digits) = wish.split_once('-')?;
            if !word.eq_ignore_ascii_case("second") || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // At most 2³²−1; more than that is as good.
            (!digits.is_empty()).then(|| Timeout::Seconds(digits.parse().unwrap_or(u32::MAX)))
        })
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timeout::Seconds(seconds) => write!(f, "Second-{seconds}"),
            Timeout::Infinite => f.write_str("Infinite"),
        }
    }
}

/// §10.5: the token of UNLOCK, without its brackets.
pub fn lock_token(value: &[u8]) -> Result<&str, DavHeaderError> {
    let value = std::str::from_utf8(value).map_err(|_| DavHeaderError::LockToken)?.trim_ascii();
    let inside = value.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    inside.filter(|token| is_absolute_uri(token)).ok_or(DavHeaderError::LockToken)
}

/// Enough of RFC 3986 to tell a token from other things: a scheme, and nothing that would end it early.
pub fn is_absolute_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    is_scheme && !rest.is_empty() && is_uri_text(text)
}

/// Neither blanks nor brackets nor control characters.
pub fn is_uri_text(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_one_of_three() {
        assert_eq!(Depth::parse(b" Infinity "), Ok(Depth::Infinity));
        assert_eq!((Depth::parse(b"0"), Depth::parse(b"1")), (Ok(Depth::Zero), Ok(Depth::One)));
        for bad in [&b"2"[..], b"", b"-1", b"01", b"0, 0", b"infinite", b"\xff"] {
            assert_eq!(Depth::parse(bad), Err(DavHeaderError::Depth));
        }
    }

    #[test]
    fn overwrite_is_true_unless_it_is_f() {
        assert_eq!(
            (overwrite(None), overwrite(Some(b"T")), overwrite(Some(b"F"))),
            (Ok(true), Ok(true), Ok(false))
        );
        for bad in [&b""[..], b"TRUE", b"T, F", b"1"] {
            assert_eq!(overwrite(Some(bad)), Err(DavHeaderError::Overwrite));
        }
    }

    #[test]
    fn the_first_timeout_that_is_understood_counts() {
        for (value, expected) in [
            ("Infinite, Second-4100000000", Some(Timeout::Infinite)),
            ("Second-4100000000, Infinite", Some(Timeout::Seconds(4_100_000_000))),
            ("Extended-7, second-3600", Some(Timeout::Seconds(3600))),
            ("Second-99999999999999999999", Some(Timeout::Seconds(u32::MAX))),
            ("Second-", None),
            ("Second--1", None),
            ("Second-+1", None),
            ("", None),
        ] {
            assert_eq!(Timeout::parse(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_lock_token_stands_between_brackets() {
        assert_eq!(lock_token(b"<urn:uuid:a-1>"), Ok("urn:uuid:a-1"));
        for bad in [
            &b"urn:uuid:a"[..],
            b"<>",
            b"<a>",
            b"<urn:>",
            b"<urn:a",
            b"<urn:a> ",
            b"<urn:a><urn:b>",
            b"<1a:b>",
            b"<urn:\xff>",
        ] {
            let expected = if bad == b"<urn:a> " { Ok("urn:a") } else { Err(DavHeaderError::LockToken) };
            assert_eq!(lock_token(bad), expected, "{bad:?}");
        }
    }
}
