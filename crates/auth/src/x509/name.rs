//! Distinguished names: how they compare and how grids write them.
//!
//! Two names are equal as RFC 5280 §7.1 wants it: case, the kind of string and runs of blanks do not count. The written
//! form is the one of OpenSSL's `X509_NAME_oneline`, `/DC=org/CN=Name`, since mapping files, `.lsc` files and signing
//! policies are written in it. That form cannot tell a slash in a value from the next attribute (OpenSSL 3 writes a
//! backslash before it, the files do not), so a name that would read as another one is called ambiguous, and certificates
//! of users with such names are refused.

use std::fmt::Write;
use std::hash::{Hash, Hasher};

use der::{DerError, Reader, Tag};

const RDNS_MAX: usize = 64;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
pub const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// As OpenSSL abbreviates them.
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (EMAIL_ADDRESS, "emailAddress"),
];

#[derive(Clone, Debug)]
pub struct Name {
    rdns: Vec<Rdn>,
}

#[derive(Clone, Debug)]
struct Rdn {
    attributes: Vec<Attribute>,
    /// The form that is compared and hashed.
    canonical: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Attribute {
    oid: Box<[u8]>,
    value: Box<[u8]>,
}

impl Name {
    /// `whole` is the SEQUENCE with its tag.
    pub fn from_der(whole: &[u8]) -> Result<Name, DerError> {
        let mut sets = der::only(whole, Tag::SEQUENCE)?.reader();
        let mut rdns = Vec::new();
        while !sets.is_empty() {
            if rdns.len() == RDNS_MAX {
                return Err(DerError::Range);
            }
            rdns.push(Rdn::read(sets.element(Tag::SET)?.reader())?);
        }
        Ok(Name { rdns })
    }

    pub fn is_empty(&self) -> bool {
        self.rdns.is_empty()
    }

    /// `/DC=org/DC=example/CN=Name`; bytes that do not print as `\xHH`.
    pub fn oneline(&self) -> String {
        let mut out = String::new();
        let attributes = self.rdns.iter().flat_map(|rdn| rdn.attributes.iter().enumerate());
        for (index, attribute) in attributes {
            out.push(if index == 0 { '/' } else { '+' });
            match SHORT_NAMES.iter().find(|(oid, _)| *oid == &*attribute.oid) {
                Some((_, short)) => out.push_str(short),
                None => out.push_str(&der::dotted(&attribute.oid)),
            }
            out.push('=');
            for byte in &attribute.value {
                match byte {
                    b' '..=b'~' => out.push(char::from(*byte)),
                    // Writing to a String cannot fail.
                    _ => drop(write!(out, "\\x{byte:02X}")),
                }
            }
        }
        out
    }

    /// Whether `oneline` could be read as another name.
    pub fn is_ambiguous(&self) -> bool {
        self.attributes().any(|attribute| {
            let value = &attribute.value;
            let mimics_escape = value.windows(2).any(|pair| pair == b"\\x");
            let mimics_attribute =
                value.iter().enumerate().filter(|(_, byte)| [b'/', b'+'].contains(byte)).any(|(at, _)| {
                    let word = value[at + 1..]
                        .iter()
                        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'.');
                    let length = word.count();
                    length > 0 && value.get(at + 1 + length) == Some(&b'=')
                });
            mimics_escape || mimics_attribute
        })
    }

    /// Whether this is `parent` and one more RDN of a single common name (RFC 3820 §3.4), whose value is returned.
    pub fn common_name_below(&self, parent: &Name) -> Option<&[u8]> {
        let (last, above) = self.rdns.split_last()?;
        match &last.attributes[..] {
            [only] if &*only.oid == COMMON_NAME && above == parent.rdns.as_slice() => Some(&only.value),
            _ => None,
        }
    }

    pub fn is_within(&self, subtree: &Name) -> bool {
        self.rdns.starts_with(&subtree.rdns)
    }

    pub fn has_attribute(&self, oid: &[u8]) -> bool {
        self.attributes().any(|attribute| &*attribute.oid == oid)
    }

    fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.rdns.iter().flat_map(|rdn| &rdn.attributes)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.rdns == other.rdns
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rdns.len().hash(state);
        for rdn in &self.rdns {
            rdn.canonical.hash(state);
        }
    }
}

impl PartialEq for Rdn {
    fn eq(&self, other: &Rdn) -> bool {
        self.canonical == other.canonical
    }
}

impl Rdn {
    fn read(mut set: Reader<'_>) -> Result<Rdn, DerError> {
        let mut attributes = Vec::new();
        let mut canonical = Vec::new();
        while !set.is_empty() {
            let mut pair = set.element(Tag::SEQUENCE)?.reader();
            let (oid, value) = (pair.element(Tag::OBJECT_IDENTIFIER)?, pair.next_element()?);
            pair.finish()?;
            attributes.push(Attribute { oid: oid.content.into(), value: value.content.into() });
            canonical.push(canonical_attribute(oid.content, value.tag, value.content));
        }
        if attributes.is_empty() {
            return Err(DerError::Range);
        }
        // A set has no order.
        canonical.sort_unstable();
        Ok(Rdn { attributes, canonical: canonical.concat() })
    }
}

/// Lengths keep two different lists of attributes from having one form.
fn canonical_attribute(oid: &[u8], tag: Tag, value: &[u8]) -> Vec<u8> {
    let (kind, value) = match text(tag, value) {
        Some(text) => (Tag::UTF8_STRING, folded(&text).into_bytes()),
        None => (tag, value.to_vec()),
    };
    let mut out = Vec::with_capacity(oid.len() + value.len() + 9);
    out.extend((oid.len() as u32).to_be_bytes());
    out.extend(oid);
    out.push(kind.0);
    out.extend((value.len() as u32).to_be_bytes());
    out.extend(value);
    out
}

fn text(tag: Tag, value: &[u8]) -> Option<String> {
    match tag {
        Tag::UTF8_STRING => String::from_utf8(value.to_vec()).ok(),
        Tag::PRINTABLE_STRING | Tag::IA5_STRING | Tag::VISIBLE_STRING | Tag::T61_STRING => {
            Some(value.iter().copied().map(char::from).collect())
        }
        Tag::BMP_STRING => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            rest.is_empty().then(|| char::decode_utf16(units).collect::<Result<String, _>>().ok())?
        }
        Tag::UNIVERSAL_STRING => {
            let (fours, rest) = value.as_chunks::<4>();
            let points = fours.iter().map(|four| char::from_u32(u32::from_be_bytes(*four)));
            rest.is_empty().then(|| points.collect::<Option<String>>())?
        }
        _ => None,
    }
}

fn folded(text: &str) -> String {
    let mut words = text.split_ascii_whitespace();
    let mut out = words.next().unwrap_or_default().to_ascii_lowercase();
    for word in words {
        out.push(' ');
        out.push_str(&word.to_ascii_lowercase());
    }
    out
}

/// A oneline name as people write it into files: the old spellings of two attributes are read as the present ones, and
/// the backslashes that newer tools put before slashes fall.
pub fn respelled(oneline: &str) -> String {
    oneline
        .trim()
        .replace("\\/", "/")
        .replace("\\+", "+")
        .replace("/Email=", "/emailAddress=")
        .replace("/E=", "/emailAddress=")
        .replace("/USERID=", "/UID=")
}

#[cfg(test)]
mod tests {
    use der::tagged;

    use super::*;

    fn name(attributes: &[(&[u8], Tag, &[u8])]) -> Name {
        let sets: Vec<u8> = attributes
            .iter()
            .flat_map(|(oid, tag, value)| {
                let pair = [&tagged(Tag::OBJECT_IDENTIFIER, &[oid])[..], &tagged(*tag, &[value])];
                tagged(Tag::SET, &[&tagged(Tag::SEQUENCE, &pair)])
            })
            .collect();
        Name::from_der(&tagged(Tag::SEQUENCE, &[&sets])).expect("a name")
    }

    const O: &[u8] = &[0x55, 4, 10];

    #[test]
    fn case_blanks_and_the_kind_of_string_do_not_count() {
        let one = name(&[(O, Tag::PRINTABLE_STRING, b"Example  Org ")]);
        let other = name(&[(O, Tag::UTF8_STRING, b"example org")]);
        let wide = name(&[(O, Tag::BMP_STRING, b"\0E\0x\0a\0m\0p\0l\0e\0 \0o\0r\0g")]);
        assert_eq!(one, other);
        assert_eq!(one, wide);
        assert_ne!(one, name(&[(O, Tag::UTF8_STRING, b"example orgs")]));
    }

    #[test]
    fn a_name_is_written_as_openssl_does() {
        let written =
            name(&[(O, Tag::UTF8_STRING, b"Caf\xc3\xa9"), (COMMON_NAME, Tag::UTF8_STRING, b"host/a.b")]);
        assert_eq!(written.oneline(), "/O=Caf\\xC3\\xA9/CN=host/a.b");
        assert!(!written.is_ambiguous());
    }

    #[test]
    fn a_value_that_mimics_another_attribute_is_ambiguous() {
        for value in [&b"x/CN=Alice"[..], b"x/1.2.3=y", b"/O=y", b"a+OU=b", b"a\\xC3"] {
            assert!(name(&[(COMMON_NAME, Tag::UTF8_STRING, value)]).is_ambiguous());
        }
        for value in [&b"x/CN"[..], b"http://x.y/?a=b", b"/=", b"a/b/c"] {
            assert!(!name(&[(COMMON_NAME, Tag::UTF8_STRING, value)]).is_ambiguous());
        }
    }

    #[test]
    fn only_one_more_common_name_is_below() {
        let user = name(&[(O, Tag::UTF8_STRING, b"x"), (COMMON_NAME, Tag::UTF8_STRING, b"Alice")]);
        let proxy = name(&[
            (O, Tag::UTF8_STRING, b"x"),
            (COMMON_NAME, Tag::UTF8_STRING, b"Alice"),
            (COMMON_NAME, Tag::PRINTABLE_STRING, b"17"),
        ]);
        let unit = name(&[
            (O, Tag::UTF8_STRING, b"x"),
            (COMMON_NAME, Tag::UTF8_STRING, b"Alice"),
            (O, Tag::PRINTABLE_STRING, b"17"),
        ]);
        assert_eq!(proxy.common_name_below(&user), Some(&b"17"[..]));
        assert_eq!(user.common_name_below(&user), None);
        assert_eq!(unit.common_name_below(&user), None);
        assert!(proxy.is_within(&user) && !user.is_within(&proxy));
    }
}
