//! READDIR: pages of the namespace's listing, as many entries as fit what the client will take.
//!
//! Cookies are the namespace's and stay valid over inserts, removals and restarts, so the cookie verifier is constant.

use std::time::Duration;

use api::{Cookie, DirEntry};
use files::Patience;
use nfs4::attr::number;
use nfs4::{
    Bitmap4, Component4, DirEntry4, FileAttributes, NfsStat4, ReadDir4Args, ReadDir4ResOk, Verifier4,
};

use types::Attributes;

use super::attributes::{Told, WRITTEN, of_file, supported};
use super::file_system::FileSystem;
use super::{acl, names, owners};
use crate::context::Compound;
use crate::owners::Named;
use crate::status;

const COOKIE_VERIFIER: Verifier4 = Verifier4([0; 8]);
/// Cookies 1 and 2 are reserved for `.` and `..` (RFC 8881 §18.23.3).
const RESERVED_COOKIES: std::ops::RangeInclusive<u64> = 1..=2;
/// Entries asked of the namespace at once.
const PAGE_ENTRIES_MAX: usize = 512;
/// Attributes of an export shown to a caller whose flavor it does not admit.
const OF_A_CROSSING: Bitmap4 = Bitmap4::of(&[number::RDATTR_ERROR, number::MOUNTED_ON_FILEID]);
/// A guess of an entry's size, to ask for about as many as will fit.
const ENTRY_BYTES_GUESS: usize = 160;

pub(super) async fn read(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &ReadDir4Args,
) -> Result<ReadDir4ResOk, NfsStat4> {
    let dir = names::plain_directory(fs, compound.file()?).await?;
    judge_cookie(args)?;
    let mut room = Room::new(args, compound.reply_room);
    let lister = Lister::new(compound, fs, args);
    let mut entries: Vec<DirEntry4> = Vec::new();
    let mut after = Cookie(args.cookie);
    let by = fs.caller(compound);
    let (asks_writers, mut patience) = (lister.asks_writers(), Patience::default());
    loop {
        let limit = (room.bytes / ENTRY_BYTES_GUESS).clamp(1, PAGE_ENTRIES_MAX);
        let page = names::list(compound, fs, dir, after, limit).await?;
        let found: Vec<Attributes> = page.entries.iter().map(|entry| entry.attributes).collect();
        let owners = lister.owners(&found).await;
        for entry in &page.entries {
            let attributes = if asks_writers {
                let listed = fs.files.listed_for(entry.attributes, by, &mut patience).await;
                listed.map_err(status::of_files)?
            } else {
                entry.attributes
            };
            let encoded = lister.encode(entry, &attributes, &owners).await?;
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

fn judge_cookie(args: &ReadDir4Args) -> Result<(), NfsStat4> {
    if RESERVED_COOKIES.contains(&args.cookie) {
        return Err(NfsStat4::BadCookie);
    }
    if args.cookie != 0 && args.cookieverf != COOKIE_VERIFIER {
        return Err(NfsStat4::NotSame);
    }
    Ok(())
}

/// Tells one client of the entries of one directory.
struct Lister<'a> {
    compound: &'a Compound,
    fs: &'a FileSystem,
    wanted: Bitmap4,
    /// An owner whose name is not known by then is shown by number.
    named_until: Duration,
}

impl<'a> Lister<'a> {
    pub fn new(compound: &'a Compound, fs: &'a FileSystem, args: &ReadDir4Args) -> Lister<'a> {
        let wanted = args.attr_request.intersect(&supported(compound.minorversion));
        Lister { compound, fs, wanted, named_until: owners::deadline(fs) }
    }

    /// Whether unsent writes of clients affect the wanted attributes.
    fn asks_writers(&self) -> bool {
        !self.wanted.intersect(&WRITTEN).is_empty()
    }

    pub async fn owners(&self, files: &[Attributes]) -> Named {
        owners::named(self.compound, self.fs, files, (&self.wanted, self.named_until)).await
    }

    /// An export that the caller's flavor does not reach is an entry with an error (RFC 8881 §5.8.1.12).
    pub async fn encode(
        &self,
        entry: &DirEntry,
        attributes: &Attributes,
        owners: &Named,
    ) -> Result<DirEntry4, NfsStat4> {
        let place = self.compound.caller.view.step(self.compound.current.place, attributes.file);
        let mut found = of_file(self.fs, &Told::new(self.compound, place, owners), attributes, &self.wanted);
        let mut wanted = self.wanted;
        match acl::add(&mut found, self.compound, self.fs, attributes, (&wanted, self.named_until)).await {
            Ok(()) => {}
            // No other attribute of this entry is sent (RFC 8881 §18.23.3).
            Err(status) if wanted.contains(number::RDATTR_ERROR) => {
                found = FileAttributes { rdattr_error: Some(status), ..FileAttributes::default() };
            }
            Err(status) => return Err(status),
        }
        if !self.compound.is_admitted(place) {
            found.rdattr_error = Some(NfsStat4::WrongSec);
            wanted = wanted.intersect(&OF_A_CROSSING);
        }
        Ok(DirEntry4 {
            cookie: entry.cookie.0,
            name: Component4::from(entry.name.as_bytes()),
            attrs: found.encode(&wanted),
        })
    }
}

/// Room left of `maxcount` and of the reply; `dircount` is a hint that names and cookies alone should obey.
struct Room {
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
