//! The head of a response, and how its body is framed (RFC 9112 §6).

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, TRANSFER_ENCODING};
use http::{StatusCode, Version};

use crate::message::ResponseBody;
use crate::segments::Segments;
use crate::tls::STRICT;

/// More than all lines take that are not fields of the response.
const OWN_BYTES: usize = 512;

/// Properties of the request that shape its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub is_head: bool,
    pub version: Version,
    pub keep_alive: bool,
    pub is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body and no word about it.
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    pub fn of(status: StatusCode, body: &ResponseBody, asked: &Asked) -> Framing {
        // RFC 9110 §8.6: none in 1xx and 204. In 304 it would be the length of what is not sent: left out.
        if has_no_body(status) {
            return Framing::None;
        }
        match body {
            ResponseBody::Empty => Framing::Length(0),
            ResponseBody::Full(bytes) => Framing::Length(bytes.len() as u64),
            ResponseBody::Pieces { length, .. } => Framing::Length(*length),
            ResponseBody::Absent { length } if asked.is_head => length.map_or(Framing::None, Framing::Length),
            ResponseBody::Absent { .. } => Framing::Length(0),
            ResponseBody::Stream(_) if asked.is_head => Framing::None,
            ResponseBody::Stream(_) if asked.version == Version::HTTP_11 => Framing::Chunked,
            ResponseBody::Stream(_) => Framing::UntilClose,
        }
    }
}

pub(crate) fn has_no_body(status: StatusCode) -> bool {
    status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
}

pub(crate) fn write(
    out: &mut Segments,
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    asked: &Asked,
    date: &[u8],
) {
    let fields: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    out.append(fields + OWN_BYTES, |out| {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(date);
        for (name, value) in headers {
            if !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION | DATE) {
                out.extend_from_slice(b"\r\n");
                put_name(out, name.as_str());
                out.extend_from_slice(b": ");
                out.extend_from_slice(value.as_bytes());
            }
        }
        put_own(out, framing, asked);
        out.extend_from_slice(b"\r\n\r\n");
    });
}

/// Lines that the connection adds by itself.
fn put_own(out: &mut BytesMut, framing: Framing, asked: &Asked) {
    if asked.is_encrypted {
        out.extend_from_slice(b"\r\nStrict-Transport-Security: ");
        out.extend_from_slice(STRICT.as_bytes());
    }
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"\r\nContent-Length: ");
            decimal(out, length);
        }
        Framing::Chunked => out.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        Framing::None | Framing::UntilClose => {}
    }
    match (asked.keep_alive, asked.version) {
        (true, Version::HTTP_11) => {}
        (true, _) => out.extend_from_slice(b"\r\nConnection: keep-alive"),
        (false, _) => out.extend_from_slice(b"\r\nConnection: close"),
    }
}

/// For those who do not get as far as a request.
pub(crate) fn bare_answer(status: StatusCode, line: &str) -> String {
    let length = line.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{line}\n"
    )
}

/// As `Content-Length`: names have no case, but scripts of the grid look for them in the spelling that all others send.
fn put_name(out: &mut BytesMut, name: &str) {
    let (name, start) = (name.as_bytes(), out.len());
    out.extend_from_slice(name);
    let spelled = &mut out[start..];
    if let Some(first) = spelled.first_mut() {
        first.make_ascii_uppercase();
    }
    // Without branches, so that the compiler takes many bytes together.
    for (byte, pair) in spelled.iter_mut().skip(1).zip(name.windows(2)) {
        let begins = pair[0] == b'-' && pair[1].is_ascii_lowercase();
        *byte ^= u8::from(begins) << 5;
    }
}

fn decimal(out: &mut BytesMut, mut number: u64) {
    let (mut digits, mut start) = ([0; 20], 20);
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use std::io::IoSlice;

    use super::*;

    const ASKED: Asked =
        Asked { is_head: false, version: Version::HTTP_11, keep_alive: true, is_encrypted: false };

    fn text(out: &Segments) -> String {
        let mut room = Segments::room();
        let slices: &[IoSlice<'_>] = out.slices(&mut room);
        slices.iter().map(|slice| String::from_utf8(slice.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_head_is_written_and_headers_of_the_connection_are_its_own() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert("etag", HeaderValue::from_static("\"x\""));
        let mut out = Segments::default();
        write(&mut out, StatusCode::OK, &headers, Framing::Length(1_234_567), &ASKED, b"D");
        assert_eq!(
            text(&out),
            "HTTP/1.1 200 OK\r\nDate: D\r\nEtag: \"x\"\r\nContent-Length: 1234567\r\n\r\n"
        );
    }

    #[test]
    fn names_of_headers_are_spelled_as_scripts_look_for_them() {
        for (name, spelled) in [
            ("content-range", "Content-Range"),
            ("digest", "Digest"),
            ("x-oc-mtime", "X-Oc-Mtime"),
            ("a--b-", "A--B-"),
            ("x-4-_-z", "X-4-_-Z"),
            ("content-security-policy-report-only", "Content-Security-Policy-Report-Only"),
        ] {
            let mut out = BytesMut::from("Before-");
            put_name(&mut out, name);
            assert_eq!(out, format!("Before-{spelled}"));
        }
    }

    #[test]
    fn a_status_without_body_has_no_length() {
        let body = || ResponseBody::Full(Bytes::from_static(b"x"));
        for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
            assert_eq!(Framing::of(status, &body(), &ASKED), Framing::None);
        }
        assert_eq!(Framing::of(StatusCode::OK, &ResponseBody::Empty, &ASKED), Framing::Length(0));
    }

    #[test]
    fn http_1_0_has_no_chunks() {
        let stream = || ResponseBody::Stream(Box::pin(futures_util::stream::empty()));
        assert_eq!(Framing::of(StatusCode::OK, &stream(), &ASKED), Framing::Chunked);
        let asked = Asked { version: Version::HTTP_10, ..ASKED };
        assert_eq!(Framing::of(StatusCode::OK, &stream(), &asked), Framing::UntilClose);
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, u64::MAX] {
            let mut out = BytesMut::new();
            decimal(&mut out, number);
            assert_eq!(out, number.to_string());
        }
    }
}
