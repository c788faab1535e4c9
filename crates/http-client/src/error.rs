//! Why a request did not succeed, in words for the person who named the URL.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;

use crate::{AbsoluteUrl, UrlError};

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("{0}")]
    Url(#[from] UrlError),
    #[error("plain http to {0} is not allowed here, use https")]
    PlainForbidden(String),
    #[error("{host} is {address}, an address this server does not connect to")]
    AddressForbidden { host: String, address: IpAddr },
    /// Without them any address could be one.
    #[error("cannot tell which addresses are this host's own")]
    OwnAddresses(#[source] std::io::Error),
    #[error("cannot resolve {host}: {reason}")]
    Resolve { host: String, reason: String },
    #[error("cannot connect to {authority}: {reason}")]
    Connect { authority: String, reason: String },
    #[error("TLS with {authority} failed: {reason}")]
    Tls { authority: String, reason: String },
    #[error("{authority} {what} within {} s", .after.as_secs_f32())]
    Timeout { authority: String, what: &'static str, after: Duration },
    /// The connection ended, or broke, before all was said.
    #[error("connection to {authority} broke: {reason}")]
    Broken { authority: String, reason: String },
    #[error("{authority} does not speak proper HTTP: {reason}")]
    Protocol { authority: String, reason: String },
    #[error("redirect from {from} is not followed: {reason}")]
    Redirect { from: String, reason: String },
    /// The server took some of the body and then sent us elsewhere; the body must be made anew for that place.
    #[error("{from} redirects after the body was begun")]
    LateRedirect { from: String, to: Box<AbsoluteUrl> },
    #[error("{url} answers {status}")]
    Status { url: String, status: StatusCode },
    /// It says that it has what it has not read.
    #[error("{authority} answers {status} after {sent_bytes} bytes, before it has read the body")]
    Unread { authority: String, status: StatusCode, sent_bytes: u64 },
    #[error("answer of {authority} is longer than {bytes_max} bytes")]
    TooLong { authority: String, bytes_max: usize },
    /// Our own side could not give the bytes to send.
    #[error("cannot read what is to be sent: {0}")]
    Source(String),
}

impl ClientError {
    /// Whether the same request may succeed in a moment.
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::Timeout { .. }
            | ClientError::Broken { .. } => true,
            ClientError::Status { status, .. } => {
                status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED
                    || *status == StatusCode::TOO_MANY_REQUESTS
            }
            ClientError::Url(_)
            | ClientError::PlainForbidden(_)
            | ClientError::AddressForbidden { .. }
            | ClientError::OwnAddresses(_)
            | ClientError::Tls { .. }
            | ClientError::Protocol { .. }
            | ClientError::Redirect { .. }
            | ClientError::LateRedirect { .. }
            | ClientError::Unread { .. }
            | ClientError::TooLong { .. }
            | ClientError::Source(_) => false,
        }
    }

    pub(crate) fn of_hyper(authority: &str, error: &hyper::Error) -> ClientError {
        let reason = innermost(error);
        if error.is_parse() {
            return ClientError::Protocol { authority: authority.to_owned(), reason };
        }
        ClientError::Broken { authority: authority.to_owned(), reason }
    }
}

/// The client cannot be made as configured.
#[derive(Debug, Error)]
pub enum SetupError {
    #[error("cannot read certificates in {path}: {reason}")]
    Authorities { path: PathBuf, reason: String },
    #[error("cannot use the client certificate {path}: {reason}")]
    ClientCertificate { path: PathBuf, reason: String },
    #[error("cannot set TLS up: {0}")]
    Tls(String),
}

/// The last cause says most to people; hyper's own words are only the way there.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        reason = inner.to_string();
        cause = inner.source();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_are_retryable_and_lasting_ones_are_not() {
        let status = |code| ClientError::Status {
            url: "https://h/".into(),
            status: StatusCode::from_u16(code).unwrap(),
        };
        assert!(status(503).is_retryable() && status(429).is_retryable());
        assert!(!status(404).is_retryable() && !status(501).is_retryable());
        assert!(ClientError::Broken { authority: "h".into(), reason: "x".into() }.is_retryable());
        assert!(!ClientError::Url(UrlError::UserInfo).is_retryable());
    }

    #[test]
    fn messages_say_who_and_what() {
        let error = ClientError::Timeout {
            authority: "h:1".into(),
            what: "sends nothing",
            after: Duration::from_secs(60),
        };
        assert_eq!(error.to_string(), "h:1 sends nothing within 60 s");
    }
}
