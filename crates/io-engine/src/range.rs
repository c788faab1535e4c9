//! Ranges of files: blocks reserved, freed, found, copied and shared. Everything here blocks.

use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};

use api::{Advice, RangeKind, Stretch};
use rustix::fs::{self, FallocateFlags, SeekFrom};
use rustix::io::{Errno, pread, retry_on_intr};
use types::ByteRange;

use crate::read::size_of;
use crate::write::{OFFSET_MAX, write_all};

/// Most bytes that one call copies, holes aside: it occupies a thread no longer than a large write.
pub const COPY_BYTES_MAX: u64 = 8 << 20;
/// For file systems between whose files the kernel does not copy.
const BUFFER_BYTES: usize = 256 << 10;
const PAGE_BYTES: u64 = 4096;

/// Reserves blocks, and makes the file at least that long.
pub fn allocate(file: BorrowedFd<'_>, range: ByteRange) -> Result<(), Errno> {
    if range.end() > OFFSET_MAX {
        return Err(Errno::FBIG);
    }
    let length = range.end() - range.offset();
    retry_on_intr(|| fs::fallocate(file, FallocateFlags::empty(), range.offset(), length))
}

/// Frees blocks; the length stays.
pub fn deallocate(file: BorrowedFd<'_>, range: ByteRange) -> Result<(), Errno> {
    // The kernel refuses what no file could have (EFBIG). The last block of the file goes as a whole.
    let end = range.end().min(size_of(file)?.next_multiple_of(PAGE_BYTES));
    let Some(length) = end.checked_sub(range.offset()).filter(|length| *length > 0) else { return Ok(()) };
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    retry_on_intr(|| fs::fallocate(file, how, range.offset(), length))
}

/// As `ReplicaRanges::seek`. The file's own position moves; nobody here reads or writes at that.
pub fn seek(file: BorrowedFd<'_>, offset: u64, kind: RangeKind) -> Result<Option<u64>, Errno> {
    let (to, behind_the_end) = match kind {
        RangeKind::Data => (SeekFrom::Data(offset), None),
        RangeKind::Hole => (SeekFrom::Hole(offset), Some(offset)),
    };
    if offset > OFFSET_MAX {
        return Ok(behind_the_end);
    }
    match fs::seek(file, to) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(behind_the_end),
        Err(errno) => Err(errno),
    }
}

pub fn advise(file: BorrowedFd<'_>, range: ByteRange, advice: Advice) -> Result<(), Errno> {
    let advice = match advice {
        Advice::WillNeed => fs::Advice::WillNeed,
        Advice::DontNeed => fs::Advice::DontNeed,
    };
    let end = range.end().min(OFFSET_MAX);
    // No length stands for up to the end.
    fs::fadvise(file, range.offset().min(end), NonZeroU64::new(end.saturating_sub(range.offset())), advice)
}

/// As `ReplicaRanges::copy_from`.
pub fn copy(source: BorrowedFd<'_>, target: BorrowedFd<'_>, stretch: Stretch) -> Result<u64, Errno> {
    let Stretch { from, to, length } = stretch;
    let data = seek(source, from, RangeKind::Data)?;
    let hole = data.map_or(length, |at| (at - from).min(length));
    if hole > 0 {
        return match clear(target, to, hole) {
            Err(Errno::OPNOTSUPP) => copy_by_hand(source, target, Stretch { length: hole, ..stretch }),
            cleared => cleared.map(|()| hole),
        };
    }
    let end = seek(source, from, RangeKind::Hole)?.unwrap_or(u64::MAX).max(from + 1);
    let length = (end - from).min(length).min(COPY_BYTES_MAX);
    let (mut read, mut written) = (from, to);
    // At most COPY_BYTES_MAX, so it fits.
    let copied = retry_on_intr(|| {
        fs::copy_file_range(source, Some(&mut read), target, Some(&mut written), length as usize)
    });
    match copied {
        Ok(copied) if copied > 0 => Ok(copied as u64),
        // The source ended meanwhile, or the kernel does not do it here.
        Ok(_) | Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            copy_by_hand(source, target, Stretch { length, ..stretch })
        }
        Err(errno) => Err(errno),
    }
}

/// As `ReplicaRanges::share_from`. `false`: the file system cannot share these.
pub fn clone(source: BorrowedFd<'_>, target: BorrowedFd<'_>, stretch: Stretch) -> Result<bool, Errno> {
    let Stretch { from, to, length } = stretch;
    let shared = size_of(source)?.saturating_sub(from).min(length);
    if shared > 0 {
        let range = libc::file_clone_range {
            src_fd: i64::from(source.as_raw_fd()),
            src_offset: from,
            src_length: shared,
            dest_offset: to,
        };
        // SAFETY: the kernel reads one `file_clone_range`, which lives until the call is over, and nothing else; both
        // descriptors are borrowed for as long. rustix has FICLONE only.
        #[allow(unsafe_code)]
        let answer = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE, &range) };
        if answer != 0 {
            return match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::INVAL => Ok(false),
                errno => Err(errno),
            };
        }
    }
    if shared < length {
        clear(target, to + shared, length - shared)?;
    }
    Ok(true)
}

/// Makes bytes zero, and the file at least that long.
fn clear(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let end = offset.saturating_add(length);
    if let Some(range) = ByteRange::from_bounds(offset, end.min(size_of(file)?)) {
        deallocate(file, range)?;
    }
    match extend(file, end) {
        // A byte that comes meanwhile is one that is to be cleared.
        Err(Errno::OPNOTSUPP) => write_all(file, &[0], end - 1),
        extended => extended,
    }
}

/// Makes the file at least that long, with a hole up to its last byte. Bytes that are there, or come meanwhile, stay. Not
/// every file system can (OPNOTSUPP).
pub fn extend(file: BorrowedFd<'_>, length: u64) -> Result<(), Errno> {
    if length <= size_of(file)? {
        return Ok(());
    }
    let Some(last) = ByteRange::from_bounds(length - 1, length) else { return Ok(()) };
    allocate(file, last)
}

fn copy_by_hand(source: BorrowedFd<'_>, target: BorrowedFd<'_>, stretch: Stretch) -> Result<u64, Errno> {
    let length = stretch.length.min(COPY_BYTES_MAX);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    while done < length {
        // At most the buffer's length, so it fits.
        let wanted = (length - done).min(BUFFER_BYTES as u64) as usize;
        let mut read = retry_on_intr(|| pread(source, &mut buffer[..wanted], stretch.from + done))?;
        if read == 0 {
            buffer[..wanted].fill(0);
            read = wanted;
        }
        write_all(target, &buffer[..read], stretch.to + done)?;
        done += read as u64;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    const BLOCK: u64 = 64 << 10;

    fn file(writes: &[(u64, &[u8])], size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        for (offset, data) in writes {
            file.write_all_at(data, *offset).unwrap();
        }
        file.set_len(size).unwrap();
        file
    }

    fn content(file: &File) -> Vec<u8> {
        let mut data = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut data, 0).unwrap();
        data
    }

    fn copy_all(source: &File, target: &File, mut stretch: Stretch) -> Vec<u64> {
        let mut steps = Vec::new();
        while stretch.length > 0 {
            let step = copy(source.as_fd(), target.as_fd(), stretch).unwrap();
            assert!(step > 0 && step <= stretch.length);
            steps.push(step);
            stretch = stretch.behind(step);
        }
        steps
    }

    #[test]
    fn a_hole_that_is_copied_behind_the_end_of_the_target_makes_it_longer() {
        let (source, target) = (file(&[], 2 * BLOCK), file(&[(0, &[7; 1000])], 1000));
        copy_all(&source, &target, Stretch { from: 0, to: 6_000_000, length: 100_000 });
        let about = target.metadata().unwrap();
        assert_eq!(about.len(), 6_100_000);
        assert!(about.blocks() * 512 < BLOCK, "what lies between is a hole");
        let data = content(&target);
        assert!(data[..1000].iter().all(|byte| *byte == 7) && data[1000..].iter().all(|byte| *byte == 0));
        // Also where the source has ended.
        copy_all(&source, &target, Stretch { from: 5 * BLOCK, to: 7_000_000, length: 10 });
        assert_eq!(target.metadata().unwrap().len(), 7_000_010);
        extend(target.as_fd(), 5).unwrap();
        assert_eq!(target.metadata().unwrap().len(), 7_000_010);
    }

    #[test]
    fn an_allocated_range_has_blocks_and_a_deallocated_range_has_none() {
        let file = file(&[], 0);
        let range = |offset, length| ByteRange::new(offset, length).unwrap();
        allocate(file.as_fd(), range(BLOCK, BLOCK)).unwrap();
        let after = file.metadata().unwrap();
        assert!(after.len() == 2 * BLOCK && after.blocks() * 512 >= BLOCK);
        file.write_all_at(&[7; 4 * BLOCK as usize], 0).unwrap();
        deallocate(file.as_fd(), range(BLOCK, 2 * BLOCK)).unwrap();
        deallocate(file.as_fd(), range(4 * BLOCK, u64::MAX)).unwrap();
        let data = content(&file);
        assert_eq!(data.len() as u64, 4 * BLOCK);
        assert!(data.iter().enumerate().all(|(at, byte)| {
            let is_freed = (BLOCK..3 * BLOCK).contains(&(at as u64));
            *byte == if is_freed { 0 } else { 7 }
        }));
        assert_eq!(allocate(file.as_fd(), range(OFFSET_MAX, 1)), Err(Errno::FBIG));
        deallocate(file.as_fd(), range(OFFSET_MAX + 5, 1)).unwrap();
    }

    #[test]
    fn data_and_holes_are_found_and_behind_the_end_is_a_hole() {
        let file = file(&[(2 * BLOCK, &[7; BLOCK as usize])], 4 * BLOCK);
        let find = |offset, kind| seek(file.as_fd(), offset, kind).unwrap();
        assert_eq!(find(0, RangeKind::Data), Some(2 * BLOCK));
        assert_eq!(find(2 * BLOCK + 5, RangeKind::Data), Some(2 * BLOCK + 5));
        assert_eq!(find(3 * BLOCK, RangeKind::Data), None);
        assert_eq!(find(5, RangeKind::Hole), Some(5));
        assert_eq!(find(2 * BLOCK, RangeKind::Hole), Some(3 * BLOCK));
        for offset in [4 * BLOCK, u64::MAX] {
            assert_eq!(find(offset, RangeKind::Hole), Some(offset));
            assert_eq!(find(offset, RangeKind::Data), None);
        }
    }

    #[test]
    fn a_copy_keeps_holes_and_clears_what_was_there() {
        let source = file(&[(2 * BLOCK, &[7; BLOCK as usize])], 4 * BLOCK);
        let target = file(&[(0, &[9; 5 * BLOCK as usize])], 5 * BLOCK);
        let stretch = Stretch { from: BLOCK, to: BLOCK / 2, length: 4 * BLOCK };
        let steps = copy_all(&source, &target, stretch);
        assert!(steps.len() >= 3, "{steps:?}");
        let expected: Vec<u8> = (0..5 * BLOCK)
            .map(|at| match at {
                _ if !(BLOCK / 2..BLOCK / 2 + 4 * BLOCK).contains(&at) => 9,
                _ if (BLOCK..2 * BLOCK).contains(&(at - BLOCK / 2)) => 7,
                _ => 0,
            })
            .collect();
        assert!(content(&target) == expected);
        let sparse = file(&[], 0);
        copy_all(&source, &sparse, Stretch { from: 0, to: 0, length: 4 * BLOCK });
        let after = sparse.metadata().unwrap();
        assert_eq!(after.len(), 4 * BLOCK, "a hole at the end makes it longer");
        assert!(after.blocks() * 512 < 2 * BLOCK);
    }

    #[test]
    fn one_call_copies_a_bounded_piece_and_a_hole_of_any_length() {
        let large = file(&[(1 << 40, &vec![7; COPY_BYTES_MAX as usize + 5])], (1 << 40) + COPY_BYTES_MAX + 5);
        let target = file(&[], 0);
        let whole = Stretch { from: 0, to: 0, length: (1 << 40) + COPY_BYTES_MAX + 5 };
        assert_eq!(copy(large.as_fd(), target.as_fd(), whole), Ok(1 << 40));
        target.set_len(0).unwrap();
        let rest = Stretch { from: 1 << 40, to: 0, length: COPY_BYTES_MAX + 5 };
        assert!(copy(large.as_fd(), target.as_fd(), rest).unwrap() <= COPY_BYTES_MAX);
        let by_hand = copy_by_hand(large.as_fd(), target.as_fd(), rest).unwrap();
        assert_eq!(by_hand, COPY_BYTES_MAX);
        assert!(content(&target) == vec![7; COPY_BYTES_MAX as usize]);
    }

    #[test]
    fn by_hand_there_are_zeros_behind_the_end_of_the_source() {
        let (source, target) = (file(&[(0, b"abc")], 3), file(&[(0, b"123456")], 6));
        let stretch = Stretch { from: 1, to: 1, length: 4 };
        assert_eq!(copy_by_hand(source.as_fd(), target.as_fd(), stretch), Ok(4));
        assert_eq!(content(&target), b"1bc\0\x006");
    }

    /// Clones if the file system of temporary files shares blocks; otherwise the clone is refused.
    #[test]
    fn a_clone_is_the_same_bytes_or_refused() {
        let source = file(&[(0, &[7; BLOCK as usize])], BLOCK);
        let target = file(&[(0, &[9; 3 * BLOCK as usize])], 3 * BLOCK);
        match clone(source.as_fd(), target.as_fd(), Stretch { from: 0, to: BLOCK, length: BLOCK }) {
            Ok(true) => {
                assert!(content(&target)[BLOCK as usize..2 * BLOCK as usize] == [7; BLOCK as usize]);
                let odd = Stretch { from: 1, to: BLOCK, length: 5 };
                assert_eq!(clone(source.as_fd(), target.as_fd(), odd), Ok(false));
            }
            refused => assert_eq!(refused, Err(Errno::OPNOTSUPP)),
        }
    }

    #[test]
    fn advice_is_taken_for_any_range() {
        let file = file(&[(0, &[7; BLOCK as usize])], BLOCK);
        for advice in [Advice::WillNeed, Advice::DontNeed] {
            for range in [ByteRange::ALL, ByteRange::new(5, 7).unwrap(), ByteRange::new(1 << 63, 5).unwrap()]
            {
                assert_eq!(advise(file.as_fd(), range, advice), Ok(()));
            }
        }
    }
}
