//! One request, with who asks and what is asked for, as handlers use it.

use std::sync::Arc;

use api::{Activity, Caller, Origin, Role};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use http_server::Peer;
use http_wire::dav::{self, Depth};
use types::Name;

use crate::get::asks_for_digest;
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::sums::may_see_sums;

pub(crate) struct Call {
    pub caller: Caller,
    pub origin: Origin,
    pub method: Method,
    pub headers: HeaderMap,
    pub path: Path,
    /// The path ended with a slash: a directory is meant.
    pub is_directory_form: bool,
    /// `?authz=`: a link that carries its own permission.
    pub token_in_query: Option<String>,
    pub peer: Arc<Peer>,
}

impl Call {
    pub fn header(&self, name: &header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn depth(&self) -> Result<Option<Depth>, Refusal> {
        let value = self.headers.get("depth");
        let depth = value.map(|value| Depth::parse(value.as_bytes())).transpose();
        depth.map_err(|error| Refusal::bad_request(error.to_string()))
    }

    pub fn may_overwrite(&self) -> Result<bool, Refusal> {
        let value = self.headers.get("overwrite").map(HeaderValue::as_bytes);
        dav::overwrite(value).map_err(|error| Refusal::bad_request(error.to_string()))
    }

    pub fn demand(&self, activity: Activity, path: &[Name]) -> Result<(), Refusal> {
        if self.caller.may(activity, path) { Ok(()) } else { Err(self.denied()) }
    }

    /// For GET and HEAD. HEAD tells metadata, which were asked for on the way to the file, and a checksum to who wants one.
    pub fn demand_reading(&self, path: &[Name]) -> Result<(), Refusal> {
        if self.method != Method::HEAD {
            return self.demand(Activity::Download, path);
        }
        let is_allowed = !asks_for_digest(&self.headers) || may_see_sums(&self.caller, path);
        if is_allowed { Ok(()) } else { Err(self.denied()) }
    }

    /// Who is nobody yet is asked to say who it is; who is known may just not.
    pub fn denied(&self) -> Refusal {
        if self.caller.role == Role::Anonymous {
            unauthorized("this needs a login or a token")
        } else {
            Refusal::forbidden(format!("{} may not do this here", self.caller.name))
        }
    }

    /// A refusal by the mode bits, for an anonymous caller turned into the question who it is.
    pub fn reconsider(&self, refusal: Refusal) -> Refusal {
        if refusal.status == StatusCode::FORBIDDEN && self.caller.role == Role::Anonymous {
            return unauthorized("this needs a login or a token");
        }
        refusal
    }
}

/// HTTP/2 has the host in `:authority`, and where a request line names one it counts (RFC 9112 §3.2.2): here it is always
/// found in `Host`.
pub(crate) fn with_host(mut headers: HeaderMap, uri: &Uri) -> HeaderMap {
    let host = uri.authority().map(|authority| match authority.as_str().rsplit_once('@') {
        Some((_, host)) => host,
        None => authority.as_str(),
    });
    if let Some(Ok(host)) = host.map(HeaderValue::try_from) {
        headers.insert(header::HOST, host);
    }
    headers
}

pub(crate) fn unauthorized(message: impl Into<String>) -> Refusal {
    let challenge = HeaderValue::from_static("Basic realm=\"forebay\", charset=\"UTF-8\"");
    Refusal::new(StatusCode::UNAUTHORIZED, message)
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"forebay\""))
        .with(header::WWW_AUTHENTICATE, challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_http2_is_found_where_that_of_http1_is() {
        let uri = "https://user@a.example:8443/f".parse().unwrap();
        let headers = with_host(HeaderMap::new(), &uri);
        assert_eq!(headers[header::HOST], "a.example:8443");
        let named = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("b.example"))]);
        assert_eq!(with_host(named, &"/f".parse().unwrap())[header::HOST], "b.example");
    }
}
