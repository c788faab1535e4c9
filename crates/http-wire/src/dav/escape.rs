//! Text and attribute values into XML. The output is well-formed for any input.

use bytes::{BufMut, BytesMut};

pub const XML_DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Character data. Carriage returns are written as references, since a reader turns bare ones into line feeds
/// (XML 1.0, §2.11).
pub fn text(out: &mut BytesMut, value: &str) {
    escape(out, value, |c| matches!(c, '<' | '>' | '&' | '\r'));
}

/// The inside of a double-quoted attribute value. White space other than blanks is written as references, since a
/// reader normalizes it (XML 1.0, §3.3.3).
pub fn attribute(out: &mut BytesMut, value: &str) {
    escape(out, value, |c| matches!(c, '<' | '>' | '&' | '"' | '\t' | '\n' | '\r'));
}

fn escape(out: &mut BytesMut, value: &str, special: impl Fn(char) -> bool) {
    let mut rest = value;
    while let Some(at) = rest.find(|c| special(c) || !is_xml_char(c)) {
        out.put_slice(&rest.as_bytes()[..at]);
        let mut chars = rest[at..].chars();
        match chars.next() {
            Some('<') => out.put_slice(b"&lt;"),
            Some('>') => out.put_slice(b"&gt;"),
            Some('&') => out.put_slice(b"&amp;"),
            Some('"') => out.put_slice(b"&quot;"),
            Some('\t') => out.put_slice(b"&#9;"),
            Some('\n') => out.put_slice(b"&#10;"),
            Some('\r') => out.put_slice(b"&#13;"),
            // File names may hold control characters; XML has no way to write them.
            _ => out.put_slice("\u{fffd}".as_bytes()),
        }
        rest = chars.as_str();
    }
    out.put_slice(rest.as_bytes());
}

/// XML 1.0, §2.2, production 2.
pub fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(how: fn(&mut BytesMut, &str), value: &str) -> String {
        let mut out = BytesMut::new();
        how(&mut out, value);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn markup_and_line_ends_are_escaped() {
        assert_eq!(escaped(text, "a<b>&\"c\"\r\n\t"), "a&lt;b&gt;&amp;\"c\"&#13;\n\t");
        assert_eq!(escaped(attribute, "a<b>&\"c\"\r\n\t"), "a&lt;b&gt;&amp;&quot;c&quot;&#13;&#10;&#9;");
    }

    #[test]
    fn a_character_that_xml_cannot_hold_becomes_a_replacement_character() {
        assert_eq!(escaped(text, "a\u{1}b\u{0}c\u{ffff}d\u{10000}"), "a\u{fffd}b\u{fffd}c\u{fffd}d\u{10000}");
    }
}
