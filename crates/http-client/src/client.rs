//! Requests, and the redirects between them.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tokio::time::Instant;

use crate::connect::{self, Connection};
use crate::upload::{Body, Gate};
use crate::{AbsoluteUrl, ClientConfig, ClientError, Incoming, SetupError, Upload};

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    tls: Arc<rustls::ClientConfig>,
}

/// A request to be sent.
#[derive(Clone)]
pub struct Outgoing {
    pub method: Method,
    pub url: AbsoluteUrl,
    /// Not sent on to another origin: `Authorization`, `Cookie`, `Proxy-Authorization` and every value that is marked
    /// as sensitive.
    pub headers: HeaderMap,
    /// Instead of the configured one.
    pub answer_timeout: Option<Duration>,
    /// Told of each peer once it is connected, so that a transfer under way can say with whom.
    pub on_peer: Option<Arc<dyn Fn(SocketAddr) + Send + Sync>>,
}

impl Outgoing {
    pub fn new(method: Method, url: &AbsoluteUrl, headers: HeaderMap) -> Outgoing {
        Outgoing { method, url: url.clone(), headers, answer_timeout: None, on_peer: None }
    }

    #[must_use]
    pub fn answered_within(mut self, answer_timeout: Duration) -> Outgoing {
        self.answer_timeout = Some(answer_timeout);
        self
    }

    #[must_use]
    pub fn telling_peers(mut self, on_peer: Arc<dyn Fn(SocketAddr) + Send + Sync>) -> Outgoing {
        self.on_peer = Some(on_peer);
        self
    }
}

/// Headers that the connection writes itself.
const OWN_HEADERS: &[HeaderName] = &[
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
];
const SECRET_HEADERS: &[HeaderName] = &[header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
/// How often a transfer that sends is looked at, as a share of the idle timeout.
const LOOKS_PER_IDLE: u32 = 4;

impl Client {
    pub fn new(config: ClientConfig) -> Result<Client, SetupError> {
        let tls = crate::tls::configure(&config)?;
        Ok(Client { config: Arc::new(config), tls })
    }

    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    pub async fn get(&self, url: &AbsoluteUrl, headers: HeaderMap) -> Result<Incoming, ClientError> {
        self.send(Outgoing::new(Method::GET, url, headers)).await
    }

    pub async fn head(&self, url: &AbsoluteUrl, headers: HeaderMap) -> Result<Incoming, ClientError> {
        self.send(Outgoing::new(Method::HEAD, url, headers)).await
    }

    pub async fn delete(&self, url: &AbsoluteUrl, headers: HeaderMap) -> Result<Incoming, ClientError> {
        self.send(Outgoing::new(Method::DELETE, url, headers)).await
    }

    pub async fn put(
        &self,
        url: &AbsoluteUrl,
        headers: HeaderMap,
        upload: Upload,
    ) -> Result<Incoming, ClientError> {
        self.upload(Outgoing::new(Method::PUT, url, headers), upload).await
    }

    /// All of a small document, within the answer timeout from beginning to end; anything but 200 is an error.
    pub async fn fetch_small(&self, url: &str, bytes_max: usize) -> Result<Bytes, ClientError> {
        let url = AbsoluteUrl::parse(url)?;
        let fetched = async {
            let answer = self.get(&url, HeaderMap::new()).await?;
            if answer.status != StatusCode::OK {
                return Err(ClientError::Status { url: answer.url.to_string(), status: answer.status });
            }
            answer.collect(bytes_max).await
        };
        let answer_timeout = self.config.answer_timeout;
        tokio::time::timeout(answer_timeout, fetched)
            .await
            .unwrap_or_else(|_| Err(timeout(&url, "does not give the document", answer_timeout)))
    }

    /// A request without a body. Statuses other than redirects are for the caller to judge.
    pub async fn send(&self, request: Outgoing) -> Result<Incoming, ClientError> {
        self.follow(request, None).await
    }

    /// A request with a body. It waits for `100 Continue`, so that a redirect or a refusal costs no bytes.
    pub async fn upload(&self, request: Outgoing, upload: Upload) -> Result<Incoming, ClientError> {
        self.follow(request, Some(Gate::new(upload))).await
    }

    async fn follow(&self, mut request: Outgoing, gate: Option<Arc<Gate>>) -> Result<Incoming, ClientError> {
        for name in OWN_HEADERS {
            request.headers.remove(name);
        }
        let mut expects = true;
        for _ in 0..=self.config.redirects_max {
            let answer = self.exchange(&request, gate.as_ref().map(|gate| (gate, expects))).await?;
            let is_untouched = gate.as_ref().is_some_and(|gate| !gate.is_begun());
            if answer.status == StatusCode::EXPECTATION_FAILED && expects && is_untouched {
                // RFC 9110 §10.1.1: the same request again, without the expectation.
                expects = false;
                continue;
            }
            let Some(next) = redirect(&request.method, &answer)? else {
                gate.map_or(Ok(()), |gate| refuse_unread(&answer, &gate))?;
                return Ok(answer);
            };
            if gate.as_ref().is_some_and(|gate| gate.is_begun()) {
                return Err(ClientError::LateRedirect { from: request.url.to_string(), to: Box::new(next) });
            }
            if !next.is_same_origin(&request.url) {
                forget_secrets(&mut request.headers);
            }
            request.url = next;
        }
        Err(ClientError::Redirect {
            from: request.url.to_string(),
            reason: format!("there were {} before it", self.config.redirects_max),
        })
    }

    async fn exchange(
        &self,
        request: &Outgoing,
        gate: Option<(&Arc<Gate>, bool)>,
    ) -> Result<Incoming, ClientError> {
        let url = &request.url;
        if !url.is_encrypted() && !self.config.allow_plain {
            return Err(ClientError::PlainForbidden(url.authority()));
        }
        let Connection { mut sender, peer, driver } =
            Box::pin(connect::connect(&self.config, &self.tls, url)).await?;
        if let Some(on_peer) = &request.on_peer {
            on_peer(peer);
        }
        let gate = gate.map(|(gate, expects)| Attempt { gate, number: gate.begin_attempt(), expects });
        let message = self.message(request, gate.as_ref())?;
        let answer_timeout = request.answer_timeout.unwrap_or(self.config.answer_timeout);
        let answered = sender.send_request(message);
        let answer = match gate {
            Some(ref attempt) => self.answer_to_upload(url, attempt, answer_timeout, answered).await?,
            None => tokio::time::timeout(answer_timeout, answered)
                .await
                .map_err(|_| timeout(url, "does not answer", answer_timeout))?,
        };
        let answer = answer.map_err(|error| match gate.and_then(|attempt| attempt.gate.failure()) {
            Some(reason) => ClientError::Source(reason),
            None => ClientError::of_hyper(&url.authority(), &error),
        })?;
        Incoming::new(answer, &request.method, url.clone(), peer, self.config.idle_timeout, driver)
    }

    fn message(
        &self,
        request: &Outgoing,
        attempt: Option<&Attempt<'_>>,
    ) -> Result<http::Request<Body>, ClientError> {
        let unsayable = |reason: String| ClientError::Protocol { authority: request.url.authority(), reason };
        let host =
            HeaderValue::try_from(request.url.authority()).map_err(|error| unsayable(error.to_string()))?;
        let mut message = http::Request::builder()
            .method(&request.method)
            .uri(request.url.path_and_query().as_str())
            .body(attempt.map_or(Body::Empty, |attempt| Body::of(attempt.gate, attempt.number)))
            .map_err(|error| unsayable(error.to_string()))?;
        let headers = message.headers_mut();
        headers.insert(header::HOST, host);
        if let Ok(agent) = HeaderValue::try_from(self.config.user_agent.as_str()) {
            headers.insert(header::USER_AGENT, agent);
        }
        headers.extend(request.headers.clone());
        let Some(attempt) = attempt else { return Ok(message) };
        if attempt.gate.length() == Some(0) {
            // hyper says no length for a body that is at its end.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        } else if attempt.expects {
            headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        let (gate, number) = (Arc::clone(attempt.gate), attempt.number);
        hyper::ext::on_informational(&mut message, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                gate.open(number);
            }
        });
        Ok(message)
    }

    /// Waits for the answer while the body is sent: as long as it moves, and for a while once it is all sent.
    async fn answer_to_upload<T>(
        &self,
        url: &AbsoluteUrl,
        attempt: &Attempt<'_>,
        answer_timeout: Duration,
        answered: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let mut answered = pin!(answered);
        let gate = attempt.gate;
        if gate.length() == Some(0) {
            return tokio::time::timeout(answer_timeout, answered)
                .await
                .map_err(|_| timeout(url, "does not answer", answer_timeout));
        }
        if attempt.expects
            && let Ok(answer) = tokio::time::timeout(self.config.continue_timeout, answered.as_mut()).await
        {
            return Ok(answer);
        }
        gate.open(attempt.number);
        let idle_timeout = self.config.idle_timeout;
        let (mut seen, mut moved) = (gate.sent_bytes(), Instant::now());
        loop {
            let look = (idle_timeout / LOOKS_PER_IDLE).max(Duration::from_millis(1));
            if let Ok(answer) = tokio::time::timeout(look, answered.as_mut()).await {
                return Ok(answer);
            }
            let sent = gate.sent_bytes();
            if sent != seen {
                (seen, moved) = (sent, Instant::now());
            }
            let (limit, what) = match gate.is_finished() {
                true => (answer_timeout.max(idle_timeout), "does not answer after the body"),
                false => (idle_timeout, "takes no more bytes"),
            };
            if moved.elapsed() >= limit {
                return Err(timeout(url, what, limit));
            }
        }
    }
}

/// One try to send an upload.
struct Attempt<'a> {
    gate: &'a Arc<Gate>,
    number: u64,
    expects: bool,
}

fn timeout(url: &AbsoluteUrl, what: &'static str, after: Duration) -> ClientError {
    ClientError::Timeout { authority: url.authority(), what, after }
}

/// Where to go on, if the answer says so.
fn redirect(method: &Method, answer: &Incoming) -> Result<Option<AbsoluteUrl>, ClientError> {
    let may_change_method = match answer.status.as_u16() {
        301..=303 => true,
        307 | 308 => false,
        _ => return Ok(None),
    };
    let refuse =
        |reason: &str| Err(ClientError::Redirect { from: answer.url.to_string(), reason: reason.to_owned() });
    if may_change_method && !matches!(*method, Method::GET | Method::HEAD) {
        return refuse(&format!("{} does not keep the method {method}", answer.status.as_u16()));
    }
    let Some(location) = answer.headers.get(header::LOCATION) else { return refuse("it says not where to") };
    let Ok(location) = std::str::from_utf8(location.as_bytes()) else {
        return refuse("its location is not text");
    };
    let next = answer.url.join(location)?;
    if answer.url.is_encrypted() && !next.is_encrypted() {
        return refuse("it leads from https to http");
    }
    Ok(Some(next))
}

/// A server that says it has done what was asked before it has read the body has not: it is a login page, or it lies.
fn refuse_unread(answer: &Incoming, gate: &Gate) -> Result<(), ClientError> {
    if !answer.status.is_success() || gate.is_finished() || gate.length() == Some(0) {
        return Ok(());
    }
    let (authority, status, sent_bytes) = (answer.url.authority(), answer.status, gate.sent_bytes());
    Err(ClientError::Unread { authority, status, sent_bytes })
}

fn forget_secrets(headers: &mut HeaderMap) {
    for name in SECRET_HEADERS {
        headers.remove(name);
    }
    let marked: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| value.is_sensitive()).map(|(name, _)| name.clone()).collect();
    for name in marked {
        headers.remove(name);
    }
}
