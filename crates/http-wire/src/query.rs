//! The query of a URL, and the body of a form, which is written almost like it.

use crate::escapes::decode;
use crate::target_error::TargetError;

const PAIRS_MAX: usize = 64;

/// Decoded names and values in their order. Both are text without NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of `a=b&c`; a pair without `=` has an empty value, and `+` means itself (RFC 3986 knows no other meaning).
    pub fn parse(text: &str) -> Result<Query, TargetError> {
        pairs(text, decode).map(Query)
    }

    /// The value of the first pair of this name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A body of `application/x-www-form-urlencoded`, where `+` is a space. The caller bounds its length.
pub fn parse_form(body: &[u8]) -> Result<Query, TargetError> {
    let text = std::str::from_utf8(body).map_err(|_| TargetError::Query)?;
    pairs(text, |part| decode(&part.replace('+', " "))).map(Query)
}

fn pairs(
    text: &str,
    decode: impl Fn(&str) -> Result<Vec<u8>, TargetError>,
) -> Result<Vec<(String, String)>, TargetError> {
    let read = |part: &str| match String::from_utf8(decode(part)?) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(TargetError::Query),
    };
    let mut pairs = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pairs.len() == PAIRS_MAX {
            return Err(TargetError::Query);
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.push((read(name)?, read(value)?));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_pairs_in_their_order() {
        let query = Query::parse("authz=Bearer%20a+b%3D&list&&x=1&x=2&e=").unwrap();
        assert_eq!(query.first("authz"), Some("Bearer a+b="));
        assert_eq!((query.first("x"), query.first("list"), query.first("y")), (Some("1"), Some(""), None));
        assert_eq!(query.iter().count(), 5);
        assert!(Query::parse("").unwrap().is_empty());
    }

    #[test]
    fn a_form_writes_a_space_as_plus() {
        let form = parse_form(b"grant_type=client_credentials&scopes=DOWNLOAD%3A%2Fa+LIST:/a%2Bb").unwrap();
        assert_eq!(form.first("scopes"), Some("DOWNLOAD:/a LIST:/a+b"));
        assert_eq!(parse_form(b"a=\xff"), Err(TargetError::Query));
    }

    #[test]
    fn a_query_that_is_no_text_or_too_long_is_refused() {
        assert_eq!(Query::parse("a=%ff"), Err(TargetError::Query));
        assert_eq!(Query::parse("a=%00"), Err(TargetError::Query));
        assert_eq!(Query::parse("a=%0"), Err(TargetError::Escape));
        assert!(Query::parse(&"a=b&".repeat(PAIRS_MAX)).is_ok());
        assert_eq!(Query::parse(&"a=b&".repeat(PAIRS_MAX + 1)), Err(TargetError::Query));
    }
}
