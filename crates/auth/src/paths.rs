//! Paths as scopes and caveats write them, and how grants get narrower.

use std::fmt::Write;

use api::{Activities, PathGrant};
use types::{Name, hex};

/// Deeper than anybody's tree, and small beside the other bounds.
const COMPONENTS_MAX: usize = 128;

/// An absolute path. Empty components do not count; `.` and `..` are refused, since whoever signed them meant something
/// that we would have to guess.
pub fn parse(path: &[u8]) -> Result<Vec<Name>, String> {
    let shown = || path.escape_ascii();
    let Some(rest) = path.strip_prefix(b"/") else {
        return Err(format!("path `{}` does not begin with a slash", shown()));
    };
    let mut names = Vec::new();
    for part in rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if names.len() == COMPONENTS_MAX {
            return Err(format!("path has more than {COMPONENTS_MAX} components"));
        }
        names.push(Name::new(part).map_err(|error| format!("path `{}`: {error}", shown()))?);
    }
    Ok(names)
}

/// As [`parse`], with `%2F`-style octets decoded after the path was split, so that none of them becomes a slash.
pub fn parse_encoded(path: &str) -> Result<Vec<Name>, String> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(format!("path `{path}` does not begin with a slash"));
    };
    let mut names = Vec::new();
    for part in rest.split('/').filter(|part| !part.is_empty()) {
        if names.len() == COMPONENTS_MAX {
            return Err(format!("path has more than {COMPONENTS_MAX} components"));
        }
        let decoded = decode(part).ok_or_else(|| format!("path `{path}` has a broken %-octet"))?;
        names.push(Name::new(&decoded).map_err(|error| format!("path `{path}`: {error}"))?);
    }
    Ok(names)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (high, low) = (hex::value(bytes.next()?)?, hex::value(bytes.next()?)?);
        decoded.push(high << 4 | low);
    }
    Some(decoded)
}

/// The form that [`parse_encoded`] reads back, whatever bytes the names have.
pub fn encode(path: &[Name]) -> String {
    let mut text = String::new();
    for name in path {
        text.push('/');
        for byte in name.as_bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~+=@:,".contains(byte) {
                text.push(char::from(*byte));
            } else {
                // Writing to a String cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    if text.is_empty() {
        text.push('/');
    }
    text
}

pub fn everything() -> PathGrant {
    PathGrant { activities: Activities::ALL, path: Vec::new(), is_below_only: false }
}

/// The parts of `grants` at and below `path`.
pub fn within(grants: Vec<PathGrant>, path: &[Name]) -> Vec<PathGrant> {
    grants
        .into_iter()
        .filter_map(|grant| {
            if grant.path.starts_with(path) {
                return Some(grant);
            }
            // A path that is longer than the grant's is already below it.
            path.starts_with(&grant.path).then(|| PathGrant {
                path: path.to_vec(),
                is_below_only: false,
                ..grant
            })
        })
        .collect()
}

/// The parts of `grants` for `activities` only.
pub fn only(grants: Vec<PathGrant>, activities: Activities) -> Vec<PathGrant> {
    grants
        .into_iter()
        .map(|grant| PathGrant { activities: grant.activities.intersection(activities), ..grant })
        .filter(|grant| !grant.activities.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_has_no_dots() {
        assert_eq!(parse(b"/").unwrap(), []);
        assert_eq!(parse(b"//a//b/").unwrap().len(), 2);
        for bad in ["", "a", "/a/../b", "/./a", "/a\0"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse("/a".repeat(COMPONENTS_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn octets_are_decoded_and_never_become_a_slash_or_a_way_up() {
        assert_eq!(parse_encoded("/a%20b/%C3%A4").unwrap(), parse("/a b/ä".as_bytes()).unwrap());
        for bad in ["/a%2Fb", "/%2e%2e/b", "/%2", "/%zz", "/%00", "a"] {
            assert!(parse_encoded(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn any_name_survives_being_written() {
        let path = vec![Name::new(b"\xff\xfe %").unwrap(), Name::new(b"plain").unwrap()];
        assert_eq!(encode(&path), "/%FF%FE%20%25/plain");
        assert_eq!(parse_encoded(&encode(&path)).unwrap(), path);
        assert_eq!(encode(&[]), "/");
    }

    #[test]
    fn a_path_narrows_a_grant_and_never_moves_it() {
        let path = |text: &str| parse(text.as_bytes()).unwrap();
        let grant = |text: &str, is_below_only| PathGrant { path: path(text), is_below_only, ..everything() };
        assert_eq!(within(vec![grant("/a", true)], &path("/a/b")), [grant("/a/b", false)]);
        assert_eq!(within(vec![grant("/a/b", true)], &path("/a")), [grant("/a/b", true)]);
        assert_eq!(within(vec![grant("/a", true)], &path("/a")), [grant("/a", true)]);
        assert_eq!(within(vec![grant("/a", false)], &path("/ab")), []);
    }
}
