//! Whether the pages of a file are in memory, for a caller that must not wait for the disk.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::fs::fstat;
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::param::page_size;

use crate::cachestat::cachestat;

/// Whether pages are in memory is looked at once in so many bytes: what is read, and what is dropped, is of about this
/// size.
const PROBE_EVERY_BYTES: u64 = 128 << 10;

/// How far the pages of a file that is being sent are known to be in memory.
///
/// Every page is counted where the kernel does that. Probes look for pages that are there and still being read.
#[derive(Default)]
pub struct Resident {
    /// Up to here every probe of this call or an earlier one was in memory.
    until: u64,
}

impl Resident {
    /// Every probe reads one byte if that can be done without waiting.
    /// If an earlier call probed the range, and then found the socket full, only its beginning is probed: if pages are
    /// dropped meanwhile, the first of them is there.
    pub fn covers(&mut self, file: BorrowedFd<'_>, offset: u64, count: u64) -> bool {
        if are_all_cached(file, offset, count) == Some(false) {
            self.until = 0;
            return false;
        }
        let mut byte = [0];
        // Behind the end of the file, the read succeeds without waiting.
        let mut probe =
            |at| preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT).is_ok();
        let end = offset + count;
        if !probe(offset) {
            self.until = 0;
            return false;
        }
        let mut known = offset.max(self.until);
        while known < end {
            let at = (known / PROBE_EVERY_BYTES + 1) * PROBE_EVERY_BYTES;
            if !probe(at.min(end) - 1) {
                self.until = 0;
                return false;
            }
            known = at.min(end);
        }
        self.until = end;
        true
    }
}

/// Whether all pages of the range, as far as the file has them, are in the page cache. Pages that are still being read
/// count. `None`: the kernel, or this file system, cannot tell.
fn are_all_cached(file: BorrowedFd<'_>, offset: u64, count: u64) -> Option<bool> {
    let size = fstat(file).ok()?.st_size.cast_unsigned();
    let end = (offset + count).min(size);
    if offset >= end {
        return Some(true);
    }
    let cached = cachestat(file, offset, end - offset).ok()?.cached;
    let page = page_size() as u64;
    let pages = (end - 1) / page - offset / page + 1;
    Some(cached >= pages)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::num::NonZeroU64;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{Advice, fadvise, fstatfs, fsync};

    use super::*;

    const TMPFS: i64 = 0x0102_1994;

    #[test]
    fn dropped_pages_are_found_out() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let file = OwnedFd::from(file);
        let mut earlier = Resident::default();
        assert!(earlier.covers(file.as_fd(), 0, 1 << 20) && earlier.covers(file.as_fd(), 300 << 10, 1 << 20));
        assert!(
            Resident::default().covers(file.as_fd(), (1 << 20) - 5, 100),
            "the end is known without a disk"
        );
        fsync(&file).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if fstatfs(&file).unwrap().f_type as i64 == TMPFS {
            return;
        }
        assert!(
            !earlier.covers(file.as_fd(), 300 << 10, 1 << 20),
            "what was known does not count where the next call begins"
        );
        assert!(!Resident::default().covers(file.as_fd(), 0, 1 << 20));
        assert!(!Resident::default().covers(file.as_fd(), 900 << 10, 10));
    }

    /// Between two probes.
    #[test]
    fn one_page_that_is_not_in_memory_is_found_out() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let file = OwnedFd::from(file);
        fsync(&file).unwrap();
        let page = page_size() as u64;
        fadvise(&file, 10 * page, NonZeroU64::new(page), Advice::DontNeed).unwrap();
        let of = |offset, count| are_all_cached(file.as_fd(), offset, count);
        if of(0, 1 << 20) != Some(false) {
            println!("skipped: pages are not counted here, or stay in memory");
            return;
        }
        assert!(!Resident::default().covers(file.as_fd(), 0, 1 << 20));
        assert_eq!((of(0, 10 * page), of(11 * page, 1 << 30)), (Some(true), Some(true)));
        assert_eq!(of(1 << 20, 5), Some(true));
    }
}
