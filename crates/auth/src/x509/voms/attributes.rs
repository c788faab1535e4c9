//! The attribute certificate of a VOMS server, as it lies in a proxy (RFC 5755 §4 with the attributes of the VOMS
//! format): bytes to values, nothing is believed yet.

use std::sync::Arc;

use bytes::Bytes;

use super::super::certificate::Certificate;
use super::super::name::Name;
use super::super::signature::Signed;
use der::{DerError, Element, Reader, Tag};

const ATTRIBUTE_CERTIFICATES_MAX: usize = 8;
const EMBEDDED_MAX: usize = 10;
const FQANS_MAX: usize = 256;
const FQAN_BYTES_MAX: usize = 512;
const EXTENSIONS_MAX: usize = 32;
const TARGETS_MAX: usize = 64;

const FQANS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 4];
const ISSUER_CERTIFICATES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 10];
/// Free pairs of names and values; no rule here asks for them.
const GENERIC_ATTRIBUTES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 11];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
const TARGETS: &[u8] = &[0x55, 0x1d, 55];
const NO_REVOCATION: &[u8] = &[0x55, 0x1d, 56];

#[derive(Debug)]
pub struct AttributeCertificate {
    pub signed: Signed,
    pub holder_issuer: Name,
    pub holder_serial: Bytes,
    pub issuer: Name,
    pub not_before_s: i64,
    pub not_after_s: i64,
    /// As the server calls itself: `vo://host:port`.
    pub vo: String,
    pub host: String,
    pub fqans: Vec<String>,
    /// The server's certificate first; what lies above it may follow.
    pub embedded: Vec<Arc<Certificate>>,
    /// Lower case. `None`: for every server.
    pub targets: Option<Vec<String>>,
    pub unknown_critical: Option<String>,
}

/// The value of the extension in a proxy: SEQUENCE { SEQUENCE OF AttributeCertificate }.
pub fn read(extension: &Bytes) -> Result<Vec<AttributeCertificate>, DerError> {
    let mut outer = der::only(extension, Tag::SEQUENCE)?.reader();
    let mut certificates = outer.element(Tag::SEQUENCE)?.reader();
    outer.finish()?;
    let mut out = Vec::new();
    while !certificates.is_empty() {
        if out.len() == ATTRIBUTE_CERTIFICATES_MAX {
            return Err(DerError::Range);
        }
        let whole = certificates.element(Tag::SEQUENCE)?.whole;
        out.push(AttributeCertificate::from_der(&extension.slice_ref(whole))?);
    }
    Ok(out)
}

impl AttributeCertificate {
    fn from_der(der: &Bytes) -> Result<AttributeCertificate, DerError> {
        let signed = Signed::from_der(der)?;
        let content = signed.content.clone();
        let mut info = der::only(&content, Tag::SEQUENCE)?.reader();
        // v2, the only version since RFC 3281.
        if info.element(Tag::INTEGER)?.content != [1] {
            return Err(DerError::Range);
        }
        let (holder_issuer, holder_serial) = holder(info.element(Tag::SEQUENCE)?)?;
        let issuer = issuer(info.next_element()?)?;
        if info.element(Tag::SEQUENCE)?.whole != &*signed.algorithm {
            return Err(DerError::Range);
        }
        info.element(Tag::INTEGER)?;
        let mut validity = info.element(Tag::SEQUENCE)?.reader();
        let not_before_s = der::time(validity.element(Tag::GENERALIZED_TIME)?.content)?;
        let not_after_s = der::time(validity.element(Tag::GENERALIZED_TIME)?.content)?;
        validity.finish()?;
        let (vo, host, fqans) = fqans(info.element(Tag::SEQUENCE)?.reader())?;
        info.next_if(Tag::BIT_STRING)?;
        let mut out = AttributeCertificate {
            holder_issuer,
            holder_serial: content.slice_ref(holder_serial),
            issuer,
            not_before_s,
            not_after_s,
            vo,
            host,
            fqans,
            embedded: Vec::new(),
            targets: None,
            unknown_critical: None,
            signed,
        };
        if let Some(extensions) = info.next_if(Tag::SEQUENCE)? {
            out.read_extensions(extensions.reader(), &content)?;
        }
        info.finish()?;
        Ok(out)
    }

    fn read_extensions(&mut self, mut extensions: Reader<'_>, content: &Bytes) -> Result<(), DerError> {
        let mut seen: Vec<&[u8]> = Vec::new();
        while !extensions.is_empty() {
            let mut extension = extensions.element(Tag::SEQUENCE)?.reader();
            let oid = extension.element(Tag::OBJECT_IDENTIFIER)?.content;
            let is_critical = extension.next_if(Tag::BOOLEAN)?.is_some_and(|flag| flag.content != [0]);
            let value = extension.element(Tag::OCTET_STRING)?.content;
            extension.finish()?;
            if seen.contains(&oid) || seen.len() == EXTENSIONS_MAX {
                return Err(DerError::Range);
            }
            seen.push(oid);
            match oid {
                ISSUER_CERTIFICATES => self.embedded = embedded(value, content)?,
                TARGETS => self.targets = Some(targets(value)?),
                // There is no list to look into, or none that we have: what a server grants lives for hours.
                AUTHORITY_KEY | NO_REVOCATION | GENERIC_ATTRIBUTES => {}
                _ if is_critical => {
                    self.unknown_critical.get_or_insert_with(|| der::dotted(oid));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Only the form that names a certificate by issuer and serial number; VOMS writes no other.
fn holder(holder: Element<'_>) -> Result<(Name, &[u8]), DerError> {
    let mut fields = holder.reader();
    let mut id = fields.element(Tag::context(0))?.reader();
    fields.finish()?;
    let issuer = directory_name(id.element(Tag::SEQUENCE)?.reader())?;
    let serial = id.element(Tag::INTEGER)?.content;
    id.next_if(Tag::BIT_STRING)?;
    id.finish()?;
    Ok((issuer, serial))
}

/// The form of version 2, which RFC 5755 §4.2.3 demands; version 1's is the names alone.
fn issuer(issuer: Element<'_>) -> Result<Name, DerError> {
    match issuer.tag {
        Tag::SEQUENCE => directory_name(issuer.reader()),
        tag if tag == Tag::context(0) => {
            let mut form = issuer.reader();
            let name = directory_name(form.element(Tag::SEQUENCE)?.reader())?;
            form.finish()?;
            Ok(name)
        }
        _ => Err(DerError::Range),
    }
}

fn directory_name(mut names: Reader<'_>) -> Result<Name, DerError> {
    let name = Name::from_der(names.element(Tag::context(4))?.content)?;
    names.finish()?;
    Ok(name)
}

fn fqans(mut attributes: Reader<'_>) -> Result<(String, String, Vec<String>), DerError> {
    while !attributes.is_empty() {
        let mut attribute = attributes.element(Tag::SEQUENCE)?.reader();
        let oid = attribute.element(Tag::OBJECT_IDENTIFIER)?.content;
        let values = attribute.element(Tag::SET)?;
        attribute.finish()?;
        if oid != FQANS {
            continue;
        }
        let mut syntax = der::only(values.content, Tag::SEQUENCE)?.reader();
        let mut authority = syntax.element(Tag::context(0))?.reader();
        let (vo, host) = vo_and_host(authority.element(Tag::context_primitive(6))?.content)?;
        authority.finish()?;
        let mut list = syntax.element(Tag::SEQUENCE)?.reader();
        syntax.finish()?;
        let mut out = Vec::new();
        while !list.is_empty() {
            if out.len() == FQANS_MAX {
                return Err(DerError::Range);
            }
            out.push(fqan(list.element(Tag::OCTET_STRING)?.content)?);
        }
        return Ok((vo, host, out));
    }
    Err(DerError::Range)
}

/// `vo://host:port`.
fn vo_and_host(uri: &[u8]) -> Result<(String, String), DerError> {
    let (vo, server) = printable(uri)?.split_once("://").ok_or(DerError::Range)?;
    let host = server.split_once(':').map_or(server, |(host, _)| host);
    if vo.is_empty() || host.is_empty() {
        return Err(DerError::Range);
    }
    Ok((vo.to_owned(), host.to_owned()))
}

/// `/vo/group/Role=r/Capability=c`; a role or capability NULL is none.
fn fqan(bytes: &[u8]) -> Result<String, DerError> {
    let text = printable(bytes)?;
    let text = text.strip_suffix("/Capability=NULL").unwrap_or(text);
    let text = text.strip_suffix("/Role=NULL").unwrap_or(text);
    if !text.starts_with('/') || text.len() < 2 {
        return Err(DerError::Range);
    }
    Ok(text.to_owned())
}

fn printable(bytes: &[u8]) -> Result<&str, DerError> {
    let is_fine = bytes.len() <= FQAN_BYTES_MAX && bytes.iter().all(u8::is_ascii_graphic);
    if is_fine { str::from_utf8(bytes).map_err(|_| DerError::Range) } else { Err(DerError::Range) }
}

/// SEQUENCE { SEQUENCE OF Certificate }.
fn embedded(value: &[u8], content: &Bytes) -> Result<Vec<Arc<Certificate>>, DerError> {
    let mut outer = der::only(value, Tag::SEQUENCE)?.reader();
    let mut certificates = outer.element(Tag::SEQUENCE)?.reader();
    outer.finish()?;
    let mut out = Vec::new();
    while !certificates.is_empty() {
        if out.len() == EMBEDDED_MAX {
            return Err(DerError::Range);
        }
        let whole = certificates.element(Tag::SEQUENCE)?.whole;
        out.push(Certificate::from_der(&content.slice_ref(whole)).map_err(|_| DerError::Range)?);
    }
    Ok(out)
}

/// RFC 5755 §4.3.2: SEQUENCE OF SEQUENCE OF Target, of which names of hosts are understood.
fn targets(value: &[u8]) -> Result<Vec<String>, DerError> {
    let mut lists = der::only(value, Tag::SEQUENCE)?.reader();
    let mut out = Vec::new();
    while !lists.is_empty() {
        let mut targets = lists.element(Tag::SEQUENCE)?.reader();
        while !targets.is_empty() {
            if out.len() == TARGETS_MAX {
                return Err(DerError::Range);
            }
            let target = targets.next_element()?;
            if target.tag != Tag::context(0) {
                continue;
            }
            let name = target.reader().next_element()?;
            if [Tag::context_primitive(2), Tag::context_primitive(6)].contains(&name.tag) {
                out.push(printable(name.content)?.to_ascii_lowercase());
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use x509_parser::pem::parse_x509_pem;

    use super::*;
    use crate::x509::revocation::RevocationList;

    /// A proxy with attributes, made by the VOMS clients.
    const PROXY: &[u8] = include_bytes!("../../../tests/data/voms/proxy-rfc.pem");

    fn proxy() -> Bytes {
        parse_x509_pem(PROXY).expect("a PEM block").1.contents.into()
    }

    fn changed(
        bytes: &[u8],
        changes: &[(prop::sample::Index, u8)],
        cut: Option<prop::sample::Index>,
    ) -> Bytes {
        let mut bytes = bytes.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(at) = cut {
            bytes.remove(at.index(bytes.len()));
        }
        bytes.into()
    }

    proptest! {
        #[test]
        fn reading_of_any_bytes_ends_with_an_answer(
            changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
            cut in any::<Option<prop::sample::Index>>(),
            noise in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let proxy = proxy();
            let attributes = Certificate::from_der(&proxy).expect("a proxy").extensions.attributes.clone();
            let _ = Certificate::from_der(&changed(&proxy, &changes, cut));
            let _ = read(&changed(&attributes.expect("attributes"), &changes, cut));
            let noise = Bytes::from(noise);
            let _ = (Certificate::from_der(&noise), read(&noise), RevocationList::from_der(&noise));
            let _ = Name::from_der(&noise);
        }
    }

    #[test]
    fn roles_and_capabilities_that_are_null_are_none() {
        let read = |text: &str| fqan(text.as_bytes());
        assert_eq!(read("/atlas/Role=NULL/Capability=NULL").as_deref(), Ok("/atlas"));
        assert_eq!(
            read("/atlas/de/Role=production/Capability=NULL").as_deref(),
            Ok("/atlas/de/Role=production")
        );
        assert_eq!(read("/atlas/Role=pilot").as_deref(), Ok("/atlas/Role=pilot"));
        for bad in ["atlas", "/", "/a b", "/a\n/b", "/Role=NULL/Capability=NULL", ""] {
            assert_eq!(read(bad), Err(DerError::Range), "{bad:?}");
        }
    }

    #[test]
    fn a_server_is_an_organisation_and_a_host() {
        let read = |text: &str| vo_and_host(text.as_bytes()).ok();
        assert_eq!(read("atlas://voms.x.org:15001"), Some(("atlas".to_owned(), "voms.x.org".to_owned())));
        assert_eq!(read("atlas://voms.x.org"), Some(("atlas".to_owned(), "voms.x.org".to_owned())));
        assert_eq!(read("voms.x.org:15001"), None);
        assert_eq!(read("://x"), None);
        assert_eq!(read("atlas://:1"), None);
    }
}
