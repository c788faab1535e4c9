//! Why a request is not done, and the one place where the seams' errors become HTTP statuses.

use api::{AuthError, NamespaceError, PoolError, SelectError};
use bytes::Bytes;
use files::{FilesError, PublishError, UploadError, WalkError};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use http_server::{BodyError, Response, ResponseBody};
use http_wire::dav::{Precondition, error_body};

use crate::lock_table::BeginError;
use crate::options::ALLOW;
use crate::path_locks::OpenForWriting;

#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// One line for people.
    pub message: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A `DAV:error` body instead of the line (RFC 4918 §16).
    pub xml: Option<Bytes>,
}

/// A client is asked to come again after this many seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl Refusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), headers: Vec::new(), xml: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, message)
    }

    pub fn conflict(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, message)
    }

    pub fn not_found() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "no such file or directory")
    }

    pub fn precondition(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::PRECONDITION_FAILED, message)
    }

    /// Something else is at it; the same request may do in a moment.
    pub fn busy(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).with(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// Whether the same request may succeed later. A client that has the file locked unlocks it some day.
    pub fn may_pass(&self) -> bool {
        matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::LOCKED)
    }

    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.headers.push((name, value));
        self
    }

    #[must_use]
    pub fn with_xml(mut self, xml: Bytes) -> Refusal {
        self.xml = Some(xml);
        self
    }

    pub fn into_response(self) -> Response {
        let mut response = match self.xml {
            Some(xml) => Response::new(self.status)
                .with(header::CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"))
                .with_body(ResponseBody::Full(xml)),
            None if self.status == StatusCode::NOT_MODIFIED => Response::new(self.status),
            None => Response::text(self.status, self.message),
        };
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            // RFC 9110 §15.5.6 demands it. Of what can be done with some resource: which of it fits depends on more
            // than its kind.
            response.headers.insert(header::ALLOW, ALLOW);
        }
        for (name, value) in self.headers {
            response.headers.append(name, value);
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
            E::Exists | E::NotEmpty | E::Cycle | E::NotDirectory | E::TooManyLinks => StatusCode::CONFLICT,
            E::IsDirectory | E::NotRegular | E::NotSymlink => StatusCode::METHOD_NOT_ALLOWED,
            E::BadCookie => StatusCode::INTERNAL_SERVER_ERROR,
            E::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            E::ReadOnly(_) => StatusCode::SERVICE_UNAVAILABLE,
            E::QuotaExceeded => {
                let why = error_body(&Precondition::QuotaNotExceeded);
                return Refusal::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()).with_xml(why);
            }
            E::Moved | E::Busy => return Refusal::busy(error.to_string()),
            E::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "namespace failed");
        }
        Refusal::new(status, error.to_string())
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Refusal {
        use PoolError as E;
        let status = match &error {
            E::NoSpace(_) => StatusCode::INSUFFICIENT_STORAGE,
            E::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            // The layout behind it was revoked, or the file is gone: the name is to be looked up anew.
            E::Fenced | E::NoReplica(_) | E::Offline(_) | E::Unknown(_) | E::Busy(_) => {
                return Refusal::busy(error.to_string());
            }
            E::ReadOnlyTicket => StatusCode::FORBIDDEN,
            E::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            E::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "pool failed");
        }
        Refusal::new(status, error.to_string())
    }
}

impl From<SelectError> for Refusal {
    fn from(error: SelectError) -> Refusal {
        match error {
            SelectError::NoSpace => Refusal::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
            SelectError::Unavailable | SelectError::Away => Refusal::busy(error.to_string()),
            SelectError::NoLocation => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl From<FilesError> for Refusal {
    fn from(error: FilesError) -> Refusal {
        match error {
            FilesError::Namespace(error) => error.into(),
            FilesError::Path(error) => error.into(),
            FilesError::Pool(error) => error.into(),
            FilesError::Select(error) => error.into(),
            FilesError::TooLarge => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            FilesError::Denied => Refusal::new(StatusCode::LOCKED, error.to_string()),
            FilesError::Recalled | FilesError::Shortened | FilesError::Moved | FilesError::Limit(_) => {
                Refusal::busy(error.to_string())
            }
            FilesError::Upload(error) => error.into(),
        }
    }
}

impl From<UploadError> for Refusal {
    fn from(error: UploadError) -> Refusal {
        use UploadError as E;
        let status = match error {
            E::Length { .. } | E::Checksum { .. } => StatusCode::BAD_REQUEST,
            E::DirectoryMoved { .. } | E::Superseded { .. } => StatusCode::CONFLICT,
            E::Ambiguous => {
                let by = "name yours by the Upload-Id that its first part was answered with";
                return Refusal::conflict(format!("{error}: {by}"));
            }
            E::Exists | E::Changed => StatusCode::PRECONDITION_FAILED,
            E::IsDirectory => StatusCode::METHOD_NOT_ALLOWED,
            E::Contended | E::TooMany | E::TooManyOf(_) | E::BeingReceived => {
                return Refusal::busy(error.to_string());
            }
            E::Lost => {
                tracing::error!(%error, "an upload is refused");
                StatusCode::INTERNAL_SERVER_ERROR
            }
            E::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal::new(status, error.to_string())
    }
}

impl From<PublishError<Refusal>> for Refusal {
    fn from(error: PublishError<Refusal>) -> Refusal {
        match error {
            PublishError::Files(error) => error.into(),
            PublishError::Door(refusal) => refusal,
        }
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
            AuthError::Unavailable(_) => return Refusal::busy(error.to_string()),
        };
        Refusal::new(status, error.to_string())
    }
}

impl From<BeginError> for Refusal {
    fn from(error: BeginError) -> Refusal {
        match error {
            // With the lock's root (RFC 4918 §16, `lock-token-submitted`).
            BeginError::Locked { root_href } => {
                let why = error_body(&Precondition::LockTokenSubmitted { hrefs: &[&root_href] });
                Refusal::new(StatusCode::LOCKED, "locked").with_xml(why)
            }
            BeginError::Moving => Refusal::busy(error.to_string()),
        }
    }
}

impl From<OpenForWriting> for Refusal {
    fn from(error: OpenForWriting) -> Refusal {
        Refusal::new(StatusCode::LOCKED, error.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        let status = match &error {
            BodyError::Slow => StatusCode::REQUEST_TIMEOUT,
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Gone | BodyError::Malformed(_) => StatusCode::BAD_REQUEST,
            BodyError::Busy => return Refusal::busy(error.to_string()),
        };
        Refusal::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_allowed_is_answered_with_those_that_are() {
        let response = Refusal::from(NamespaceError::IsDirectory).into_response();
        assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
        assert!(response.headers.contains_key(header::ALLOW));
    }
}
