//! An upload in several requests, each with a Content-Range: the bytes are kept unnamed until the last one is there.
//!
//! `Content-Range: bytes FIRST-LAST/TOTAL` appends; a part at 0 begins anew, each further one starts where the last ended.
//! A part that is not the last is answered 202 with `Range: bytes=0-LAST`. `Content-Range: bytes */TOTAL` with an empty
//! body asks how far it is, and if all of it is there, for its name once more. A part that breaks off keeps what came of
//! it. An upload that nobody goes on with is given up after an hour.
//!
//! An upload that is begun anew supersedes the one before: so each has an id (`Upload-Id`), and where one was superseded only
//! parts that name theirs are taken.

use std::sync::Arc;

use files::{Upload, UploadKey, UploadTarget, UploadsInParts};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::range::ContentRange;
use types::{Checksum, ChecksumKind, FileId};

use super::terms::{promised, terms};
use crate::call::Call;
use crate::completions::StoredUpload;
use crate::refusal::Refusal;
use crate::representation::stored;
use crate::upload::Uploading;

const UPLOAD_ID: HeaderName = HeaderName::from_static("upload-id");

pub(crate) struct PartialPuts {
    pub uploading: Arc<Uploading>,
    pub in_parts: UploadsInParts,
}

impl PartialPuts {
    pub async fn put(
        &self,
        call: &Call,
        target: &UploadTarget,
        part: ContentRange,
        body: RequestBody,
    ) -> Result<Response, Refusal> {
        // A refusal comes before the upload is taken out, so that its parts so far stay.
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
        let key = UploadKey::new(&call.caller, target.place().path.clone());
        let named = call.single(UPLOAD_ID)?.map(HeaderValue::as_bytes);
        let (range, total) = match part {
            ContentRange::Part { range, complete } => (range, complete.unwrap_or(range.end())),
            ContentRange::Unsatisfied { complete } => {
                let mut known = self.in_parts.take_up(&key, named, complete)?;
                known.iter_mut().for_each(|upload| upload.walked_again(target));
                return self.tell_arrived(call, known, promised).await;
            }
        };
        let (first, end) = (range.offset(), range.end());
        let mut upload = if first > 0 {
            self.in_parts.take_up(&key, named, total)?.ok_or_else(|| out_of_order(0))?
        } else {
            self.in_parts.supersede(&key, named);
            self.begin_parts(call, target, &key, total).await?
        };
        upload.walked_again(target);
        if !upload.is_coming() || upload.arrived() != first {
            return Err(out_of_order(upload.arrived()));
        }
        if end == total {
            upload.recall_ahead().await?;
        }
        append(&mut upload, body, end).await?;
        match upload.arrived() {
            arrived if arrived < total => {
                let id = upload.file().file;
                self.in_parts.put_back(&key, upload)?;
                Ok(accepted(StatusCode::ACCEPTED, arrived, Some(id)))
            }
            _ => self.complete_parts(call, upload, promised).await,
        }
    }

    /// Answers how far the upload is; if all bytes are there, gives it its name.
    async fn tell_arrived(
        &self,
        call: &Call,
        known: Option<Upload>,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        let Some(known) = known else { return Ok(accepted(StatusCode::PERMANENT_REDIRECT, 0, None)) };
        match known.arrived() {
            arrived if Some(arrived) < known.terms().size => {
                Ok(accepted(StatusCode::PERMANENT_REDIRECT, arrived, Some(known.file().file)))
            }
            _ => self.complete_parts(call, known, promised).await,
        }
    }

    async fn complete_parts(
        &self,
        call: &Call,
        mut kept: Upload,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        if !promised.is_empty() {
            kept.promise(promised);
        }
        let owner = call.lock_owner()?;
        let published = self.uploading.publish(kept.finish().await?, owner).await?;
        Ok(stored(&StoredUpload::of(&published)))
    }

    async fn begin_parts(
        &self,
        call: &Call,
        target: &UploadTarget,
        key: &UploadKey,
        total: u64,
    ) -> Result<Upload, Refusal> {
        let admitted = self.in_parts.admit(&call.caller)?;
        let mut terms = terms(call, target.place(), &RequestBody::empty())?;
        terms.size = Some(total);
        // The checksums that the last part will promise are not known yet.
        terms.kinds = ChecksumKind::ALL.to_vec();
        let mut upload = self.uploading.begin(call, target.clone(), terms).await?;
        upload.open().await?;
        Ok(self.in_parts.begin(key, upload, admitted))
    }
}

async fn append(upload: &mut Upload, mut body: RequestBody, end: u64) -> Result<(), Refusal> {
    while let Some(bytes) = body.next().await? {
        if upload.arrived() + bytes.len() as u64 > end {
            return Err(Refusal::bad_request("body is longer than Content-Range says"));
        }
        upload.write(bytes).await?;
    }
    if upload.arrived() < end {
        return Err(Refusal::bad_request("body is shorter than Content-Range says"));
    }
    Ok(())
}

fn accepted(status: StatusCode, arrived: u64, id: Option<FileId>) -> Response {
    let response = Response::new(status);
    let response = match id {
        Some(id) => response.with(UPLOAD_ID, id_value(id)),
        None => response,
    };
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

fn id_value(id: FileId) -> HeaderValue {
    HeaderValue::try_from(id.to_string()).expect("digits are a header value")
}

fn arrived_range(arrived: u64) -> Option<HeaderValue> {
    let last = arrived.checked_sub(1)?;
    Some(HeaderValue::try_from(format!("bytes=0-{last}")).expect("digits are a header value"))
}
