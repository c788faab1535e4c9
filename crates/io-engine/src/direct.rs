//! Reads and writes of any offset and length past the page cache.
//!
//! A read fetches the blocks around its range and answers with a slice of them. A write sends the whole blocks of its
//! range past the cache, from the caller's memory if that is aligned, and writes the edges **through the page cache**. The
//! kernel changes the bytes of one page at a time, so a writer of the block's other bytes needs no lock against this, and
//! the file never grows past the end of the write. Blocks are pages at least: no page has bytes of both ways.
//!
//! Coherence is the kernel's: before a direct read it writes the dirty pages of the range back; before and after a direct
//! write it drops them. Two requests that overlap and run at once may mix; the replica's range lock is the caller's.
//!
//! Direct data is durable after fdatasync(2) on the file, not before: edges, size, extents and the device's cache.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use aligned::AlignedBuffers;
use api::ReadData;
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::param::page_size;

use crate::capabilities::DirectAlignment;
use crate::ran::Ran;
use crate::read::Wanted;
use crate::read::read_all;
use crate::write::{OFFSET_MAX, write_all};

/// A write from memory that is not aligned is copied and sent in pieces of this size at most.
const COPIED_BYTES: usize = 1 << 20;

/// Two descriptors of one file.
#[derive(Clone, Copy)]
pub struct DirectFile<'a> {
    pub buffered: BorrowedFd<'a>,
    /// From `reopen_direct`.
    pub direct: BorrowedFd<'a>,
}

/// State common to the direct requests of one file system.
pub struct DirectIo {
    memory_bytes: usize,
    /// Reads begin and end at multiples of this.
    read_block_bytes: usize,
    write_block_bytes: usize,
    buffers: Arc<AlignedBuffers>,
}

impl DirectIo {
    /// The buffers are aligned to `alignment.memory_bytes` at least.
    pub fn new(alignment: DirectAlignment, buffers: Arc<AlignedBuffers>) -> DirectIo {
        let memory_bytes = alignment.memory_bytes as usize;
        // A request in several pieces continues at a multiple of this in the file and in memory alike.
        let read_block_bytes = memory_bytes.max(alignment.offset_bytes as usize);
        let write_block_bytes = read_block_bytes.max(page_size());
        assert!(write_block_bytes.is_power_of_two(), "alignments and pages are powers of two");
        assert!(buffers.alignment_bytes() >= memory_bytes, "the buffers are aligned for this file system");
        DirectIo { memory_bytes, read_block_bytes, write_block_bytes, buffers }
    }

    /// The end of file is exact, as that of `Engine::read`. A read that the file system refuses, or that fails, is done
    /// again through the page cache: if the disk is at fault, that read fails too.
    pub fn read(&self, file: DirectFile<'_>, offset: u64, length: u32) -> Result<(ReadData, Ran), Errno> {
        let wanted = match Wanted::of(file.buffered, offset, length)? {
            Ok(wanted) => wanted,
            Err(empty) => return Ok((empty, Ran::Direct)),
        };
        let skipped = (offset % self.read_block_bytes as u64) as usize;
        let needed = skipped + wanted.bytes;
        let mut buffer = self.buffers.take(needed.next_multiple_of(self.read_block_bytes));
        match self.read_blocks(file.direct, buffer.bytes_mut(), offset - skipped as u64, needed) {
            Ok(filled) => {
                let data = buffer.freeze(skipped..filled.clamp(skipped, needed));
                Ok((wanted.answer(data, offset), Ran::Direct))
            }
            Err(errno) if is_refused(errno) || errno == Errno::IO => {
                let into = &mut buffer.bytes_mut()[..wanted.bytes];
                let filled = read_all(file.buffered, into, offset)?;
                Ok((wanted.answer(buffer.freeze(0..filled), offset), Ran::Buffered))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Fills at least `needed` bytes, unless the file ends.
    fn read_blocks(
        &self,
        direct: BorrowedFd<'_>,
        into: &mut [u8],
        start: u64,
        needed: usize,
    ) -> Result<usize, Errno> {
        let mut filled = 0;
        while filled < needed {
            let read = retry_on_intr(|| pread(direct, &mut into[filled..], start + filled as u64))?;
            filled += read;
            // A direct read ends inside a block at the end of the file only.
            if read == 0 || !filled.is_multiple_of(self.read_block_bytes) {
                break;
            }
        }
        Ok(filled)
    }

    /// All of the bytes, or the error that stopped the write; then some of them may have been written. A write without a
    /// whole block, and the rest of one that the file system refuses, goes through the page cache: `Ran::Buffered`.
    ///
    /// A device's error (EIO) is reported and not tried again: a refusal for alignment has its own number (EINVAL).
    pub fn write(&self, file: DirectFile<'_>, data: &[u8], offset: u64) -> Result<Ran, Errno> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Errno::FBIG);
        }
        let (head, blocks, tail) = self.cut(data, offset);
        if blocks.is_empty() {
            write_all(file.buffered, data, offset)?;
            return Ok(Ran::Buffered);
        }
        // In ascending order, so that a file that grows has no hole meanwhile.
        write_all(file.buffered, head, offset)?;
        let at = offset + head.len() as u64;
        let written = self.write_blocks(file.direct, blocks, at)?;
        write_all(file.buffered, &blocks[written..], at + written as u64)?;
        write_all(file.buffered, tail, at + blocks.len() as u64)?;
        Ok(if written == blocks.len() { Ran::Direct } else { Ran::Buffered })
    }

    /// The bytes before the first whole block, the whole blocks, and those behind.
    fn cut<'a>(&self, data: &'a [u8], offset: u64) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let past = (offset % self.write_block_bytes as u64) as usize;
        let head = if past == 0 { 0 } else { (self.write_block_bytes - past).min(data.len()) };
        let (head, rest) = data.split_at(head);
        let (blocks, tail) = rest.split_at(rest.len() - rest.len() % self.write_block_bytes);
        (head, blocks, tail)
    }

    /// Fewer bytes than there are: the file system does not take the rest.
    fn write_blocks(&self, direct: BorrowedFd<'_>, blocks: &[u8], offset: u64) -> Result<usize, Errno> {
        let is_aligned = blocks.as_ptr().addr().is_multiple_of(self.memory_bytes);
        let mut copy = (!is_aligned).then(|| self.buffers.take(blocks.len().min(self.copied_bytes())));
        let mut written = 0;
        while written < blocks.len() {
            let rest = &blocks[written..];
            let piece = match &mut copy {
                None => rest,
                Some(copy) => {
                    let length = rest.len().min(copy.bytes().len());
                    copy.bytes_mut()[..length].copy_from_slice(&rest[..length]);
                    &copy.bytes()[..length]
                }
            };
            let count = match retry_on_intr(|| pwrite(direct, piece, offset + written as u64)) {
                Err(errno) if is_refused(errno) => break,
                count => count?,
            };
            written += count;
            if count == 0 || !written.is_multiple_of(self.write_block_bytes) {
                break;
            }
        }
        Ok(written)
    }

    fn copied_bytes(&self) -> usize {
        COPIED_BYTES.max(self.write_block_bytes)
    }
}

/// Not for these bytes, or not for this file: encrypted, compressed, journalled data.
fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOTBLK | Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests;
