//! The ways to the disk that a directory's file system and the kernel have, found out by using them.
//!
//! Nothing is assumed of a kernel's version or of a file system's name, with one exception: tmpfs and ramfs take O_DIRECT
//! and then use the page cache, so it is no way of its own there. A file system that takes O_DIRECT for any address and
//! offset, and does not state an alignment, is treated alike.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aligned::{AlignedBuffer, AlignedBuffers};
use rustix::fs::{self, AtFlags, Mode, OFlags, StatxFlags, fstatfs, statx};
use rustix::io::{Errno, pread, preadv2, pwrite, pwritev2};
use serde::{Deserialize, Serialize};

use crate::reopen::reopen_direct;
use crate::uncached::DONTCACHE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `RWF_DONTCACHE`, Linux 6.14 and a file system that supports it.
    pub uncached: bool,
    /// `None`: no direct I/O.
    pub direct: Option<DirectAlignment>,
    /// cachestat(2), Linux 6.5.
    pub cachestat: bool,
}

/// Both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectAlignment {
    /// Of the address in memory.
    pub memory_bytes: u32,
    /// Of the offset in the file, and of the length.
    pub offset_bytes: u32,
}

/// Tried in this order if the kernel states no alignment (`STATX_DIOALIGN`, Linux 6.1).
const ALIGNMENTS_TRIED: [u32; 2] = [512, 4096];
/// Of the file that the ways are tried on. Every alignment that can be served fits.
const PROBE_BYTES: usize = 64 << 10;
const NAMES_TRIED: u32 = 16;
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

impl Capabilities {
    /// Buffered I/O only.
    pub const NONE: Capabilities = Capabilities { uncached: false, direct: None, cachestat: false };

    /// Tries every way on a file in `directory` that has no name afterwards. Blocks.
    pub fn probe(directory: BorrowedFd<'_>) -> Result<Capabilities, Errno> {
        let file = scratch_file(directory)?;
        let mut buffer = AlignedBuffers::new(PROBE_BYTES, 0).take(PROBE_BYTES);
        buffer.bytes_mut().fill(7);
        // A file with pages, for all that follows.
        let written = pwrite(&file, buffer.bytes(), 0)?;
        if written != PROBE_BYTES {
            return Err(Errno::NOSPC);
        }
        Ok(Capabilities {
            uncached: can_skip_the_cache(file.as_fd(), &mut buffer),
            direct: direct_alignment(file.as_fd(), &mut buffer)?,
            cachestat: splice::cachestat(file.as_fd(), 0, PROBE_BYTES as u64).is_ok(),
        })
    }
}

/// The page cache is all that the file system has.
pub fn is_in_memory(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    // The field is signed in some versions of the header and unsigned in others.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let kind = fstatfs(file)?.f_type as u64;
    Ok(matches!(kind & 0xffff_ffff, TMPFS | RAMFS))
}

fn scratch_file(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (access, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match fs::openat(directory, ".", access | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
            named_scratch_file(directory)
        }
        opened => opened,
    }
}

fn named_scratch_file(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (access, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    for attempt in 0..NAMES_TRIED {
        let name = format!(".forebay-probe-{}-{attempt}", std::process::id());
        match fs::openat(directory, name.as_str(), access | OFlags::CREATE | OFlags::EXCL, mode) {
            // Left by a process that was killed between the two calls.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
            Ok(file) => {
                fs::unlinkat(directory, name.as_str(), AtFlags::empty())?;
                return Ok(file);
            }
        }
    }
    Err(Errno::EXIST)
}

fn can_skip_the_cache(file: BorrowedFd<'_>, buffer: &mut AlignedBuffer) -> bool {
    let written = pwritev2(file, &[std::io::IoSlice::new(buffer.bytes())], 0, DONTCACHE);
    let mut into = [std::io::IoSliceMut::new(buffer.bytes_mut())];
    let is_whole = |moved: Result<usize, Errno>| moved == Ok(PROBE_BYTES);
    is_whole(written) && is_whole(preadv2(file, &mut into, 0, DONTCACHE))
}

fn direct_alignment(
    file: BorrowedFd<'_>,
    buffer: &mut AlignedBuffer,
) -> Result<Option<DirectAlignment>, Errno> {
    if is_in_memory(file)? {
        return Ok(None);
    }
    let Some(direct) = reopen_direct(file)? else { return Ok(None) };
    Ok(match stated_alignment(file) {
        Stated::Refused => None,
        Stated::Unknown => tried_alignment(direct.as_fd(), buffer),
        Stated::Is(alignment) => works(direct.as_fd(), alignment, buffer)
            .then_some(alignment)
            .or_else(|| tried_alignment(direct.as_fd(), buffer)),
    })
}

enum Stated {
    /// The file system says that this file has no direct I/O.
    Refused,
    Unknown,
    Is(DirectAlignment),
}

fn stated_alignment(file: BorrowedFd<'_>) -> Stated {
    let Ok(status) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Stated::Unknown;
    };
    if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Stated::Unknown;
    }
    let memory = NonZeroU32::new(status.stx_dio_mem_align);
    let (Some(memory), Some(offset)) = (memory, NonZeroU32::new(status.stx_dio_offset_align)) else {
        return Stated::Refused;
    };
    let is_served = |bytes: NonZeroU32| bytes.is_power_of_two() && bytes.get() as usize <= PROBE_BYTES;
    if !is_served(memory) || !is_served(offset) {
        return Stated::Refused;
    }
    Stated::Is(DirectAlignment { memory_bytes: memory.get(), offset_bytes: offset.get() })
}

fn tried_alignment(direct: BorrowedFd<'_>, buffer: &mut AlignedBuffer) -> Option<DirectAlignment> {
    if pwrite(direct, &buffer.bytes()[1..4], 1).is_ok() {
        return None;
    }
    let alignments =
        ALIGNMENTS_TRIED.map(|bytes| DirectAlignment { memory_bytes: bytes, offset_bytes: bytes });
    alignments.into_iter().find(|alignment| works(direct, *alignment, buffer))
}

/// Writes and reads one block, not the first one, at an address that is no better aligned than it has to be.
fn works(direct: BorrowedFd<'_>, alignment: DirectAlignment, buffer: &mut AlignedBuffer) -> bool {
    let (from, length) = (alignment.memory_bytes as usize, alignment.offset_bytes as usize);
    let Some(block) = buffer.bytes_mut().get_mut(from..from + length) else {
        // The two do not fit behind each other: the first block is used.
        let block = &mut buffer.bytes_mut()[..length];
        return pwrite(direct, &*block, 0) == Ok(length) && pread(direct, block, 0) == Ok(length);
    };
    pwrite(direct, &*block, length as u64) == Ok(length) && pread(direct, block, length as u64) == Ok(length)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use super::*;

    fn probe(directory: &Path) -> Capabilities {
        Capabilities::probe(File::open(directory).unwrap().as_fd()).unwrap()
    }

    #[test]
    fn a_probe_leaves_no_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        let found = probe(directory.path());
        println!("{found:?}");
        let opened = File::open(directory.path()).unwrap();
        drop(named_scratch_file(opened.as_fd()).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_left_by_a_killed_process_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(format!(".forebay-probe-{}-0", std::process::id()));
        std::fs::write(&left, b"").unwrap();
        let opened = File::open(directory.path()).unwrap();
        named_scratch_file(opened.as_fd()).unwrap();
        assert!(left.exists(), "it may belong to another process with that number");
    }

    #[test]
    fn tmpfs_has_neither_direct_nor_uncached_io() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
        if fstatfs(File::open(directory.path()).unwrap()).unwrap().f_type as u64 != TMPFS {
            println!("skipped: /dev/shm is not tmpfs");
            return;
        }
        let found = probe(directory.path());
        assert_eq!((found.direct, found.uncached), (None, false));
    }

    #[test]
    fn the_alignment_found_is_one_that_works() {
        let directory = tempfile::tempdir().unwrap();
        let Some(alignment) = probe(directory.path()).direct else {
            println!("skipped: no direct I/O here");
            return;
        };
        let opened = File::open(directory.path()).unwrap();
        let file = scratch_file(opened.as_fd()).unwrap();
        let mut buffer = AlignedBuffers::new(PROBE_BYTES, 0).take(PROBE_BYTES);
        pwrite(&file, buffer.bytes(), 0).unwrap();
        let direct = reopen_direct(file.as_fd()).unwrap().unwrap();
        let stated = stated_alignment(file.as_fd());
        assert!(works(direct.as_fd(), alignment, &mut buffer));
        let tried = tried_alignment(direct.as_fd(), &mut buffer).unwrap();
        if let Stated::Is(stated) = stated {
            assert_eq!(stated, alignment);
            assert!(tried.offset_bytes >= stated.offset_bytes);
        }
    }
}
