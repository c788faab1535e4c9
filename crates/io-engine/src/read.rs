//! Reads: from the page cache at once where it has the bytes, by a disk thread otherwise.
//!
//! The end of file is exact: it is reported if and only if the read reaches or passes the size that the file had when
//! it was looked at. The length is cut to the file before memory is taken for it, so a peer cannot make it grow.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::ReadData;
use bytes::{BufMut, Bytes, BytesMut};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::buffer::{Buffer, Buffers};
use crate::data_path::Pages;
use crate::mode::Residency;

/// A read may always give less than was asked for; more than this it never does.
pub const READ_BYTES_MAX: u32 = 4 << 20;

/// Through the page cache. Fewer bytes than there is room for: the file ends.
pub fn read_all(file: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < into.len() {
        match retry_on_intr(|| pread(file, &mut into[filled..], offset + filled as u64))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// State common to the reads of one file system.
pub struct Reader {
    buffers: Arc<Buffers>,
    /// The file system cannot tell resident pages (`RWF_NOWAIT`): every read goes to a thread.
    blind: AtomicBool,
}

pub enum Started {
    Done(ReadData),
    /// A disk thread must fetch the rest.
    Rest(Unfinished),
}

impl Started {
    /// Of a file without bytes.
    pub fn empty() -> Started {
        Started::Done(ReadData { data: Bytes::new(), end_of_file: true })
    }
}

pub struct Unfinished {
    /// Of the range, from before the page cache was tried: a try that misses starts read-ahead, whose pages count as
    /// resident. `None`: nobody looked.
    pub pages: Option<Pages>,
    /// Some pages are known not to be in memory.
    pub is_miss: bool,
    buffer: Buffer,
    offset: u64,
    wanted: usize,
    size: u64,
}

impl Reader {
    pub fn new(buffers: Arc<Buffers>) -> Reader {
        Reader { buffers, blind: AtomicBool::new(false) }
    }

    /// A read that does not try the page cache.
    pub fn start_cold(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: u32,
        pages: Pages,
    ) -> Result<Started, Errno> {
        Ok(match Wanted::of(file, offset, length)? {
            Ok(Wanted { bytes: wanted, size }) => {
                let buffer = self.buffers.take(wanted);
                Started::Rest(Unfinished { pages: Some(pages), is_miss: true, buffer, offset, wanted, size })
            }
            Err(empty) => Started::Done(empty),
        })
    }

    /// Never waits for the disk.
    pub fn start(&self, file: BorrowedFd<'_>, offset: u64, length: u32) -> Result<Started, Errno> {
        let Wanted { bytes: wanted, size } = match Wanted::of(file, offset, length)? {
            Ok(wanted) => wanted,
            Err(empty) => return Ok(Started::Done(empty)),
        };
        let mut unfinished = Unfinished {
            pages: None,
            is_miss: false,
            buffer: self.buffers.take(wanted),
            offset,
            wanted,
            size,
        };
        if self.blind.load(Ordering::Relaxed) {
            return Ok(Started::Rest(unfinished));
        }
        match append(file, &mut unfinished.buffer.bytes, wanted, offset, libc::RWF_NOWAIT) {
            Ok(read) if read == wanted => Ok(Started::Done(unfinished.answer())),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {
                unfinished.is_miss = true;
                Ok(Started::Rest(unfinished))
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.blind.store(true, Ordering::Relaxed);
                Ok(Started::Rest(unfinished))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Appends `length` bytes if the page cache has them all, else nothing. Does not look at the file's size: memory is
    /// taken for as much as is asked for.
    pub fn append_resident(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        into: &mut BytesMut,
    ) -> bool {
        if self.blind.load(Ordering::Relaxed) {
            return false;
        }
        let start = into.len();
        into.reserve(length);
        let is_whole =
            matches!(append(file, into, length, offset, libc::RWF_NOWAIT), Ok(read) if read == length);
        if !is_whole {
            into.truncate(start);
        }
        is_whole
    }
}

#[cfg(test)]
impl Reader {
    /// As on a file system that cannot tell resident pages.
    pub fn blind_for_test(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }

    pub fn is_blind_for_test(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }
}

impl Unfinished {
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes; at least one, at most `READ_BYTES_MAX`.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Of the file when it was looked at.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Of the range, when it was asked for. A try of the page cache stops at the first page that is missing: the rest counts
    /// as missing then.
    pub(crate) fn residency(&self) -> Residency {
        match self.pages {
            Some(pages) => pages.residency(),
            None if !self.is_miss => Residency::Unknown,
            None => match self.buffer.bytes.len() as u64 {
                0 => Residency::None,
                resident_bytes => Residency::Part { resident_bytes },
            },
        }
    }

    /// Waits for the disk.
    pub fn finish(mut self, file: BorrowedFd<'_>) -> Result<ReadData, Errno> {
        while self.buffer.bytes.len() < self.wanted {
            let read = self.buffer.bytes.len();
            let at = self.offset + read as u64;
            if retry_on_intr(|| append(file, &mut self.buffer.bytes, self.wanted - read, at, 0))? == 0 {
                // The file has shrunk since it was looked at.
                self.size = at;
                break;
            }
        }
        Ok(self.answer())
    }

    fn answer(self) -> ReadData {
        let end = self.offset + self.buffer.bytes.len() as u64;
        ReadData { end_of_file: end >= self.size, data: self.buffer.freeze() }
    }
}

/// A read that is cut to the file.
pub(crate) struct Wanted {
    /// At least one, at most `READ_BYTES_MAX`.
    pub bytes: usize,
    /// Of the file.
    pub size: u64,
}

impl Wanted {
    /// `Err`: the answer of a read that gives no bytes.
    pub fn of(file: BorrowedFd<'_>, offset: u64, length: u32) -> Result<Result<Wanted, ReadData>, Errno> {
        let size = size_of(file)?;
        let bytes = size.saturating_sub(offset).min(u64::from(length.min(READ_BYTES_MAX)));
        if bytes == 0 {
            let end_of_file = offset.saturating_add(u64::from(length)) >= size;
            return Ok(Err(ReadData { data: Bytes::new(), end_of_file }));
        }
        // At most READ_BYTES_MAX, so it fits.
        Ok(Ok(Wanted { bytes: bytes as usize, size }))
    }

    /// The answer for `data`, which was read from `offset` on. Less than wanted: the file has shrunk meanwhile.
    pub fn answer(&self, data: Bytes, offset: u64) -> ReadData {
        let end = offset + data.len() as u64;
        ReadData { end_of_file: data.len() < self.bytes || end >= self.size, data }
    }
}

pub(crate) fn size_of(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    // The kernel's sizes are never negative.
    Ok(rustix::fs::fstat(file)?.st_size.cast_unsigned())
}

/// Appends at most `length` bytes from `offset` on; with `RWF_NOWAIT` only what is in the page cache.
fn append(
    file: BorrowedFd<'_>,
    buffer: &mut impl BufMut,
    length: usize,
    offset: u64,
    flags: libc::c_int,
) -> Result<usize, Errno> {
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let room = buffer.chunk_mut();
    let length = length.min(room.len());
    let vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: length };
    // SAFETY: `vector` names `length` bytes of the buffer's own spare capacity, which nobody else has while it is
    // borrowed here; the kernel writes at most that many. rustix has this call for initialised memory only.
    #[allow(unsafe_code)]
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, offset, flags) };
    let Ok(read) = usize::try_from(read) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    assert!(read <= length, "the kernel read more than it was asked for");
    // SAFETY: the kernel has written `read` bytes behind the buffer's length, within the room that it said it has.
    #[allow(unsafe_code)]
    unsafe {
        buffer.advance_mut(read);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }

    fn read(file: &File, offset: u64, length: u32, blind: bool) -> (Vec<u8>, bool) {
        let reader = Reader::new(Buffers::new(1 << 20));
        reader.blind.store(blind, Ordering::Relaxed);
        let read = match reader.start(file.as_fd(), offset, length).unwrap() {
            Started::Done(read) => {
                assert!(!blind || read.data.is_empty());
                read
            }
            Started::Rest(rest) => rest.finish(file.as_fd()).unwrap(),
        };
        (read.data.to_vec(), read.end_of_file)
    }

    #[test]
    fn the_end_of_file_is_told_exactly() {
        let file = file(b"0123456789");
        for blind in [false, true] {
            assert_eq!(read(&file, 0, 9, blind), (b"012345678".to_vec(), false));
            assert_eq!(read(&file, 0, 10, blind), (b"0123456789".to_vec(), true));
            assert_eq!(read(&file, 8, 100, blind), (b"89".to_vec(), true));
            assert_eq!(read(&file, 10, 1, blind), (Vec::new(), true));
            assert_eq!(read(&file, u64::MAX, u32::MAX, blind), (Vec::new(), true));
            assert_eq!(read(&file, 3, 0, blind), (Vec::new(), false));
            assert_eq!(read(&file, 10, 0, blind), (Vec::new(), true));
        }
    }

    #[test]
    fn a_large_read_is_cut_and_small_files_take_small_buffers() {
        let big = file(b"");
        big.set_len(64 << 30).unwrap();
        let (data, end) = read(&big, 1 << 30, u32::MAX, true);
        assert_eq!((data.len(), end), (READ_BYTES_MAX as usize, false));
        let reader = Reader::new(Buffers::new(0));
        match reader.start(file(b"abc").as_fd(), 0, u32::MAX).unwrap() {
            Started::Done(read) => assert_eq!(&read.data[..], b"abc"),
            Started::Rest(rest) => assert!(rest.buffer.bytes.capacity() < 64),
        }
    }

    #[test]
    fn only_what_is_whole_and_in_memory_is_appended() {
        let file = file(b"0123456789");
        let reader = Reader::new(Buffers::new(0));
        let mut into = BytesMut::from(&b"head "[..]);
        let mut append = |offset, length| {
            let is_whole = reader.append_resident(file.as_fd(), offset, length, &mut into);
            (is_whole, into.clone())
        };
        assert_eq!(append(2, 3), (true, BytesMut::from(&b"head 234"[..])));
        assert_eq!(append(8, 3), (false, BytesMut::from(&b"head 234"[..])), "it reaches past the end");
        assert_eq!(append(u64::MAX, 1), (false, BytesMut::from(&b"head 234"[..])));
        assert_eq!(append(0, 10), (true, BytesMut::from(&b"head 2340123456789"[..])));
        reader.blind.store(true, Ordering::Relaxed);
        assert!(!reader.append_resident(file.as_fd(), 0, 1, &mut into));
    }

    #[test]
    fn a_file_that_shrinks_under_a_read_ends_where_it_ends() {
        let file = file(&[7; 1000]);
        let reader = Reader::new(Buffers::new(0));
        reader.blind.store(true, Ordering::Relaxed);
        let Started::Rest(rest) = reader.start(file.as_fd(), 500, 400).unwrap() else { panic!("blind") };
        file.set_len(600).unwrap();
        let read = rest.finish(file.as_fd()).unwrap();
        assert_eq!((read.data.len(), read.end_of_file), (100, true));
    }
}
