//! Checksums in headers: `Digest` (RFC 3230), `Repr-Digest` and `Content-Digest` (RFC 9530), `Content-MD5`.
//!
//! RFC 3230 writes adler32 in hexadecimal and the others in base64, and grid clients hold us to it; read is either
//! form wherever one is expected. RFC 9530 calls adler32 `adler`.
//!
//! Invariants: a checksum that a client announces and that we would compare is either understood or refused; one of
//! a kind that we do not know is ignored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;
use types::{Checksum, ChecksumKind, hex, hex::Hex};

use crate::list;

pub const DIGEST: HeaderName = HeaderName::from_static("digest");
pub const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
pub const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
pub const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
pub const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
pub const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DigestError {
    #[error("the value of {} is neither base64 nor hexadecimal of its length", .0.name())]
    Value(ChecksumKind),
    #[error("two different values of {} were given", .0.name())]
    Contradiction(ChecksumKind),
}

/// The kinds that `Want-Digest` asks for, the most wanted first. Unknown kinds and those with `q=0` are left out.
pub fn want_digest(headers: &HeaderMap) -> Vec<ChecksumKind> {
    preferred(headers, &WANT_DIGEST, |item| {
        let mut parts = item.split(|byte| *byte == b';');
        let kind = kind(list::trim(parts.next()?))?;
        let mut weight = 1000;
        for (name, value) in parts.filter_map(list::pair) {
            if name.eq_ignore_ascii_case(b"q") {
                weight = list::weight(value)?;
            }
        }
        Some((kind, weight))
    })
}

/// The kinds that `Want-Repr-Digest` asks for, the most wanted first; its weights are 0 (not at all) to 10.
pub fn want_repr_digest(headers: &HeaderMap) -> Vec<ChecksumKind> {
    preferred(headers, &WANT_REPR_DIGEST, |item| {
        let (name, value) = list::pair(without_parameters(item))?;
        let weight = list::decimal(value).filter(|weight| *weight <= 10)?;
        Some((kind(name)?, u16::try_from(weight).ok()?))
    })
}

fn preferred(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&[u8]) -> Option<(ChecksumKind, u16)>,
) -> Vec<ChecksumKind> {
    let mut found: Vec<(ChecksumKind, u16)> = Vec::new();
    let items = headers.get_all(name).iter().flat_map(|value| list::items(value.as_bytes()));
    for (kind, weight) in items.filter_map(read) {
        // Only the first mention of a kind counts, so there are never more than there are kinds.
        if !found.iter().any(|(known, _)| *known == kind) {
            found.push((kind, weight));
        }
    }
    found.retain(|(_, weight)| *weight > 0);
    found.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    found.into_iter().map(|(kind, _)| kind).collect()
}

/// `adler32=0b1a2c3d,md5=…==`: the value of `Digest`, and of dCache's property `Checksums`.
pub fn digest_text(sums: &[Checksum]) -> String {
    let mut text = String::new();
    for sum in sums {
        separate(&mut text, ",");
        text.push_str(sum.kind().name());
        text.push('=');
        match sum.kind() {
            ChecksumKind::Adler32 => text.push_str(&Hex(sum.value()).to_string()),
            ChecksumKind::Crc32c | ChecksumKind::Md5 | ChecksumKind::Sha256 => {
                STANDARD.encode_string(sum.value(), &mut text);
            }
        }
    }
    text
}

/// `None` if there is nothing to say.
pub fn digest_header(sums: &[Checksum]) -> Option<HeaderValue> {
    value_of(digest_text(sums))
}

/// `sha-256=:…:, adler=:…:` for `Repr-Digest`. `None` if there is nothing to say.
pub fn repr_digest_header(sums: &[Checksum]) -> Option<HeaderValue> {
    let mut text = String::new();
    for sum in sums {
        separate(&mut text, ", ");
        text.push_str(match sum.kind() {
            ChecksumKind::Adler32 => "adler",
            kind => kind.name(),
        });
        text.push_str("=:");
        STANDARD.encode_string(sum.value(), &mut text);
        text.push(':');
    }
    value_of(text)
}

/// Checksums of the whole file that a client announces, from every header that may hold them, at most one of a kind.
/// Only for a body that is the whole file: of a part, `Content-MD5` and `Content-Digest` mean the part.
pub fn announced(headers: &HeaderMap) -> Result<Vec<Checksum>, DigestError> {
    let mut found = Vec::new();
    for value in headers.get_all(CONTENT_MD5) {
        let text = list::trim(value.as_bytes());
        add(&mut found, checksum(ChecksumKind::Md5, text)?)?;
    }
    for value in headers.get_all(DIGEST) {
        for sum in parse_digest(value.as_bytes())? {
            add(&mut found, sum)?;
        }
    }
    for value in [REPR_DIGEST, CONTENT_DIGEST].iter().flat_map(|name| headers.get_all(name)) {
        for sum in parse_repr_digest(value.as_bytes())? {
            add(&mut found, sum)?;
        }
    }
    Ok(found)
}

/// The value of `Digest`. Of a kind that is repeated, every mention must say the same.
pub fn parse_digest(value: &[u8]) -> Result<Vec<Checksum>, DigestError> {
    let mut found = Vec::new();
    for (name, text) in list::items(value).filter_map(list::pair) {
        if let Some(kind) = kind(name) {
            add(&mut found, checksum(kind, text)?)?;
        }
    }
    Ok(found)
}

/// The value of `Repr-Digest` or `Content-Digest`: a dictionary of byte sequences (RFC 8941 §3.2 and §3.3.5).
pub fn parse_repr_digest(value: &[u8]) -> Result<Vec<Checksum>, DigestError> {
    let mut found = Vec::new();
    for item in list::items(value) {
        let (name, text) = list::pair(without_parameters(item)).unwrap_or((item, b""));
        if let Some(kind) = kind(name) {
            let inner = text.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b":"));
            add(&mut found, checksum(kind, inner.ok_or(DigestError::Value(kind))?)?)?;
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<Checksum>, sum: Checksum) -> Result<(), DigestError> {
    match found.iter().find(|known| known.kind() == sum.kind()) {
        None => found.push(sum),
        Some(known) if *known == sum => {}
        Some(_) => return Err(DigestError::Contradiction(sum.kind())),
    }
    Ok(())
}

/// Names of RFC 3230, RFC 9530, and without their dash as some clients have them.
fn kind(name: &[u8]) -> Option<ChecksumKind> {
    match std::str::from_utf8(name).ok()? {
        name if name.eq_ignore_ascii_case("adler") => Some(ChecksumKind::Adler32),
        name if name.eq_ignore_ascii_case("sha256") => Some(ChecksumKind::Sha256),
        name => ChecksumKind::by_name(name),
    }
}

/// Base64 and hexadecimal of one length never look alike: the base64 of 4 and 16 bytes ends with `==`, that of 32
/// bytes has 44 characters.
fn checksum(kind: ChecksumKind, text: &[u8]) -> Result<Checksum, DigestError> {
    let hex = unhex(kind, text).and_then(|value| Checksum::new(kind, &value));
    let base64 = || STANDARD.decode(text).ok().and_then(|value| Checksum::new(kind, &value));
    // No text is longer than the hexadecimal of the value.
    let plausible = text.len() <= 2 * kind.value_bytes();
    plausible.then(|| hex.or_else(base64)).flatten().ok_or(DigestError::Value(kind))
}

/// An adler32 may lack leading zeros: several servers print it as a number.
fn unhex(kind: ChecksumKind, text: &[u8]) -> Option<Vec<u8>> {
    let digits_max = 2 * kind.value_bytes();
    let may_be_short = kind == ChecksumKind::Adler32 && !text.is_empty() && text.len() < digits_max;
    if text.len() != digits_max && !may_be_short {
        return None;
    }
    hex::decode(&[&vec![b'0'; digits_max - text.len()], text].concat())
}

fn without_parameters(item: &[u8]) -> &[u8] {
    list::trim(item.split(|byte| *byte == b';').next().unwrap_or_default())
}

fn separate(text: &mut String, separator: &str) {
    if !text.is_empty() {
        text.push_str(separator);
    }
}

fn value_of(text: String) -> Option<HeaderValue> {
    let is_something = !text.is_empty();
    is_something
        .then(|| HeaderValue::try_from(text).expect("names, hexadecimal and base64 are visible ASCII"))
}

#[cfg(test)]
mod tests;
