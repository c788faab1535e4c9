//! GET and HEAD: what a file is, whether the client has it already, which parts it wants, and who sends them.

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, Birth, Grant, TicketMode};
use files::{Content, ContentMode, OpenFile};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Response, Source};
use http_wire::dav::IF;
use http_wire::target::{encode_path, put_query_text};
use http_wire::{content, digest};
use types::{Attributes, Clock, FileKind, Random};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::Conditions;
use crate::index::index;
use crate::redirects::Redirects;
use crate::refusal::Refusal;
use crate::representation::{Representation, etag, respond, safe_type};
use crate::resolve::{Last, PathTarget, Resolver};
use crate::sums::asks_for_digest;
use crate::ticket::{Purpose, UrlTicket};

/// How long a redirect to read is good for, and so how long a user who was removed meanwhile may still read with it.
const TICKET_S: u64 = 300;
/// Replaced so often between being found and being held, a file makes its reader come again.
const LOOKUPS_MAX: usize = 16;
/// The pause between two look-ups: the file may be replaced once more.
const LOOKUP_AGAIN: Duration = Duration::from_millis(10);

pub(crate) struct Reads {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub redirects: Arc<Redirects>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Where a browser that asks for a directory is sent, with the path appended. `None`: it gets the plain index.
    pub page: Option<String>,
}

impl Reads {
    pub async fn get(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..LOOKUPS_MAX {
            let target = self.resolver.resolve(call, &call.path, Last::Followed).await?;
            let found = target.existing()?;
            self.conditions.check_if(call, &target).await?;
            match found.kind {
                FileKind::Directory => return Box::pin(self.get_directory(call, &target, &found)).await,
                FileKind::Regular if call.is_directory_form => return Err(Refusal::not_found()),
                FileKind::Regular => {}
                _ => return Err(Refusal::forbidden("this is a device, not a file")),
            }
            call.demand_reading(&target.path)?;
            self.access.check_readable(call, &found).await?;
            // Held from here on: an unlinked file keeps its data until the last byte is sent.
            if let Some((held, file)) = self.access.files.open_named(&found, self.access.requests).await? {
                return self.send_file(call, &target, held, file).await;
            }
            tokio::time::sleep(LOOKUP_AGAIN).await;
        }
        Err(Refusal::busy("the file is replaced again and again"))
    }

    async fn send_file(
        &self,
        call: &Call,
        target: &PathTarget,
        held: OpenFile,
        file: Attributes,
    ) -> Result<Response, Refusal> {
        if let Some(response) = self.redirect_read(call, target, &file).await? {
            return Ok(response);
        }
        let bytes = self.access.files.content(&file, ContentMode::Read).await?;
        let content = Representation {
            etag: etag(&file),
            modified: file.mtime,
            size: file.size,
            content_type: content_type(target),
            random: &*self.random,
            digests: match asks_for_digest(&call.headers) {
                true => Box::pin(self.wanted_digests(call, &file, &bytes)).await?,
                false => HeaderMap::new(),
            },
            source: bytes.replica().cloned().map(Source::new),
            held: Some(Box::new(held)),
        };
        respond(&call.method, &call.headers, content, self.clock.now())
    }

    /// 307 to the pool that has the file, with a ticket. Not where the pool would send the client back: there what is
    /// asked cannot be answered, or the file will be another version by then.
    async fn redirect_read(
        &self,
        call: &Call,
        target: &PathTarget,
        file: &Attributes,
    ) -> Result<Option<Response>, Refusal> {
        if !self.redirects.may_lead_away(call)
            || call.method != Method::GET
            || !follows_redirects(&call.headers)
            || asks_for_digest(&call.headers)
            || call.headers.contains_key(IF)
            || self.access.files.is_being_written(file.file)
        {
            return Ok(None);
        }
        let located = self.access.files.locate(file, TicketMode::Read, None).await?;
        let is_open = |grant: &Grant| file.size > 0 && !self.access.files.pools().is_closed(grant.pool);
        let Some(Grant { pool }) = located.filter(is_open) else { return Ok(None) };
        let Some(origin) = self.redirects.origin(call, pool) else { return Ok(None) };
        let purpose = Purpose::Read { change: file.change };
        let expires_s = self.redirects.expires_s(call, TICKET_S);
        let birth = Birth::of(file.birth);
        let ticket = UrlTicket { purpose, file: file.file, birth, pool, io: file.io, expires_s };
        let Some(location) = self.redirects.url(call, &origin, &target.path, &ticket) else {
            return Ok(None);
        };
        let response = Response::new(StatusCode::TEMPORARY_REDIRECT)
            .with(header::LOCATION, location)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(Some(response))
    }

    /// The checksums that the client asked for; what is not kept is computed now, and kept if nothing changed meanwhile.
    async fn wanted_digests(
        &self,
        call: &Call,
        file: &Attributes,
        bytes: &Content,
    ) -> Result<HeaderMap, Refusal> {
        let mut headers = HeaderMap::new();
        let (wanted, wanted_repr) =
            (digest::want_digest(&call.headers), digest::want_repr_digest(&call.headers));
        if let Some(kind) = wanted.first() {
            let sum = self.access.files.checksum(&call.caller.identity, file, *kind, bytes).await?;
            headers.extend(digest::digest_header(&[sum]).map(|value| (digest::DIGEST, value)));
        }
        if let Some(kind) = wanted_repr.first() {
            let sum = self.access.files.checksum(&call.caller.identity, file, *kind, bytes).await?;
            headers.extend(digest::repr_digest_header(&[sum]).map(|value| (digest::REPR_DIGEST, value)));
        }
        Ok(headers)
    }

    async fn get_directory(
        &self,
        call: &Call,
        target: &PathTarget,
        dir: &Attributes,
    ) -> Result<Response, Refusal> {
        let wants_page = content::accepts(&call.headers, "text/html");
        if let Some(page) = self.page.as_ref().filter(|_| wants_page) {
            let mut url = format!("{page}{}", encode_path(&target.path, true));
            if let Some(token) = &call.token_in_query {
                url.push_str("?authz=");
                put_query_text(&mut url, token);
            }
            let location = HeaderValue::try_from(url).map_err(|_| Refusal::not_found())?;
            return Ok(Response::new(StatusCode::SEE_OTHER)
                .with(header::LOCATION, location)
                .with(header::VARY, HeaderValue::from_static("accept")));
        }
        call.demand(Activity::List, &target.path)?;
        index(&self.access, call, target, dir).await
    }
}

/// By the name; what a browser would run as a page of ours is sent as plain text or a download.
fn content_type(target: &PathTarget) -> &'static str {
    safe_type(target.name().map_or(&b""[..], |name| name.as_bytes()))
}

/// Clients that are known not to follow; everybody else does for GET.
fn follows_redirects(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    // Of a page, only what is navigated to may come from elsewhere (its Content-Security-Policy).
    let is_part_of_page =
        headers.get("sec-fetch-dest").is_some_and(|destination| destination.as_bytes() != b"document");
    !is_part_of_page && !["litmus", "cadaver", "davfs2", "neon"].iter().any(|name| agent.starts_with(name))
}
