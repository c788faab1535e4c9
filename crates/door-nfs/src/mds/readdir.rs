//! READDIR: pages of the namespace's listing, as many entries as fit what the client will take.
//!
//! Cookies are the namespace's and stay valid over inserts, removals and restarts, so the cookie verifier is constant.

use api::{Cookie, DirEntry};
use nfs4::{Bitmap4, Component4, DirEntry4, NfsStat4, ReadDir4Args, ReadDir4ResOk, Verifier4};

use types::Attributes;

use super::attributes::{of_file, supported};
use super::{Head, directory};
use crate::context::Compound;
use crate::status;

pub(super) const COOKIE_VERIFIER: Verifier4 = Verifier4([0; 8]);
/// Cookies 1 and 2 are reserved for `.` and `..` (RFC 8881 §18.23.3).
const RESERVED_COOKIES: std::ops::RangeInclusive<u64> = 1..=2;
/// Entries asked of the namespace at once.
const PAGE_ENTRIES_MAX: usize = 512;
/// A guess of an entry's size, to ask for about as many as will fit.
const ENTRY_BYTES_GUESS: usize = 160;

pub(super) async fn read(
    compound: &mut Compound<'_>,
    head: &Head,
    args: &ReadDir4Args,
) -> Result<ReadDir4ResOk, NfsStat4> {
    let dir = directory::plain_directory(head, compound.file()?).await?;
    judge_cookie(args)?;
    let wanted = args.attr_request.intersect(&supported(compound.minorversion));
    let mut room = Room::new(args, compound.reply_room);
    let mut entries: Vec<DirEntry4> = Vec::new();
    let mut after = Cookie(args.cookie);
    loop {
        let limit = (room.bytes / ENTRY_BYTES_GUESS).clamp(1, PAGE_ENTRIES_MAX);
        let page =
            head.namespace.list(&compound.identity, dir, after, limit).await.map_err(status::of_namespace)?;
        for entry in &page.entries {
            let attributes = head.access.freshen(entry.attributes).await.map_err(status::of_access)?;
            let encoded = encode_entry(head, compound.minorversion, entry, &attributes, &wanted);
            if !room.take(&encoded) {
                if entries.is_empty() {
                    return Err(NfsStat4::TooSmall);
                }
                return Ok(ReadDir4ResOk { cookieverf: COOKIE_VERIFIER, entries, eof: false });
            }
            after = entry.cookie;
            entries.push(encoded);
        }
        if page.is_last {
            return Ok(ReadDir4ResOk { cookieverf: COOKIE_VERIFIER, entries, eof: true });
        }
    }
}

pub(super) fn judge_cookie(args: &ReadDir4Args) -> Result<(), NfsStat4> {
    if RESERVED_COOKIES.contains(&args.cookie) {
        return Err(NfsStat4::BadCookie);
    }
    if args.cookie != 0 && args.cookieverf != COOKIE_VERIFIER {
        return Err(NfsStat4::NotSame);
    }
    Ok(())
}

pub(super) fn encode_entry(
    head: &Head,
    minorversion: u32,
    entry: &DirEntry,
    attributes: &Attributes,
    wanted: &Bitmap4,
) -> DirEntry4 {
    DirEntry4 {
        cookie: entry.cookie.0,
        name: Component4::from(entry.name.as_bytes()),
        attrs: of_file(head, minorversion, attributes, wanted).encode(wanted),
    }
}

/// What is left of `maxcount` and of the reply; `dircount` is a hint that names and cookies alone should obey.
pub(super) struct Room {
    bytes: usize,
    names: usize,
}

impl Room {
    pub fn new(args: &ReadDir4Args, reply_room: usize) -> Room {
        // Status, operation number and the list's end beside the entries.
        let reply = reply_room.saturating_sub(16);
        let bytes = (args.maxcount as usize).min(reply).saturating_sub(ReadDir4ResOk::EMPTY_LEN);
        // Zero says nothing (RFC 8881 §18.23.3); Linux sends a real number.
        let names = if args.dircount == 0 { usize::MAX } else { args.dircount as usize };
        Room { bytes, names }
    }

    pub fn take(&mut self, entry: &DirEntry4) -> bool {
        let bytes = entry.encoded_len();
        let name = 16 + entry.name.as_bytes().len();
        if bytes > self.bytes {
            return false;
        }
        if self.names == 0 {
            return false;
        }
        self.bytes -= bytes;
        // The entry that passes the hint is still given: at least one must be.
        self.names = self.names.saturating_sub(name);
        true
    }
}
