//! Answers about many resources (RFC 4918 §13), written as they come and taken away in pieces.
//!
//! There is no tree in memory: a directory of 100,000 entries passes through one buffer, whose length the caller
//! watches (`buffered`, `take`). Well-formedness follows from the shape of the calls: what a closure opened is closed
//! behind it.

use std::fmt::{self, Write};

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use types::{Checksum, ChecksumKind, Timestamp, hex::Hex};

use super::active_lock::{ActiveLock, SUPPORTED_LOCKS, put_locks};
use super::{DAV, LiveProperty, Precondition, QName, date, escape};
use crate::date as http_date;

/// The prefixes of [`LiveProperty`]. Windows takes nothing but `D` for `DAV:`.
const ROOT: &[u8] =
    b"<D:multistatus xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\" xmlns:A=\"http://apache.org/dav/props/\" \
    xmlns:C=\"http://www.dcache.org/2013/webdav\" xmlns:O=\"http://owncloud.org/ns\">\n";

#[derive(Debug)]
pub struct Multistatus {
    out: BytesMut,
}

impl Multistatus {
    pub fn begin() -> Multistatus {
        let mut out = BytesMut::with_capacity(4096);
        out.put_slice(escape::XML_DECLARATION);
        out.put_slice(ROOT);
        Multistatus { out }
    }

    /// A resource and its properties, grouped by status. davix and rclone believe the first group, so the one that
    /// succeeded comes first. `href` is percent-encoded already.
    pub fn response(&mut self, href: &str, write: impl FnOnce(&mut PropStats<'_>)) {
        self.open(href);
        let mut groups = PropStats { out: &mut self.out, is_empty: true };
        write(&mut groups);
        if groups.is_empty {
            // A response has at least one group (§14.24); nothing was asked and nothing failed.
            self.out.put_slice(b"<D:propstat><D:prop/>");
            put_status(&mut self.out, StatusCode::OK);
            self.out.put_slice(b"</D:propstat>");
        }
        self.out.put_slice(b"</D:response>\n");
    }

    /// A resource that a DELETE, COPY, MOVE or LOCK failed at.
    pub fn status(&mut self, href: &str, status: StatusCode, why: Option<&Precondition<'_>>) {
        self.open(href);
        put_status(&mut self.out, status);
        put_error(&mut self.out, why);
        self.out.put_slice(b"</D:response>\n");
    }

    /// Bytes that `take` would give.
    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Bytes written since the last call.
    pub fn take(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// The rest.
    pub fn end(mut self) -> Bytes {
        self.out.put_slice(b"</D:multistatus>\n");
        self.out.freeze()
    }

    fn open(&mut self, href: &str) {
        self.out.put_slice(b"<D:response><D:href>");
        escape::text(&mut self.out, href);
        self.out.put_slice(b"</D:href>");
    }
}

/// The groups of one response.
#[derive(Debug)]
pub struct PropStats<'a> {
    out: &'a mut BytesMut,
    is_empty: bool,
}

impl PropStats<'_> {
    /// Properties that share a status. If `write` writes none, nothing is written.
    pub fn group(&mut self, status: StatusCode, write: impl FnOnce(&mut Props<'_>)) {
        self.group_because(status, None, write);
    }

    pub fn group_because(
        &mut self,
        status: StatusCode,
        why: Option<&Precondition<'_>>,
        write: impl FnOnce(&mut Props<'_>),
    ) {
        let start = self.out.len();
        self.out.put_slice(b"<D:propstat><D:prop>");
        let inside = self.out.len();
        write(&mut Props { out: self.out });
        if self.out.len() == inside {
            self.out.truncate(start);
            return;
        }
        self.out.put_slice(b"</D:prop>");
        put_status(self.out, status);
        put_error(self.out, why);
        self.out.put_slice(b"</D:propstat>");
        self.is_empty = false;
    }
}

/// The properties of one group.
#[derive(Debug)]
pub struct Props<'a> {
    out: &'a mut BytesMut,
}

impl Props<'_> {
    /// A name without a value: for `propname`, for what is missing, for what PROPPATCH did.
    pub fn name(&mut self, name: &QName) {
        let (local, namespace) = (name.local.as_bytes(), name.namespace.as_str());
        self.out.put_slice(b"<");
        match namespace {
            DAV => {
                self.out.put_slice(b"D:");
                self.out.put_slice(local);
            }
            // No default namespace is in force here, so a bare name has none.
            "" => self.out.put_slice(local),
            _ => {
                self.out.put_slice(b"n:");
                self.out.put_slice(local);
                self.out.put_slice(b" xmlns:n=\"");
                escape::attribute(self.out, namespace);
                self.out.put_u8(b'"');
            }
        }
        self.out.put_slice(b"/>");
    }

    pub fn live_name(&mut self, property: LiveProperty) {
        self.out.put_u8(b'<');
        self.out.put_slice(property.tag().as_bytes());
        self.out.put_slice(b"/>");
    }

    /// A dead property as it was kept (`PropPatchOp::Set`): XML that stands alone, trusted to be such.
    pub fn dead(&mut self, value_xml: &[u8]) {
        self.out.put_slice(value_xml);
    }

    pub fn text(&mut self, property: LiveProperty, value: &str) {
        self.element(property, |out| escape::text(out, value));
    }

    pub fn number(&mut self, property: LiveProperty, value: u64) {
        self.element(property, |out| put_formatted(out, format_args!("{value}")));
    }

    /// `creationdate` in the form of RFC 3339, whatever else as an HTTP date.
    pub fn time(&mut self, property: LiveProperty, time: Timestamp) {
        self.element(property, |out| match property {
            LiveProperty::CreationDate => date::internet_date(out, time),
            _ => out.put_slice(&http_date::text(time)),
        });
    }

    pub fn resource_type(&mut self, is_collection: bool) {
        match is_collection {
            true => self.element(LiveProperty::ResourceType, |out| out.put_slice(b"<D:collection/>")),
            false => self.live_name(LiveProperty::ResourceType),
        }
    }

    /// `st_mode`, type of the file included: without it davix takes a directory for a file.
    pub fn mode(&mut self, st_mode: u32) {
        self.element(LiveProperty::Mode, |out| put_formatted(out, format_args!("{st_mode:06o}")));
    }

    pub fn executable(&mut self, is_executable: bool) {
        self.text(LiveProperty::Executable, if is_executable { "T" } else { "F" });
    }

    pub fn lock_discovery(&mut self, locks: &[ActiveLock<'_>]) {
        match locks.is_empty() {
            true => self.live_name(LiveProperty::LockDiscovery),
            false => self.element(LiveProperty::LockDiscovery, |out| put_locks(out, locks)),
        }
    }

    pub fn supported_lock(&mut self) {
        self.element(LiveProperty::SupportedLock, |out| out.put_slice(SUPPORTED_LOCKS.as_bytes()));
    }

    /// In ownCloud's form: `MD5:hex ADLER32:hex`, for rclone.
    pub fn owncloud_checksums(&mut self, checksums: &[Checksum]) {
        self.element(LiveProperty::OwncloudChecksums, |out| {
            out.put_slice(b"<O:checksum>");
            for (n, checksum) in checksums.iter().enumerate() {
                let name = match checksum.kind() {
                    ChecksumKind::Adler32 => "ADLER32:",
                    ChecksumKind::Crc32c => "CRC32C:",
                    ChecksumKind::Md5 => "MD5:",
                    ChecksumKind::Sha256 => "SHA256:",
                };
                out.put_slice(if n == 0 { "" } else { " " }.as_bytes());
                out.put_slice(name.as_bytes());
                put_formatted(out, format_args!("{}", Hex(checksum.value())));
            }
            out.put_slice(b"</O:checksum>");
        });
    }

    fn element(&mut self, property: LiveProperty, value: impl FnOnce(&mut BytesMut)) {
        let tag = property.tag().as_bytes();
        self.out.put_u8(b'<');
        self.out.put_slice(tag);
        self.out.put_u8(b'>');
        value(self.out);
        self.out.put_slice(b"</");
        self.out.put_slice(tag);
        self.out.put_u8(b'>');
    }
}

fn put_status(out: &mut BytesMut, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or("Unknown");
    put_formatted(out, format_args!("<D:status>HTTP/1.1 {} {reason}</D:status>", status.as_u16()));
}

fn put_formatted(out: &mut BytesMut, value: fmt::Arguments<'_>) {
    out.write_fmt(value).expect("memory grows, and these values do not fail to be written");
}

fn put_error(out: &mut BytesMut, why: Option<&Precondition<'_>>) {
    if let Some(why) = why {
        out.put_slice(b"<D:error>");
        why.put(out);
        out.put_slice(b"</D:error>");
    }
}

#[cfg(test)]
mod tests;
