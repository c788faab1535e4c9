//! 207 (RFC 4918 §13): one status for each resource.

use http::StatusCode;
use http::header::{self, HeaderValue};
use http_server::{Response, ResponseBody};
use http_wire::dav::{self, Multistatus};
use http_wire::target;

use crate::lock_table::Path;
use crate::tree::Failures;

pub(crate) fn href(path: &Path, is_collection: bool) -> String {
    target::encode_path(path, is_collection)
}

pub(crate) fn multistatus(body: ResponseBody) -> Response {
    Response::new(StatusCode::MULTI_STATUS)
        .with(header::CONTENT_TYPE, HeaderValue::from_static(dav::XML_CONTENT_TYPE))
        .with_body(body)
}

/// 207 for a change of a tree of which parts could not be done.
pub(crate) fn failures(failures: &Failures) -> Response {
    let mut out = Multistatus::begin();
    for (path, refusal) in failures {
        out.status(&target::encode_path(path, false), refusal.status, None);
    }
    multistatus(ResponseBody::Full(out.end()))
}
