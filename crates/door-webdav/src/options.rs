//! OPTIONS: the methods and the parts of WebDAV that the door has.

use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use http_server::Response;

pub(crate) const ALLOW: HeaderValue = HeaderValue::from_static(
    "OPTIONS, GET, HEAD, PUT, POST, DELETE, MKCOL, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK",
);

pub(crate) fn options() -> Response {
    Response::new(StatusCode::OK)
        .with(header::ALLOW, ALLOW)
        .with(HeaderName::from_static("dav"), HeaderValue::from_static("1, 2"))
        .with(HeaderName::from_static("ms-author-via"), HeaderValue::from_static("DAV"))
        .with(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))
}
