//! Public keys of issuers (RFC 7517, RFC 7518) and the signatures they verify.
//!
//! The algorithm comes from the token, so it decides nothing alone: it must be of the list, fit the key's kind, and be the
//! one that the key names, if it names one.

use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

const KEYS_MAX: usize = 64;
/// A token that names no key is tried with no more keys than this.
const TRIES_MAX: usize = 4;
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Algorithms of signatures on tokens. Never `none`, and none that is symmetric: the key would be public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
}

impl Algorithm {
    pub fn parse(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            _ => return None,
        })
    }
}

#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    /// The only algorithm that the issuer uses it for.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed points.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    Bad,
    /// Another set might have it.
    NoSuchKey,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Keys that are not for us (other kinds, for encryption, too weak) are left out, not an error: issuers publish what
    /// other services need.
    pub fn parse(json: &[u8]) -> Result<KeySet, String> {
        let raw: RawSet =
            serde_json::from_slice(json).map_err(|error| format!("the key set makes no sense: {error}"))?;
        if raw.keys.len() > KEYS_MAX {
            return Err(format!("the key set has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<Key> =
            raw.keys.into_iter().filter_map(|value| Key::parse(value).ok().flatten()).collect();
        if keys.is_empty() {
            return Err(
                "the key set has no RSA (2048 bits or more), P-256 or P-384 key to verify with".to_owned()
            );
        }
        Ok(KeySet { keys })
    }

    pub fn verify(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Verdict {
        let named = self.keys.iter().filter(|key| kid.is_none() || key.kid.as_deref() == kid);
        let mut verdict = Verdict::NoSuchKey;
        for key in named.filter(|key| key.is_for(algorithm)).take(TRIES_MAX) {
            if key.verifies(algorithm, message, signature) {
                return Verdict::Good;
            }
            verdict = Verdict::Bad;
        }
        verdict
    }
}

impl Key {
    /// `None`: well formed and not for us.
    fn parse(value: serde_json::Value) -> Result<Option<Key>, String> {
        let raw: RawKey = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let algorithm = match raw.alg.as_deref().map(Algorithm::parse) {
            Some(None) => return Ok(None),
            Some(known) => known,
            None => None,
        };
        if raw.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return Ok(None);
        }
        let material = match (raw.kty.as_str(), raw.crv.as_deref()) {
            ("RSA", _) => rsa(&raw)?,
            ("EC", Some("P-256")) => Material::P256(point(&raw, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(&raw, 48)?),
            _ => return Ok(None),
        };
        Ok(Some(Key { kid: raw.kid, algorithm, material }))
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        let fits = match self.material {
            Material::Rsa { .. } => {
                matches!(algorithm, Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 | Algorithm::Ps256)
            }
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
        };
        fits && self.algorithm.is_none_or(|named| named == algorithm)
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let outcome = match &self.material {
            Material::Rsa { modulus, exponent } => {
                let Some(parameters) = rsa_parameters(algorithm) else { return false };
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature)
            }
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::P384(point) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
        };
        outcome.is_ok()
    }
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::Es256 | Algorithm::Es384 => None,
    }
}

fn rsa(raw: &RawKey) -> Result<Material, String> {
    let modulus = number(raw.n.as_deref())?;
    let exponent = number(raw.e.as_deref())?;
    if !RSA_MODULUS_BYTES.contains(&modulus.len()) || exponent.is_empty() || exponent.len() > 4 {
        return Err("the RSA key is too small or too large".to_owned());
    }
    Ok(Material::Rsa { modulus, exponent })
}

fn point(raw: &RawKey, coordinate_bytes: usize) -> Result<Vec<u8>, String> {
    let mut point = vec![4];
    for coordinate in [&raw.x, &raw.y] {
        let bytes = decode(coordinate.as_deref())?;
        if bytes.len() != coordinate_bytes {
            return Err("a coordinate of the key has a wrong length".to_owned());
        }
        point.extend_from_slice(&bytes);
    }
    Ok(point)
}

/// Without the zeros in front that some issuers write.
fn number(text: Option<&str>) -> Result<Vec<u8>, String> {
    let bytes = decode(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Ok(bytes[zeros..].to_vec())
}

fn decode(text: Option<&str>) -> Result<Vec<u8>, String> {
    let text = text.ok_or("a part of the key is missing")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "a part of the key is not base64url".to_owned())
}
