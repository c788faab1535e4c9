//! Signed structures with their algorithms and keys, and the algorithms that are accepted.
//!
//! Certificates, revocation lists and attribute certificates have one shape: content, algorithm, signature. An
//! algorithm that is not in the table here does not verify: no MD5, no SHA-1, no RSA below 2048 bits, no curve but
//! those of NIST.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{self as aws, UnparsedPublicKey, VerificationAlgorithm};
use bytes::Bytes;

use der::{DerError, Reader, Tag};

const RSA_BITS_MIN: usize = 2048;
/// More costs time and secures nothing; the library has the same limit.
const RSA_BITS_MAX: usize = 8192;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

const CURVES: &[(&[u8], Curve)] = &[
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], Curve::P256),
    (&[0x2b, 0x81, 0x04, 0, 34], Curve::P384),
    (&[0x2b, 0x81, 0x04, 0, 35], Curve::P521),
];

const SCHEMES: &[(&[u8], Scheme)] = &[
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], Scheme::RsaPkcs1(Hash::Sha256)),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], Scheme::RsaPkcs1(Hash::Sha384)),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], Scheme::RsaPkcs1(Hash::Sha512)),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], Scheme::Ecdsa(Hash::Sha256)),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], Scheme::Ecdsa(Hash::Sha384)),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], Scheme::Ecdsa(Hash::Sha512)),
    (ED25519, Scheme::Ed25519),
];

const HASHES: &[(&[u8], Hash)] = &[
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1], Hash::Sha256),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2], Hash::Sha384),
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3], Hash::Sha512),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    RsaPkcs1(Hash),
    RsaPss(Hash),
    Ecdsa(Hash),
    Ed25519,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    Ec(Curve),
    Ed25519,
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// The algorithm or key, in words.
    Weak(String),
    Wrong,
}

/// SEQUENCE { content, AlgorithmIdentifier, BIT STRING }.
#[derive(Clone, Debug)]
pub struct Signed {
    pub content: Bytes,
    /// The AlgorithmIdentifier with its tag; the content has to name the same one (RFC 5280 §4.1.1.2).
    pub algorithm: Bytes,
    signature: Bytes,
}

impl Signed {
    pub fn from_der(der: &Bytes) -> Result<Signed, DerError> {
        let mut parts = der::only(der, Tag::SEQUENCE)?.reader();
        let content = parts.element(Tag::SEQUENCE)?.whole;
        let algorithm = parts.element(Tag::SEQUENCE)?.whole;
        let signature = der::octets_of_bits(parts.element(Tag::BIT_STRING)?.content)?;
        parts.finish()?;
        Ok(Signed {
            content: der.slice_ref(content),
            algorithm: der.slice_ref(algorithm),
            signature: der.slice_ref(signature),
        })
    }

    pub fn verify(&self, key: &PublicKey) -> Result<(), Unverified> {
        let scheme = scheme(&self.algorithm)?;
        let algorithm = key.verification(scheme)?;
        UnparsedPublicKey::new(algorithm, &key.bytes)
            .verify(&self.content, &self.signature)
            .map_err(|_| Unverified::Wrong)
    }
}

/// A SubjectPublicKeyInfo. Keys that are weak or unknown can be held, since an authority may have one that nobody asks
/// for; they verify nothing.
#[derive(Clone, Debug)]
pub struct PublicKey {
    kind: Result<KeyKind, String>,
    bytes: Bytes,
    /// SHA-256 of the whole structure.
    pub digest: [u8; 32],
}

impl PublicKey {
    /// `whole` is a part of `der`.
    pub fn from_der(der: &Bytes, whole: &[u8]) -> Result<PublicKey, DerError> {
        let mut parts = der::only(whole, Tag::SEQUENCE)?.reader();
        let algorithm = parts.element(Tag::SEQUENCE)?;
        let key = der::octets_of_bits(parts.element(Tag::BIT_STRING)?.content)?;
        parts.finish()?;
        let mut digest_bytes = [0; 32];
        digest_bytes.copy_from_slice(digest(&SHA256, whole).as_ref());
        Ok(PublicKey {
            kind: key_kind(algorithm.reader(), key)?,
            bytes: der.slice_ref(key),
            digest: digest_bytes,
        })
    }

    pub fn check_strength(&self) -> Result<(), Unverified> {
        self.kind.as_ref().map(|_| ()).map_err(|why| Unverified::Weak(why.clone()))
    }

    fn verification(&self, scheme: Scheme) -> Result<&'static dyn VerificationAlgorithm, Unverified> {
        let kind = self.kind.as_ref().map_err(|why| Unverified::Weak(why.clone()))?;
        Ok(match (kind, scheme) {
            (KeyKind::Rsa, Scheme::RsaPkcs1(Hash::Sha256)) => &aws::RSA_PKCS1_2048_8192_SHA256,
            (KeyKind::Rsa, Scheme::RsaPkcs1(Hash::Sha384)) => &aws::RSA_PKCS1_2048_8192_SHA384,
            (KeyKind::Rsa, Scheme::RsaPkcs1(Hash::Sha512)) => &aws::RSA_PKCS1_2048_8192_SHA512,
            (KeyKind::Rsa, Scheme::RsaPss(Hash::Sha256)) => &aws::RSA_PSS_2048_8192_SHA256,
            (KeyKind::Rsa, Scheme::RsaPss(Hash::Sha384)) => &aws::RSA_PSS_2048_8192_SHA384,
            (KeyKind::Rsa, Scheme::RsaPss(Hash::Sha512)) => &aws::RSA_PSS_2048_8192_SHA512,
            (KeyKind::Ec(Curve::P256), Scheme::Ecdsa(Hash::Sha256)) => &aws::ECDSA_P256_SHA256_ASN1,
            (KeyKind::Ec(Curve::P256), Scheme::Ecdsa(Hash::Sha384)) => &aws::ECDSA_P256_SHA384_ASN1,
            (KeyKind::Ec(Curve::P256), Scheme::Ecdsa(Hash::Sha512)) => &aws::ECDSA_P256_SHA512_ASN1,
            (KeyKind::Ec(Curve::P384), Scheme::Ecdsa(Hash::Sha256)) => &aws::ECDSA_P384_SHA256_ASN1,
            (KeyKind::Ec(Curve::P384), Scheme::Ecdsa(Hash::Sha384)) => &aws::ECDSA_P384_SHA384_ASN1,
            (KeyKind::Ec(Curve::P384), Scheme::Ecdsa(Hash::Sha512)) => &aws::ECDSA_P384_SHA512_ASN1,
            (KeyKind::Ec(Curve::P521), Scheme::Ecdsa(Hash::Sha256)) => &aws::ECDSA_P521_SHA256_ASN1,
            (KeyKind::Ec(Curve::P521), Scheme::Ecdsa(Hash::Sha384)) => &aws::ECDSA_P521_SHA384_ASN1,
            (KeyKind::Ec(Curve::P521), Scheme::Ecdsa(Hash::Sha512)) => &aws::ECDSA_P521_SHA512_ASN1,
            (KeyKind::Ed25519, Scheme::Ed25519) => &aws::ED25519,
            // A key of another family than the signature's.
            (KeyKind::Rsa | KeyKind::Ec(_) | KeyKind::Ed25519, _) => return Err(Unverified::Wrong),
        })
    }
}

fn key_kind(mut algorithm: Reader<'_>, key: &[u8]) -> Result<Result<KeyKind, String>, DerError> {
    let oid = algorithm.element(Tag::OBJECT_IDENTIFIER)?.content;
    Ok(match oid {
        RSA_ENCRYPTION => {
            let modulus = der::only(key, Tag::SEQUENCE)?.reader().element(Tag::INTEGER)?.content;
            let bits = bits(modulus);
            match bits {
                RSA_BITS_MIN..=RSA_BITS_MAX => Ok(KeyKind::Rsa),
                _ => Err(format!("an RSA key of {bits} bits, {RSA_BITS_MIN} to {RSA_BITS_MAX} are accepted")),
            }
        }
        EC_PUBLIC_KEY => {
            let parameters = algorithm.next_element()?;
            let curve = CURVES
                .iter()
                .find(|(oid, _)| parameters.tag == Tag::OBJECT_IDENTIFIER && *oid == parameters.content);
            curve.map(|(_, curve)| KeyKind::Ec(*curve)).ok_or_else(|| "an unknown elliptic curve".to_owned())
        }
        ED25519 => Ok(KeyKind::Ed25519),
        _ => Err(format!("a key of kind {}", der::dotted(oid))),
    })
}

fn bits(unsigned: &[u8]) -> usize {
    let zeros = unsigned.iter().take_while(|byte| **byte == 0).count();
    match unsigned.get(zeros) {
        Some(first) => (unsigned.len() - zeros) * 8 - first.leading_zeros() as usize,
        None => 0,
    }
}

fn scheme(algorithm: &[u8]) -> Result<Scheme, Unverified> {
    let unreadable = |_: DerError| Unverified::Weak("an unreadable signature algorithm".to_owned());
    let mut parts = der::only(algorithm, Tag::SEQUENCE).map_err(unreadable)?.reader();
    let oid = parts.element(Tag::OBJECT_IDENTIFIER).map_err(unreadable)?.content;
    if oid == RSA_PSS {
        return pss_hash(&mut parts)
            .map(Scheme::RsaPss)
            .map_err(|_| Unverified::Weak("RSA-PSS without SHA-2".to_owned()));
    }
    let known = SCHEMES.iter().find(|(known, _)| *known == oid);
    known.map(|(_, scheme)| *scheme).ok_or_else(|| {
        Unverified::Weak(match oid {
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4] => "a signature with MD5".to_owned(),
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => {
                "a signature with SHA-1".to_owned()
            }
            _ => format!("the signature algorithm {}", der::dotted(oid)),
        })
    })
}

/// The other parameters (mask, length of the salt) need no look: the verification has its own, and fails with others.
fn pss_hash(parts: &mut Reader<'_>) -> Result<Hash, DerError> {
    let mut parameters = parts.element(Tag::SEQUENCE)?.reader();
    // Absent means SHA-1 (RFC 4055 §3.1).
    let hash = parameters.element(Tag::context(0))?;
    let oid = der::only(hash.content, Tag::SEQUENCE)?.reader().element(Tag::OBJECT_IDENTIFIER)?.content;
    HASHES.iter().find(|(known, _)| *known == oid).map(|(_, hash)| *hash).ok_or(DerError::Range)
}
