//! Reads of a replica for a scrub: what the disk has, as far as that can be had past the page cache.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aligned::AlignedBuffers;
use bytes::Bytes;
use io_engine::Ran;
use io_engine::capabilities::{Capabilities, is_in_memory};
use io_engine::direct::{DirectFile, DirectIo};
use io_engine::reopen::reopen_direct;
use io_engine::residency::count_pages;
use io_engine::uncached::{UncachedIo, WINDOW_BYTES};
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use types::ByteRange;

use super::sums::BLOCK_BYTES;
use crate::store::read_up_to;

/// Read at once.
pub const CHUNK_BLOCKS: u64 = 16;
const ALIGNMENT_BYTES: usize = 4096;
const KEPT_BYTES_MAX: usize = 4 << 20;

pub struct BlockReader {
    direct: Option<DirectIo>,
    uncached: UncachedIo,
}

pub struct OpenFile {
    pub file: OwnedFd,
    direct: Option<OwnedFd>,
}

impl BlockReader {
    pub fn new(capabilities: Capabilities) -> BlockReader {
        let alignment = capabilities.direct;
        let alignment_bytes = alignment.map_or(ALIGNMENT_BYTES, |direct| direct.memory_bytes as usize);
        let buffers = AlignedBuffers::new(alignment_bytes, KEPT_BYTES_MAX);
        BlockReader {
            direct: alignment.map(|alignment| DirectIo::new(alignment, Arc::clone(&buffers))),
            uncached: UncachedIo::new(buffers, WINDOW_BYTES, capabilities.uncached),
        }
    }

    pub fn open(&self, file: OwnedFd) -> Result<OpenFile, Errno> {
        let direct = match &self.direct {
            Some(_) => reopen_direct(file.as_fd())?,
            None => None,
        };
        Ok(OpenFile { file, direct })
    }

    /// The bytes of some blocks, fewer at the end of the file.
    pub fn read(&self, open: &OpenFile, first: u64, blocks: u64) -> Result<Bytes, Errno> {
        let (offset, length) = (first * BLOCK_BYTES, (blocks * BLOCK_BYTES) as u32);
        let read = match (&self.direct, &open.direct) {
            (Some(io), Some(direct)) => {
                let file = DirectFile { buffered: open.file.as_fd(), direct: direct.as_fd() };
                io.read(file, offset, length)
            }
            _ => self.uncached.read(open.file.as_fd(), offset, length),
        };
        read.map(|(read, _)| read.data)
    }

    /// A block as the disk has it, shorter at the end of the file. `None`: these might be the bytes of the page cache.
    pub fn read_disk(&self, open: &OpenFile, block: u64) -> Result<Option<Bytes>, Errno> {
        let file = open.file.as_fd();
        let range = ByteRange::new(block * BLOCK_BYTES, BLOCK_BYTES).ok_or(Errno::INVAL)?;
        let drop_pages = || fadvise(file, range.offset(), NonZeroU64::new(range.length()), Advice::DontNeed);
        // Some file systems answer a direct read from the page cache without a word.
        drop_pages()?;
        if let (Some(io), Some(direct)) = (&self.direct, &open.direct) {
            let file = DirectFile { buffered: file, direct: direct.as_fd() };
            if let (read, Ran::Direct) = io.read(file, range.offset(), range.length() as u32)? {
                return Ok(Some(read.data));
            }
            // It was read through the page cache.
            drop_pages()?;
        }
        let resident = || count_pages(file, range).map(|counts| counts.resident);
        let were_dropped = resident() == Ok(0);
        let data = Bytes::from(read_up_to(file, range.offset(), range.length() as usize)?);
        // A file system whose pages are not counted has none, even now.
        let is_of_the_disk = were_dropped && resident().is_ok_and(|resident| resident > 0);
        drop_pages()?;
        Ok((is_of_the_disk || is_in_memory(file)?).then_some(data))
    }
}

/// Reads of an open replica.
pub struct DiskReader {
    reader: BlockReader,
    open: OpenFile,
}

impl DiskReader {
    /// `root`: a directory of its file system.
    pub fn of(root: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<DiskReader, Errno> {
        let reader = BlockReader::new(Capabilities::probe(root).unwrap_or(Capabilities::NONE));
        let open = reader.open(fcntl_dupfd_cloexec(file, 0)?)?;
        Ok(DiskReader { reader, open })
    }

    /// As [`BlockReader::read_disk`].
    pub fn read(&self, block: u64) -> Result<Option<Bytes>, Errno> {
        self.reader.read_disk(&self.open, block)
    }
}

/// The first run of blocks within `[from, end)` that have data, as the file system says. `None`: all of it is a hole.
pub fn next_data(open: &OpenFile, from: u64, end: u64) -> Result<Option<(u64, u64)>, Errno> {
    let to = match seek(&open.file, SeekFrom::Data(from * BLOCK_BYTES)) {
        // Behind the last data.
        Err(Errno::NXIO) => return Ok(None),
        found => found?,
    };
    let first = to / BLOCK_BYTES;
    if first >= end {
        return Ok(None);
    }
    let hole = seek(&open.file, SeekFrom::Hole(to))?;
    Ok(Some((first, hole.div_ceil(BLOCK_BYTES).clamp(first + 1, end))))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

    use super::*;

    /// A wrong page that could not be dropped would confirm itself.
    #[test]
    fn a_block_is_that_of_the_disk_only_if_it_was_not_read_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        let file = File::create_new(dir.path().join("file")).unwrap();
        let data = [7; 3 * BLOCK_BYTES as usize];
        file.write_all_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        let open = |reader: &BlockReader| {
            let file = File::options().read(true).write(true).open(dir.path().join("file")).unwrap();
            reader.open(file.into()).unwrap()
        };
        let buffered = BlockReader::new(Capabilities::NONE);
        let opened = open(&buffered);
        if buffered.read_disk(&opened, 1).unwrap().is_none() || is_in_memory(root.as_fd()).unwrap() {
            println!("skipped: pages are not counted here, or are all that there is");
            return;
        }
        // A pipe holds the pages.
        let (_reads, writes) = pipe().unwrap();
        fcntl_setpipe_size(&writes, 2 * BLOCK_BYTES as usize).unwrap();
        let mut at = BLOCK_BYTES;
        let held = splice(&opened.file, Some(&mut at), &writes, None, 4096, SpliceFlags::empty()).unwrap();
        assert_eq!(held, 4096);
        assert_eq!(buffered.read_disk(&opened, 1), Ok(None));
        assert!(buffered.read_disk(&opened, 2).unwrap().is_some_and(|block| block[..] == data[..1 << 16]));
        let direct = BlockReader::new(Capabilities::probe(root.as_fd()).unwrap());
        if direct.direct.is_some() {
            assert!(direct.read_disk(&open(&direct), 1).unwrap().is_some());
        }
    }
}
