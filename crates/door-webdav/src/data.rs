//! The data face at a pool: moves the bytes that a ticket names, and knows no path and no caller.
//!
//! A request that it cannot serve by itself goes back to the head (307): clients keep using a redirected address for
//! requests that only the head answers, beyond the ticket's life, and when the file is no longer the version that the
//! ticket names. The head may be in this process or on another host.
//!
//! It owns its pool, the key of the pool, and its configuration, and asks the head by `Completions`.

mod arrivals;

use std::net::SocketAddr;
use std::sync::Arc;

use api::{Birth, OpenReplica, Pool, PoolError, PoolKey, Presence, Ticket, TicketError, TicketMode};
use async_trait::async_trait;
use files::{Received, Sums, Writer, mismatch};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Request, RequestBody, Response, Service, Source};
use http_wire::conditional::ETag;
use http_wire::dav::IF;
use http_wire::target::{self, Target};
use types::{Checksum, ChecksumKind, Clock, Epoch, Random};

use crate::completions::{Completions, FileVersion};
use crate::host::{host_for, with_host};
use crate::refusal::Refusal;
use crate::representation::{Hold, Representation, respond, safe_type, stored};
use crate::ticket::{PARAMETER, Purpose, UrlTicket, UrlTicketError};
use arrivals::{Arrival, Arrivals, Arrived};

pub struct DataFace {
    pool: Arc<dyn Pool>,
    key: PoolKey,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    completions: Arc<dyn Completions>,
    config: DataFaceConfig,
    arrivals: Arrivals,
}

pub struct DataFaceConfig {
    pub head: HeadPlace,
}

/// Where requests go back to.
pub enum HeadPlace {
    /// The head's port; its host is taken to be the one by which the client found this pool, unless it has an address.
    Here(SocketAddr),
    /// `host:port` of a head on another host, as it has told last. It is asked for each request that goes back. `None`: no
    /// head has told.
    Elsewhere(Box<dyn Fn() -> Option<String> + Send + Sync>),
}

impl DataFace {
    pub fn new(
        pool: Arc<dyn Pool>,
        key: PoolKey,
        (clock, random): (Arc<dyn Clock>, Arc<dyn Random>),
        completions: Arc<dyn Completions>,
        config: DataFaceConfig,
    ) -> DataFace {
        assert_eq!(key.pool(), pool.id(), "a pool's face has that pool's key");
        DataFace { pool, key, clock, random, completions, config, arrivals: Arrivals::default() }
    }

    async fn handle(&self, mut request: Request) -> Result<Response, Refusal> {
        request.headers = with_host(request.headers, &request.uri);
        let target =
            Target::of_uri(&request.uri).map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let Some(sealed) = target.query.first(PARAMETER) else {
            return Ok(self.back_to_head(&request, &target));
        };
        let ticket = match UrlTicket::open(&self.key, sealed, self.now_s()) {
            Ok(ticket) => ticket,
            // The head judges anew. Whether a ticket of another pool or of keys that were dropped is forged cannot be told
            // here.
            Err(
                UrlTicketError::Expired
                | UrlTicketError::Seal(TicketError::OtherPool | TicketError::UnknownGeneration),
            ) => return Ok(self.back_to_head(&request, &target)),
            Err(error) => return Err(Refusal::forbidden(error.to_string())),
        };
        match (request.method.as_str(), ticket.purpose) {
            // `If` may name other paths, and locks.
            ("GET" | "HEAD", Purpose::Read { change }) if !request.headers.contains_key(IF) => {
                match self.open_version(&ticket, change).await? {
                    Some(version) => self.send(&request.method, &request.headers, &target, version),
                    None => Ok(self.back_to_head(&request, &target)),
                }
            }
            ("PUT", Purpose::Upload { epoch }) => self.receive(request.body, &ticket, epoch).await,
            _ => Ok(self.back_to_head(&request, &target)),
        }
    }

    /// `None`: the head is to judge anew which file the path leads to, and whether the caller may read it.
    async fn open_version(&self, ticket: &UrlTicket, change: u64) -> Result<Option<Version>, Refusal> {
        let Some((held, file)) = self.completions.hold_version(ticket.file, change).await? else {
            return Ok(None);
        };
        if !ticket.birth.agrees_with(Birth::of(file.birth)) {
            return Ok(None);
        }
        let (presence, mode, epoch) = (Presence::of_size(file.size), TicketMode::Read, Epoch::OF_HEAD);
        let UrlTicket { birth, pool, .. } = *ticket;
        let ticket = Ticket { file: file.file, birth, pool, mode, epoch, presence, io: file.io };
        match self.pool.open(&ticket).await {
            Ok(replica) => Ok(Some(Version { held, file, replica })),
            Err(
                PoolError::NoReplica(_) | PoolError::Fenced | PoolError::Offline(_) | PoolError::Unknown(_),
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        target: &Target,
        version: Version,
    ) -> Result<Response, Refusal> {
        let Version { held, file, replica } = version;
        let name = target.path.last().map_or(&b""[..], |name| name.as_bytes());
        let content = Representation {
            etag: ETag::of_change(file.file, file.change),
            modified: file.mtime,
            size: file.size,
            content_type: safe_type(name),
            random: &*self.random,
            digests: HeaderMap::new(),
            source: Some(Source::new(replica)),
            held: Some(held),
        };
        respond(method, headers, content, self.clock.now())
    }

    async fn receive(
        &self,
        mut body: RequestBody,
        ticket: &UrlTicket,
        epoch: Epoch,
    ) -> Result<Response, Refusal> {
        let has_bytes = self.arrivals.has(ticket.file);
        let begun = self.completions.begin(ticket.file, has_bytes).await;
        let kinds = begun.inspect_err(|refusal| self.arrivals.note_refused(ticket.file, refusal))?;
        let mut arrival = Arrival::new(&self.arrivals, &*self.completions, &*self.clock, ticket);
        let received = match self.arrivals.take(ticket.file) {
            Some(before) => {
                let received = arrival.finish(before).await?;
                compare(body, &received).await?;
                received
            }
            // Its ticket has ended meanwhile, and the room was needed.
            None if has_bytes => {
                return Err(Refusal::new(StatusCode::GONE, "this upload is over; start again at the head"));
            }
            None => {
                let UrlTicket { file, birth, pool, io, .. } = *ticket;
                let (mode, presence) = (TicketMode::ReadWrite, Presence::Made);
                let opening = Ticket { file, birth, pool, mode, epoch, presence, io };
                let replica = self.pool.open(&opening).await?;
                // An upload that breaks off here is not resumed: its client cannot learn how far it came.
                let mut writer = Writer::new(replica, at_least_one(kinds));
                while let Some(bytes) = body.next().await? {
                    writer.write(bytes).await?;
                }
                arrival.finish(Arrived::Writer(Box::new(writer))).await?
            }
        };
        // From here on the head says whether it can be begun again.
        arrival.hand_over();
        let published = self.completions.complete(ticket.file, received).await;
        match published {
            Ok(stored_upload) => {
                drop(self.arrivals.take(ticket.file));
                Ok(stored(&stored_upload))
            }
            Err(refusal) => {
                self.arrivals.note_refused(ticket.file, &refusal);
                Err(refusal)
            }
        }
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }

    fn back_to_head(&self, request: &Request, target: &Target) -> Response {
        let host = match &self.config.head {
            HeadPlace::Here(listener) => host_for(&request.headers, *listener, request.peer.local),
            HeadPlace::Elsewhere(host) => match host() {
                Some(host) => host,
                None => {
                    return Refusal::busy("the head of this pool does not answer; try again").into_response();
                }
            },
        };
        let scheme = if request.peer.tls.is_some() { "https" } else { "http" };
        let mut url = format!("{scheme}://{host}{}", request.uri.path());
        // Without the ticket, or the two would send the client back and forth.
        let others = target.query.iter().filter(|(name, _)| *name != PARAMETER);
        for (number, (name, value)) in others.enumerate() {
            url.push(if number == 0 { '?' } else { '&' });
            target::put_query_text(&mut url, name);
            url.push('=');
            target::put_query_text(&mut url, value);
        }
        match HeaderValue::try_from(url) {
            Ok(location) => Response::new(StatusCode::TEMPORARY_REDIRECT).with(header::LOCATION, location),
            Err(_) => Response::text(StatusCode::BAD_REQUEST, "path is not understood"),
        }
    }
}

/// A file to send, held at the version that was asked for.
struct Version {
    held: Hold,
    file: FileVersion,
    replica: Arc<dyn OpenReplica>,
}

#[async_trait]
impl Service for DataFace {
    async fn serve(&self, request: Request) -> Response {
        self.handle(request).await.unwrap_or_else(Refusal::into_response)
    }
}

/// Of an upload: one at least tells apart what is put with one ticket twice.
fn at_least_one(kinds: Vec<ChecksumKind>) -> Vec<ChecksumKind> {
    if kinds.is_empty() { vec![ChecksumKind::Sha256] } else { kinds }
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
