//! An upload in several requests, each with a Content-Range: what came is kept unnamed until the last byte is there.
//!
//! `Content-Range: bytes FIRST-LAST/TOTAL` appends; a part at 0 begins anew, each further one starts where the last ended.
//! A part that is not the last is answered 202 with `Range: bytes=0-LAST`. `Content-Range: bytes */TOTAL` with an empty
//! body asks how far it is, and if all of it is there, for its name once more. A part that breaks off keeps what came of
//! it. An upload that nobody goes on with is given up after an hour.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::range::ContentRange;
use types::{Checksum, ChecksumKind, Identity};

use super::{answer, promised};
use crate::call::Call;
use crate::conditions::submitted;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::resolve::Place;
use crate::upload::{Kept, Pending};
use crate::writer::Writer;

const IDLE: Duration = Duration::from_secs(3_600);

/// Issuers, password files and certificates may have one name for different people: the identity tells them apart.
type Key = (String, Identity, Path);

/// Uploads that wait for their next part, by who makes them and where.
#[derive(Default)]
pub(crate) struct Resumable {
    waiting: HashMap<Key, Waiting>,
}

pub(crate) struct Waiting {
    pending: Pending,
    expires: Duration,
}

impl Resumable {
    /// Takes out what nobody goes on with.
    pub fn expired(&mut self, now: Duration) -> Vec<Waiting> {
        self.waiting.extract_if(|_, waiting| waiting.expires <= now).map(|(_, waiting)| waiting).collect()
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
        let known = known.map(|known| self.in_hand(key.clone(), known.pending));
        let (range, total) = match part {
            ContentRange::Part { range, complete } => (range, complete.unwrap_or(range.end())),
            ContentRange::Unsatisfied { complete } => {
                let known = known.filter(|known| known.terms.size == Some(complete));
                return self.tell_arrived(call, known, promised).await;
            }
        };
        let (first, end) = (range.offset(), range.end());
        // Who begins at the beginning begins anew: what lies there may be left of other contents.
        let is_begun = |known: &Kept| first > 0 || arrived(known) == 0;
        let mut kept = match known {
            Some(known) if known.terms.size == Some(total) && is_begun(&known) => known,
            Some(_) | None if first > 0 => return Err(out_of_order(0)),
            known => {
                // So is another length another file: the upload so far is given up.
                known.into_iter().for_each(|mut known| known.end());
                self.in_hand(key, self.begin_parts(call, place, total).await?)
            }
        };
        let arrived = arrived(&kept);
        let Some(writer) = kept.writer.as_mut().filter(|writer| writer.offset() == first) else {
            return Err(out_of_order(arrived));
        };
        if end == total {
            self.call_back(place).await?;
        }
        append(writer, body, end).await?;
        match writer.offset() {
            arrived if arrived < total => Ok(accepted(StatusCode::ACCEPTED, arrived)),
            _ => self.complete_parts(call, kept, promised).await,
        }
    }

    /// How far it is; and where all of it is there, its name.
    async fn tell_arrived(
        self: &Arc<Self>,
        call: &Call,
        known: Option<Kept>,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        let Some(known) = known else { return Ok(accepted(StatusCode::PERMANENT_REDIRECT, 0)) };
        match arrived(&known) {
            arrived if Some(arrived) < known.terms.size => {
                Ok(accepted(StatusCode::PERMANENT_REDIRECT, arrived))
            }
            _ => self.complete_parts(call, known, promised).await,
        }
    }

    async fn complete_parts(
        self: &Arc<Self>,
        call: &Call,
        mut kept: Kept,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        if !promised.is_empty() {
            kept.terms.promised = promised;
        }
        kept.terms.lock_tokens = submitted(call)?;
        let received = kept.finish().await?;
        Ok(answer(&self.publish_kept(kept, received).await?))
    }

    /// Whatever ends the request, what came stays.
    fn in_hand(self: &Arc<Self>, key: Key, pending: Pending) -> Kept {
        let front = Arc::clone(self);
        Kept::new(pending, move |pending| {
            let expires = front.services.clock.monotonic() + IDLE;
            let mut resumable = front.resumable.lock();
            match resumable.waiting.entry(key.clone()) {
                Entry::Vacant(place) => _ = place.insert(Waiting { pending, expires }),
                // Begun by a later request than this one, which found nothing. This one is given up, without the lock.
                Entry::Occupied(_) => {
                    drop(resumable);
                    drop(pending);
                }
            }
        })
    }

    async fn begin_parts(&self, call: &Call, place: &Place, total: u64) -> Result<Pending, Refusal> {
        let admitted = self.in_parts.admit(&call.caller)?;
        let mut terms = self.terms(call, place, &RequestBody::empty())?;
        terms.size = Some(total);
        let mut pending = self.begin(call, place, terms).await?;
        pending.admitted = Some(admitted);
        // What the last part will promise is not known yet.
        pending.writer = Some(self.writer(&pending, &ChecksumKind::ALL).await?);
        Ok(pending)
    }
}

/// Bytes of it, all of them where only the name is missing.
fn arrived(pending: &Pending) -> u64 {
    let complete = pending.complete.as_ref().map_or(0, |received| received.size);
    pending.writer.as_ref().map_or(complete, Writer::offset)
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
