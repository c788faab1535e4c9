//! The part of a range that the page cache has.
//!
//! cachestat(2) counts the pages of the range, and only of that: its cost grows with the range, so callers ask for the
//! range of one request. Where it is missing, a few bytes are read with `RWF_NOWAIT`. A probe that misses makes the kernel
//! start to read ahead there, so the first miss ends the probing.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::param::page_size;
use types::ByteRange;

use crate::read::size_of;

/// Bytes read of one range where pages are not counted.
const PROBES_MAX: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// The file system can neither count pages nor read without waiting.
    Unknown,
    Counted(PageCounts),
    /// Probes only: `resident` is all pages, or an estimate, or none. Nothing is known of dirty pages.
    Probed {
        pages: u64,
        resident: u64,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages of the range, as far as the file reaches.
    pub pages: u64,
    /// In memory, or being read.
    pub resident: u64,
    /// Not yet on disk, those that are being written included.
    pub dirty: u64,
}

/// Of the bytes of `range` that the file has. `can_count` is `Capabilities::cachestat`.
pub fn residency(file: BorrowedFd<'_>, range: ByteRange, can_count: bool) -> Result<Residency, Errno> {
    let end = range.end().min(size_of(file)?);
    let Some(range) = ByteRange::from_bounds(range.offset(), end) else {
        return Ok(Residency::Counted(PageCounts::default()));
    };
    if can_count && let Ok(counts) = splice::cachestat(file, range.offset(), range.length()) {
        let pages = pages_of(range);
        return Ok(Residency::Counted(PageCounts {
            pages,
            // A file that grows meanwhile has more.
            resident: counts.cached.min(pages),
            dirty: (counts.dirty + counts.in_writeback).min(pages),
        }));
    }
    Ok(probe(file, range))
}

fn pages_of(range: ByteRange) -> u64 {
    let page = page_size() as u64;
    (range.end() - 1) / page - range.offset() / page + 1
}

fn probe(file: BorrowedFd<'_>, range: ByteRange) -> Residency {
    let pages = pages_of(range);
    let probes = pages.min(PROBES_MAX);
    let mut byte = [0];
    for probe in 0..probes {
        // The first byte, the last one, and some between.
        let at = range.offset() + (range.length() - 1).checked_div(probes - 1).unwrap_or(0) * probe;
        match preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => {
                return Residency::Probed { pages, resident: pages * probe / probes };
            }
            Err(_) => return Residency::Unknown,
        }
    }
    Residency::Probed { pages, resident: pages }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroU64;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{Advice, fadvise, fsync};

    use super::*;

    const PAGES: u64 = 64;

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; PAGES as usize * page_size()], 0).unwrap();
        file
    }

    fn counted(file: &File, range: ByteRange) -> Option<PageCounts> {
        match residency(file.as_fd(), range, true).unwrap() {
            Residency::Counted(counts) => Some(counts),
            Residency::Unknown | Residency::Probed { .. } => {
                println!("skipped: pages are not counted here");
                None
            }
        }
    }

    #[test]
    fn dirty_pages_are_counted_until_they_are_on_disk() {
        let file = file();
        let Some(counts) = counted(&file, ByteRange::ALL) else { return };
        assert_eq!((counts.pages, counts.resident), (PAGES, PAGES));
        fsync(&file).unwrap();
        let Some(clean) = counted(&file, ByteRange::ALL) else { return };
        // tmpfs has no disk, and no page of it is clean.
        assert!(clean.dirty == 0 || clean.dirty == counts.dirty, "{clean:?}");
    }

    #[test]
    fn dropped_pages_are_not_resident() {
        let file = file();
        fsync(&file).unwrap();
        let page = page_size() as u64;
        fadvise(&file, 16 * page, NonZeroU64::new(16 * page), Advice::DontNeed).unwrap();
        let Some(whole) = counted(&file, ByteRange::ALL) else { return };
        if whole.resident == PAGES {
            println!("skipped: pages stay in memory here");
            return;
        }
        let inside = counted(&file, ByteRange::new(20 * page, 4 * page).unwrap()).unwrap();
        assert_eq!(inside, PageCounts { pages: 4, resident: 0, dirty: 0 });
        let across = counted(&file, ByteRange::new(16 * page - 1, 2).unwrap()).unwrap();
        assert_eq!((across.pages, across.resident), (2, 1));
        let probed = residency(file.as_fd(), ByteRange::new(16 * page, 16 * page).unwrap(), false).unwrap();
        assert_eq!(probed, Residency::Probed { pages: 16, resident: 0 });
    }

    #[test]
    fn resident_pages_are_found_without_cachestat() {
        let file = file();
        let found = residency(file.as_fd(), ByteRange::new(5, 100_000).unwrap(), false).unwrap();
        if found != Residency::Unknown {
            assert_eq!(found, Residency::Probed { pages: 25, resident: 25 });
        }
        let one = residency(file.as_fd(), ByteRange::new(5, 1).unwrap(), false).unwrap();
        assert!(matches!(one, Residency::Unknown | Residency::Probed { pages: 1, resident: 1 }));
    }

    #[test]
    fn behind_the_end_of_the_file_are_no_pages() {
        let file = file();
        let behind = ByteRange::new(PAGES * page_size() as u64, 10).unwrap();
        for can_count in [false, true] {
            let found = residency(file.as_fd(), behind, can_count).unwrap();
            assert_eq!(found, Residency::Counted(PageCounts::default()));
        }
    }
}
