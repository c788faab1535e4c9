//! A small writer of certificates, revocation lists and attribute certificates, right ones and wrong ones.
//!
//! The libraries that write certificates refuse to write bad ones, and none writes proxies; so the DER is put together
//! here.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use bytes::Bytes;

/// 2033-05-18 03:33:20 UTC.
pub const NOW_S: u64 = 2_000_000_000;
pub const DAY_S: u64 = 86_400;

pub const INHERIT_ALL: &str = "1.3.6.1.5.5.7.21.1";
pub const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
pub const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";
pub const VOMS: &str = "1.3.6.1.4.1.8005.100.100";

pub const KEY_CERT_SIGN_AND_CRL_SIGN: u8 = 0x06;
pub const DIGITAL_SIGNATURE: u8 = 0x80;
pub const KEY_ENCIPHERMENT: u8 = 0x20;

pub fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    der::tagged(der::Tag(tag), &[body])
}

pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

pub fn oid(dotted: &str) -> Vec<u8> {
    let arcs: Vec<u64> = dotted.split('.').map(|arc| arc.parse().expect("a number")).collect();
    let mut body = vec![(arcs[0] * 40 + arcs[1]) as u8];
    for arc in &arcs[2..] {
        let mut digits = vec![(arc & 0x7f) as u8];
        let mut rest = arc >> 7;
        while rest > 0 {
            digits.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        body.extend(digits.iter().rev());
    }
    tlv(0x06, &body)
}

pub fn integer(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
    let mut body = bytes[zeros..].to_vec();
    if body[0] & 0x80 != 0 {
        body.insert(0, 0);
    }
    tlv(0x02, &body)
}

/// A name from its oneline form; values have no slashes.
pub fn name(oneline: &str) -> Vec<u8> {
    let rdn = |part: &str| {
        let (kind, value) = part.split_once('=').expect("an attribute");
        let (kind, tag) = match kind {
            "DC" => ("0.9.2342.19200300.100.1.25", 0x16),
            "C" => ("2.5.4.6", 0x13),
            "O" => ("2.5.4.10", 0x0c),
            "OU" => ("2.5.4.11", 0x0c),
            "CN" => ("2.5.4.3", 0x0c),
            "emailAddress" => ("1.2.840.113549.1.9.1", 0x16),
            _ => panic!("{kind} is not known here"),
        };
        // So that a test can put a slash into a value.
        let value = value.replace('|', "/");
        tlv(0x31, &sequence(&[&oid(kind), &tlv(tag, value.as_bytes())]))
    };
    tlv(0x30, &oneline.split('/').skip(1).flat_map(rdn).collect::<Vec<u8>>())
}

pub fn time(at_s: u64) -> Vec<u8> {
    der::put_time(i64::try_from(at_s).expect("a moment of the tests"))
}

pub fn extension(id: &str, is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[0x01, 0x01, 0xff] } else { &[] };
    sequence(&[&oid(id), critical, &tlv(0x04, value)])
}

pub fn basic_constraints(is_authority: bool, path_len: Option<u64>) -> Vec<u8> {
    let flag: &[u8] = if is_authority { &[0x01, 0x01, 0xff] } else { &[] };
    let length = path_len.map(integer).unwrap_or_default();
    extension("2.5.29.19", true, &sequence(&[flag, &length]))
}

pub fn key_usage(bits: u8) -> Vec<u8> {
    extension("2.5.29.15", true, &tlv(0x03, &[bits.trailing_zeros() as u8, bits]))
}

/// `serverAuth` ends in 1, `clientAuth` in 2.
pub fn extended_key_usage(last: u8) -> Vec<u8> {
    extension("2.5.29.37", false, &sequence(&[&oid(&format!("1.3.6.1.5.5.7.3.{last}"))]))
}

pub fn alternative_dns(host: &str) -> Vec<u8> {
    extension("2.5.29.17", false, &sequence(&[&tlv(0x82, host.as_bytes())]))
}

/// Subtrees are whole GeneralNames.
pub fn name_constraints(permitted: &[Vec<u8>], excluded: &[Vec<u8>]) -> Vec<u8> {
    let subtrees = |tag: u8, names: &[Vec<u8>]| {
        let all: Vec<u8> = names.iter().flat_map(|name| sequence(&[name])).collect();
        if all.is_empty() { all } else { tlv(tag, &all) }
    };
    let value = sequence(&[&subtrees(0xa0, permitted), &subtrees(0xa1, excluded)]);
    extension("2.5.29.30", true, &value)
}

pub fn directory_name(oneline: &str) -> Vec<u8> {
    tlv(0xa4, &name(oneline))
}

pub fn proxy_info(language: &str, path_len: Option<u64>, is_critical: bool) -> Vec<u8> {
    let length = path_len.map(integer).unwrap_or_default();
    let value = sequence(&[&length, &sequence(&[&oid(language)])]);
    extension("1.3.6.1.5.5.7.1.14", is_critical, &value)
}

pub fn ecdsa_with_sha256() -> Vec<u8> {
    sequence(&[&oid("1.2.840.10045.4.3.2")])
}

pub fn sha1_with_rsa() -> Vec<u8> {
    sequence(&[&oid("1.2.840.113549.1.1.5"), &[0x05, 0x00]])
}

pub struct Key {
    pair: EcdsaKeyPair,
}

impl Key {
    pub fn new() -> Key {
        Key { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key") }
    }

    fn info(&self) -> Vec<u8> {
        let algorithm = sequence(&[&oid("1.2.840.10045.2.1"), &oid("1.2.840.10045.3.1.7")]);
        sequence(&[&algorithm, &bits(self.pair.public_key().as_ref())])
    }

    /// SEQUENCE { content, algorithm, signature }.
    pub fn seal(&self, content: &[u8], algorithm: &[u8]) -> Bytes {
        let signature = self.pair.sign(&SystemRandom::new(), content).expect("a signature");
        sequence(&[content, algorithm, &bits(signature.as_ref())]).into()
    }
}

fn bits(octets: &[u8]) -> Vec<u8> {
    tlv(0x03, &[&[0], octets].concat())
}

/// An RSA key whose modulus nobody can factor in time for this test, nor use.
pub fn rsa_key_info(bits_count: usize) -> Vec<u8> {
    let modulus = [&[0][..], &vec![0xc5; bits_count / 8]].concat();
    let key = sequence(&[&tlv(0x02, &modulus), &integer(65_537)]);
    sequence(&[&sequence(&[&oid("1.2.840.113549.1.1.1"), &[0x05, 0x00]]), &bits(&key)])
}

/// Somebody with a certificate and its key.
pub struct Holder {
    pub subject: String,
    pub issuer: String,
    pub serial: u64,
    pub key: Key,
    pub der: Bytes,
}

pub struct Draft {
    pub subject: String,
    pub issuer: String,
    pub serial: u64,
    pub from_s: u64,
    pub until_s: u64,
    pub extensions: Vec<Vec<u8>>,
    pub is_version_3: bool,
    /// Named inside and outside.
    pub algorithms: [Vec<u8>; 2],
    pub key_info: Option<Vec<u8>>,
}

impl Draft {
    pub fn of(subject: &str, issuer: &str) -> Draft {
        Draft {
            subject: subject.to_owned(),
            issuer: issuer.to_owned(),
            serial: 0x1001,
            from_s: NOW_S - DAY_S,
            until_s: NOW_S + DAY_S,
            extensions: Vec::new(),
            is_version_3: true,
            algorithms: [ecdsa_with_sha256(), ecdsa_with_sha256()],
            key_info: None,
        }
    }

    pub fn with(mut self, extension: Vec<u8>) -> Draft {
        self.extensions.push(extension);
        self
    }

    pub fn without(mut self, id: &str) -> Draft {
        let id = oid(id);
        self.extensions
            .retain(|extension| !extension[2..].starts_with(&id) && !extension[3..].starts_with(&id));
        self
    }

    pub fn change(mut self, change: impl FnOnce(&mut Draft)) -> Draft {
        change(&mut self);
        self
    }

    pub fn signed_by(self, signer: &Holder) -> Holder {
        let key = Key::new();
        let der = self.der(&key, &signer.key);
        Holder { subject: self.subject, issuer: self.issuer, serial: self.serial, key, der }
    }

    pub fn self_signed(self) -> Holder {
        let key = Key::new();
        let der = self.der(&key, &key);
        Holder { subject: self.subject, issuer: self.issuer, serial: self.serial, key, der }
    }

    fn der(&self, key: &Key, signer: &Key) -> Bytes {
        let version = if self.is_version_3 { tlv(0xa0, &integer(2)) } else { Vec::new() };
        let extensions = match &self.extensions[..] {
            [] => Vec::new(),
            some => tlv(0xa3, &tlv(0x30, &some.concat())),
        };
        let content = sequence(&[
            &version,
            &integer(self.serial),
            &self.algorithms[0],
            &name(&self.issuer),
            &sequence(&[&time(self.from_s), &time(self.until_s)]),
            &name(&self.subject),
            &self.key_info.clone().unwrap_or_else(|| key.info()),
            &extensions,
        ]);
        signer.seal(&content, &self.algorithms[1])
    }
}

pub fn root_draft(subject: &str) -> Draft {
    Draft::of(subject, subject)
        .with(basic_constraints(true, None))
        .with(key_usage(KEY_CERT_SIGN_AND_CRL_SIGN))
        .change(|draft| draft.until_s = NOW_S + 3650 * DAY_S)
}

pub fn root(subject: &str) -> Holder {
    root_draft(subject).self_signed()
}

impl Holder {
    pub fn authority_draft(&self, subject: &str) -> Draft {
        Draft::of(subject, &self.subject)
            .with(basic_constraints(true, None))
            .with(key_usage(KEY_CERT_SIGN_AND_CRL_SIGN))
    }

    pub fn authority(&self, subject: &str) -> Holder {
        self.authority_draft(subject).signed_by(self)
    }

    pub fn user_draft(&self, subject: &str) -> Draft {
        Draft::of(subject, &self.subject)
            .with(basic_constraints(false, None))
            .with(key_usage(DIGITAL_SIGNATURE))
    }

    pub fn user(&self, subject: &str) -> Holder {
        self.user_draft(subject).signed_by(self)
    }

    /// Without the information that makes it a proxy.
    pub fn bare_proxy_draft(&self, common_name: &str) -> Draft {
        Draft::of(&format!("{}/CN={common_name}", self.subject), &self.subject)
            .with(key_usage(DIGITAL_SIGNATURE))
            .change(|draft| draft.until_s = NOW_S + DAY_S / 2)
    }

    pub fn proxy_draft(&self, common_name: &str) -> Draft {
        self.bare_proxy_draft(common_name).with(proxy_info(INHERIT_ALL, None, true))
    }

    pub fn proxy(&self, common_name: &str) -> Holder {
        self.proxy_draft(common_name).signed_by(self)
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }
}

pub fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let word = three.iter().chain(&[0, 0]).take(3).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
        if text.len() % 65 == 64 {
            text.push('\n');
        }
    }
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", text.trim_end())
}

pub struct RevocationDraft {
    pub serials: Vec<u64>,
    pub from_s: u64,
    pub until_s: Option<u64>,
    pub extensions: Vec<Vec<u8>>,
}

impl RevocationDraft {
    pub fn of(serials: &[u64]) -> RevocationDraft {
        RevocationDraft {
            serials: serials.to_vec(),
            from_s: NOW_S - DAY_S,
            until_s: Some(NOW_S + DAY_S),
            extensions: Vec::new(),
        }
    }

    pub fn signed_by(&self, authority: &Holder) -> Bytes {
        let entry = |serial: &u64| sequence(&[&integer(*serial), &time(self.from_s)]);
        let entries: Vec<u8> = self.serials.iter().flat_map(entry).collect();
        let entries = if entries.is_empty() { entries } else { tlv(0x30, &entries) };
        let extensions = match &self.extensions[..] {
            [] => Vec::new(),
            some => tlv(0xa0, &tlv(0x30, &some.concat())),
        };
        let content = sequence(&[
            &integer(1),
            &ecdsa_with_sha256(),
            &name(&authority.subject),
            &time(self.from_s),
            &self.until_s.map(time).unwrap_or_default(),
            &entries,
            &extensions,
        ]);
        authority.key.seal(&content, &ecdsa_with_sha256())
    }
}

/// Attributes that a VOMS server certifies for a holder.
pub struct AttributeDraft<'a> {
    pub holder_issuer: String,
    pub holder_serial: u64,
    pub issuer: String,
    pub from_s: u64,
    pub until_s: u64,
    pub authority: String,
    pub fqans: Vec<String>,
    pub embedded: Vec<&'a Holder>,
    pub extensions: Vec<Vec<u8>>,
}

impl<'a> AttributeDraft<'a> {
    pub fn of(holder: &Holder, server: &'a Holder, fqans: &[&str]) -> AttributeDraft<'a> {
        AttributeDraft {
            holder_issuer: holder.issuer.clone(),
            holder_serial: holder.serial,
            issuer: server.subject.clone(),
            from_s: NOW_S - 3600,
            until_s: NOW_S + 3600,
            authority: "atlas://voms.example.org:15001".to_owned(),
            fqans: fqans.iter().map(|fqan| (*fqan).to_owned()).collect(),
            embedded: vec![server],
            extensions: Vec::new(),
        }
    }

    pub fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn signed_by(&self, key: &Key) -> Vec<u8> {
        let id = sequence(&[&tlv(0x30, &directory_name(&self.holder_issuer)), &integer(self.holder_serial)]);
        let id = tlv(0xa0, &id[id.len() - tlv_body(&id)..]);
        let values: Vec<u8> = self.fqans.iter().flat_map(|fqan| tlv(0x04, fqan.as_bytes())).collect();
        let syntax = sequence(&[&tlv(0xa0, &tlv(0x86, self.authority.as_bytes())), &tlv(0x30, &values)]);
        let attribute = sequence(&[&oid(&format!("{VOMS}.4")), &tlv(0x31, &syntax)]);
        let certificates: Vec<u8> = self.embedded.iter().flat_map(|holder| holder.der.to_vec()).collect();
        let mut extensions = self.extensions.concat();
        if !certificates.is_empty() {
            let value = sequence(&[&tlv(0x30, &certificates)]);
            extensions.extend(extension(&format!("{VOMS}.10"), false, &value));
        }
        extensions.extend(extension("2.5.29.56", false, &[0x05, 0x00]));
        let content = sequence(&[
            &integer(1),
            &sequence(&[&id]),
            &tlv(0xa0, &tlv(0x30, &directory_name(&self.issuer))),
            &ecdsa_with_sha256(),
            &integer(7),
            &sequence(&[&time(self.from_s), &time(self.until_s)]),
            &sequence(&[&attribute]),
            &tlv(0x30, &extensions),
        ]);
        key.seal(&content, &ecdsa_with_sha256()).to_vec()
    }
}

fn tlv_body(element: &[u8]) -> usize {
    match element[1] {
        0x81 => element.len() - 3,
        0x82 => element.len() - 4,
        _ => element.len() - 2,
    }
}

/// The extension of a proxy that carries attribute certificates.
pub fn voms_extension(certificates: &[Vec<u8>]) -> Vec<u8> {
    extension(&format!("{VOMS}.5"), false, &sequence(&[&tlv(0x30, &certificates.concat())]))
}
