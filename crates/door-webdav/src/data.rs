//! The data face at a pool: moves the bytes that a ticket names, and knows no path and no caller.
//!
//! What it cannot do by itself goes back to the head (307): clients keep using a redirected address for requests that
//! only the head answers, and beyond the ticket's life.

use std::sync::Arc;

use api::{Pool, TicketKey};
use async_trait::async_trait;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Request, RequestBody, Response, Service};
use http_wire::conditional::ETag;
use http_wire::target::Target;
use types::{Checksum, ChecksumKind, Clock};

use crate::call::with_host;
use crate::front::Front;
use crate::get::{Content, respond};
use crate::put::answer;
use crate::refusal::Refusal;
use crate::sums::{Sums, mismatch};
use crate::ticket::{PARAMETER, Purpose, UrlTicket, UrlTicketError};
use crate::upload::{Kept, Pending};
use crate::writer::{Received, Writer};

pub struct DataFace {
    pool: Arc<dyn Pool>,
    key: TicketKey,
    clock: Arc<dyn Clock>,
    /// Who gives names to what was uploaded here.
    front: Arc<Front>,
    /// The head's port; its host is taken to be the one by which the client found this pool, unless it has an address.
    head: std::net::SocketAddr,
    is_tls: bool,
}

impl DataFace {
    pub fn new(
        pool: Arc<dyn Pool>,
        key: TicketKey,
        clock: Arc<dyn Clock>,
        front: Arc<Front>,
        head: std::net::SocketAddr,
        is_tls: bool,
    ) -> DataFace {
        DataFace { pool, key, clock, front, head, is_tls }
    }

    async fn handle(&self, mut request: Request) -> Result<Response, Refusal> {
        request.headers = with_host(request.headers, &request.uri);
        let target =
            Target::of_uri(&request.uri).map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let Some(sealed) = target.query.first(PARAMETER) else {
            return Ok(self.back_to_head(&request));
        };
        let now_s = u64::try_from(self.clock.now().seconds).unwrap_or(0);
        let ticket = match UrlTicket::open(&self.key, sealed, now_s) {
            Ok(ticket) if ticket.pool == self.pool.id() => ticket,
            // The head judges anew.
            Ok(_) | Err(UrlTicketError::Expired) => return Ok(self.back_to_head(&request)),
            Err(error) => return Err(Refusal::forbidden(error.to_string())),
        };
        match (request.method.as_str(), ticket.purpose) {
            ("GET" | "HEAD", Purpose::Read) => {
                self.send(&request.method, &request.headers, &target, &ticket).await
            }
            ("PUT", Purpose::Upload) => self.receive(request.body, &ticket).await,
            _ => Ok(self.back_to_head(&request)),
        }
    }

    async fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        target: &Target,
        ticket: &UrlTicket,
    ) -> Result<Response, Refusal> {
        let replica = self.pool.open(&ticket.ticket()).await?;
        let name = target.path.last().map_or(&b""[..], |name| name.as_bytes());
        let content = Content {
            etag: ETag::of_change(ticket.file, ticket.change),
            modified: ticket.mtime,
            size: ticket.size,
            content_type: crate::get::safe_type(name),
            random: &*self.front.services.random,
            digests: HeaderMap::new(),
            replica: Some(replica),
            held: None,
        };
        respond(method, headers, content, self.clock.now())
    }

    async fn receive(&self, mut body: RequestBody, ticket: &UrlTicket) -> Result<Response, Refusal> {
        // Taken out: a second PUT with the same ticket finds nothing to complete, unless this one is put off.
        let pending = self.front.redirected.lock().remove(&ticket.file);
        let pending = pending
            .ok_or_else(|| Refusal::new(StatusCode::GONE, "this upload is over; start again at the head"))?;
        let front = Arc::clone(&self.front);
        let mut kept = Kept::new(pending, move |pending| {
            let _other = front.redirected.lock().insert(pending.file.file, pending);
        });
        let received = if kept.writer.is_some() || kept.complete.is_some() {
            let received = kept.finish().await?;
            compare(body, &received).await?;
            received
        } else {
            let replica = self.pool.open(&ticket.ticket()).await?;
            let mut writer = Writer::new(replica, self.kinds_for(&kept));
            // What breaks off here is not gone on with: it has no way to be told how far it came.
            kept.end();
            while let Some(bytes) = body.next().await? {
                writer.write(bytes).await?;
            }
            kept.arrive(writer);
            kept.finish().await?
        };
        Ok(answer(&self.front.publish_kept(kept, received).await?))
    }

    /// At least one that tells apart what is put with one ticket twice.
    fn kinds_for(&self, pending: &Pending) -> Vec<ChecksumKind> {
        let kinds = self.front.kinds_for(pending, &[]);
        if kinds.is_empty() { vec![ChecksumKind::Sha256] } else { kinds }
    }

    fn back_to_head(&self, request: &Request) -> Response {
        let host = host_for(&request.headers, self.head, request.peer.local);
        let scheme = if self.is_tls { "https" } else { "http" };
        // Without the ticket, or the two would send the client back and forth.
        let url = format!("{scheme}://{host}{}", request.uri.path());
        match HeaderValue::try_from(url) {
            Ok(location) => Response::new(StatusCode::TEMPORARY_REDIRECT).with(header::LOCATION, location),
            Err(_) => Response::text(StatusCode::BAD_REQUEST, "path is not understood"),
        }
    }
}

#[async_trait]
impl Service for DataFace {
    async fn serve(&self, request: Request) -> Response {
        self.handle(request).await.unwrap_or_else(Refusal::into_response)
    }
}

/// A PUT that is tried again is of the bytes that lie there already.
async fn compare(mut body: RequestBody, before: &Received) -> Result<(), Refusal> {
    let mut sums = Sums::new(before.checksums.iter().map(Checksum::kind));
    let mut size = 0;
    while let Some(bytes) = body.next().await? {
        sums.update(&bytes);
        size += bytes.len() as u64;
    }
    if size != before.size || mismatch(&before.checksums, &sums.finish()).is_some() {
        return Err(Refusal::conflict("these are other bytes than before; start again at the head"));
    }
    Ok(())
}

/// `host:port` of another of our listeners as this client can reach it: by the name that it used for this one.
pub(crate) fn host_for(
    headers: &HeaderMap,
    listener: std::net::SocketAddr,
    local: std::net::SocketAddr,
) -> String {
    if !listener.ip().is_unspecified() && listener.ip() != local.ip() {
        return listener.to_string();
    }
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let name = host.map(|host| match host.rfind(':') {
        // The colons of an IPv6 address stand in brackets.
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    });
    match name {
        Some(name) if !name.is_empty() => format!("{name}:{}", listener.port()),
        _ => std::net::SocketAddr::new(local.ip(), listener.port()).to_string(),
    }
}
