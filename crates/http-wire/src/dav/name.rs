//! Expanded names of XML (Namespaces in XML 1.0, §2.1), as elements and properties bear them.

use std::fmt;

use super::DAV;

/// `{namespace}local` of a property, together; what the store of properties takes.
pub const PROPERTY_NAME_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QName {
    /// Empty: no namespace.
    pub namespace: String,
    /// An NCName; see [`is_ncname`].
    pub local: String,
}

impl QName {
    /// `None` if `local` could not stand in a tag.
    pub fn new(namespace: impl Into<String>, local: impl Into<String>) -> Option<QName> {
        let name = QName { namespace: namespace.into(), local: local.into() };
        is_ncname(&name.local).then_some(name)
    }

    pub fn is_dav(&self, local: &str) -> bool {
        self.namespace == DAV && self.local == local
    }

    /// Reads what `Display` writes: `{namespace}local`, also with an empty namespace.
    pub fn parse(text: &str) -> Option<QName> {
        // A namespace may hold `}`, a local name may not.
        let (namespace, local) = text.strip_prefix('{')?.rsplit_once('}')?;
        QName::new(namespace, local)
    }

    /// Bytes of what `Display` writes.
    pub fn written_bytes(&self) -> usize {
        self.namespace.len() + self.local.len() + 2
    }
}

impl fmt::Display for QName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}{}", self.namespace, self.local)
    }
}

/// Namespaces in XML 1.0, §3: a name without a colon. Names that are echoed into an answer have passed this test.
pub fn is_ncname(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(is_name_start) && chars.all(is_name_char)
}

/// XML 1.0 (fifth edition), §2.3, production 4, without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Production 4a, without the colon.
fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_being_written() {
        for (namespace, local) in [("DAV:", "owner"), ("", "x"), ("http://a/}b{", "é-1.x"), ("urn:ü", "_")]
        {
            let name = QName::new(namespace, local).unwrap();
            assert_eq!(QName::parse(&name.to_string()), Some(name.clone()));
            assert_eq!(name.to_string().len(), name.written_bytes());
        }
    }

    #[test]
    fn text_that_cannot_stand_in_a_tag_is_no_local_name() {
        for local in ["", "1a", "-a", "a b", "a:b", "a>", "a\u{d7}", "\u{0}", "a/"] {
            assert_eq!(QName::new("DAV:", local), None, "{local:?}");
        }
        for text in ["owner", "DAV:owner", "{DAV:", "{DAV:}"] {
            assert_eq!(QName::parse(text), None, "{text:?}");
        }
    }
}
