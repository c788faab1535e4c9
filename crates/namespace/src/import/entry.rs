//! One file of a tree that is imported, from any listing.

use std::fmt;
use std::io;

use thiserror::Error;
use types::{FileKind, SymlinkTarget, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the top of the tree, names between slashes; `.` and nothing are the top itself.
    pub path: Vec<u8>,
    pub what: What,
    pub facts: Facts,
    /// Of a file that may have further names.
    pub same: Option<SameFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Regular {
        size: u64,
        space_used: u64,
    },
    Directory,
    Symlink(SymlinkTarget),
    /// A device, FIFO or socket.
    Special(FileKind),
    /// A further name of the file that has this path, which may come later.
    LinkTo(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The low 12 bits of `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// A time that is not known becomes that of the modification; `ctime` becomes that of the import.
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub ctime: Option<Timestamp>,
    pub birth: Option<Timestamp>,
}

/// Names with the same are one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SameFile {
    pub device: u64,
    pub inode: u64,
}

/// A listing, read as it comes: what it holds in memory does not grow with it.
pub trait Listing {
    /// `None`: that was all.
    fn next(&mut self) -> Result<Option<Entry>, ListingError>;
    /// Of what `next` read last.
    fn place(&self) -> ListingPosition;
}

#[derive(Debug, Error)]
pub enum ListingError {
    #[error("{0}")]
    Malformed(String),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl ListingError {
    pub fn malformed(what: impl Into<String>) -> ListingError {
        ListingError::Malformed(what.into())
    }
}

/// Where something stands in a listing, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingPosition {
    pub unit: &'static str,
    /// From 1.
    pub number: u64,
}

impl fmt::Display for ListingPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.unit, self.number)
    }
}

/// Digits of base ten or eight and nothing else.
pub fn number(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.starts_with('+') {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

/// A modification time and the like: seconds, also before 1970, and nanoseconds that count forward from them.
pub fn instant(seconds: &[u8], nanoseconds: u32) -> Option<Timestamp> {
    let seconds = match seconds.strip_prefix(b"-") {
        Some(digits) => 0_i64.checked_sub_unsigned(number(digits, 10)?)?,
        None => i64::try_from(number(seconds, 10)?).ok()?,
    };
    Timestamp::new(seconds, nanoseconds)
}

/// Digits behind a decimal point as nanoseconds; what is finer is cut off.
pub fn fraction(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0'));
    Some(padded.take(9).fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

/// As a person sees it.
pub fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_finer_than_a_nanosecond_are_read() {
        assert_eq!(fraction(b"2500000000"), Some(250_000_000));
        assert_eq!(fraction(b"5"), Some(500_000_000));
        assert_eq!(fraction(b""), None);
        assert_eq!(fraction(b"1x"), None);
        assert_eq!(instant(b"-2", 250_000_000), Timestamp::new(-2, 250_000_000));
        assert_eq!(instant(b"--2", 0), None);
        assert_eq!(instant(b"+2", 0), None);
        assert_eq!(instant(b"99999999999999999999", 0), None);
    }
}
