//! HTTP/1.1 and WebDAV on the wire (RFC 9110, 9112, 4918; RFC 3230 and 9530 for digests): bytes to values and back.
//!
//! Sans-io: whoever calls owns sockets, buffers, clock and chance. Values share the buffer that they came in.
//!
//! Invariants: whatever a peer can make long has a bound and an answer; what two parsers could read in two ways is
//! refused (RFC 9112 §11.2); a result never depends on how the bytes were cut on their way.
//!
//! Deliberately absent: HTTP/2 (a library's), content codings, cookies, caches.

#![forbid(unsafe_code)]

pub mod chunked;
pub mod conditional;
pub mod content;
pub mod credential;
pub mod date;
pub mod dav;
pub mod digest;
mod escapes;
pub mod head;
pub mod json;
pub mod list;
pub mod multipart;
mod query;
pub mod range;
pub mod target;
mod target_error;
mod url;
