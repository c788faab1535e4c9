//! The head of a request: request line and header fields (RFC 9112 §2 to §6).
//!
//! Invariants: header values and target are slices of the buffer, not copies; a head that a proxy in front of us
//! might frame in another way than we do is refused (RFC 9112 §11.2), and every refusal closes the connection.
//!
//! Deliberately absent: responses, which only a library reads; trailers, which nobody needs.

mod error;
mod framing;
pub mod parsed;
mod scan;

use std::mem::MaybeUninit;
use std::net::Ipv6Addr;

use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use http::uri::Authority;
use http::{Method, Uri, Version};

pub use error::HeadError;
pub use framing::BodyFraming;

use crate::list;

/// No more header fields than this are read, whatever [`HeadLimits::headers_max`] says.
const HEADERS_READ: usize = 256;
/// The longest method that is registered, UPDATEREDIRECTREF, has 17 characters.
const METHOD_BYTES_MAX: usize = 32;

/// Bounds of a head. All are checked while the bytes arrive, so nobody buffers more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Method, target and version with their line end; beyond it 414.
    pub request_line_bytes_max: usize,
    /// The whole head but for `Range`; beyond it 431.
    pub head_bytes_max: usize,
    /// Header lines named `Range` together: a vector read of 10,000 ranges has some 250 KB. Beyond it 431.
    pub range_bytes_max: usize,
    /// Header lines; beyond it 431.
    pub headers_max: usize,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            request_line_bytes_max: 16 << 10,
            head_bytes_max: 64 << 10,
            range_bytes_max: 512 << 10,
            headers_max: 100,
        }
    }
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    pub method: Method,
    /// As it came: origin-form, absolute-form, or `*` with OPTIONS. A fragment or a userinfo never gets here.
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    /// The server that the client addressed: from the absolute target, else from `Host`. `None` only in HTTP/1.0.
    pub authority: Option<Authority>,
    pub framing: BodyFraming,
    /// The client waits for `100 Continue`, or for an answer instead of it, before it sends the body.
    pub expects_continue: bool,
    /// The client wants the connection to stay.
    pub keep_alive: bool,
}

/// A longer `Host` is not remembered: names of hosts have at most 255 bytes, and an idle connection is to keep little.
const HOST_KEPT_BYTES: usize = 300;

/// Cuts heads off a buffer that fills bit by bit; no byte is looked at twice before the head is complete.
#[derive(Debug)]
pub struct HeadReader {
    limits: HeadLimits,
    scan: scan::Scan,
    /// Of the last head. Most clients address one server by one name.
    host: Option<Authority>,
}

impl HeadReader {
    pub fn new(limits: HeadLimits) -> HeadReader {
        HeadReader { limits, scan: scan::Scan::default(), host: None }
    }

    /// A complete head is cut off the buffer, which then begins with the body. `None`: more bytes are wanted, appended
    /// to this buffer. After an error the connection is of no more use.
    pub fn feed(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, HeadError> {
        let Some(len) = self.scan.end_of_head(buffer, &self.limits)? else { return Ok(None) };
        self.scan = scan::Scan::default();
        parse(buffer.split_to(len).freeze(), self.limits.headers_max, &mut self.host).map(Some)
    }
}

/// [`HeadReader::feed`] for whoever has the whole head at once.
pub fn parse_request(buffer: &mut BytesMut, limits: &HeadLimits) -> Result<Option<RequestHead>, HeadError> {
    HeadReader::new(*limits).feed(buffer)
}

/// `bytes` ends with the empty line, and each of its lines with CR LF.
fn parse(bytes: Bytes, headers_max: usize, last: &mut Option<Authority>) -> Result<RequestHead, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; HEADERS_READ];
    let slots = &mut slots[..headers_max.min(HEADERS_READ)];
    let mut request = httparse::Request::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_request_with_uninit_headers(&mut request, &bytes, slots) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Ok(_) => return Err(HeadError::HeaderLine),
        Err(error) => return Err(HeadError::of(error, &bytes)),
    }
    let version = match request.version {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    };
    let method = method(request.method.unwrap_or_default())?;
    let target = bytes.slice_ref(request.path.unwrap_or_default().as_bytes());
    let uri = uri(target, &method)?;
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    // Most requests have none of these, so they are not looked up one by one.
    let (mut has_framing, mut has_expect, mut has_connection) = (false, false, false);
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| HeadError::HeaderLine)?;
        has_framing |= name == CONTENT_LENGTH || name == TRANSFER_ENCODING;
        has_expect |= name == EXPECT;
        has_connection |= name == CONNECTION;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(header.value))
            .map_err(|_| HeadError::HeaderValue)?;
        headers.append(name, value);
    }
    let authority = authority(&uri, &headers, version, last)?;
    let framing = if has_framing { framing::of(&headers, version)? } else { BodyFraming::None };
    Ok(RequestHead {
        expects_continue: has_expect && expects_continue(&headers, version, framing)?,
        keep_alive: if has_connection { keep_alive(&headers, version) } else { version == Version::HTTP_11 },
        method,
        uri,
        version,
        headers,
        authority,
        framing,
    })
}

fn method(text: &str) -> Result<Method, HeadError> {
    if text.len() > METHOD_BYTES_MAX || text == "CONNECT" {
        return Err(HeadError::MethodUnknown);
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| HeadError::RequestLine)
}

/// RFC 9112 §3.2. The library would drop a fragment without a word, and take any word for an authority-form.
fn uri(target: Bytes, method: &Method) -> Result<Uri, HeadError> {
    if target.contains(&b'#') {
        return Err(HeadError::Target);
    }
    let asterisk = &target[..] == b"*";
    let origin = target.first() == Some(&b'/');
    let uri = Uri::from_maybe_shared(target).map_err(|_| HeadError::Target)?;
    if asterisk {
        return if method == Method::OPTIONS { Ok(uri) } else { Err(HeadError::Target) };
    }
    if origin {
        return Ok(uri);
    }
    match uri.scheme_str() {
        Some("http" | "https") if uri.authority().is_some_and(authority_is_sound) => Ok(uri),
        _ => Err(HeadError::Target),
    }
}

/// RFC 9112 §3.2: exactly one `Host` in HTTP/1.1, even beside an absolute target, which then decides.
fn authority(
    uri: &Uri,
    headers: &HeaderMap,
    version: Version,
    last: &mut Option<Authority>,
) -> Result<Option<Authority>, HeadError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => match last {
            Some(last) if last.as_str().as_bytes() == host.as_bytes() => Some(last.clone()),
            _ => {
                let host = Authority::try_from(host.as_bytes()).map_err(|_| HeadError::Host)?;
                if !authority_is_sound(&host) {
                    return Err(HeadError::Host);
                }
                if host.as_str().len() <= HOST_KEPT_BYTES {
                    *last = Some(host.clone());
                }
                Some(host)
            }
        },
        (None, _) if version == Version::HTTP_10 => None,
        _ => return Err(HeadError::Host),
    };
    Ok(uri.authority().cloned().or(host))
}

/// No userinfo, no list, a port that is one; a host name of the characters that host names have, or an IPv6 address.
pub(crate) fn authority_is_sound(authority: &Authority) -> bool {
    let host = authority.host();
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let literal = |inner: &str| inner.parse::<Ipv6Addr>().is_ok();
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let sound = inner.map_or(!host.is_empty() && host.bytes().all(named), literal);
    sound
        && match authority.as_str().strip_prefix(host) {
            Some("" | ":") => true,
            Some(_) => authority.port_u16().is_some(),
            None => false,
        }
}

/// RFC 9110 §10.1.1: nothing but `100-continue` is defined; HTTP/1.0 does not know it.
fn expects_continue(headers: &HeaderMap, version: Version, framing: BodyFraming) -> Result<bool, HeadError> {
    let mut found = false;
    for value in headers.get_all(EXPECT) {
        if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(HeadError::Expectation);
        }
        found = true;
    }
    let has_body = !matches!(framing, BodyFraming::None | BodyFraming::Length(0));
    Ok(found && has_body && version == Version::HTTP_11)
}

/// RFC 9112 §9.3.
fn keep_alive(headers: &HeaderMap, version: Version) -> bool {
    let says = |option: &str| {
        let values = headers.get_all(http::header::CONNECTION);
        values.iter().any(|value| {
            list::items(value.as_bytes()).any(|item| item.eq_ignore_ascii_case(option.as_bytes()))
        })
    };
    if version == Version::HTTP_11 { !says("close") } else { says("keep-alive") && !says("close") }
}

#[cfg(test)]
mod tests;
