//! Listings by `find -printf`, in the one form that `PRINTF` says: words, and names that end with NUL.
//!
//! Neither a blank nor a line break in a name can be mistaken, and GNU find needs no root to tell everything.

use std::io::{BufRead, Read};

use types::{FileKind, SymlinkTarget};

use super::entry::{
    Entry, Facts, Listing, ListingError, ListingPosition, SameFile, What, fraction, instant, number,
};

/// Type, mode, owner, group, links, device and inode, size, blocks, times (modification, access, change, birth), path,
/// target.
pub const PRINTF: &str = r"%y %m %U %G %n %D:%i %s %b %T@ %A@ %C@ %B@ %P\0%l\0";

const WORDS: usize = 12;
/// Twice the longest path of Linux, and the numbers.
const RECORD_BYTES_MAX: u64 = 16 << 10;
/// `%b` counts these, whatever the file system's blocks are.
const BLOCK_BYTES: u64 = 512;

pub struct Find<R> {
    input: R,
    record: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Find<R> {
    pub fn new(input: R) -> Find<R> {
        Find { input, record: 0, buffer: Vec::new() }
    }

    /// Up to a NUL. `None`: the listing has ended.
    fn read(&mut self) -> Result<Option<Vec<u8>>, ListingError> {
        self.buffer.clear();
        self.input.by_ref().take(RECORD_BYTES_MAX).read_until(0, &mut self.buffer)?;
        match self.buffer.pop() {
            None => Ok(None),
            Some(0) => Ok(Some(std::mem::take(&mut self.buffer))),
            Some(_) => Err(ListingError::malformed(format!(
                "it does not end with NUL: was the listing cut off, or not made with -printf '{PRINTF}'?"
            ))),
        }
    }
}

impl<R: BufRead> Listing for Find<R> {
    fn next(&mut self) -> Result<Option<Entry>, ListingError> {
        let Some(record) = self.read()? else { return Ok(None) };
        self.record += 1;
        let Some(target) = self.read()? else {
            return Err(ListingError::malformed("the listing was cut off here"));
        };
        parse(&record, &target).map(Some)
    }

    fn place(&self) -> ListingPosition {
        ListingPosition { unit: "entry", number: self.record }
    }
}

fn parse(record: &[u8], target: &[u8]) -> Result<Entry, ListingError> {
    let mut parts = record.splitn(WORDS + 1, |byte| *byte == b' ');
    let mut words: [&[u8]; WORDS] = [&[]; WORDS];
    for word in &mut words {
        *word = parts.next().unwrap_or_default();
    }
    let Some(path) = parts.next() else {
        return Err(ListingError::malformed(format!(
            "it has too few words: make the listing with -printf '{PRINTF}'"
        )));
    };
    let [kind, mode, uid, gid, links, same, size, blocks, mtime, atime, ctime, birth] = words;
    let count = |word, what| number(word, 10).ok_or_else(|| wrong(what, word));
    let id =
        |word, what| number(word, 10).and_then(|id| u32::try_from(id).ok()).ok_or_else(|| wrong(what, word));
    let facts = Facts {
        mode: number(mode, 8).and_then(|mode| u32::try_from(mode).ok()).ok_or_else(|| wrong("mode", mode))?,
        uid: id(uid, "owner")?,
        gid: id(gid, "group")?,
        mtime: time(mtime)?,
        atime: time(atime)?,
        ctime: time(ctime)?,
        birth: time(birth)?,
    };
    let what = match kind {
        b"f" => What::Regular {
            size: count(size, "size")?,
            space_used: count(blocks, "number of blocks")?.saturating_mul(BLOCK_BYTES),
        },
        b"d" => What::Directory,
        b"l" => What::Symlink(
            SymlinkTarget::new(target)
                .map_err(|error| wrong_because("target", target, &error.to_string()))?,
        ),
        b"p" => What::Special(FileKind::Fifo),
        b"s" => What::Special(FileKind::Socket),
        b"b" | b"c" => {
            return Err(ListingError::malformed(
                "it is a device, whose numbers find does not tell: leave devices out (! -type b ! -type c)",
            ));
        }
        kind => return Err(wrong("type", kind)),
    };
    let is_one_of_many = count(links, "number of links")? > 1 && what != What::Directory;
    let same = if is_one_of_many { Some(same_file(same)?) } else { None };
    Ok(Entry { path: path.to_vec(), what, facts, same })
}

fn same_file(word: &[u8]) -> Result<SameFile, ListingError> {
    let parse = || {
        let colon = word.iter().position(|byte| *byte == b':')?;
        Some(SameFile { device: number(&word[..colon], 10)?, inode: number(&word[colon + 1..], 10)? })
    };
    parse().ok_or_else(|| wrong("device and inode", word))
}

/// Output of find for a birth that the file system does not know: nothing, or in some versions the second.
const NO_TIME: [&[u8]; 2] = [b"", b"-1.-000000010"];

fn time(word: &[u8]) -> Result<Option<types::Timestamp>, ListingError> {
    if NO_TIME.contains(&word) {
        return Ok(None);
    }
    let parse = || {
        let point = word.iter().position(|byte| *byte == b'.').unwrap_or(word.len());
        let nanoseconds = word.get(point + 1..).map_or(Some(0), fraction)?;
        instant(&word[..point], nanoseconds)
    };
    parse().map(Some).ok_or_else(|| wrong("time", word))
}

fn wrong(what: &str, word: &[u8]) -> ListingError {
    ListingError::malformed(format!("\"{}\" is no {what}", word.escape_ascii()))
}

fn wrong_because(what: &str, word: &[u8], reason: &str) -> ListingError {
    ListingError::malformed(format!("\"{}\" is no {what}: {reason}", word.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::Timestamp;

    use super::*;

    fn all(listing: &[u8]) -> Result<Vec<Entry>, String> {
        let mut find = Find::new(listing);
        let mut entries = Vec::new();
        loop {
            match find.next() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => return Ok(entries),
                Err(error) => return Err(format!("{}: {error}", find.place())),
            }
        }
    }

    #[test]
    fn a_listing_by_find_is_parsed() {
        let listing = b"d 755 0 0 3 65024:10 4096 8 5.2872968090 5.0 5.0 5.0 \0\0\
            f 4644 10 20 2 65024:11 3 8 -2.2500000000 6.5 7.0  a b/c\nd\0\0\
            l 777 0 0 1 65024:12 1 0 5.0 5.0 5.0 -1.-000000010 l\0../x y\0\
            p 600 0 0 1 65024:13 0 0 5 5 5  pipe\0\0";
        let entries = all(listing).unwrap();
        assert_eq!(entries.len(), 4);
        assert_eq!((&entries[0].path[..], &entries[0].what), (&b""[..], &What::Directory));
        let file = &entries[1];
        assert_eq!(file.path, b"a b/c\nd");
        assert_eq!(file.what, What::Regular { size: 3, space_used: 4096 });
        assert_eq!((file.facts.mode, file.facts.uid, file.facts.gid), (0o4644, 10, 20));
        assert_eq!(file.facts.mtime, Timestamp::new(-2, 250_000_000));
        assert_eq!((file.facts.atime, file.facts.birth), (Timestamp::new(6, 500_000_000), None));
        assert_eq!(file.same, Some(SameFile { device: 65024, inode: 11 }));
        assert_eq!(entries[2].what, What::Symlink(SymlinkTarget::new(b"../x y").unwrap()));
        assert_eq!(entries[3].what, What::Special(FileKind::Fifo));
    }

    #[test]
    fn a_bad_entry_is_told_with_its_number() {
        let good = "f 644 0 0 1 1:1 3 8 5.0 5.0 5.0 5.0 a\0\0";
        let after = |bad: &str| all(format!("{good}{bad}").as_bytes()).unwrap_err();
        let told = after("f 6x4 0 0 1 1:1 3 8 5.0 5.0 5.0 5.0 b\0\0");
        assert_eq!(told, "entry 2: \"6x4\" is no mode");
        assert!(after("f 644 0 0 1 1:1 3 8 5.0 5.0 5.0 5.0 b\0").contains("cut off"));
        assert!(after("f 644 0 0 1 1:1 3").contains("does not end with NUL"));
        assert!(after("./a\0./b\0").contains("too few words"));
        assert!(after("c 644 0 0 1 1:1 0 0 5.0 5.0 5.0 5.0 null\0\0").contains("is a device"));
        assert!(after("l 777 0 0 1 1:1 0 0 5.0 5.0 5.0 5.0 l\0\0").contains("is no target"));
        assert!(after("f 644 0 0 2 7 0 0 5.0 5.0 5.0 5.0 l\0\0").contains("device and inode"));
        assert!(after(&"x".repeat(1 << 20)).contains("does not end with NUL"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_and_no_panic(bytes: Vec<u8>) {
            let _ = all(&bytes);
        }

        #[test]
        fn any_words_are_an_answer_and_no_panic(words in "[fdlbp] ([0-9:.-]{0,4} ){0,12}[a/.]{0,3}\0[a]{0,2}\0") {
            let _ = all(words.as_bytes());
        }
    }
}
