//! Why a head is refused, with the status and the line that tell the client.

use http::StatusCode;
use thiserror::Error;

/// The message is meant for the person behind the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    #[error("the request line is not `METHOD target HTTP/1.1`")]
    RequestLine,
    #[error("the request line is too long")]
    RequestLineTooLong,
    #[error("the request target is not a path, and not an http or https URL without user name and fragment")]
    Target,
    #[error("the method is not implemented")]
    MethodUnknown,
    #[error("this server speaks HTTP/1.1 and HTTP/1.0 here")]
    VersionUnknown,
    #[error("a line does not end with CR LF, or a CR stands alone")]
    LineEnd,
    #[error("a header line is not `Name: value` on one line")]
    HeaderLine,
    #[error("a header value contains a control character")]
    HeaderValue,
    #[error("the header fields are too long")]
    TooLong,
    #[error("there are too many header fields")]
    TooMany,
    #[error("there must be exactly one Host, with a host name and at most a port")]
    Host,
    #[error("Content-Length must stand once and be a decimal number")]
    ContentLength,
    #[error("Content-Length and Transfer-Encoding must not stand together")]
    TwoFramings,
    #[error("Transfer-Encoding must be `chunked`, once, and in HTTP/1.1")]
    TransferEncoding,
    #[error("no transfer coding but chunked is implemented")]
    TransferEncodingUnknown,
    #[error("no expectation but 100-continue can be met")]
    Expectation,
}

impl HeadError {
    pub fn status(self) -> StatusCode {
        match self {
            HeadError::RequestLineTooLong => StatusCode::URI_TOO_LONG,
            HeadError::MethodUnknown | HeadError::TransferEncodingUnknown => StatusCode::NOT_IMPLEMENTED,
            HeadError::VersionUnknown => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            HeadError::TooLong | HeadError::TooMany => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadError::Expectation => StatusCode::EXPECTATION_FAILED,
            HeadError::RequestLine
            | HeadError::Target
            | HeadError::LineEnd
            | HeadError::HeaderLine
            | HeadError::HeaderValue
            | HeadError::Host
            | HeadError::ContentLength
            | HeadError::TwoFramings
            | HeadError::TransferEncoding => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn of(error: httparse::Error, head: &[u8]) -> HeadError {
        match error {
            httparse::Error::HeaderName => HeadError::HeaderLine,
            httparse::Error::HeaderValue => HeadError::HeaderValue,
            httparse::Error::NewLine => HeadError::LineEnd,
            httparse::Error::TooManyHeaders => HeadError::TooMany,
            httparse::Error::Version if names_a_version(head) => HeadError::VersionUnknown,
            httparse::Error::Version | httparse::Error::Token | httparse::Error::Status => {
                HeadError::RequestLine
            }
        }
    }
}

/// The request line is `METHOD target HTTP/d.d` with other digits than ours.
fn names_a_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').find(|line| !line.is_empty()).unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(_), Some([_, ..]), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => false,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] => {
            major.is_ascii_digit() && minor.is_ascii_digit()
        }
        _ => false,
    }
}
