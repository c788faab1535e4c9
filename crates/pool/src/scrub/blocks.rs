//! Reads of a replica for a scrub: what the disk has, as far as that can be had past the page cache.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use io_engine::aligned::AlignedBuffers;
use io_engine::capabilities::Capabilities;
use io_engine::direct::{DirectFile, DirectIo};
use io_engine::reopen::reopen_direct;
use io_engine::uncached::{UncachedIo, WINDOW_BYTES};
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::sums::BLOCK_BYTES;

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

    /// Shorter at the end of the file.
    pub fn read(&self, block: u64) -> Result<Bytes, Errno> {
        self.reader.read(&self.open, block, 1)
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
