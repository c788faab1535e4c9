//! Issuers that sign what a test wants, and a fetch that counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::tokens::Fetch;
use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair, RsaEncoding,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub const ISSUER: &str = "https://issuer.example";
pub const NOW_S: u64 = 1_800_000_000;

#[derive(Default)]
pub struct TestFetch {
    pub answers: Mutex<HashMap<String, Bytes>>,
    pub fetches: AtomicU32,
    pub is_down: AtomicBool,
    /// Answers wait until this is given a permit.
    pub gate: Mutex<Option<Arc<tokio::sync::Semaphore>>>,
}

impl TestFetch {
    pub fn count(&self) -> u32 {
        self.fetches.load(Ordering::Relaxed)
    }

    pub fn publish(&self, issuer: &str, keys: &[&TestKey]) {
        let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/jwks")});
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.put(&format!("{issuer}/.well-known/openid-configuration"), &discovery);
        self.put(&format!("{issuer}/jwks"), &json!({ "keys": keys }));
    }

    pub fn put(&self, url: &str, answer: &Value) {
        self.answers.lock().insert(url.to_owned(), answer.to_string().into());
    }
}

#[async_trait]
impl Fetch for TestFetch {
    async fn fetch(&self, url: &str, bytes_max: usize) -> Result<Bytes, String> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if self.is_down.load(Ordering::Relaxed) {
            return Err("connection refused".to_owned());
        }
        let answer = self.answers.lock().get(url).cloned().ok_or("404")?;
        if answer.len() > bytes_max { Err("too large".to_owned()) } else { Ok(answer) }
    }
}

pub struct TestKey {
    pub kid: &'static str,
    pub algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl TestKey {
    pub fn p256(kid: &'static str) -> TestKey {
        TestKey::ecdsa(kid, "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub fn p384(kid: &'static str) -> TestKey {
        TestKey::ecdsa(kid, "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    fn ecdsa(kid: &'static str, algorithm: &'static str, signing: &'static EcdsaSigningAlgorithm) -> TestKey {
        TestKey { kid, algorithm, pair: Pair::Ecdsa(EcdsaKeyPair::generate(signing).unwrap()) }
    }

    pub fn rsa(kid: &'static str) -> TestKey {
        TestKey { kid, algorithm: "RS256", pair: Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Rsa(pair) => {
                let public = pair.public_key();
                let n = text(public.modulus().big_endian_without_leading_zero());
                let e = text(public.exponent().big_endian_without_leading_zero());
                json!({"kty": "RSA", "kid": self.kid, "use": "sig", "n": n, "e": e})
            }
            Pair::Ecdsa(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "kid": self.kid, "crv": curve, "x": text(x), "y": text(y)})
            }
        }
    }

    /// The bytes that an attacker would use as an HMAC key in an algorithm confusion.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_as(&json!({"alg": self.algorithm, "kid": self.kid, "typ": "JWT"}), claims)
    }

    /// Signed as the header's `alg` wants it, if this key can; else as this key does by itself.
    pub fn token_as(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = match &self.pair {
            Pair::Ecdsa(pair) => {
                pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
            }
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match header["alg"].as_str() {
                    Some("RS384") => &signature::RSA_PKCS1_SHA384,
                    Some("RS512") => &signature::RSA_PKCS1_SHA512,
                    Some("PS256") => &signature::RSA_PSS_SHA256,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub fn wlcg(scope: &str) -> Value {
    json!({
        "iss": ISSUER,
        "sub": "anna",
        "aud": "https://storage.example",
        "exp": NOW_S + 3600,
        "nbf": NOW_S,
        "iat": NOW_S,
        "wlcg.ver": "1.0",
        "scope": scope,
    })
}

/// `claims` with one of them changed.
pub fn with(mut claims: Value, name: &str, value: impl Into<Value>) -> Value {
    claims[name] = value.into();
    claims
}

pub fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().unwrap().remove(name);
    claims
}
