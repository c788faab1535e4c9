//! An answer in JSON.

use http::StatusCode;
use http_server::Response;
use serde_json::Value;

pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    Response::full(status, "application/json", body.to_string() + "\n")
}
