//! An upload in several requests, each with a Content-Range: what came is kept unnamed until the last byte is there.
//!
//! `Content-Range: bytes FIRST-LAST/TOTAL` appends; the first part starts at 0, each further one where the last ended.
//! A part that is not the last is answered 202 with `Range: bytes=0-LAST`. `Content-Range: bytes */TOTAL` with an empty
//! body asks how far it is. A part that breaks off keeps what came of it. An upload that nobody goes on with is given up
//! after an hour.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::range::ContentRange;
use types::Identity;

use super::{answer, promised};
use crate::call::Call;
use crate::conditions::submitted;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::resolve::Place;
use crate::upload::{Pending, Writer};

const IDLE: Duration = Duration::from_secs(3_600);

/// Issuers, password files and certificates may have one name for different people: the identity tells them apart.
type Key = (String, Identity, Path);

/// Uploads that wait for their next part, by who makes them and where.
#[derive(Default)]
pub(crate) struct Resumable {
    waiting: HashMap<Key, Waiting>,
}

struct Waiting {
    pending: Pending,
    writer: Writer,
    total: u64,
    expires: Duration,
}

impl Resumable {
    pub fn expire(&mut self, now: Duration) {
        self.waiting.retain(|_, waiting| waiting.expires > now);
    }
}

impl Front {
    pub(super) async fn put_part(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        part: ContentRange,
        body: RequestBody,
    ) -> Result<Response, Refusal> {
        // What is refused is refused before the upload is taken out: its parts so far stay.
        let promised = promised(&call.headers)?;
        match part {
            ContentRange::Part { complete: None, .. } => {
                return Err(Refusal::bad_request("Content-Range must name the whole length"));
            }
            ContentRange::Part { range, .. }
                if body.length().is_some_and(|length| length != range.length()) =>
            {
                return Err(Refusal::bad_request("body is not as long as Content-Range says"));
            }
            _ => {}
        }
        let key = (call.caller.name.to_string(), call.caller.identity.clone(), place.path.clone());
        // While a part is being received nobody else finds the upload.
        let known = self.resumable.lock().waiting.remove(&key);
        let (range, total) = match part {
            ContentRange::Part { range, complete } => (range, complete.unwrap_or(range.end())),
            ContentRange::Unsatisfied { complete } => {
                let known = known.filter(|known| known.total == complete);
                let arrived = known.as_ref().map_or(0, |known| known.writer.offset());
                self.resumable.lock().waiting.extend(known.map(|known| (key, known)));
                return Ok(accepted(StatusCode::PERMANENT_REDIRECT, arrived));
            }
        };
        let (first, end) = (range.offset(), range.end());
        // Another length is another file: the upload so far is given up.
        let known = known.filter(|known| known.total == total);
        let mut upload = match known {
            Some(known) if known.writer.offset() == first => known,
            Some(known) => {
                let arrived = known.writer.offset();
                self.resumable.lock().waiting.insert(key, known);
                return Err(out_of_order(arrived));
            }
            None if first == 0 => self.begin_parts(call, place, total).await?,
            None => return Err(out_of_order(0)),
        };
        let outcome = append(&mut upload.writer, body, end).await;
        if outcome.is_ok() && upload.writer.offset() == total {
            upload.pending.terms.promised = promised;
            upload.pending.terms.lock_tokens = submitted(call)?;
            let received = upload.writer.finish().await?;
            return Ok(answer(&self.publish(&upload.pending, received).await?));
        }
        let arrived = upload.writer.offset();
        upload.expires = self.services.clock.monotonic() + IDLE;
        // What could not be written cannot be sent again by who is told where to go on: the upload starts anew.
        if !upload.writer.is_broken() {
            self.resumable.lock().waiting.insert(key, upload);
        }
        outcome.map(|()| accepted(StatusCode::ACCEPTED, arrived))
    }

    async fn begin_parts(&self, call: &Call, place: &Place, total: u64) -> Result<Waiting, Refusal> {
        if self.resumable.lock().waiting.len() >= self.config.uploads_max {
            return Err(Refusal::busy("too many uploads are under way"));
        }
        let mut terms = self.terms(call, place, &RequestBody::empty())?;
        terms.size = Some(total);
        let pending = self.begin(call, place, terms).await?;
        // What the last part will promise is not known yet.
        let writer = self.writer(&pending, &types::ChecksumKind::ALL).await?;
        let expires = self.services.clock.monotonic() + IDLE;
        Ok(Waiting { pending, writer, total, expires })
    }
}

async fn append(writer: &mut Writer, mut body: RequestBody, end: u64) -> Result<(), Refusal> {
    while let Some(bytes) = body.next().await? {
        if writer.offset() + bytes.len() as u64 > end {
            return Err(Refusal::bad_request("body is longer than Content-Range says"));
        }
        writer.write(bytes).await?;
    }
    if writer.offset() < end {
        return Err(Refusal::bad_request("body is shorter than Content-Range says"));
    }
    Ok(())
}

fn accepted(status: StatusCode, arrived: u64) -> Response {
    let response = Response::new(status);
    match arrived_range(arrived) {
        Some(range) => response.with(header::RANGE, range),
        None => response,
    }
}

fn out_of_order(arrived: u64) -> Refusal {
    let refusal =
        Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the next byte is number {arrived}"));
    match arrived_range(arrived) {
        Some(range) => refusal.with(header::RANGE, range),
        None => refusal,
    }
}

fn arrived_range(arrived: u64) -> Option<HeaderValue> {
    let last = arrived.checked_sub(1)?;
    Some(HeaderValue::try_from(format!("bytes=0-{last}")).expect("digits are a header value"))
}
