//! Reads and writes through the page cache that leave no pages behind (`RWF_DONTCACHE`).
//!
//! The kernel starts to write such pages back at once, and drops them when they are on disk. A writer that is faster than
//! the disk still fills memory with pages that wait, until the kernel stops every writer of the machine. So one file has a
//! bound of its own: after each `window_bytes`, the writer waits for the window before.
//!
//! A file system or kernel without this way refuses it once; from then on every request is buffered.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned::AlignedBuffers;
use api::ReadData;
use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2, retry_on_intr};
use types::ByteRange;

use crate::ran::Ran;
use crate::read::Wanted;
use crate::write::OFFSET_MAX;

/// rustix has no name for it.
pub(crate) const DONTCACHE: ReadWriteFlags =
    ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE.cast_unsigned());

/// For `UncachedIo::new`. Four writers of 1 MiB each, three rounds on a busy machine (ext4 on virtio, Linux 6.18): the 99th
/// percentile of a write was 31 to 35 ms with it, 40 to 44 ms without, and 15 to 17 ms with 2 MiB. The rates differed no
/// more than the rounds did.
pub const WINDOW_BYTES: u64 = 8 << 20;

/// State common to the uncached requests of one file system.
pub struct UncachedIo {
    buffers: Arc<AlignedBuffers>,
    window_bytes: u64,
    is_refused: AtomicBool,
}

impl UncachedIo {
    /// `is_supported` is `Capabilities::uncached`; without it every request is buffered.
    pub fn new(buffers: Arc<AlignedBuffers>, window_bytes: u64, is_supported: bool) -> UncachedIo {
        UncachedIo { buffers, window_bytes, is_refused: AtomicBool::new(!is_supported) }
    }

    /// The end of file is exact, as that of `Engine::read`. Pages that were in memory before stay there.
    pub fn read(&self, file: BorrowedFd<'_>, offset: u64, length: u32) -> Result<(ReadData, Ran), Errno> {
        let wanted = match Wanted::of(file, offset, length)? {
            Ok(wanted) => wanted,
            Err(empty) => return Ok((empty, self.way().0)),
        };
        let mut buffer = self.buffers.take(wanted.bytes);
        let mut filled = 0;
        let mut ran = self.way().0;
        while filled < wanted.bytes {
            let into = &mut buffer.bytes_mut()[filled..];
            let at = offset + filled as u64;
            let (read, way) =
                self.attempt(|flags| preadv2(file, &mut [IoSliceMut::new(&mut *into)], at, flags))?;
            ran = way;
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok((wanted.answer(buffer.freeze(0..filled), offset), ran))
    }

    /// All of the bytes, or the error that stopped the write; then some of them may have been written. Nothing is
    /// durable before fdatasync(2).
    ///
    /// `other`: another open file description of the file (`reopen_direct`), to wait with. The kernel tells each description of
    /// a lost write once, and a wait counts: one on `file` would take the error from a sync that runs beside it. Without
    /// another one, nothing is waited for.
    pub fn write(
        &self,
        file: BorrowedFd<'_>,
        other: Option<BorrowedFd<'_>>,
        pace: &WritePace,
        data: &[u8],
        offset: u64,
    ) -> Result<Ran, Errno> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        let mut rest = data;
        let mut ran = self.way().0;
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            let written = self.attempt(|flags| pwritev2(file, &[IoSlice::new(rest)], at, flags));
            let (written, way) = written?;
            ran = way;
            if written == 0 {
                return Err(Errno::IO);
            }
            rest = &rest[written..];
        }
        if ran == Ran::Uncached
            && let Some(written) = ByteRange::from_bounds(offset, end)
            && let Some(turn) = pace.add(written, data.len() as u64, self.window_bytes)
        {
            turn.run(file, other);
        }
        Ok(ran)
    }

    fn way(&self) -> (Ran, ReadWriteFlags) {
        if self.is_refused.load(Ordering::Relaxed) {
            (Ran::Buffered, ReadWriteFlags::empty())
        } else {
            (Ran::Uncached, DONTCACHE)
        }
    }

    fn attempt(
        &self,
        mut call: impl FnMut(ReadWriteFlags) -> Result<usize, Errno>,
    ) -> Result<(usize, Ran), Errno> {
        let (way, flags) = self.way();
        match retry_on_intr(|| call(flags)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if way == Ran::Uncached => {
                self.is_refused.store(true, Ordering::Relaxed);
                Ok((retry_on_intr(|| call(ReadWriteFlags::empty()))?, Ran::Buffered))
            }
            moved => Ok((moved?, way)),
        }
    }
}

/// The uncached writes of one file whose pages may not be on disk.
#[derive(Default)]
pub struct WritePace {
    /// Locked to count; never while the disk is waited for.
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    bytes: u64,
    /// Around all writes of this window.
    around: Option<ByteRange>,
    before: Option<ByteRange>,
}

/// A window is full.
#[derive(Debug, PartialEq, Eq)]
struct Turn {
    /// Starts to go to the disk, as far as it has not.
    full: ByteRange,
    /// Is waited for.
    before: Option<ByteRange>,
}

impl WritePace {
    fn add(&self, written: ByteRange, written_bytes: u64, window_bytes: u64) -> Option<Turn> {
        let mut window = self.window.lock();
        let around = window.around.map_or(written, |around| enclose(around, written));
        window.around = Some(around);
        window.bytes += written_bytes;
        if window.bytes < window_bytes {
            return None;
        }
        window.bytes = 0;
        window.around = None;
        Some(Turn { full: around, before: window.before.replace(around) })
    }
}

fn enclose(a: ByteRange, b: ByteRange) -> ByteRange {
    let (offset, end) = (a.offset().min(b.offset()), a.end().max(b.end()));
    ByteRange::from_bounds(offset, end).expect("it has all bytes of a range that is not empty")
}

impl Turn {
    /// Errors are left to the next sync, which the kernel tells them too.
    fn run(self, file: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>) {
        let _ = sync_range(file, self.full, libc::SYNC_FILE_RANGE_WRITE);
        if let (Some(other), Some(before)) = (other, self.before) {
            let _ = sync_range(other, before, libc::SYNC_FILE_RANGE_WAIT_BEFORE);
        }
    }
}

/// Waits for the pages of a range that are on their way to the disk, and leaves the others in memory. The kernel tells each
/// description of a lost write once, and this counts as a sync: its owner treats an error as one of fdatasync(2).
pub fn check_write_back(file: BorrowedFd<'_>, range: ByteRange) -> Result<(), Errno> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn sync_range(file: BorrowedFd<'_>, range: ByteRange, flags: libc::c_uint) -> Result<(), Errno> {
    // Ends of writes are at most OFFSET_MAX.
    let (offset, length) = (range.offset().cast_signed(), range.length().cast_signed());
    // SAFETY: the call takes a descriptor, which is borrowed for as long, and numbers. rustix does not have it.
    #[allow(unsafe_code)]
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::reopen::reopen_direct;

    fn uncached(is_supported: bool) -> UncachedIo {
        UncachedIo::new(AlignedBuffers::new(4096, 8 << 20), 64 << 10, is_supported)
    }

    fn range(offset: u64, end: u64) -> ByteRange {
        ByteRange::from_bounds(offset, end).unwrap()
    }

    fn check(file: &File, uncached: &UncachedIo) -> Ran {
        let pace = WritePace::default();
        let reopened = reopen_direct(file.as_fd()).unwrap();
        let other = reopened.as_ref().map(AsFd::as_fd);
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        for (piece, at) in data.chunks(30_001).zip((0_u64..).step_by(30_001)) {
            uncached.write(file.as_fd(), other, &pace, piece, at + 5).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 300_005);
        let (read, ran) = uncached.read(file.as_fd(), 6, 1 << 20).unwrap();
        assert!(read.data[..] == data[1..] && read.end_of_file);
        let (read, _) = uncached.read(file.as_fd(), 100, 100).unwrap();
        assert!(read.data[..] == data[95..195] && !read.end_of_file);
        let (read, _) = uncached.read(file.as_fd(), 300_005, 1).unwrap();
        assert!(read.data.is_empty() && read.end_of_file);
        ran
    }

    #[test]
    fn unaligned_writes_are_read_back() {
        check(&tempfile::tempfile().unwrap(), &uncached(true));
    }

    #[test]
    fn a_masked_capability_means_buffered() {
        assert_eq!(check(&tempfile::tempfile().unwrap(), &uncached(false)), Ran::Buffered);
    }

    #[test]
    fn a_refusal_is_remembered_and_the_request_is_done_all_the_same() {
        let uncached = uncached(true);
        let mut calls = Vec::new();
        let mut call = |flags: ReadWriteFlags| {
            calls.push(flags);
            if flags.is_empty() { Ok(7) } else { Err(Errno::OPNOTSUPP) }
        };
        assert_eq!(uncached.attempt(&mut call), Ok((7, Ran::Buffered)));
        assert_eq!(uncached.attempt(&mut call), Ok((7, Ran::Buffered)));
        assert_eq!(calls, [DONTCACHE, ReadWriteFlags::empty(), ReadWriteFlags::empty()]);
    }

    #[test]
    fn a_write_past_the_largest_offset_is_too_large() {
        let file = tempfile::tempfile().unwrap();
        let (uncached, pace) = (uncached(true), WritePace::default());
        for offset in [OFFSET_MAX, u64::MAX] {
            let refused = uncached.write(file.as_fd(), None, &pace, b"ab", offset);
            assert_eq!(refused, Err(Errno::FBIG));
        }
    }

    #[test]
    fn a_full_window_starts_its_own_bytes_and_waits_for_those_before() {
        let pace = WritePace::default();
        assert_eq!(pace.add(range(50, 60), 10, 30), None);
        assert_eq!(pace.add(range(0, 10), 10, 30), None);
        let first = pace.add(range(60, 70), 10, 30);
        assert_eq!(first, Some(Turn { full: range(0, 70), before: None }));
        let second = pace.add(range(70, 200), 130, 30);
        assert_eq!(second, Some(Turn { full: range(70, 200), before: Some(range(0, 70)) }));
    }

    #[test]
    fn uncached_reads_leave_resident_pages_where_they_are() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        file.sync_all().unwrap();
        uncached(true).read(file.as_fd(), 0, 8192).unwrap();
        if let Ok(counts) = splice::cachestat(file.as_fd(), 0, 8192) {
            assert_eq!(counts.cached, 2);
        }
    }
}
