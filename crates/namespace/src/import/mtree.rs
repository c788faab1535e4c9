//! Listings in the form of mtree(5), as `mtree -c` and `bsdtar --format=mtree` make them.
//!
//! A line has a name and keywords. A name without a slash lies in the directory that was entered last (`..` leaves it);
//! one with a slash is a path from the top and enters nothing. `/set` gives defaults. Keywords that say nothing of what a
//! namespace keeps are passed over. Nanoseconds of a time are a number of them, padded or not, and no fraction.

use std::io::{BufRead, Read};

use types::{Device, FileKind, SymlinkTarget};

use super::entry::{
    Entry, Facts, Listing, ListingError, ListingPosition, SameFile, What, instant, number, shown,
};
use super::vis;
use crate::reads::DEPTH_MAX;

/// Of a line with all that continue it: a path and a target, each byte in four, and the numbers.
const LINE_BYTES_MAX: usize = 64 << 10;

pub struct Mtree<R> {
    input: R,
    line: u64,
    entered: Vec<Vec<u8>>,
    defaults: Keywords,
}

/// Keywords of a file, unparsed.
#[derive(Clone, Default)]
struct Keywords {
    kind: Option<Vec<u8>>,
    mode: Option<Vec<u8>>,
    uid: Option<Vec<u8>>,
    gid: Option<Vec<u8>>,
    size: Option<Vec<u8>>,
    time: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    links: Option<Vec<u8>>,
    inode: Option<Vec<u8>>,
    on_device: Option<Vec<u8>>,
    device: Option<Vec<u8>>,
}

impl<R: BufRead> Mtree<R> {
    pub fn new(input: R) -> Mtree<R> {
        Mtree { input, line: 0, entered: Vec::new(), defaults: Keywords::default() }
    }

    /// With the lines that continue it. `None`: the listing has ended.
    fn read(&mut self) -> Result<Option<Vec<u8>>, ListingError> {
        let mut line = Vec::new();
        loop {
            let left = LINE_BYTES_MAX.saturating_sub(line.len()) as u64;
            let count = self.input.by_ref().take(left).read_until(b'\n', &mut line)?;
            if count == 0 {
                let is_end = line.is_empty();
                return if is_end {
                    Ok(None)
                } else {
                    Err(ListingError::malformed("the line is too long or cut off"))
                };
            }
            self.line += 1;
            if line.pop_if(|last| *last == b'\n').is_none() && count as u64 == left {
                return Err(ListingError::malformed("the line is too long"));
            }
            line.pop_if(|last| *last == b'\r');
            let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 0 {
                return Ok(Some(line));
            }
            line.pop();
        }
    }

    /// The path of a name, and where names without a slash lie from here on.
    fn resolve(&mut self, word: &[u8], is_directory: bool) -> Result<Vec<u8>, ListingError> {
        let name = vis::decode(word).ok_or_else(|| {
            ListingError::malformed(format!("name \"{}\" has an escape that is not known", shown(word)))
        })?;
        if word.contains(&b'/') {
            return Ok(name);
        }
        if name.contains(&b'/') {
            return Err(ListingError::malformed(format!("name \"{}\" has a slash in it", shown(word))));
        }
        let mut path = self.entered.join(&b'/');
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        if is_directory {
            // One of them may be the top. The tree refuses a path that is too deep by one.
            if self.entered.len() > DEPTH_MAX {
                return Err(ListingError::malformed(format!(
                    "more than {DEPTH_MAX} directories lie in one another"
                )));
            }
            self.entered.push(name);
        }
        Ok(path)
    }

    fn entry(&mut self, word: &[u8], words: &mut dyn Iterator<Item = &[u8]>) -> Result<Entry, ListingError> {
        let mut keywords = self.defaults.clone();
        for word in words {
            keywords.take(word)?;
        }
        let kind = keywords.kind.as_deref().ok_or_else(|| missing("type"))?;
        let path = self.resolve(word, kind == b"dir")?;
        keywords.entry(path)
    }
}

impl<R: BufRead> Listing for Mtree<R> {
    fn next(&mut self) -> Result<Option<Entry>, ListingError> {
        loop {
            let Some(line) = self.read()? else { return Ok(None) };
            let mut words =
                line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).peekable();
            match words.next() {
                None => {}
                Some([b'#', ..]) => {}
                Some(b"/set") => {
                    for word in words {
                        self.defaults.take(word)?;
                    }
                }
                Some(b"/unset") => {
                    for word in words {
                        self.defaults.forget(word);
                    }
                }
                Some([b'/', rest @ ..])
                    if !rest.contains(&b'/') && !rest.is_empty() && words.peek().is_none() =>
                {
                    return Err(ListingError::malformed(format!(
                        "command \"/{}\" is not known",
                        shown(rest)
                    )));
                }
                Some(b"..") if self.entered.pop().is_some() => {}
                Some(b"..") => {
                    return Err(ListingError::malformed("\"..\" leaves a directory that was not entered"));
                }
                Some(word) => return self.entry(word, &mut words).map(Some),
            }
        }
    }

    fn place(&self) -> ListingPosition {
        ListingPosition { unit: "line", number: self.line }
    }
}

impl Keywords {
    fn slot(&mut self, key: &[u8]) -> Option<&mut Option<Vec<u8>>> {
        Some(match key {
            b"type" => &mut self.kind,
            b"mode" => &mut self.mode,
            b"uid" => &mut self.uid,
            b"gid" => &mut self.gid,
            b"size" => &mut self.size,
            b"time" => &mut self.time,
            b"link" => &mut self.link,
            b"nlink" => &mut self.links,
            b"inode" => &mut self.inode,
            b"resdevice" => &mut self.on_device,
            b"device" => &mut self.device,
            _ => return None,
        })
    }

    fn take(&mut self, word: &[u8]) -> Result<(), ListingError> {
        let equals = word.iter().position(|byte| *byte == b'=');
        let key = &word[..equals.unwrap_or(word.len())];
        let Some(slot) = self.slot(key) else { return Ok(()) };
        let Some(equals) = equals else {
            return Err(ListingError::malformed(format!("keyword \"{}\" has no value", shown(key))));
        };
        *slot = Some(word[equals + 1..].to_vec());
        Ok(())
    }

    fn forget(&mut self, key: &[u8]) {
        if key == b"all" {
            *self = Keywords::default();
        } else if let Some(slot) = self.slot(key) {
            *slot = None;
        }
    }

    fn entry(&self, path: Vec<u8>) -> Result<Entry, ListingError> {
        let is = |kind: &[u8]| self.kind.as_deref() == Some(kind);
        let what = if is(b"file") {
            let size = parsed(&self.size, "size", 10)?;
            What::Regular { size, space_used: size.div_ceil(512).saturating_mul(512) }
        } else if is(b"dir") {
            What::Directory
        } else if is(b"link") {
            What::Symlink(self.target()?)
        } else if is(b"fifo") {
            What::Special(FileKind::Fifo)
        } else if is(b"socket") {
            What::Special(FileKind::Socket)
        } else if is(b"block") {
            What::Special(FileKind::BlockDevice(self.device()?))
        } else if is(b"char") {
            What::Special(FileKind::CharacterDevice(self.device()?))
        } else {
            let kind = self.kind.as_deref().unwrap_or_default();
            return Err(ListingError::malformed(format!("type \"{}\" is not known", shown(kind))));
        };
        let time = match &self.time {
            Some(word) => Some(time(word)?),
            None => None,
        };
        let facts = Facts {
            mode: of_32_bits(parsed(&self.mode, "mode", 8)?, "mode")?,
            uid: of_32_bits(parsed(&self.uid, "uid", 10)?, "uid")?,
            gid: of_32_bits(parsed(&self.gid, "gid", 10)?, "gid")?,
            mtime: time,
            atime: None,
            ctime: None,
            birth: None,
        };
        let same = self.same()?.filter(|_| what != What::Directory);
        Ok(Entry { path, what, facts, same })
    }

    fn target(&self) -> Result<SymlinkTarget, ListingError> {
        let word = self.link.as_deref().ok_or_else(|| missing("link"))?;
        let target = vis::decode(word).and_then(|target| SymlinkTarget::new(&target).ok());
        target.ok_or_else(|| ListingError::malformed(format!("link \"{}\" is no target", shown(word))))
    }

    /// `format,major,minor`.
    fn device(&self) -> Result<Device, ListingError> {
        let word = self.device.as_deref().ok_or_else(|| missing("device"))?;
        let mut numbers =
            word.split(|byte| *byte == b',').skip(1).map(|word| u32::try_from(number(word, 10)?).ok());
        match (numbers.next().flatten(), numbers.next().flatten(), numbers.next()) {
            (Some(major), Some(minor), None) => Ok(Device { major, minor }),
            _ => Err(ListingError::malformed(format!(
                "device \"{}\" is not of the form format,major,minor",
                shown(word)
            ))),
        }
    }

    /// One that has further names, if the listing says which file it is.
    fn same(&self) -> Result<Option<SameFile>, ListingError> {
        if self.links.is_none() || self.inode.is_none() || parsed(&self.links, "nlink", 10)? < 2 {
            return Ok(None);
        }
        let device = match self.on_device.as_deref() {
            None => 0,
            // Only ever compared.
            Some(word) => word
                .iter()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte))),
        };
        Ok(Some(SameFile { device, inode: parsed(&self.inode, "inode", 10)? }))
    }
}

fn parsed(word: &Option<Vec<u8>>, key: &str, radix: u32) -> Result<u64, ListingError> {
    let word = word.as_deref().ok_or_else(|| missing(key))?;
    number(word, radix).ok_or_else(|| {
        ListingError::malformed(format!("{key} \"{}\" is no number that is understood", shown(word)))
    })
}

fn of_32_bits(value: u64, key: &str) -> Result<u32, ListingError> {
    u32::try_from(value).map_err(|_| ListingError::malformed(format!("{key} {value} is too large")))
}

fn time(word: &[u8]) -> Result<types::Timestamp, ListingError> {
    let parse = || {
        let point = word.iter().position(|byte| *byte == b'.').unwrap_or(word.len());
        let nanoseconds = match word.get(point + 1..) {
            None | Some([]) => 0,
            Some(digits) => u32::try_from(number(digits, 10)?).ok()?,
        };
        instant(&word[..point], nanoseconds)
    };
    parse().ok_or_else(|| ListingError::malformed(format!("time \"{}\" is not understood", shown(word))))
}

fn missing(key: &str) -> ListingError {
    ListingError::malformed(format!(
        "it has no {key}: make the listing with the keywords type,mode,uid,gid,size,time,link,nlink"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::Timestamp;

    use super::*;

    fn all(text: &str) -> Result<Vec<Entry>, String> {
        let mut mtree = Mtree::new(text.as_bytes());
        let mut entries = Vec::new();
        loop {
            match mtree.next() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => return Ok(entries),
                Err(error) => return Err(format!("{}: {error}", mtree.place())),
            }
        }
    }

    fn paths(text: &str) -> Vec<String> {
        all(text).unwrap().iter().map(|entry| shown(&entry.path)).collect()
    }

    #[test]
    fn names_lie_in_the_directory_that_was_entered_last() {
        let listing = "#mtree v2.0\n\
            /set type=file uid=10 gid=20 mode=0644 nlink=1 flags=none\n\
            # .\n\
            .               type=dir mode=0755 nlink=4 time=5.000000007\n\
            \x20   a\\040b      size=3 time=1700000000.5\n\
            \x20   link        type=link \\\n\
            \x20               link=../else\\040where time=5.0\n\
            \n\
            sub             type=dir mode=0700 time=5.0\n\
            /unset mode\n\
            deep\\043 mode=4711 size=1 nlink=2 inode=9\n\
            ..\n\
            ..\n";
        assert_eq!(paths(listing), [".", "./a b", "./link", "./sub", "./sub/deep#"]);
        let entries = all(listing).unwrap();
        let top = entries[0].facts;
        assert_eq!((top.mode, top.uid, top.gid), (0o755, 10, 20));
        assert_eq!(top.mtime, Timestamp::new(5, 7));
        assert_eq!(entries[1].what, What::Regular { size: 3, space_used: 512 });
        assert_eq!(entries[1].facts.mtime, Timestamp::new(1_700_000_000, 5));
        assert_eq!(entries[2].what, What::Symlink(SymlinkTarget::new(b"../else where").unwrap()));
        assert_eq!(entries[4].facts.mode, 0o4711);
        assert_eq!(entries[4].same, Some(SameFile { device: 0, inode: 9 }));
    }

    #[test]
    fn paths_with_a_slash_are_from_the_top_and_enter_nothing() {
        let listing = "#mtree\n/set type=dir uid=0 gid=0 mode=755\n./t time=1.0\n./t/x/y time=1.0\n\
            ./t/f\\\\g\\012 time=1.0 type=file size=0 md5=d41d8\n. time=1.0\n/abs/path\n";
        assert_eq!(paths(listing), ["./t", "./t/x/y", "./t/f\\\\g\\n", ".", "/abs/path"]);
    }

    #[test]
    fn devices_have_their_numbers() {
        let entries = all("./n type=char device=linux,1,3 mode=666 uid=0 gid=0\n").unwrap();
        assert_eq!(entries[0].what, What::Special(FileKind::CharacterDevice(Device { major: 1, minor: 3 })));
    }

    #[test]
    fn a_bad_line_is_told_with_its_number() {
        let after =
            |bad: &str| all(&format!("#mtree\n/set uid=0 gid=0 mode=644 type=file\n{bad}\n")).unwrap_err();
        assert_eq!(after("f size=x"), "line 3: size \"x\" is no number that is understood");
        assert!(after("f").contains("has no size"));
        assert!(after("f size=1 mode=u=rw").contains("mode"));
        assert!(after("f size=1 time=1.9999999999").contains("time"));
        assert!(after("f\\q size=1").contains("escape"));
        assert!(after("f\\057g size=1").contains("slash in it"));
        assert!(after("..").contains("not entered"));
        assert!(after("f type=door size=1").contains("\"door\" is not known"));
        assert!(after("f size").contains("has no value"));
        assert!(after("f type=block device=5").contains("format,major,minor"));
        assert!(after("f size=1 uid=4294967296").contains("too large"));
        assert!(after(&"x".repeat(LINE_BYTES_MAX * 2)).contains("too long"));
        assert!(after("/frobnicate").contains("is not known"));
        assert_eq!(all("f type=file size=1 mode=644 gid=0\n").unwrap_err().split(':').next(), Some("line 1"));
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_and_no_panic(text in "([/.a]{0,4}( (type|mode|size|time|link|nlink|device|inode)=[0-9a-z.,\\\\]{0,4}){0,9}\\\\?\n){0,6}") {
            let _ = all(&text);
        }

        #[test]
        fn any_string_is_an_answer_and_no_panic(text: String) {
            let _ = all(&text);
        }
    }
}
