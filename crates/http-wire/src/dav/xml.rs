//! Request bodies, read element by element with namespaces resolved.
//!
//! A body from the network is refused where it is not well-formed, where it declares a document type (entities that
//! expand, files that are fetched: RFC 4918 §20.6), and where it would make the reader hold more than it should.
//! Callers skip unknown elements (RFC 4918 §17), but they read the body to its end before they act on any of it.

mod capture;
mod scope;

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use thiserror::Error;

use super::QName;
use super::escape::is_xml_char;
use super::name::is_ncname;
use scope::Scopes;

pub use scope::XML_NAMESPACE;

/// Elements inside each other.
pub const DEPTH_MAX: usize = 64;
/// Of one element, declarations included.
pub const ATTRIBUTES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum XmlError {
    #[error("body is not well-formed XML: {0}")]
    Malformed(String),
    #[error("body declares a document type, which is refused")]
    DocumentType,
    #[error("body misuses a namespace: {0}")]
    Namespace(String),
    #[error("body is an element `{0}`, which this method does not take")]
    WrongRoot(String),
    /// Well-formed, but not what RFC 4918 describes.
    #[error("body says nothing this method understands: {0}")]
    Unexpected(&'static str),
    /// Larger than the bounds of this server; the answer is 413.
    #[error("body exceeds a bound: {0}")]
    Limit(&'static str),
}

impl XmlError {
    pub fn is_limit(&self) -> bool {
        matches!(self, XmlError::Limit(_))
    }
}

pub fn malformed(what: impl ToString) -> XmlError {
    XmlError::Malformed(what.to_string())
}

/// A start tag.
#[derive(Debug)]
pub struct Element {
    pub name: QName,
    /// As written; kept because values may speak of prefixes.
    pub prefix: String,
    pub attributes: Vec<Attribute>,
    /// `(prefix, namespace)` of the declarations on this very tag.
    pub declarations: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Attribute {
    pub prefix: String,
    pub name: QName,
    /// Normalized, references resolved.
    pub value: String,
}

impl Element {
    pub fn lang(&self) -> Option<&str> {
        let is_lang = |name: &QName| name.namespace == XML_NAMESPACE && name.local == "lang";
        self.attributes.iter().find(|attribute| is_lang(&attribute.name)).map(|lang| lang.value.as_str())
    }
}

enum Token<'a> {
    Open(Element),
    Close,
    Text(Cow<'a, str>),
    End,
}

/// A body being read. `root`, then `next_child` and its like for every open element, then `finish`.
pub struct XmlBody<'a> {
    reader: Reader<&'a [u8]>,
    scopes: Scopes,
    depth: usize,
    is_begun: bool,
}

impl<'a> XmlBody<'a> {
    /// `text` is what [`decode`] made of the body.
    pub fn new(text: &'a str) -> XmlBody<'a> {
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.enable_all_checks(true);
        config.expand_empty_elements = true;
        XmlBody { reader, scopes: Scopes::default(), depth: 0, is_begun: false }
    }

    /// Opens the root, which must be `{DAV:}local`.
    pub fn dav_root(&mut self, local: &str) -> Result<Element, XmlError> {
        let root = self.any_root()?;
        if root.name.is_dav(local) { Ok(root) } else { Err(XmlError::WrongRoot(root.name.to_string())) }
    }

    pub fn any_root(&mut self) -> Result<Element, XmlError> {
        match self.next()? {
            Token::Open(root) => Ok(root),
            _ => Err(malformed("there is no element")),
        }
    }

    /// Opens the next child of the element that is open; `None` closes that element. Text between is passed over.
    pub fn next_child(&mut self) -> Result<Option<Element>, XmlError> {
        loop {
            match self.next()? {
                Token::Open(child) => return Ok(Some(child)),
                Token::Close => return Ok(None),
                Token::Text(_) => {}
                Token::End => return Err(malformed("it ends inside an element")),
            }
        }
    }

    /// Passes over the rest of the element that is open, and closes it.
    pub fn skip(&mut self) -> Result<(), XmlError> {
        let outside = self.depth - 1;
        while self.depth > outside {
            if let Token::End = self.next()? {
                return Err(malformed("it ends inside an element"));
            }
        }
        Ok(())
    }

    /// The text of the element that is open and of all below it, without the tags; closes it.
    pub fn text(&mut self) -> Result<String, XmlError> {
        let (outside, mut text) = (self.depth - 1, String::new());
        while self.depth > outside {
            match self.next()? {
                Token::Text(part) => text.push_str(&part),
                Token::Open(_) | Token::Close => {}
                Token::End => return Err(malformed("it ends inside an element")),
            }
        }
        Ok(text)
    }

    /// The root is closed: nothing but comments may follow.
    pub fn finish(mut self) -> Result<(), XmlError> {
        match self.next()? {
            Token::End if self.depth == 0 => Ok(()),
            Token::End => Err(malformed("it ends inside an element")),
            _ => Err(malformed("something follows the last element")),
        }
    }

    fn next(&mut self) -> Result<Token<'a>, XmlError> {
        loop {
            let event = self.reader.read_event().map_err(malformed)?;
            let is_first = !std::mem::replace(&mut self.is_begun, true);
            let token = match event {
                Event::Start(tag) => Token::Open(self.open(&tag)?),
                Event::End(_) => {
                    self.scopes.leave(self.depth);
                    self.depth -= 1;
                    Token::Close
                }
                Event::Text(text) => {
                    let raw = text.decode().map_err(malformed)?;
                    if raw.contains("]]>") {
                        return Err(malformed("`]]>` stands in text"));
                    }
                    Token::Text(text.xml10_content().map_err(malformed)?)
                }
                Event::CData(data) if self.depth > 0 => Token::Text(data.xml10_content().map_err(malformed)?),
                Event::GeneralRef(reference) if self.depth > 0 => {
                    Token::Text(Cow::Owned(character(&reference)?))
                }
                Event::Decl(_) if is_first => continue,
                Event::Comment(_) | Event::PI(_) => continue,
                Event::DocType(_) => return Err(XmlError::DocumentType),
                Event::Eof => return Ok(Token::End),
                Event::CData(_) | Event::GeneralRef(_) | Event::Decl(_) | Event::Empty(_) => {
                    return Err(malformed("markup stands where it may not"));
                }
            };
            let Token::Text(text) = &token else { return Ok(token) };
            if !text.chars().all(is_xml_char) {
                return Err(malformed("a character is not one of XML's"));
            }
            if self.depth > 0 {
                return Ok(token);
            }
            if !text.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n')) {
                return Err(malformed("text stands outside of the element"));
            }
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<Element, XmlError> {
        if self.depth >= DEPTH_MAX {
            return Err(XmlError::Limit("elements are nested deeper than 64"));
        }
        self.depth += 1;
        let (prefix, local) = split_name(tag.name().into_inner())?;
        if !attributes_stand_apart(tag.attributes_raw()) {
            return Err(malformed("two attributes touch"));
        }
        let (mut plain, mut declarations) = (Vec::new(), Vec::new());
        for (count, attribute) in tag.attributes().enumerate() {
            if count >= ATTRIBUTES_MAX {
                return Err(XmlError::Limit("an element has more than 64 attributes"));
            }
            let attribute = attribute.map_err(malformed)?;
            if attribute.value.contains(&b'<') {
                return Err(malformed("`<` stands in an attribute"));
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(malformed)?.into_owned();
            if !value.chars().all(is_xml_char) {
                return Err(malformed("a character is not one of XML's"));
            }
            match split_name(attribute.key.into_inner())? {
                ("", "xmlns") => declarations.push((String::new(), value)),
                ("xmlns", prefix) => declarations.push((prefix.to_owned(), value)),
                (prefix, local) => plain.push((prefix.to_owned(), local.to_owned(), value)),
            }
        }
        for (prefix, namespace) in &declarations {
            self.scopes.declare(self.depth, prefix, namespace)?;
        }
        let name = QName { namespace: self.scopes.resolve(prefix)?.to_owned(), local: local.to_owned() };
        let attributes = self.resolve_attributes(plain)?;
        Ok(Element { name, prefix: prefix.to_owned(), attributes, declarations })
    }

    fn resolve_attributes(&self, plain: Vec<(String, String, String)>) -> Result<Vec<Attribute>, XmlError> {
        let mut attributes: Vec<Attribute> = Vec::with_capacity(plain.len());
        for (prefix, local, value) in plain {
            // An attribute without a prefix is in no namespace, whatever the default one (Namespaces, §6.2).
            let namespace = if prefix.is_empty() { "" } else { self.scopes.resolve(&prefix)? };
            let name = QName { namespace: namespace.to_owned(), local };
            if attributes.iter().any(|other| other.name == name) {
                return Err(malformed("an attribute stands twice"));
            }
            attributes.push(Attribute { prefix, name, value });
        }
        Ok(attributes)
    }
}

/// White space stands behind every value, as XML 1.0 §3.1 wants and the tokenizer does not check.
fn attributes_stand_apart(raw: &[u8]) -> bool {
    let mut quote = None;
    raw.iter().enumerate().all(|(at, byte)| match quote {
        Some(open) if open == *byte => {
            quote = None;
            raw.get(at + 1).is_none_or(u8::is_ascii_whitespace)
        }
        Some(_) => true,
        None => {
            quote = matches!(byte, b'"' | b'\'').then_some(*byte);
            true
        }
    })
}

/// Prefix and local part of a name as written.
fn split_name(raw: &[u8]) -> Result<(&str, &str), XmlError> {
    let text = std::str::from_utf8(raw).map_err(malformed)?;
    let (prefix, local) = text.split_once(':').unwrap_or(("", text));
    if (text.contains(':') && !is_ncname(prefix)) || !is_ncname(local) {
        return Err(malformed("a name is none"));
    }
    Ok((prefix, local))
}

/// A reference in text: a character by number, or one of the five that XML predefines.
fn character(reference: &BytesRef<'_>) -> Result<String, XmlError> {
    if let Some(c) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(c.to_string());
    }
    let name = reference.decode().map_err(malformed)?;
    resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| malformed("an entity is not declared"))
}

/// The characters of a body: UTF-8, or UTF-16 with a byte order mark (RFC 4918 §19 wants both).
pub fn decode(body: &[u8]) -> Result<Cow<'_, str>, XmlError> {
    match body {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest),
        _ => utf8(body),
    }
}

fn utf8(body: &[u8]) -> Result<Cow<'_, str>, XmlError> {
    let text = std::str::from_utf8(body).map_err(malformed)?;
    // Another encoding that happens to be valid UTF-8 would be misread; where all is ASCII it makes no difference.
    if !text.is_ascii() && declared_encoding(text).is_some_and(|name| !name.eq_ignore_ascii_case("utf-8")) {
        return Err(malformed("its encoding is neither UTF-8 nor UTF-16"));
    }
    Ok(Cow::Borrowed(text))
}

fn utf16(body: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Cow<'_, str>, XmlError> {
    let (pairs, odd) = body.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(malformed("half a character of UTF-16 is missing"));
    }
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .collect::<Result<String, _>>()
        .map(Cow::Owned)
        .map_err(malformed)
}

fn declared_encoding(text: &str) -> Option<&str> {
    let declaration = text.strip_prefix("<?xml")?.split_once("?>")?.0;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    value[1..].split_once(quote).map(|(name, _)| name)
}

#[cfg(test)]
mod tests;
