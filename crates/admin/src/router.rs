//! Who answers which path, and the headers that every answer has.

use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode, header};
use http_server::{Request, Response, ResponseBody};

use crate::refusal::Refusal;
use crate::service::Admin;

/// Put where the handler has not said otherwise.
const PROTECTION: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

impl Admin {
    pub(crate) async fn route(&self, request: Request) -> Response {
        let is_head = request.method == Method::HEAD;
        let path = request.uri.path().to_owned();
        let response = match path.as_str() {
            "/ui" => self.page(request).await,
            path if path.starts_with("/ui/") => self.page(request).await,
            _ => Refusal::not_found().into_response(),
        };
        finish(response, is_head)
    }

    async fn page(&self, _request: Request) -> Response {
        Refusal::new(StatusCode::NOT_FOUND, "the web page is switched off").into_response()
    }
}

pub(crate) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn finish(mut response: Response, is_head: bool) -> Response {
    for (name, value) in PROTECTION {
        response.headers.entry(name).or_insert(value);
    }
    if is_head {
        let length = match &response.body {
            ResponseBody::Empty => Some(0),
            ResponseBody::Full(bytes) => Some(bytes.len() as u64),
            ResponseBody::Absent { length } => *length,
            ResponseBody::Pieces { length, .. } => Some(*length),
            ResponseBody::Stream(_) => None,
        };
        response.body = ResponseBody::Absent { length };
    }
    response
}
