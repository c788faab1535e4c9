//! A representation of a file as a response: conditions, ranges, headers, pieces (RFC 9110 §13, §14). The same at the head
//! and at a pool.

use std::any::Any;
use std::sync::LazyLock;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Piece, Response, ResponseBody, Source};
use http_wire::conditional::{self, Current, ETag, Verdict};
use http_wire::multipart::{Boundary, ByteRanges};
use http_wire::range::{self, ContentRange, RangeLimits, Selection};
use http_wire::{content, date};
use types::{Attributes, ByteRange, Random, Timestamp};

use crate::completions::StoredUpload;
use crate::refusal::Refusal;

const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// The headers of each answer with a file. To copy the map hashes no names. The values that are empty here are set for
/// each file; they keep the order in which headers are sent.
static ALWAYS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let empty = HeaderValue::from_static("");
    HeaderMap::from_iter([
        (header::ETAG, empty.clone()),
        (header::LAST_MODIFIED, empty.clone()),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::CACHE_CONTROL, PRIVATE),
        (header::CONTENT_TYPE, empty),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox")),
    ])
});

/// A file that stays what it is while this lives.
pub type Hold = Box<dyn Any + Send + Sync>;

pub(crate) struct Representation<'a> {
    pub etag: ETag,
    pub modified: Timestamp,
    pub size: u64,
    pub content_type: &'static str,
    /// For a boundary between parts, if there are several.
    pub random: &'a dyn Random,
    pub digests: HeaderMap,
    /// `None`: the file is empty.
    pub source: Option<Source>,
    /// Kept until the last byte is sent.
    pub held: Option<Hold>,
}

pub(crate) fn respond(
    method: &Method,
    headers: &HeaderMap,
    content: Representation<'_>,
    now: Timestamp,
) -> Result<Response, Refusal> {
    let current = Current { etag: &content.etag, modified: content.modified };
    match conditional::evaluate(method, headers, Some(current)) {
        Verdict::Proceed => {}
        Verdict::NotModified => {
            return Err(Refusal::new(StatusCode::NOT_MODIFIED, "")
                .with(header::ETAG, content.etag.header_value())
                .with(header::CACHE_CONTROL, PRIVATE));
        }
        Verdict::PreconditionFailed => return Err(Refusal::precondition("file was changed")),
    }
    let response = described(&content);
    let is_head = method == Method::HEAD;
    let selection = if !is_head && conditional::if_range_holds(headers, current, now) {
        range::select(headers, content.size, &RangeLimits::default())
    } else {
        Selection::Whole
    };
    match selection {
        Selection::Whole => Ok(whole(response, content, is_head)),
        Selection::Parts(ranges) => Ok(parts(response, content, ranges)),
        Selection::Refused(why) => {
            let complete = ContentRange::Unsatisfied { complete: content.size }.header_value();
            Err(Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, why.to_string())
                .with(header::CONTENT_RANGE, complete))
        }
    }
}

fn described(content: &Representation<'_>) -> Response {
    let mut response = Response::new(StatusCode::OK);
    let headers = &mut response.headers;
    headers.clone_from(&ALWAYS);
    headers.insert(header::ETAG, content.etag.header_value());
    headers.insert(header::LAST_MODIFIED, date::header_value(content.modified));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content.content_type));
    if !content.digests.is_empty() {
        headers.extend(content.digests.clone());
    }
    response
}

fn whole(mut response: Response, content: Representation<'_>, is_head: bool) -> Response {
    if is_head {
        return response.with_body(ResponseBody::Absent { length: Some(content.size) });
    }
    let length = content.size;
    if length > 0 {
        let Representation { source, held, .. } = content;
        let pieces = piece(source.as_ref(), 0, length).into_iter().inspect(move |_| {
            let _kept = &held;
        });
        response = response.with_body(ResponseBody::Pieces { length, pieces: Box::new(pieces) });
    }
    response
}

fn parts(mut response: Response, content: Representation<'_>, ranges: Vec<ByteRange>) -> Response {
    response.status = StatusCode::PARTIAL_CONTENT;
    let Representation { source, held, size, content_type, random, .. } = content;
    if let [only] = ranges[..] {
        let pieces = piece(source.as_ref(), only.offset(), only.length()).into_iter().inspect(move |_| {
            let _kept = &held;
        });
        return response
            .with(
                header::CONTENT_RANGE,
                ContentRange::Part { range: only, complete: Some(size) }.header_value(),
            )
            .with_body(ResponseBody::Pieces { length: only.length(), pieces: Box::new(pieces) });
    }
    let body = ByteRanges::new(boundary(random), &HeaderValue::from_static(content_type), size, &ranges);
    drop(ranges);
    let (length, content_type, closing) = (body.content_length(), body.content_type(), body.closing());
    let parts = body.into_parts().flat_map(move |(head, range)| {
        let _kept = &held;
        let bytes = piece(source.as_ref(), range.offset(), range.length());
        std::iter::once(Piece::Bytes(head)).chain(bytes)
    });
    let pieces = parts.chain(std::iter::once(Piece::Bytes(closing)));
    response
        .with(header::CONTENT_TYPE, content_type)
        .with_body(ResponseBody::Pieces { length, pieces: Box::new(pieces) })
}

/// Without a replica there are no bytes: who counts on some gets none that are wrong.
fn piece(source: Option<&Source>, offset: u64, length: u64) -> Option<Piece> {
    source.map(|source| source.piece(offset, length))
}

fn boundary(random: &dyn Random) -> Boundary {
    let mut chance = [0; 16];
    random.fill(&mut chance);
    Boundary::new(chance)
}

/// 201 for a new name, 204 for new contents.
pub(crate) fn stored(upload: &StoredUpload) -> Response {
    let status = if upload.is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Response::new(status).with(header::ETAG, ETag::of_change(upload.file, upload.change).header_value())
}

pub(crate) fn etag(file: &Attributes) -> ETag {
    ETag::of_change(file.file, file.change)
}

/// By the name; the types that a browser would run as a page of ours are sent as plain text or a download.
pub(crate) fn safe_type(name: &[u8]) -> &'static str {
    match content::media_type(name) {
        active if content::is_active(active) => "text/plain; charset=utf-8",
        other => other,
    }
}
