//! The other server, as both directions speak to it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{self, HeaderMap, HeaderValue};
use http_client::{Client, Incoming, Outgoing};
use http_wire::digest::{self, WANT_DIGEST};
use tracing::debug;
use types::{Checksum, ChecksumKind};

use super::checksum::want_digest;
use super::failure::Failure;
use super::marker::Progress;
use super::{CopyRequest, ThirdPartyConfig};

#[derive(Clone)]
pub(super) struct Remote {
    pub client: Client,
    pub request: Arc<CopyRequest>,
    pub progress: Arc<Progress>,
    pub config: ThirdPartyConfig,
}

/// How much of a refusal's body is told to the client.
const EXPLANATION_BYTES_MAX: usize = 300;
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(5);

impl Remote {
    /// With the client's transfer headers, those of the transfer on top of them.
    pub fn outgoing(&self, method: Method, own: HeaderMap, stripe: usize) -> Outgoing {
        let mut headers = self.request.transfer_headers.clone();
        for (name, value) in &own {
            headers.insert(name, value.clone());
        }
        let progress = Arc::clone(&self.progress);
        Outgoing::new(method, &self.request.remote, headers)
            .telling_peers(Arc::new(move |peer| progress.connected(stripe, peer)))
    }

    pub async fn get(&self, own: HeaderMap, stripe: usize) -> Result<Incoming, Failure> {
        let mut request = self.outgoing(Method::GET, own, stripe);
        // A server that has to compute the checksum does so before the first byte.
        if request.headers.contains_key(WANT_DIGEST) {
            request = request.answered_within(self.config.checksum_timeout);
        }
        Ok(self.client.send(request).await?)
    }

    /// Any status; asking for checksums may take the server as long as reading the file.
    pub async fn head(&self, kinds: &[ChecksumKind]) -> Result<Incoming, Failure> {
        let mut own = HeaderMap::new();
        let wanted = want_digest(kinds);
        let is_asking = wanted.is_some();
        if let Some(wanted) = wanted {
            own.insert(WANT_DIGEST, wanted);
        }
        let mut request = self.outgoing(Method::HEAD, own, 0);
        if is_asking {
            request = request.answered_within(self.config.checksum_timeout);
        }
        Ok(self.client.send(request).await?)
    }

    /// The same, again after failures that may pass: what hangs on it was expensive.
    pub async fn head_patiently(&self, kinds: &[ChecksumKind]) -> Result<Incoming, Failure> {
        let mut retries = Retries::new(&self.config);
        loop {
            let failure = match self.head(kinds).await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => Failure::rejection(Method::HEAD, answer.status, String::new()),
                Err(failure) => failure,
            };
            retries.again(failure, 0).await?;
        }
    }

    pub async fn delete(&self) -> Result<Incoming, Failure> {
        Ok(self.client.send(self.outgoing(Method::DELETE, HeaderMap::new(), 0)).await?)
    }

    /// Whether the copy must fail without a checksum of the other side.
    pub fn is_checksum_required(&self) -> bool {
        self.request.require_checksum.unwrap_or(self.config.require_checksum)
    }
}

/// The other server's checksums of a whole file; those of unknown kinds, or garbled, are ignored.
pub(super) fn announced(answer: &Incoming) -> Vec<Checksum> {
    digest::announced(&answer.headers).unwrap_or_else(|error| {
        debug!(%error, remote = %answer.url, "ignore checksums that are not understood");
        Vec::new()
    })
}

pub(super) async fn rejected(method: Method, mut answer: Incoming) -> Failure {
    let explanation = answer.explanation(EXPLANATION_BYTES_MAX);
    let explanation = tokio::time::timeout(EXPLANATION_TIMEOUT, explanation).await.unwrap_or_default();
    Failure::rejection(method, answer.status, explanation)
}

/// Which version of a file an answer is about, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub size: Option<u64>,
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

impl Version {
    pub fn of(answer: &Incoming) -> Version {
        Version::of_part(answer, answer.length)
    }

    /// Of a part, the length is not the file's; `Content-Range` says it.
    pub fn of_part(answer: &Incoming, size: Option<u64>) -> Version {
        Version {
            size,
            etag: answer.headers.get(header::ETAG).cloned(),
            modified: answer.headers.get(header::LAST_MODIFIED).cloned(),
        }
    }

    /// For `If-Range`: a strong entity tag, or else a date (RFC 9110 §13.1.5).
    pub fn validator(&self) -> Option<&HeaderValue> {
        let strong = self.etag.as_ref().filter(|etag| etag.as_bytes().starts_with(b"\""));
        strong.or(self.modified.as_ref())
    }

    /// Whether the fields that both have are equal.
    pub fn agrees(&self, other: &Version) -> bool {
        fn agree<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
            a.zip(b).is_none_or(|(a, b)| a == b)
        }
        agree(self.size.as_ref(), other.size.as_ref())
            && agree(self.etag.as_ref(), other.etag.as_ref())
            && agree(self.modified.as_ref(), other.modified.as_ref())
    }
}

/// Attempts that are left for one stretch of a file.
pub(super) struct Retries {
    left: u32,
    max: u32,
    pause: Duration,
    first_pause: Duration,
}

/// A connection that has moved so much was worth its attempt.
const WORTH_BYTES: u64 = 64 << 20;

impl Retries {
    pub fn new(config: &ThirdPartyConfig) -> Retries {
        let (max, pause) = (config.retries_max, config.retry_pause);
        Retries { left: max, max, pause, first_pause: pause }
    }

    /// Waits and goes on, or gives the failure back. `moved_bytes` came since the attempt before.
    pub async fn again(&mut self, failure: Failure, moved_bytes: u64) -> Result<(), Failure> {
        if moved_bytes >= WORTH_BYTES {
            (self.left, self.pause) = (self.max, self.first_pause);
        }
        if self.left == 0 || !failure.is_retryable() {
            return Err(failure);
        }
        debug!(%failure, left = self.left, "try again");
        self.left -= 1;
        tokio::time::sleep(self.pause).await;
        self.pause *= 2;
        Ok(())
    }
}
