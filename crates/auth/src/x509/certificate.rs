//! One certificate, parsed once into what the rules ask for.
//!
//! The fields are read by `x509-parser`; a name and a signature are taken from the bytes themselves, since these are what
//! is compared and verified.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use x509_parser::prelude::{
    FromDer, GeneralName, GeneralSubtree, ParsedExtension, X509Certificate, X509Extension, X509Version,
};

use super::name::Name;
use super::signature::{PublicKey, Signed};
use der::{DerError, Tag};

/// A proxy with the attributes of a user in a hundred groups has about 12 KiB.
pub const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;

const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
/// Of the draft that became RFC 3820, as Globus Toolkit 3 wrote it.
const GT3_PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 0x81, 0x5e];
const VOMS_ATTRIBUTES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5];

#[derive(Debug)]
pub struct Certificate {
    pub signed: Signed,
    /// SHA-256 of the DER.
    pub digest: [u8; 32],
    pub subject: Name,
    pub issuer: Name,
    /// The INTEGER's bytes.
    pub serial: Bytes,
    pub not_before_s: i64,
    pub not_after_s: i64,
    pub key: PublicKey,
    /// Version 1 and 2 have no extensions, hence no word about what the certificate is for.
    pub is_version_3: bool,
    pub extensions: Extensions,
}

#[derive(Debug, Default)]
pub struct Extensions {
    pub basic_constraints: Option<BasicConstraints>,
    pub key_usage: Option<KeyUsage>,
    /// `None`: not restricted.
    pub is_for_clients: Option<bool>,
    pub name_constraints: Option<NameConstraints>,
    pub alternative_names: AlternativeNames,
    pub has_issuer_alternative_name: bool,
    pub proxy: Option<ProxyInfo>,
    /// The VOMS extension's value.
    pub attributes: Option<Bytes>,
    /// The first critical extension that no rule here knows.
    pub unknown_critical: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct BasicConstraints {
    pub is_authority: bool,
    pub path_len: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct KeyUsage {
    pub digital_signature: bool,
    pub key_cert_sign: bool,
    pub crl_sign: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    Email,
    Dns,
    Uri,
    Address,
    Other,
}

/// Subtrees of directory names are compared; of every other form it is only known that it is constrained.
#[derive(Debug, Default)]
pub struct NameConstraints {
    pub permitted: Vec<Name>,
    pub excluded: Vec<Name>,
    pub other_forms: Vec<NameForm>,
}

#[derive(Debug, Default)]
pub struct AlternativeNames {
    pub is_present: bool,
    pub directory: Vec<Name>,
    pub other_forms: Vec<NameForm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    pub is_critical: bool,
    /// The dialect of Globus Toolkit 3.
    pub is_draft: bool,
    pub path_len: Option<u32>,
    pub language: Box<[u8]>,
    pub has_policy: bool,
}

impl Certificate {
    pub fn from_der(der: &Bytes) -> Result<Arc<Certificate>, String> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(format!("{} bytes, at most {CERTIFICATE_BYTES_MAX}", der.len()));
        }
        let signed = Signed::from_der(der).map_err(|error| error.to_string())?;
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("bytes follow the certificate".to_owned());
        }
        let tbs = &parsed.tbs_certificate;
        if tbs.signature != parsed.signature_algorithm {
            return Err("two different signature algorithms are named".to_owned());
        }
        let mut digest_bytes = [0; 32];
        digest_bytes.copy_from_slice(digest(&SHA256, der).as_ref());
        Ok(Arc::new(Certificate {
            signed,
            digest: digest_bytes,
            subject: Name::from_der(tbs.subject().as_raw())
                .map_err(|_| "its subject is malformed".to_owned())?,
            issuer: Name::from_der(tbs.issuer().as_raw())
                .map_err(|_| "its issuer is malformed".to_owned())?,
            serial: der.slice_ref(tbs.raw_serial()),
            not_before_s: tbs.validity().not_before.timestamp(),
            not_after_s: tbs.validity().not_after.timestamp(),
            key: PublicKey::from_der(der, tbs.public_key().raw)
                .map_err(|_| "its key is malformed".to_owned())?,
            is_version_3: tbs.version() == X509Version::V3,
            extensions: Extensions::read(der, tbs.extensions())?,
        }))
    }

    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

impl Extensions {
    fn read(der: &Bytes, all: &[X509Extension<'_>]) -> Result<Extensions, String> {
        let mut out = Extensions::default();
        for (index, extension) in all.iter().enumerate() {
            let dotted = || der::dotted(extension.oid.as_bytes());
            if all[..index].iter().any(|before| before.oid == extension.oid) {
                return Err(format!("the extension {} stands twice", dotted()));
            }
            let is_known =
                out.take(der, extension).map_err(|_| format!("the extension {} is malformed", dotted()))?;
            if !is_known && extension.critical {
                out.unknown_critical.get_or_insert_with(dotted);
            }
        }
        Ok(out)
    }

    /// Whether the extension is one that a rule looks at, or one that asks for nothing.
    fn take(&mut self, der: &Bytes, extension: &X509Extension<'_>) -> Result<bool, DerError> {
        match extension.oid.as_bytes() {
            oid @ (PROXY_CERT_INFO | GT3_PROXY_CERT_INFO) => {
                let is_draft = oid == GT3_PROXY_CERT_INFO;
                self.proxy = Some(proxy_info(extension.value, extension.critical, is_draft)?);
                return Ok(true);
            }
            VOMS_ATTRIBUTES => {
                self.attributes = Some(der.slice_ref(extension.value));
                return Ok(true);
            }
            _ => {}
        }
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(basic) => {
                self.basic_constraints =
                    Some(BasicConstraints { is_authority: basic.ca, path_len: basic.path_len_constraint });
            }
            ParsedExtension::KeyUsage(usage) => {
                self.key_usage = Some(KeyUsage {
                    digital_signature: usage.digital_signature(),
                    key_cert_sign: usage.key_cert_sign(),
                    crl_sign: usage.crl_sign(),
                });
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                self.is_for_clients = Some(usage.any || usage.client_auth)
            }
            ParsedExtension::NameConstraints(constraints) => {
                let mut out = NameConstraints::default();
                for subtree in constraints.permitted_subtrees.iter().flatten() {
                    constrain(subtree, &mut out.permitted, &mut out.other_forms)?;
                }
                for subtree in constraints.excluded_subtrees.iter().flatten() {
                    constrain(subtree, &mut out.excluded, &mut out.other_forms)?;
                }
                self.name_constraints = Some(out);
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                self.alternative_names.is_present = true;
                for name in &names.general_names {
                    match form(name)? {
                        Form::Directory(name) => self.alternative_names.directory.push(name),
                        Form::Other(form) => self.alternative_names.other_forms.push(form),
                    }
                }
            }
            ParsedExtension::IssuerAlternativeName(_) => self.has_issuer_alternative_name = true,
            // Every policy is acceptable here, so these restrict nothing (RFC 5280 §6.1.1 (c)). `policyConstraints`
            // would, and stays unknown.
            ParsedExtension::CertificatePolicies(_)
            | ParsedExtension::PolicyMappings(_)
            | ParsedExtension::InhibitAnyPolicy(_) => {}
            ParsedExtension::ParseError { .. } => return Err(DerError::Range),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

enum Form {
    Directory(Name),
    Other(NameForm),
}

fn form(name: &GeneralName<'_>) -> Result<Form, DerError> {
    Ok(Form::Other(match name {
        GeneralName::DirectoryName(name) => return Ok(Form::Directory(Name::from_der(name.as_raw())?)),
        GeneralName::RFC822Name(_) => NameForm::Email,
        GeneralName::DNSName(_) => NameForm::Dns,
        GeneralName::URI(_) => NameForm::Uri,
        GeneralName::IPAddress(_) => NameForm::Address,
        GeneralName::OtherName(..)
        | GeneralName::X400Address(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => NameForm::Other,
    }))
}

fn constrain(
    subtree: &GeneralSubtree<'_>,
    directory: &mut Vec<Name>,
    other: &mut Vec<NameForm>,
) -> Result<(), DerError> {
    match form(&subtree.base)? {
        Form::Directory(name) => directory.push(name),
        Form::Other(form) => other.push(form),
    }
    Ok(())
}

/// RFC 3820 §3.8. The draft has the same fields; the path length there is `[1]`.
fn proxy_info(value: &[u8], is_critical: bool, is_draft: bool) -> Result<ProxyInfo, DerError> {
    let mut info =
        ProxyInfo { is_critical, is_draft, path_len: None, language: Box::default(), has_policy: false };
    if is_draft {
        return Ok(info);
    }
    let mut fields = der::only(value, Tag::SEQUENCE)?.reader();
    if let Some(length) = fields.next_if(Tag::INTEGER)? {
        info.path_len = Some(der::unsigned(length.content)?);
    }
    let mut policy = fields.element(Tag::SEQUENCE)?.reader();
    fields.finish()?;
    info.language = policy.element(Tag::OBJECT_IDENTIFIER)?.content.into();
    info.has_policy = policy.next_if(Tag::OCTET_STRING)?.is_some();
    policy.finish()?;
    Ok(info)
}
