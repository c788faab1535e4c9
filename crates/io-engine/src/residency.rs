//! The pages of a range that the page cache has.
//!
//! cachestat(2) counts the pages of the range, and only of that: its cost grows with the range, so callers ask for the
//! range of one request. Deliberately absent: a probe by reads that must not wait (`RWF_NOWAIT`). One that misses starts
//! read-ahead.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::param::page_size;
use types::ByteRange;

use crate::read::size_of;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages of the range, as far as the file reaches.
    pub pages: u64,
    /// In memory, or being read.
    pub resident: u64,
    /// Not yet on disk, those that are being written included.
    pub dirty: u64,
}

/// Of the bytes of `range` that the file has. An error means mostly that the kernel, or this file system, cannot tell.
pub fn count_pages(file: BorrowedFd<'_>, range: ByteRange) -> Result<PageCounts, Errno> {
    let end = range.end().min(size_of(file)?);
    let Some(range) = ByteRange::from_bounds(range.offset(), end) else { return Ok(PageCounts::default()) };
    let counts = splice::cachestat(file, range.offset(), range.length())?;
    let pages = pages_of(range);
    Ok(PageCounts {
        pages,
        // A file that grows meanwhile has more.
        resident: counts.cached.min(pages),
        dirty: (counts.dirty + counts.in_writeback).min(pages),
    })
}

fn pages_of(range: ByteRange) -> u64 {
    let page = page_size() as u64;
    (range.end() - 1) / page - range.offset() / page + 1
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
        let counts = count_pages(file.as_fd(), range).ok();
        if counts.is_none() {
            println!("skipped: pages are not counted here");
        }
        counts
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
    }

    #[test]
    fn behind_the_end_of_the_file_are_no_pages() {
        let file = file();
        let behind = ByteRange::new(PAGES * page_size() as u64, 10).unwrap();
        assert_eq!(count_pages(file.as_fd(), behind), Ok(PageCounts::default()));
    }
}
