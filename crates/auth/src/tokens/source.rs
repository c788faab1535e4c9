//! Where the keys of one issuer come from: discovered, kept, refreshed behind the requests, and never fetched more often
//! than its bounds say, whatever tokens arrive.

use std::sync::Arc;
use std::time::Duration;

use api::AuthError;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;
use types::Clock;

use super::keys::KeySet;
use super::{Fetch, same_issuer, without_slash};
use crate::config::Issuer;

const ANSWER_BYTES_MAX: usize = 256 << 10;
/// While nothing is known of an issuer, so that a head that starts before its network recovers soon.
const FIRST_ATTEMPT_INTERVAL: Duration = Duration::from_secs(5);

pub struct KeySource {
    issuer: Arc<Issuer>,
    fetch: Arc<dyn Fetch>,
    clock: Arc<dyn Clock>,
    known: RwLock<FetchedKeys>,
    /// Held across the fetch, so that there is one at a time; guards nothing else.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Owns the fetch, which goes on when the request that asked for it goes away: else a client that hangs up at the
    /// right moment could use up every attempt.
    fetches: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct FetchedKeys {
    keys: Option<Arc<KeySet>>,
    /// In the monotonic clock, as all ages here.
    fetched: Duration,
    attempted: Option<Duration>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl KeySource {
    pub fn new(
        issuer: Arc<Issuer>,
        fetch: Arc<dyn Fetch>,
        clock: Arc<dyn Clock>,
    ) -> Result<KeySource, String> {
        if !is_trustworthy(&issuer.url) {
            return Err(format!(
                "issuer {} must begin with https://, since whoever answers signs",
                issuer.url
            ));
        }
        Ok(KeySource {
            issuer,
            fetch,
            clock,
            known: RwLock::default(),
            turn: Arc::default(),
            fetches: Mutex::default(),
        })
    }

    pub fn issuer(&self) -> &Arc<Issuer> {
        &self.issuer
    }

    /// The keys that are known; waits for the issuer only when there are none that may be believed.
    pub async fn keys(self: &Arc<Self>) -> Result<Arc<KeySet>, AuthError> {
        if let Some((keys, age)) = self.believed() {
            if age > self.issuer.keys.refresh
                && let Ok(turn) = self.turn.clone().try_lock_owned()
            {
                self.begin_attempt(turn);
            }
            return Ok(keys);
        }
        self.attempt().await;
        self.believed().map(|(keys, _)| keys).ok_or_else(|| self.unavailable())
    }

    /// After a fetch, if the bounds allow one; else the same keys again.
    pub async fn newer_keys(self: &Arc<Self>) -> Result<Arc<KeySet>, AuthError> {
        self.attempt().await;
        self.believed().map(|(keys, _)| keys).ok_or_else(|| self.unavailable())
    }

    fn believed(&self) -> Option<(Arc<KeySet>, Duration)> {
        let known = self.known.read();
        let age = self.clock.monotonic().saturating_sub(known.fetched);
        let keys = known.keys.clone().filter(|_| age <= self.issuer.keys.age_max)?;
        Some((keys, age))
    }

    fn may_attempt(&self) -> bool {
        let known = self.known.read();
        let bounds = &self.issuer.keys;
        let interval = match known.keys {
            Some(_) => bounds.attempt_interval,
            None => bounds.attempt_interval.min(FIRST_ATTEMPT_INTERVAL),
        };
        let now = self.clock.monotonic();
        known.attempted.is_none_or(|attempted| now.saturating_sub(attempted) >= interval)
    }

    /// One fetch, begun by whoever is first; the others wait for it and find its outcome.
    async fn attempt(self: &Arc<Self>) {
        let turn = self.turn.clone().lock_owned().await;
        if self.begin_attempt(turn) {
            // Free again when the fetch has ended.
            let _turn = self.turn.lock().await;
        }
    }

    /// Whether the bounds allow one.
    fn begin_attempt(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> bool {
        if !self.may_attempt() {
            return false;
        }
        self.known.write().attempted = Some(self.clock.monotonic());
        let this = self.clone();
        let mut fetches = self.fetches.lock();
        while fetches.try_join_next().is_some() {}
        fetches.spawn(async move {
            let _turn = turn;
            let outcome = tokio::time::timeout(this.issuer.keys.deadline, this.discover()).await;
            this.record(outcome.unwrap_or_else(|_| Err("no answer in time".to_owned())));
        });
        true
    }

    fn record(&self, outcome: Result<KeySet, String>) {
        match outcome {
            Ok(keys) => {
                let mut known = self.known.write();
                known.keys = Some(Arc::new(keys));
                known.fetched = self.clock.monotonic();
            }
            Err(error) => {
                tracing::warn!(issuer = %self.issuer.url, %error, "cannot fetch the keys of an issuer");
            }
        }
    }

    async fn discover(&self) -> Result<KeySet, String> {
        let (url, answer) = self.metadata().await?;
        let discovery: Discovery =
            serde_json::from_slice(&answer).map_err(|error| format!("{url} makes no sense: {error}"))?;
        // Else one issuer could speak for another (OpenID Connect Discovery §4.3).
        if !same_issuer(&discovery.issuer, &self.issuer.url) {
            return Err(format!("{url} is of another issuer, {:?}", discovery.issuer));
        }
        let url = &discovery.jwks_uri;
        if !is_trustworthy(url) {
            return Err(format!("the keys are at {url:?}, which is not https"));
        }
        let answer =
            self.fetch.fetch(url, ANSWER_BYTES_MAX).await.map_err(|error| format!("{url}: {error}"))?;
        KeySet::parse(&answer).map_err(|error| format!("{url}: {error}"))
    }

    /// OpenID Connect's document, or that of OAuth (RFC 8414), which is all that some issuers of SciTokens have.
    async fn metadata(&self) -> Result<(String, Bytes), String> {
        let issuer = without_slash(&self.issuer.url);
        let url = format!("{issuer}/.well-known/openid-configuration");
        let error = match self.fetch.fetch(&url, ANSWER_BYTES_MAX).await {
            Ok(answer) => return Ok((url, answer)),
            Err(error) => error,
        };
        let other = oauth_metadata_url(issuer);
        match self.fetch.fetch(&other, ANSWER_BYTES_MAX).await {
            Ok(answer) => Ok((other, answer)),
            Err(_) => Err(format!("{url}: {error}")),
        }
    }

    fn unavailable(&self) -> AuthError {
        // The reason is in the log; it may name hosts that are nobody's business.
        AuthError::Unavailable(format!("the keys of the issuer {} cannot be had now", self.issuer.url))
    }
}

/// The well-known part stands before the issuer's path (RFC 8414 §3.1), not behind it as OpenID Connect has it.
fn oauth_metadata_url(issuer: &str) -> String {
    let authority_at = issuer.find("://").map_or(0, |at| at + 3);
    let path_at = issuer[authority_at..].find('/').map_or(issuer.len(), |at| authority_at + at);
    let (origin, path) = issuer.split_at(path_at);
    format!("{origin}/.well-known/oauth-authorization-server{path}")
}

/// Whether the URL is fetched by TLS or on this machine.
fn is_trustworthy(url: &str) -> bool {
    if url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        return true;
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains(['@', '\\']) {
        return false;
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_oauth_stands_before_the_path_of_the_issuer() {
        for (issuer, url) in [
            ("https://host", "https://host/.well-known/oauth-authorization-server"),
            ("https://host:8443/vo/a", "https://host:8443/.well-known/oauth-authorization-server/vo/a"),
        ] {
            assert_eq!(oauth_metadata_url(issuer), url);
        }
    }

    #[test]
    fn keys_come_by_tls_or_from_this_machine() {
        for good in ["https://host/x", "http://localhost:8080/", "http://127.0.0.1", "http://[::1]:80/x"] {
            assert!(is_trustworthy(good), "{good}");
        }
        for bad in [
            "http://host/",
            "https://",
            "ftp://localhost/",
            "http://localhost@evil/",
            "http://127.0.0.1.evil.example/",
            "http://evil/#localhost",
            "http://evil\\@localhost/",
            "",
        ] {
            assert!(!is_trustworthy(bad), "{bad}");
        }
    }
}
