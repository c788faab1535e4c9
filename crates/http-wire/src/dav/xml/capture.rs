//! A part of a body as XML that stands alone.
//!
//! Names, prefixes, attributes, namespaces and text come out as they went in (RFC 4918 §4.3); comments and processing
//! instructions do not, and CDATA comes out as text. Declarations that stand outside of the part are repeated on its
//! first tag, if a name in it uses them, or if text in it looks as if it did (`xsi:type="xs:string"`).

use bytes::{BufMut, Bytes, BytesMut};

use super::{Element, Token, XML_NAMESPACE, XmlBody, XmlError, malformed};
use crate::dav::escape;

/// Declarations outside of a part on which the part depends.
struct Needed {
    /// One for each declaration that was in force there, outermost first.
    bindings: Vec<bool>,
    /// Names without a prefix mean no namespace, since none was in force.
    no_default: bool,
}

impl XmlBody<'_> {
    /// Everything from the start tag `root`, which was just opened, to its end; closes it. `lang` is the language
    /// that `root` is in if it does not say so itself.
    pub fn capture(
        &mut self,
        root: &Element,
        lang: Option<&str>,
        bytes_max: usize,
    ) -> Result<Bytes, XmlError> {
        let outside = self.depth - 1;
        let inherited = self.scopes.len() - root.declarations.len();
        let mut needed = Needed { bindings: vec![false; inherited], no_default: false };
        let mut out = BytesMut::new();
        self.need_names(root, &mut needed);
        put_name(&mut out, b"<", root);
        let declarations_at = out.len();
        put_attributes(&mut out, root);
        if let (Some(lang), None) = (lang, root.lang()) {
            put_attribute(&mut out, "xml", "lang", lang);
        }
        out.put_u8(b'>');
        let mut open = Vec::new();
        while self.depth > outside {
            match self.next()? {
                Token::Open(element) => {
                    self.need_names(&element, &mut needed);
                    put_name(&mut out, b"<", &element);
                    put_attributes(&mut out, &element);
                    out.put_u8(b'>');
                    open.push(element);
                }
                Token::Close => match open.pop() {
                    Some(element) => put_end(&mut out, &element),
                    None => put_end(&mut out, root),
                },
                Token::Text(text) => {
                    self.need_spoken_of(&text, &mut needed);
                    escape::text(&mut out, &text);
                }
                Token::End => return Err(malformed("it ends inside an element")),
            }
            if out.len() > bytes_max {
                return Err(too_long());
            }
        }
        let captured = self.with_declarations(&out, declarations_at, &needed);
        if captured.len() > bytes_max { Err(too_long()) } else { Ok(captured) }
    }

    /// Puts the declarations of the outside that are needed onto the first tag.
    fn with_declarations(&self, xml: &[u8], at: usize, needed: &Needed) -> Bytes {
        let mut out = BytesMut::with_capacity(xml.len());
        out.put_slice(&xml[..at]);
        if needed.no_default {
            put_declaration(&mut out, "", "");
        }
        let inherited = self.scopes.outermost(needed.bindings.len()).iter();
        for (binding, _) in inherited.zip(&needed.bindings).filter(|(_, need)| **need) {
            put_declaration(&mut out, &binding.prefix, &binding.namespace);
        }
        out.put_slice(&xml[at..]);
        out.freeze()
    }

    fn need_names(&self, element: &Element, needed: &mut Needed) {
        self.need(&element.prefix, needed);
        for attribute in &element.attributes {
            if !attribute.prefix.is_empty() {
                self.need(&attribute.prefix, needed);
            }
            self.need_spoken_of(&attribute.value, needed);
        }
    }

    fn need(&self, prefix: &str, needed: &mut Needed) {
        match self.scopes.position(prefix) {
            // Beyond these it is declared inside.
            Some(at) => needed.bindings.get_mut(at).into_iter().for_each(|flag| *flag = true),
            None => needed.no_default |= prefix.is_empty(),
        }
    }

    fn need_spoken_of(&self, text: &str, needed: &mut Needed) {
        if !text.contains(':') {
            return;
        }
        for binding in
            self.scopes.outermost(needed.bindings.len()).iter().filter(|binding| !binding.prefix.is_empty())
        {
            let speaks = text
                .match_indices(&binding.prefix)
                .any(|(at, prefix)| text[at + prefix.len()..].starts_with(':'));
            if speaks {
                self.need(&binding.prefix, needed);
            }
        }
    }
}

fn too_long() -> XmlError {
    XmlError::Limit("a value is too long")
}

fn put_name(out: &mut BytesMut, before: &[u8], element: &Element) {
    out.put_slice(before);
    if !element.prefix.is_empty() {
        out.put_slice(element.prefix.as_bytes());
        out.put_u8(b':');
    }
    out.put_slice(element.name.local.as_bytes());
}

fn put_end(out: &mut BytesMut, element: &Element) {
    put_name(out, b"</", element);
    out.put_u8(b'>');
}

fn put_attributes(out: &mut BytesMut, element: &Element) {
    for (prefix, namespace) in &element.declarations {
        put_declaration(out, prefix, namespace);
    }
    for attribute in &element.attributes {
        let prefix = if attribute.name.namespace == XML_NAMESPACE { "xml" } else { &attribute.prefix };
        put_attribute(out, prefix, &attribute.name.local, &attribute.value);
    }
}

fn put_declaration(out: &mut BytesMut, prefix: &str, namespace: &str) {
    match prefix {
        "" => put_attribute(out, "", "xmlns", namespace),
        prefix => put_attribute(out, "xmlns", prefix, namespace),
    }
}

fn put_attribute(out: &mut BytesMut, prefix: &str, local: &str, value: &str) {
    out.put_u8(b' ');
    if !prefix.is_empty() {
        out.put_slice(prefix.as_bytes());
        out.put_u8(b':');
    }
    out.put_slice(local.as_bytes());
    out.put_slice(b"=\"");
    escape::attribute(out, value);
    out.put_u8(b'"');
}
