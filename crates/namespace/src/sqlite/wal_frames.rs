//! Whether the WAL holds what was written to it (SQLite's file format, §4.1 and 4.2).
//!
//! SQLite looks at its checksums only when it recovers. A page whose writing failed may be dropped from memory and read back
//! as it was before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Checksums are of numbers in the order that the last bit says: 0 little-endian, 1 big-endian.
const MAGIC: u32 = 0x377f_0682;

/// Of the first `frames` of the WAL.
pub fn are_whole(wal: &File, frames: u32) -> io::Result<bool> {
    if frames == 0 {
        return Ok(true);
    }
    let mut header = [0; HEADER_BYTES];
    if !read_whole(wal, &mut header, 0)? || number(&header, 0) & !1 != MAGIC {
        return Ok(false);
    }
    let is_big_endian = number(&header, 0) & 1 == 1;
    let mut sum = Sum { first: 0, second: 0, is_big_endian };
    sum.add(&header[..24]);
    if !sum.is_at(&header, 24) {
        return Ok(false);
    }
    let page_bytes = number(&header, 8) as usize;
    if !page_bytes.is_power_of_two() || !(512..=65_536).contains(&page_bytes) {
        return Ok(false);
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let frame_bytes = frame.len() as u64;
    for at in 0..u64::from(frames) {
        let is_there = read_whole(wal, &mut frame, HEADER_BYTES as u64 + at * frame_bytes)?;
        sum.add(&frame[..8]);
        sum.add(&frame[FRAME_HEADER_BYTES..]);
        if !is_there || frame[8..16] != header[16..24] || !sum.is_at(&frame, 16) {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Sum {
    first: u32,
    second: u32,
    is_big_endian: bool,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let numbers = bytes.chunks_exact(4).map(|word| {
            let word = [word[0], word[1], word[2], word[3]];
            if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        });
        for (at, number) in numbers.enumerate() {
            if at % 2 == 0 {
                self.first = self.first.wrapping_add(number).wrapping_add(self.second);
            } else {
                self.second = self.second.wrapping_add(number).wrapping_add(self.first);
            }
        }
    }

    fn is_at(&self, bytes: &[u8], at: usize) -> bool {
        (self.first, self.second) == (number(bytes, at), number(bytes, at + 4))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_whole(file: &File, into: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(into, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{Locations, Namespace, NamespaceError};
    use testkit::namespace_suite::root;
    use types::FileId;

    use crate::scratch::{name, open, regular};

    /// Every later sync failed, so that no replica was ever removed, and what was acknowledged had no end of its interval.
    #[tokio::test]
    async fn after_a_failed_sync_the_log_is_carried_into_the_database_before_the_next_change() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let create = async |text: &str| {
            namespace.create(&root(), FileId::ROOT, &name(text), &regular()).await.map(drop)
        };
        create("before").await.unwrap();
        let log = Arc::clone(namespace.log.as_ref().unwrap());
        log.fail();
        assert!(log.sync().is_err(), "a later sync says nothing of what an earlier one lost");
        create("after").await.unwrap();
        assert!(!log.has_failed());
        namespace.settle().await.unwrap();
        let database = std::fs::read(dir.path().join("namespace.db")).unwrap();
        assert!(database.windows(6).any(|bytes| bytes == b"before"), "it is not in the log alone");
    }

    #[tokio::test]
    async fn a_log_that_does_not_hold_what_was_written_is_not_written_behind() {
        use std::os::unix::fs::FileExt;
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let create = async |text: &str| {
            namespace.create(&root(), FileId::ROOT, &name(text), &regular()).await.map(drop)
        };
        create("before").await.unwrap();
        let log = Arc::clone(namespace.log.as_ref().unwrap());
        // A page that was dropped from memory comes back as it was before.
        let wal = std::fs::File::options()
            .read(true)
            .write(true)
            .open(dir.path().join("namespace.db-wal"))
            .unwrap();
        let mut page = vec![0; 4_096];
        wal.read_exact_at(&mut page, 4_096).unwrap();
        wal.write_all_at(&[0; 4_096], 4_096).unwrap();
        log.fail();
        for _ in 0..2 {
            let refused = create("after").await.unwrap_err();
            assert!(
                matches!(&refused, NamespaceError::Database(told) if told.contains("lost changes")),
                "{refused}"
            );
        }
        wal.write_all_at(&page, 4_096).unwrap();
        create("after").await.unwrap();
        assert!(!log.has_failed());
    }
}
