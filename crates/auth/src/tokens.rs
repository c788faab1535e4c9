//! Bearer tokens of trusted issuers: WLCG Common JWT Profile 1.x and SciTokens 2.0.
//!
//! A token is judged by what it says first (issuer, times, audience, version), since that is cheap, then by its
//! signature, and only a token that survives the first makes anybody fetch keys. Verdicts are kept, so that a client
//! that sends one token with ten thousand requests is verified once in a while.

pub mod jwt;
pub mod keys;
pub mod scopes;
pub mod source;

use std::sync::Arc;
use std::time::Duration;

use api::{AuthError, PathGrant};
use async_trait::async_trait;
use bytes::Bytes;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use types::Clock;

use crate::config::{Issuer, Profile};
use jwt::{Claims, Token};
use keys::Verdict;
use source::KeySource;

/// How keys come here; the client of the binary, or a test's table of answers.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The body of a 200. An answer of more than `bytes_max` is an error.
    async fn fetch(&self, url: &str, bytes_max: usize) -> Result<Bytes, String>;
}

#[async_trait]
impl Fetch for http_client::Client {
    async fn fetch(&self, url: &str, bytes_max: usize) -> Result<Bytes, String> {
        self.fetch_small(url, bytes_max).await.map_err(|error| error.to_string())
    }
}

const VERDICTS_MAX: usize = 10_000;
/// A key that an issuer withdraws is believed no longer than this beyond its refresh.
const VERDICT_AGE_MAX_S: u64 = 300;
const WLCG_ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
const SCITOKENS_ANY_AUDIENCE: &str = "ANY";

/// Claims of a valid token. `grants` are within the issuer's base path; `None`: it has no storage scope.
#[derive(Debug)]
pub struct Bearer {
    pub issuer: Arc<Issuer>,
    pub subject: String,
    pub groups: Vec<String>,
    pub grants: Option<Vec<PathGrant>>,
    pub expires_s: u64,
}

pub struct Tokens {
    sources: Vec<Arc<KeySource>>,
    clock: Arc<dyn Clock>,
    skew_s: u64,
    verdicts: Cache<[u8; 32], CachedVerdict>,
}

#[derive(Clone)]
struct CachedVerdict {
    bearer: Arc<Bearer>,
    until_s: u64,
}

impl Tokens {
    /// Fails on an issuer whose keys could come from anybody: without TLS and not on this machine.
    pub fn new(
        issuers: &[Issuer],
        fetch: &Arc<dyn Fetch>,
        clock: &Arc<dyn Clock>,
        skew: Duration,
    ) -> Result<Tokens, String> {
        let mut sources: Vec<Arc<KeySource>> = Vec::new();
        for issuer in issuers {
            if sources.iter().any(|known| same_issuer(&known.issuer().url, &issuer.url)) {
                return Err(format!("issuer {} is configured twice", issuer.url));
            }
            sources.push(Arc::new(KeySource::new(Arc::new(issuer.clone()), fetch.clone(), clock.clone())?));
        }
        let verdicts = Cache::new(VERDICTS_MAX);
        Ok(Tokens { sources, clock: clock.clone(), skew_s: skew.as_secs(), verdicts })
    }

    pub async fn judge(&self, text: &str) -> Result<Arc<Bearer>, AuthError> {
        let now_s = self.now_s();
        let hash: [u8; 32] = Sha256::digest(text).into();
        if let Some(kept) = self.verdicts.get(&hash) {
            if now_s < kept.until_s {
                return Ok(kept.bearer);
            }
            self.verdicts.remove(&hash);
        }
        let token = Token::parse(text).map_err(AuthError::Refused)?;
        let source = self
            .sources
            .iter()
            .find(|source| same_issuer(&source.issuer().url, &token.claims.iss))
            .ok_or_else(|| refused("the token's issuer is not trusted here"))?;
        let bearer = judge_claims(source.issuer(), &token.claims, now_s, self.skew_s)?;
        self.verify(source, &token).await?;
        let bearer = Arc::new(bearer);
        let until_s = (now_s + VERDICT_AGE_MAX_S).min(bearer.expires_s.saturating_add(self.skew_s));
        self.verdicts.insert(hash, CachedVerdict { bearer: bearer.clone(), until_s });
        Ok(bearer)
    }

    async fn verify(&self, source: &Arc<KeySource>, token: &Token<'_>) -> Result<(), AuthError> {
        let kid = token.header.kid.as_deref();
        let check = |keys: &keys::KeySet| {
            keys.verify(kid, token.header.algorithm, token.signed.as_bytes(), &token.signature)
        };
        let mut verdict = check(source.keys().await?.as_ref());
        if matches!(verdict, Verdict::NoSuchKey) {
            // The issuer may have a new key; the source bounds how often it is asked.
            verdict = check(source.newer_keys().await?.as_ref());
        }
        match verdict {
            Verdict::Good => Ok(()),
            Verdict::Bad => Err(refused("the token's signature is wrong")),
            Verdict::NoSuchKey => Err(refused("the token's issuer does not publish the key that signed it")),
        }
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }
}

fn refused(why: &str) -> AuthError {
    AuthError::Refused(why.to_owned())
}

/// Issuers are compared as text, except that `https://host` and `https://host/` are one.
fn same_issuer(a: &str, b: &str) -> bool {
    without_slash(a) == without_slash(b)
}

fn without_slash(url: &str) -> &str {
    url.strip_suffix('/').unwrap_or(url)
}

fn judge_claims(issuer: &Arc<Issuer>, claims: &Claims, now_s: u64, skew_s: u64) -> Result<Bearer, AuthError> {
    let expires_s = claims.exp_s.ok_or_else(|| refused("the token has no expiry"))?;
    if expires_s.saturating_add(skew_s) <= now_s {
        return Err(refused("the token has expired"));
    }
    if [claims.nbf_s, claims.iat_s].into_iter().flatten().any(|from| from > now_s.saturating_add(skew_s)) {
        return Err(refused("the token is not valid yet"));
    }
    let profile = profile_of(issuer.profile, claims).map_err(AuthError::Refused)?;
    let any = if profile == Profile::SciTokens { SCITOKENS_ANY_AUDIENCE } else { WLCG_ANY_AUDIENCE };
    if !claims.audiences.iter().any(|audience| audience == any || issuer.audiences.contains(audience)) {
        return Err(refused("the token is for another audience"));
    }
    if profile == Profile::Wlcg && claims.sub.is_empty() {
        return Err(refused("the token has no subject"));
    }
    let grants = scopes::grants(&claims.scope, profile, &issuer.base_path).map_err(AuthError::Refused)?;
    Ok(Bearer {
        issuer: issuer.clone(),
        subject: claims.sub.clone(),
        groups: claims.groups.clone(),
        grants,
        expires_s,
    })
}

/// Never `Auto`.
fn profile_of(wanted: Profile, claims: &Claims) -> Result<Profile, String> {
    let claimed = match (&claims.wlcg_version, &claims.scitokens_version) {
        (Some(version), _) if is_wlcg_1(version) => Profile::Wlcg,
        (Some(version), _) => return Err(format!("the token is of WLCG profile {version:?}, known are 1.x")),
        // Issuers write either (scitokens-cpp and HTCondor the second).
        (None, Some(version)) if matches!(version.as_str(), "scitoken:2.0" | "scitokens:2.0") => {
            Profile::SciTokens
        }
        (None, Some(version)) => return Err(format!("the token is {version:?}, known is scitoken:2.0")),
        (None, None) => return Err("the token claims no profile (wlcg.ver, or ver)".to_owned()),
    };
    if wanted == Profile::Auto || wanted == claimed {
        Ok(claimed)
    } else {
        Err("the token is of another profile than its issuer is configured for".to_owned())
    }
}

fn is_wlcg_1(version: &str) -> bool {
    version
        .strip_prefix("1.")
        .is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
