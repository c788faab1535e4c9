//! The members of a tar archive, by their headers alone: ustar, with the extensions of pax and of GNU.
//!
//! Data are skipped, by seeking where the archive is a file. The extensions of a member are bounded; its header must
//! follow them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use types::{Device, FileKind, SymlinkTarget, Timestamp};

use super::entry::{
    Entry, Facts, Listing, ListingError, ListingPosition, What, fraction, instant, number, shown,
};

const BLOCK: usize = 512;
/// Of a long name or of a member's pax records: names of 4 KiB, and room for attributes that are passed over.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

pub struct Tar<R> {
    input: R,
    member: u64,
    /// pax records for all members from here on.
    global: Records,
}

type Records = HashMap<String, Vec<u8>>;
type Block = [u8; BLOCK];

/// Input that can be skipped without reading.
pub trait Skip {
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

impl Skip for &[u8] {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        *self = usize::try_from(bytes).ok().and_then(|bytes| self.get(bytes..)).unwrap_or_default();
        Ok(())
    }
}

/// A file, or a pipe that was opened as one.
impl Skip for BufReader<File> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match i64::try_from(bytes).map(|bytes| self.seek_relative(bytes)) {
            Ok(Err(error)) if error.kind() == ErrorKind::NotSeekable => {
                io::copy(&mut self.by_ref().take(bytes), &mut io::sink()).map(drop)
            }
            Ok(done) => done,
            Err(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }
}

impl<R: BufRead + Skip> Tar<R> {
    pub fn new(input: R) -> Tar<R> {
        Tar { input, member: 0, global: Records::new() }
    }

    /// `None`: a block of zeros, which ends the archive.
    fn header(&mut self) -> Result<Option<Block>, ListingError> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let told = octal(&block[148..156]);
        let sum = |block: &Block| {
            let byte =
                |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) };
            block.iter().enumerate().map(byte).sum::<u64>()
        };
        if told != Some(sum(&block)) {
            return Err(ListingError::malformed(
                "its checksum is wrong: this is no tar archive, or it is damaged",
            ));
        }
        Ok(Some(block))
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), ListingError> {
        self.input.read_exact(into).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                ListingError::malformed("the archive ends without its end mark: it was cut off")
            }
            _ => error.into(),
        })
    }

    fn skip(&mut self, size: u64) -> Result<(), ListingError> {
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        let padded = padded.ok_or_else(|| ListingError::malformed("its size is no size of a file"))?;
        Ok(self.input.skip(padded)?)
    }

    /// Of a header that says something of the next.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, ListingError> {
        if size > EXTENSION_BYTES_MAX {
            return Err(ListingError::malformed(format!(
                "it has {size} bytes of extended header, more than the {EXTENSION_BYTES_MAX} that are read"
            )));
        }
        let mut value = vec![0; size as usize];
        self.fill(&mut value)?;
        self.skip_padding(size)?;
        Ok(value)
    }

    fn skip_padding(&mut self, size: u64) -> Result<(), ListingError> {
        Ok(self.input.skip(size.next_multiple_of(BLOCK as u64) - size)?)
    }

    fn member(&mut self, header: &Block, records: &Records) -> Result<Option<Entry>, ListingError> {
        let kind = header[156];
        let member = Member { header, records, global: &self.global };
        let stored = member.number("size", &header[124..136], "size")?;
        // Some write a size where nothing follows.
        let has_data = !matches!(kind, b'1'..=b'6');
        let entry = match kind {
            b'V' => None,
            b'M' => return Err(ListingError::malformed("it goes on from another volume, which is not read")),
            _ => Some(member.entry(stored)?),
        };
        if kind == b'S' {
            self.skip_sparse_maps(header)?;
        }
        if has_data {
            self.skip(stored)?;
        }
        Ok(entry)
    }

    /// Blocks that go on with the map of a sparse file, as GNU wrote them before pax.
    fn skip_sparse_maps(&mut self, header: &Block) -> Result<(), ListingError> {
        let mut goes_on = header[482] != 0;
        while goes_on {
            let mut block = [0; BLOCK];
            self.fill(&mut block)?;
            goes_on = block[504] != 0;
        }
        Ok(())
    }
}

impl<R: BufRead + Skip> Listing for Tar<R> {
    fn next(&mut self) -> Result<Option<Entry>, ListingError> {
        self.member += 1;
        let mut records = Records::new();
        let mut is_foretold = false;
        loop {
            let Some(header) = self.header()? else {
                let cut = || ListingError::malformed("an extended header is not followed by its member");
                return if is_foretold { Err(cut()) } else { Ok(None) };
            };
            let size = || {
                octal(&header[124..136]).ok_or_else(|| ListingError::malformed("its size is not understood"))
            };
            match header[156] {
                b'x' => {
                    let text = self.extension(size()?)?;
                    read_records(&text, &mut records)?;
                    is_foretold = true;
                }
                b'g' => {
                    let text = self.extension(size()?)?;
                    read_records(&text, &mut self.global)?;
                }
                kind @ (b'L' | b'K') => {
                    let mut name = self.extension(size()?)?;
                    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                    let key = if kind == b'L' { "path" } else { "linkpath" };
                    records.entry(key.to_owned()).or_insert(name);
                    is_foretold = true;
                }
                _ => {
                    if let Some(entry) = self.member(&header, &records)? {
                        return Ok(Some(entry));
                    }
                    (records, is_foretold) = (Records::new(), false);
                }
            }
        }
    }

    fn place(&self) -> ListingPosition {
        ListingPosition { unit: "member", number: self.member }
    }
}

/// A header with what was said before it.
struct Member<'a> {
    header: &'a Block,
    records: &'a Records,
    global: &'a Records,
}

impl Member<'_> {
    fn record(&self, key: &str) -> Option<&[u8]> {
        self.records.get(key).or_else(|| self.global.get(key)).map(Vec::as_slice)
    }

    fn number(&self, key: &str, field: &[u8], what: &str) -> Result<u64, ListingError> {
        let value = match self.record(key) {
            Some(word) => number(word, 10),
            None => octal(field),
        };
        value.ok_or_else(|| ListingError::malformed(format!("its {what} is not understood")))
    }

    fn id(&self, key: &str, field: &[u8]) -> Result<u32, ListingError> {
        let id = self.number(key, field, key)?;
        u32::try_from(id).map_err(|_| ListingError::malformed(format!("its {key} {id} is too large")))
    }

    fn time(&self, key: &str) -> Result<Option<Timestamp>, ListingError> {
        let Some(word) = self.record(key) else { return Ok(None) };
        let parse = || {
            let point = word.iter().position(|byte| *byte == b'.').unwrap_or(word.len());
            let nanoseconds = word.get(point + 1..).map_or(Some(0), fraction)?;
            // -1.25 is a quarter of a second before -1.
            match instant(&word[..point], 0)? {
                time if !word.starts_with(b"-") || nanoseconds == 0 => {
                    Timestamp::new(time.seconds, nanoseconds)
                }
                time => Timestamp::new(time.seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds),
            }
        };
        parse().map(Some).ok_or_else(|| ListingError::malformed(format!("its {key} is not understood")))
    }

    fn path(&self) -> Vec<u8> {
        if let Some(path) = self.record("GNU.sparse.name").or_else(|| self.record("path")) {
            return path.to_vec();
        }
        let (name, prefix) = (text(&self.header[..100]), text(&self.header[345..500]));
        // GNU's own form has times where ustar has the prefix.
        if self.header[257..263] == *b"ustar\0" && !prefix.is_empty() {
            [prefix, name].join(&b'/')
        } else {
            name.to_vec()
        }
    }

    fn entry(&self, stored: u64) -> Result<Entry, ListingError> {
        let path = self.path();
        let what = self.what(&path, stored)?;
        let mtime = match self.time("mtime")? {
            Some(time) => Some(time),
            None => Some(header_time(&self.header[136..148])?),
        };
        let mode = octal(&self.header[100..108])
            .ok_or_else(|| ListingError::malformed("its mode is not understood"))?;
        let facts = Facts {
            // The type may stand above the bits.
            mode: (mode & 0o7777) as u32,
            uid: self.id("uid", &self.header[108..116])?,
            gid: self.id("gid", &self.header[116..124])?,
            mtime,
            atime: self.time("atime")?,
            ctime: self.time("ctime")?,
            birth: self.time("LIBARCHIVE.creationtime")?,
        };
        Ok(Entry { path, what, facts, same: None })
    }

    fn what(&self, path: &[u8], stored: u64) -> Result<What, ListingError> {
        let link = || match self.record("linkpath") {
            Some(path) => path,
            None => text(&self.header[157..257]),
        };
        Ok(match self.header[156] {
            b'0' | b'\0' | b'7' if path.ends_with(b"/") => What::Directory,
            b'0' | b'\0' | b'7' => self.regular(stored)?,
            b'S' => {
                let size = octal(&self.header[483..495]);
                let size = size.ok_or_else(|| ListingError::malformed("its size is not understood"))?;
                What::Regular { size, space_used: stored.next_multiple_of(BLOCK as u64) }
            }
            b'1' => What::LinkTo(link().to_vec()),
            b'2' => {
                let target = link();
                let target = SymlinkTarget::new(target);
                What::Symlink(
                    target.map_err(|error| ListingError::malformed(format!("its target: {error}")))?,
                )
            }
            b'3' => What::Special(FileKind::CharacterDevice(self.device()?)),
            b'4' => What::Special(FileKind::BlockDevice(self.device()?)),
            b'5' | b'D' => What::Directory,
            b'6' => What::Special(FileKind::Fifo),
            kind => {
                return Err(ListingError::malformed(format!(
                    "\"{}\" is of type {}, which is not known",
                    shown(path),
                    kind.escape_ascii()
                )));
            }
        })
    }

    /// Of a sparse file less is stored than it has.
    fn regular(&self, stored: u64) -> Result<What, ListingError> {
        let real = self.record("GNU.sparse.realsize").or_else(|| self.record("GNU.sparse.size"));
        let size = match real {
            Some(word) => {
                number(word, 10).ok_or_else(|| ListingError::malformed("its size is not understood"))?
            }
            None => stored,
        };
        Ok(What::Regular {
            size,
            space_used: stored.checked_next_multiple_of(BLOCK as u64).unwrap_or(stored),
        })
    }

    fn device(&self) -> Result<Device, ListingError> {
        let part = |range: std::ops::Range<usize>| {
            octal(&self.header[range]).and_then(|part| u32::try_from(part).ok())
        };
        match (part(329..337), part(337..345)) {
            (Some(major), Some(minor)) => Ok(Device { major, minor }),
            _ => Err(ListingError::malformed("the numbers of a device are not understood")),
        }
    }
}

/// Up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|byte| *byte == 0).unwrap_or(field.len())]
}

/// Octal digits between blanks and NULs, or GNU's base 256 behind a set bit. Nothing is zero.
fn octal(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 {
        return rest.iter().try_fold(0_u64, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let digits = text(field).trim_ascii();
    if digits.is_empty() { Some(0) } else { number(digits, 8) }
}

/// Base 256 may be below zero here.
fn header_time(field: &[u8]) -> Result<Timestamp, ListingError> {
    let seconds = match field.first() {
        Some(0xff) => Some(field[1..].iter().fold(-1_i64, |sum, byte| sum << 8 | i64::from(*byte))),
        _ => octal(field).and_then(|seconds| i64::try_from(seconds).ok()),
    };
    let time = seconds.and_then(|seconds| Timestamp::new(seconds, 0));
    time.ok_or_else(|| ListingError::malformed("its time is not understood"))
}

/// `length key=value\n`, again and again (POSIX, pax).
fn read_records(text: &[u8], into: &mut Records) -> Result<(), ListingError> {
    let mut rest = text;
    while !rest.is_empty() {
        let record = || {
            let blank = rest.iter().position(|byte| *byte == b' ')?;
            let length = usize::try_from(number(&rest[..blank], 10)?).ok()?;
            let record = rest.get(blank + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let key = String::from_utf8(record[..equals].to_vec()).ok()?;
            Some((length, key, &record[equals + 1..]))
        };
        let Some((length, key, value)) = record() else {
            return Err(ListingError::malformed("its extended header is not understood"));
        };
        // An empty value takes back what was said for all.
        if value.is_empty() {
            into.remove(&key);
        } else {
            into.insert(key, value.to_vec());
        }
        rest = &rest[length..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub use tests::archive_of;
