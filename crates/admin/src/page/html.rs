//! HTML that cannot be forgotten to be escaped: only literals of the source go out as they are.
//!
//! Invariant: text from elsewhere (a name, a user, an error) passes `put`, which escapes for text and for quoted
//! attributes alike; an attribute is always written with double quotes.

use std::fmt::{self, Display, Write};

use types::Name;
use types::display::is_odd;

/// A piece of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

/// `html!(out; "<b>" (value) "</b>" [piece])`: literals as they are, `(…)` escaped, `[…]` made the same way.
macro_rules! html {
    ($out:expr; $($piece:tt)*) => {{ $($crate::page::html::piece!($out, $piece);)* }};
}
macro_rules! piece {
    ($out:expr, $raw:literal) => {
        $out.raw($raw)
    };
    ($out:expr, ($value:expr)) => {
        $out.put(&$value)
    };
    ($out:expr, [$piece:expr]) => {
        $out.append(&$piece)
    };
}
pub(crate) use {html, piece};

impl Html {
    pub fn new() -> Html {
        Html::default()
    }

    pub fn raw(&mut self, literal: &'static str) {
        self.0.push_str(literal);
    }

    pub fn put(&mut self, value: &dyn Display) {
        // Writing to a String cannot fail.
        let _ = write!(Escaping(&mut self.0), "{value}");
    }

    pub fn append(&mut self, piece: &Html) {
        self.0.push_str(&piece.0);
    }

    /// A name for people: apart from the direction of the text around it, with everything that one cannot see made
    /// visible.
    pub fn name(&mut self, name: &Name) {
        self.raw("<bdi>");
        for part in Part::of(name.as_bytes()) {
            match part {
                Part::Plain(text) => self.put(&text),
                Part::Odd(_) => html!(self; "<span class=\"odd\">" (part) "</span>"),
            }
        }
        self.raw("</bdi>");
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'', '\0']) {
            self.0.push_str(&rest[..at]);
            self.0.push_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                b'\'' => "&#39;",
                // NUL has no place in HTML, however it is written.
                _ => "\u{fffd}",
            });
            rest = &rest[at + 1..];
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// A name as plain text, for attributes and titles, where there are no elements.
pub(crate) struct Shown<'a>(pub &'a Name);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Part::of(self.0.as_bytes()).try_for_each(|part| write!(f, "{part}"))
    }
}

/// Of a name: text to be shown as it is, or something that would be invisible, misleading, or no text at all.
enum Part<'a> {
    Plain(&'a str),
    Odd(Odd),
}

enum Odd {
    Character(char),
    Byte(u8),
}

impl<'a> Part<'a> {
    fn of(bytes: &'a [u8]) -> impl Iterator<Item = Part<'a>> {
        bytes.utf8_chunks().flat_map(|chunk| {
            let text = chunk.valid().split_inclusive(is_odd).flat_map(|piece| {
                let odd = piece.chars().next_back().filter(|last| is_odd(*last));
                let plain = &piece[..piece.len() - odd.map_or(0, char::len_utf8)];
                let plain = (!plain.is_empty()).then_some(Part::Plain(plain));
                plain.into_iter().chain(odd.map(|odd| Part::Odd(Odd::Character(odd))))
            });
            text.chain(chunk.invalid().iter().map(|byte| Part::Odd(Odd::Byte(*byte))))
        })
    }
}

impl Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Plain(text) => f.write_str(text),
            Part::Odd(Odd::Character('\n')) => f.write_str("\\n"),
            Part::Odd(Odd::Character('\t')) => f.write_str("\\t"),
            Part::Odd(Odd::Character(odd)) => write!(f, "\\u{{{:x}}}", u32::from(*odd)),
            Part::Odd(Odd::Byte(byte)) => write!(f, "\\x{byte:02x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(name: &[u8]) -> String {
        Shown(&Name::new(name).unwrap()).to_string()
    }

    fn marked(name: &[u8]) -> String {
        let mut out = Html::new();
        out.name(&Name::new(name).unwrap());
        out.into_string()
    }

    #[test]
    fn inserted_values_are_escaped_as_text() {
        let mut out = Html::new();
        html!(out; "<a title=\"" ("\"><script>alert('&')") "\">");
        assert_eq!(out.into_string(), "<a title=\"&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)\">");
    }

    #[test]
    fn a_hostile_name_is_shown_and_does_nothing() {
        assert_eq!(marked(b"<script>"), "<bdi>&lt;script&gt;</bdi>");
        assert_eq!(marked(b"a\nb"), "<bdi>a<span class=\"odd\">\\n</span>b</bdi>");
        assert_eq!(shown("gpj\u{202e}exe".as_bytes()), "gpj\\u{202e}exe");
        assert_eq!(shown(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(shown("\u{e4}\u{5d0} \u{1f600}".as_bytes()), "\u{e4}\u{5d0} \u{1f600}");
    }

    proptest! {
        #[test]
        fn no_name_makes_an_element_or_leaves_an_attribute(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let Ok(name) = Name::new(&bytes) else { return Ok(()) };
            let text = marked(name.as_bytes());
            let text = text.strip_prefix("<bdi>").unwrap().strip_suffix("</bdi>").unwrap();
            let text = text.replace("<span class=\"odd\">", "").replace("</span>", "");
            prop_assert!(!text.contains(['<', '>', '"', '\'']));
            let mut out = Html::new();
            out.put(&Shown(&name));
            prop_assert_eq!(text, out.into_string());
        }
    }
}
