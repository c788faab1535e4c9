//! Errors of the seams as statuses and JSON: the only place that maps them.

use api::{AuthError, NamespaceError};
use files::WalkError;
use http::{HeaderValue, StatusCode, header};
use http_server::{BodyError, Response};
use http_wire::credential::CredentialError;
use http_wire::target::TargetError;

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    /// For people.
    pub message: String,
    /// Methods that the path has, for 405.
    pub allow: Option<&'static str>,
}

impl Refusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), allow: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn not_found() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "there is nothing here")
    }

    pub fn unauthorized(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, message)
    }

    pub fn wrong_method(allow: &'static str) -> Refusal {
        let message = format!("this takes {allow}");
        Refusal { allow: Some(allow), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// `{"error": …}`.
    pub fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.message }).to_string();
        self.with_headers(Response::full(self.status, "application/json", body + "\n"))
    }

    /// Adds the headers that the status needs: a challenge, the methods, when to retry.
    pub fn with_headers(&self, mut response: Response) -> Response {
        if self.status == StatusCode::UNAUTHORIZED {
            // Some clients take the first one only, and of those more know Basic (duplicity).
            for challenge in ["Basic realm=\"forebay\", charset=\"UTF-8\"", "Bearer realm=\"forebay\""] {
                response.headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
        }
        if let Some(allow) = self.allow {
            response.headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<NamespaceError> for Refusal {
    fn from(error: NamespaceError) -> Refusal {
        use NamespaceError as E;
        let status = match &error {
            E::NotFound | E::Stale(_) => StatusCode::NOT_FOUND,
            E::AccessDenied | E::NotPermitted => StatusCode::FORBIDDEN,
            E::BadCookie => StatusCode::BAD_REQUEST,
            E::NotDirectory
            | E::IsDirectory
            | E::NotSymlink
            | E::NotRegular
            | E::Exists
            | E::NotEmpty
            | E::Cycle
            | E::TooManyLinks => StatusCode::CONFLICT,
            E::NoSpace | E::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
            E::ReadOnly(_) | E::Moved | E::Busy => StatusCode::SERVICE_UNAVAILABLE,
            E::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "namespace failed");
        }
        Refusal::new(status, error.to_string())
    }
}

impl From<WalkError> for Refusal {
    fn from(error: WalkError) -> Refusal {
        match error {
            WalkError::Namespace(error) => error.into(),
            WalkError::Denied | WalkError::Root => Refusal::forbidden(error.to_string()),
            WalkError::TooDeep => Refusal::bad_request(error.to_string()),
        }
    }
}

impl From<AuthError> for Refusal {
    fn from(error: AuthError) -> Refusal {
        let status = match &error {
            AuthError::Refused(_) => StatusCode::UNAUTHORIZED,
            AuthError::Forbidden(_) => StatusCode::FORBIDDEN,
            AuthError::Invalid(_) => StatusCode::BAD_REQUEST,
            AuthError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal::new(status, error.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        let status = match &error {
            BodyError::Slow => StatusCode::REQUEST_TIMEOUT,
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Gone | BodyError::Malformed(_) => StatusCode::BAD_REQUEST,
            BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal::new(status, error.to_string())
    }
}

impl From<TargetError> for Refusal {
    fn from(error: TargetError) -> Refusal {
        Refusal::new(error.status(), error.to_string())
    }
}

impl From<CredentialError> for Refusal {
    fn from(error: CredentialError) -> Refusal {
        match error {
            CredentialError::UnknownScheme => Refusal::unauthorized(error.to_string()),
            CredentialError::Repeated | CredentialError::Malformed | CredentialError::TooLong => {
                Refusal::bad_request(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anonymous_client_is_challenged_with_basic_and_bearer() {
        let response = Refusal::unauthorized("say who you are").into_response();
        let schemes = response.headers.get_all(header::WWW_AUTHENTICATE).iter();
        let schemes: Vec<_> = schemes.map(|value| &value.to_str().unwrap()[..6]).collect();
        assert_eq!(schemes, ["Basic ", "Bearer"]);
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        let response = Refusal::wrong_method("GET, HEAD").into_response();
        assert_eq!(
            (response.status, &response.headers[header::ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
        );
    }
}
