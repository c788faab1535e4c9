//! Which file a request means: the path of its target as names, the query as pairs, and the way back to a URL.
//!
//! Invariants: percent-encoding is undone exactly once; a path that another reader might resolve elsewhere (a dot
//! component, an encoded slash, a NUL) is refused, never repaired; depth and length have bounds.
//!
//! Deliberately absent: `+` for a space, which only forms have; `;` parameters, which are part of the name.

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use types::{Name, NameError};

use crate::escapes::decode;
pub use crate::query::{Query, parse_form};
pub use crate::target_error::{DEPTH_MAX, PATH_BYTES_MAX, TargetError};
pub use crate::url::{AbsoluteUrl, Reference, Scheme, UrlError};

/// A place in the namespace and what else the URL says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// From the root; empty means the root.
    pub path: Vec<Name>,
    /// The path ended with a slash, as that of a collection should.
    pub trailing_slash: bool,
    pub query: Query,
}

impl Target {
    pub fn of_uri(uri: &Uri) -> Result<Target, TargetError> {
        Target::parse(uri.path(), uri.query())
    }

    pub fn parse(path: &str, query: Option<&str>) -> Result<Target, TargetError> {
        let query = query.map(Query::parse).transpose()?.unwrap_or_default();
        Ok(Target { path: parse_path(path)?, trailing_slash: path.ends_with('/'), query })
    }
}

/// Slashes that follow each other count as one (as the kernel has it, and Apache).
pub fn parse_path(path: &str) -> Result<Vec<Name>, TargetError> {
    let inner = path.strip_prefix('/').ok_or(TargetError::NotAPath)?;
    let (mut names, mut bytes) = (Vec::new(), 0);
    for component in inner.split('/').filter(|component| !component.is_empty()) {
        let name = if component.contains('%') {
            Name::new(&decode(component)?)
        } else {
            Name::new(component.as_bytes())
        };
        let name = name.map_err(|error| match error {
            NameError::Dot => TargetError::Dot,
            NameError::TooLong => TargetError::NameTooLong,
            NameError::BadCharacter | NameError::Empty => TargetError::BadCharacter,
        })?;
        bytes += name.as_bytes().len();
        if bytes > PATH_BYTES_MAX || names.len() == DEPTH_MAX {
            return Err(TargetError::TooLong);
        }
        names.push(name);
    }
    Ok(names)
}

/// Left as they are: the unreserved characters of RFC 3986 §2.3 and those of a path segment that neither XML, nor
/// HTML, nor a reader that takes `+` for a space could trip over.
const KEPT_IN_NAMES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b':')
    .remove(b'=')
    .remove(b'@');

/// Appends one name, for an href. The result may stand in XML, HTML and a header as it is.
pub fn put_name(out: &mut String, name: &[u8]) {
    out.extend(percent_encode(name, KEPT_IN_NAMES));
}

/// The path of a URL; a collection's ends with a slash.
pub fn encode_path(path: &[Name], trailing_slash: bool) -> String {
    let mut out = String::with_capacity(path.iter().map(|name| name.as_bytes().len() + 1).sum::<usize>() + 1);
    for name in path {
        out.push('/');
        put_name(&mut out, name.as_bytes());
    }
    if trailing_slash || path.is_empty() {
        out.push('/');
    }
    out
}

/// For a name or value in a query that is made here.
pub fn put_query_text(out: &mut String, text: &str) {
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    out.extend(percent_encode(text.as_bytes(), KEPT));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use http::StatusCode;

    use super::*;

    fn names(path: &str) -> Vec<Vec<u8>> {
        let path = parse_path(path).unwrap_or_else(|error| panic!("{error}: {path}"));
        path.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_path_is_decoded_exactly_once() {
        assert_eq!(names("/"), Vec::<Vec<u8>>::new());
        assert_eq!(names("/a/b%20c"), [b"a".to_vec(), b"b c".to_vec()]);
        assert_eq!(names("/%2541%25"), [b"%41%".to_vec()]);
        assert_eq!(names("/a+b;c=d:@&'"), [b"a+b;c=d:@&'".to_vec()]);
        assert_eq!(
            names("/\u{e4}/%c3%A4/%ff%0a"),
            [b"\xc3\xa4".to_vec(), b"\xc3\xa4".to_vec(), b"\xff\n".to_vec()]
        );
        assert_eq!(names("/%252e%252e/..."), [b"%2e%2e".to_vec(), b"...".to_vec()]);
    }

    #[test]
    fn slashes_that_follow_each_other_count_as_one() {
        assert_eq!(names("//a///b/"), [b"a".to_vec(), b"b".to_vec()]);
        assert!(Target::parse("/a//", None).unwrap().trailing_slash);
        assert!(Target::parse("/", None).unwrap().trailing_slash);
        assert!(!Target::parse("/a", None).unwrap().trailing_slash);
    }

    #[test]
    fn tricks_with_paths_are_refused() {
        for (path, expected) in [
            ("/a/../b", TargetError::Dot),
            ("/..", TargetError::Dot),
            ("/./a", TargetError::Dot),
            ("/%2e%2e/a", TargetError::Dot),
            ("/.%2E/a", TargetError::Dot),
            ("/%2e", TargetError::Dot),
            ("/a%2fb", TargetError::BadCharacter),
            ("/..%2Fetc", TargetError::BadCharacter),
            ("/a%00", TargetError::BadCharacter),
            ("/a\0", TargetError::BadCharacter),
            ("/a%", TargetError::Escape),
            ("/a%2", TargetError::Escape),
            ("/a%zz", TargetError::Escape),
            ("/a%+1", TargetError::Escape),
            ("/%u002e", TargetError::Escape),
            ("a", TargetError::NotAPath),
            ("*", TargetError::NotAPath),
            ("", TargetError::NotAPath),
        ] {
            assert_eq!(parse_path(path), Err(expected), "{path}");
            assert_eq!(expected.status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn a_path_is_neither_too_long_nor_too_deep() {
        assert_eq!(names(&format!("/{}", "%61".repeat(255)))[0].len(), 255);
        assert_eq!(parse_path(&format!("/{}", "a".repeat(256))), Err(TargetError::NameTooLong));
        assert_eq!(names(&"/a".repeat(DEPTH_MAX)).len(), DEPTH_MAX);
        assert_eq!(parse_path(&"/a".repeat(DEPTH_MAX + 1)), Err(TargetError::TooLong));
        assert_eq!(parse_path(&format!("/{}", "a".repeat(255)).repeat(33)), Err(TargetError::TooLong));
        assert_eq!(TargetError::TooLong.status(), StatusCode::URI_TOO_LONG);
        assert_eq!(TargetError::NameTooLong.status(), StatusCode::URI_TOO_LONG);
    }

    #[test]
    fn an_href_needs_no_escaping_in_xml_or_html() {
        let path = [Name::new(b"a b&<c>\"'").unwrap(), Name::new("\u{e4}+%#?;".as_bytes()).unwrap()];
        assert_eq!(encode_path(&path, false), "/a%20b%26%3Cc%3E%22%27/%C3%A4%2B%25%23%3F%3B");
        assert_eq!((encode_path(&[], false), encode_path(&[], true)), ("/".to_owned(), "/".to_owned()));
        let mut text = String::new();
        put_query_text(&mut text, "a b&c=d/+");
        assert_eq!(text, "a%20b%26c%3Dd%2F%2B");
    }

    proptest! {
        #[test]
        fn a_path_survives_being_encoded(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..5),
            slash: bool,
        ) {
            let path: Vec<Name> = parts.iter().filter_map(|part| Name::new(part).ok()).collect();
            let text = encode_path(&path, slash);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            let uri: Uri = text.parse().unwrap();
            let target = Target::of_uri(&uri).unwrap();
            prop_assert_eq!(target.trailing_slash, slash || path.is_empty());
            prop_assert_eq!(target.path, path);
        }

        #[test]
        fn a_path_that_is_read_is_read_the_same_from_its_own_encoding(text in "/([a-c./%]|%2[ef0-9]|%25){0,20}") {
            if let Ok(path) = parse_path(&text) {
                prop_assert_eq!(parse_path(&encode_path(&path, false)), Ok(path));
            }
        }
    }
}
