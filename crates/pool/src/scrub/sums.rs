//! The block sums of a replica: CRC-32C of each block of 64 KiB, in a file below `sums/`. Behind them, digests of the whole.
//!
//! The file is a header and segments, numbers big-endian. The header has magic, version, algorithm, block size, the stamp,
//! the generation, the number of segments and its own sum. A segment has its first block, the number of blocks, a sum for
//! each, and its own sum, which covers the stamp too. Blocks in holes of the replica are in no segment: they are zeros. So a
//! file of sums is never longer than the data on the disk asks for. In version 2, digests follow: their number, each with its
//! kind and 32 bytes, and a sum that covers the stamp too.
//!
//! Sums are derived data and are not synced. A file that is damaged, half-written or of another version counts as none.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use api::Birth;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use types::{Checksum, ChecksumKind, FileId};

use crate::layout::{ReplicaPlace, SUMS};

pub const BLOCK_BYTES: u64 = 64 << 10;
const MAGIC: &[u8; 8] = b"FBYSUMS\n";
const VERSION: u32 = 1;
const VERSION_WITH_DIGESTS: u32 = 2;
const CRC_32C: u32 = 1;
const STAMP_BYTES: usize = 32;
const HEADER_BYTES: usize = 8 + 12 + STAMP_BYTES + 16 + 4;
/// Sums of 1 GiB: the memory for one segment is bounded.
const SEGMENT_BLOCKS_MAX: u32 = 16 << 10;
const DIGEST_BYTES: usize = 4 + 32;

/// The state of a replica that its sums are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub file: FileId,
    pub birth: Birth,
    pub length: u64,
    pub modified_s: i64,
    pub modified_ns: u32,
}

impl Stamp {
    pub fn of(file: FileId, birth: Birth, stat: &Stat) -> Stamp {
        Stamp {
            file,
            birth,
            length: stat.st_size.cast_unsigned(),
            modified_s: stat.st_mtime,
            modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        }
    }

    /// A birth that is not known agrees with any.
    pub fn is_of(&self, other: &Stamp) -> bool {
        self.birth.agrees_with(other.birth) && Stamp { birth: other.birth, ..*self } == *other
    }

    fn encode(&self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.file.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.birth.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.length.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.modified_s.to_be_bytes());
        bytes[28..].copy_from_slice(&self.modified_ns.to_be_bytes());
        bytes
    }
}

/// Why sums cannot be used: as if there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub first: u64,
    pub sums: Vec<u32>,
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.first + self.sums.len() as u64
    }
}

pub fn sum(bytes: &[u8]) -> u32 {
    // The sum of 32 bits in the lower half.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Sums that are read, segment by segment.
pub struct Sums {
    pub stamp: Stamp,
    pub generation: u64,
    /// Of the whole replica. Known when all segments are read.
    pub digests: Vec<Checksum>,
    file: BufReader<File>,
    has_digests: bool,
    segments_left: u64,
    next_block: u64,
}

impl Sums {
    /// `None`: there are none that can be used.
    pub fn open(root: BorrowedFd<'_>, file: FileId) -> Option<Sums> {
        let [.., path] = ReplicaPlace::of(file).sums_paths();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut opened = BufReader::new(File::from(openat(root, path, flags, Mode::empty()).ok()?));
        let mut header = [0; HEADER_BYTES];
        opened.read_exact(&mut header).ok()?;
        let Header { stamp, generation, segments, has_digests } = Header::decode(&header)?;
        let digests = Vec::new();
        Some(Sums {
            stamp,
            generation,
            digests,
            file: opened,
            has_digests,
            segments_left: segments,
            next_block: 0,
        })
    }

    /// In ascending order. `None`: there are no more.
    pub fn next_segment(&mut self) -> Result<Option<Segment>, Unusable> {
        if self.segments_left == 0 {
            if std::mem::take(&mut self.has_digests) {
                self.read_digests()?;
            }
            let is_at_end = self.file.read(&mut [0]).map_err(|_| Unusable)? == 0;
            return if is_at_end { Ok(None) } else { Err(Unusable) };
        }
        let mut head = [0; 12];
        self.file.read_exact(&mut head).map_err(|_| Unusable)?;
        let (first, count) = (number(&head, 0), number_32(&head, 8));
        let blocks = self.stamp.length.div_ceil(BLOCK_BYTES);
        let is_plausible = count > 0
            && count <= SEGMENT_BLOCKS_MAX
            && first >= self.next_block
            && first.checked_add(u64::from(count)).is_some_and(|end| end <= blocks);
        if !is_plausible {
            return Err(Unusable);
        }
        let mut body = vec![0; count as usize * 4 + 4];
        self.file.read_exact(&mut body).map_err(|_| Unusable)?;
        let (body, own) = body.split_at(count as usize * 4);
        if number_32(own, 0) != part_sum(&self.stamp, &head, body) {
            return Err(Unusable);
        }
        let sums = body.chunks_exact(4).map(|sum| number_32(sum, 0)).collect();
        self.segments_left -= 1;
        self.next_block = first + u64::from(count);
        Ok(Some(Segment { first, sums }))
    }

    fn read_digests(&mut self) -> Result<(), Unusable> {
        let mut count = [0; 4];
        self.file.read_exact(&mut count).map_err(|_| Unusable)?;
        let digests = number_32(&count, 0) as usize;
        if digests > ChecksumKind::ALL.len() {
            return Err(Unusable);
        }
        let mut body = vec![0; digests * DIGEST_BYTES + 4];
        self.file.read_exact(&mut body).map_err(|_| Unusable)?;
        let (body, own) = body.split_at(digests * DIGEST_BYTES);
        if number_32(own, 0) != part_sum(&self.stamp, &count, body) {
            return Err(Unusable);
        }
        self.digests =
            body.chunks_exact(DIGEST_BYTES).map(decode_digest).collect::<Option<_>>().ok_or(Unusable)?;
        Ok(())
    }

    /// Replaces the digests. All else stays as it is on the disk.
    pub fn set_digests(&self, root: BorrowedFd<'_>, digests: &[Checksum]) -> io::Result<()> {
        let unusable = |_: Unusable| io::Error::other("block sums cannot be read");
        let mut stored = Sums::open(root, self.stamp.file).ok_or(Unusable).map_err(unusable)?;
        let mut new = NewSums::create(root, stored.stamp)?;
        while let Some(segment) = stored.next_segment().map_err(unusable)? {
            (segment.first..).zip(&segment.sums).try_for_each(|(block, sum)| new.push(block, *sum))?;
        }
        new.finish(stored.generation, digests)
    }

    /// All of them were found right: they are of this generation now. In one sector, so that a crash leaves one or the other.
    pub fn confirm(&self, root: BorrowedFd<'_>, generation: u64) -> io::Result<()> {
        let [.., path] = ReplicaPlace::of(self.stamp.file).sums_paths();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(root, path, flags, Mode::empty())?);
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        match Header::decode(&header) {
            Some(header) if header.stamp == self.stamp => {
                file.write_all_at(&Header { generation, ..header }.encode(), 0)
            }
            _ => Ok(()),
        }
    }
}

/// Sums that are made. They have their name when they are complete.
pub struct NewSums<'a> {
    root: BorrowedFd<'a>,
    stamp: Stamp,
    file: BufWriter<File>,
    segment: Segment,
    segments: u64,
    is_named: bool,
}

impl<'a> NewSums<'a> {
    pub fn create(root: BorrowedFd<'a>, stamp: Stamp) -> io::Result<NewSums<'a>> {
        let [outer, inner, path] = ReplicaPlace::of(stamp.file).sums_paths();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || openat(root, unfinished(&path), flags, Mode::RUSR | Mode::WUSR);
        let opened = match open() {
            Err(Errno::NOENT) => {
                for directory in [SUMS, &outer, &inner] {
                    match mkdirat(root, directory, Mode::RWXU) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                open()?
            }
            opened => opened?,
        };
        let mut file = BufWriter::new(File::from(opened));
        file.write_all(&[0; HEADER_BYTES])?;
        Ok(NewSums { root, stamp, file, segment: Segment::default(), segments: 0, is_named: false })
    }

    /// Blocks come in ascending order; those that are left out are zeros.
    pub fn push(&mut self, block: u64, sum: u32) -> io::Result<()> {
        let is_full = self.segment.sums.len() >= SEGMENT_BLOCKS_MAX as usize;
        if is_full || block != self.segment.end() {
            self.flush_segment()?;
            self.segment.first = block;
        }
        self.segment.sums.push(sum);
        Ok(())
    }

    fn flush_segment(&mut self) -> io::Result<()> {
        let Segment { first, sums } = std::mem::take(&mut self.segment);
        if sums.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(sums.len()).expect("a segment is bounded");
        let mut head = [0; 12];
        head[..8].copy_from_slice(&first.to_be_bytes());
        head[8..].copy_from_slice(&count.to_be_bytes());
        let body: Vec<u8> = sums.iter().flat_map(|sum| sum.to_be_bytes()).collect();
        self.segments += 1;
        self.file.write_all(&head)?;
        self.file.write_all(&body)?;
        self.file.write_all(&part_sum(&self.stamp, &head, &body).to_be_bytes())
    }

    /// `digests`: of the whole replica, each kind once.
    pub fn finish(mut self, generation: u64, digests: &[Checksum]) -> io::Result<()> {
        self.flush_segment()?;
        let (stamp, segments, has_digests) = (self.stamp, self.segments, !digests.is_empty());
        if has_digests {
            let count = u32::try_from(digests.len()).expect("there are four kinds").to_be_bytes();
            let body: Vec<u8> = digests.iter().flat_map(encode_digest).collect();
            self.file.write_all(&count)?;
            self.file.write_all(&body)?;
            self.file.write_all(&part_sum(&stamp, &count, &body).to_be_bytes())?;
        }
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&Header { stamp, generation, segments, has_digests }.encode())?;
        self.file.flush()?;
        let [.., path] = ReplicaPlace::of(self.stamp.file).sums_paths();
        renameat(self.root, unfinished(&path), self.root, &path)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for NewSums<'_> {
    fn drop(&mut self) {
        if !self.is_named {
            let [.., path] = ReplicaPlace::of(self.stamp.file).sums_paths();
            let _ = unlinkat(self.root, unfinished(&path), AtFlags::empty());
        }
    }
}

fn unfinished(path: &str) -> String {
    format!("{path}.new")
}

/// Of a segment or of the digests.
fn part_sum(stamp: &Stamp, head: &[u8], body: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&stamp.encode());
    digest.update(head);
    digest.update(body);
    digest.finalize() as u32
}

fn number_of(kind: ChecksumKind) -> u32 {
    match kind {
        ChecksumKind::Adler32 => 1,
        ChecksumKind::Crc32c => 2,
        ChecksumKind::Md5 => 3,
        ChecksumKind::Sha256 => 4,
    }
}

fn encode_digest(digest: &Checksum) -> [u8; DIGEST_BYTES] {
    let mut bytes = [0; DIGEST_BYTES];
    bytes[..4].copy_from_slice(&number_of(digest.kind()).to_be_bytes());
    bytes[4..4 + digest.value().len()].copy_from_slice(digest.value());
    bytes
}

fn decode_digest(bytes: &[u8]) -> Option<Checksum> {
    let number = number_32(bytes, 0);
    let kind = ChecksumKind::ALL.into_iter().find(|kind| number_of(*kind) == number)?;
    Checksum::new(kind, &bytes[4..4 + kind.value_bytes()])
}

struct Header {
    stamp: Stamp,
    generation: u64,
    segments: u64,
    has_digests: bool,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let version = if self.has_digests { VERSION_WITH_DIGESTS } else { VERSION };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&version.to_be_bytes());
        bytes[12..16].copy_from_slice(&CRC_32C.to_be_bytes());
        bytes[16..20].copy_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
        bytes[20..52].copy_from_slice(&self.stamp.encode());
        bytes[52..60].copy_from_slice(&self.generation.to_be_bytes());
        bytes[60..68].copy_from_slice(&self.segments.to_be_bytes());
        let own = sum(&bytes[..68]);
        bytes[68..].copy_from_slice(&own.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let version = number_32(bytes, 8);
        let is_known = bytes[..8] == *MAGIC
            && matches!(version, VERSION | VERSION_WITH_DIGESTS)
            && number_32(bytes, 12) == CRC_32C
            && u64::from(number_32(bytes, 16)) == BLOCK_BYTES
            && number_32(bytes, 68) == sum(&bytes[..68]);
        let stamp = Stamp {
            file: FileId(number(bytes, 20)),
            birth: Birth(number_32(bytes, 28)),
            length: number(bytes, 32),
            modified_s: number(bytes, 40).cast_signed(),
            modified_ns: number_32(bytes, 48),
        };
        let (generation, segments) = (number(bytes, 52), number(bytes, 60));
        let has_digests = version == VERSION_WITH_DIGESTS;
        is_known.then_some(Header { stamp, generation, segments, has_digests })
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes were cut out"))
}

fn number_32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes were cut out"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    use super::*;

    const FILE: FileId = FileId(0x40);

    fn stamp() -> Stamp {
        Stamp { file: FILE, birth: Birth(7), length: BLOCK_BYTES << 20, modified_s: -3, modified_ns: 9 }
    }

    struct PoolDirectory {
        dir: tempfile::TempDir,
        root: File,
    }

    impl PoolDirectory {
        fn new() -> PoolDirectory {
            let dir = tempfile::tempdir().unwrap();
            let root = File::open(dir.path()).unwrap();
            PoolDirectory { dir, root }
        }

        fn path(&self) -> PathBuf {
            let [.., path] = ReplicaPlace::of(FILE).sums_paths();
            self.dir.path().join(path)
        }

        fn make(&self, blocks: impl Iterator<Item = u64>) {
            self.make_with(blocks, &[]);
        }

        fn make_with(&self, blocks: impl Iterator<Item = u64>, digests: &[Checksum]) {
            let mut new = NewSums::create(self.root.as_fd(), stamp()).unwrap();
            blocks.for_each(|block| new.push(block, block as u32 ^ 0xa5a5).unwrap());
            new.finish(3, digests).unwrap();
        }

        fn digests(&self) -> Vec<Checksum> {
            let mut sums = Sums::open(self.root.as_fd(), FILE).unwrap();
            while sums.next_segment().unwrap().is_some() {}
            sums.digests
        }

        fn read(&self) -> Result<Vec<u64>, Unusable> {
            let mut sums = Sums::open(self.root.as_fd(), FILE).ok_or(Unusable)?;
            assert_eq!((sums.stamp, sums.generation), (stamp(), 3));
            let mut blocks = Vec::new();
            while let Some(segment) = sums.next_segment()? {
                let all = (segment.first..).zip(&segment.sums);
                all.for_each(|(block, sum)| assert_eq!(*sum, block as u32 ^ 0xa5a5));
                blocks.extend(segment.first..segment.end());
            }
            Ok(blocks)
        }
    }

    #[test]
    fn sums_read_back_with_their_holes_and_in_segments() {
        let place = PoolDirectory::new();
        assert_eq!(place.read(), Err(Unusable), "there are none");
        for blocks in [vec![], vec![0], vec![3, 4, 9], (5..5 + 40_000).collect()] {
            place.make(blocks.iter().copied());
            assert_eq!(place.read(), Ok(blocks));
        }
        assert_eq!(std::fs::read_dir(place.path().parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn sums_that_are_not_finished_leave_the_former_ones() {
        let place = PoolDirectory::new();
        place.make(0..3);
        let mut new = NewSums::create(place.root.as_fd(), stamp()).unwrap();
        new.push(0, 1).unwrap();
        assert_eq!(place.read(), Ok(vec![0, 1, 2]));
        drop(new);
        assert_eq!(place.read(), Ok(vec![0, 1, 2]));
        assert_eq!(std::fs::read_dir(place.path().parent().unwrap()).unwrap().count(), 1);
        // As a kill leaves it.
        std::mem::forget(NewSums::create(place.root.as_fd(), stamp()).unwrap());
        assert_eq!(place.read(), Ok(vec![0, 1, 2]));
        place.make(0..5);
        assert_eq!(place.read(), Ok((0..5).collect()));
    }

    fn digests(bytes: &[u8]) -> Vec<Checksum> {
        let mut sums = api::Sums::new(ChecksumKind::ALL);
        sums.update(bytes);
        sums.finish()
    }

    #[test]
    fn digests_read_back_and_can_be_replaced() {
        let (place, all) = (PoolDirectory::new(), digests(b"a"));
        place.make_with(3..9, &all);
        assert_eq!((place.read(), place.digests()), (Ok((3..9).collect()), all.clone()));
        let sums = Sums::open(place.root.as_fd(), FILE).unwrap();
        for digests in [&all[2..], &[], &all[..1]] {
            sums.set_digests(place.root.as_fd(), digests).unwrap();
            assert_eq!((place.read(), place.digests()), (Ok((3..9).collect()), digests.to_vec()));
        }
        sums.confirm(place.root.as_fd(), 3).unwrap();
        assert_eq!(place.digests(), all[..1]);
    }

    #[test]
    fn any_byte_that_changed_and_any_cut_makes_sums_unusable() {
        let place = PoolDirectory::new();
        place.make_with([0, 1, 7].into_iter(), &digests(b"b"));
        let whole = std::fs::read(place.path()).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(place.path(), changed).unwrap();
            assert_eq!(place.read(), Err(Unusable), "byte {at}");
            std::fs::write(place.path(), &whole[..at]).unwrap();
            assert_eq!(place.read(), Err(Unusable), "{at} bytes");
        }
        std::fs::write(place.path(), [&whole[..], b"more"].concat()).unwrap();
        assert_eq!(place.read(), Err(Unusable));
    }

    #[test]
    fn a_segment_of_another_state_of_the_replica_is_not_taken() {
        let place = PoolDirectory::new();
        place.make(0..3);
        let whole = std::fs::read(place.path()).unwrap();
        let stamp = Stamp { modified_ns: 10, ..stamp() };
        let other = Header { stamp, generation: 3, segments: 1, has_digests: false }.encode();
        std::fs::write(place.path(), [&other[..], &whole[HEADER_BYTES..]].concat()).unwrap();
        let mut sums = Sums::open(place.root.as_fd(), FILE).unwrap();
        assert_eq!(sums.next_segment(), Err(Unusable));
    }

    #[test]
    fn confirmed_sums_are_of_the_new_generation_and_else_as_before() {
        let place = PoolDirectory::new();
        place.make(0..3);
        let before = std::fs::read(place.path()).unwrap();
        Sums::open(place.root.as_fd(), FILE).unwrap().confirm(place.root.as_fd(), 8).unwrap();
        assert_eq!(Sums::open(place.root.as_fd(), FILE).unwrap().generation, 8);
        Sums::open(place.root.as_fd(), FILE).unwrap().confirm(place.root.as_fd(), 3).unwrap();
        assert_eq!(std::fs::read(place.path()).unwrap(), before);
    }

    #[test]
    fn a_stamp_is_of_the_same_state_only_and_an_unknown_birth_agrees() {
        let stamp = stamp();
        assert!(stamp.is_of(&stamp));
        assert!(stamp.is_of(&Stamp { birth: Birth::UNKNOWN, ..stamp }));
        for other in [
            Stamp { file: FileId(1), ..stamp },
            Stamp { birth: Birth(8), ..stamp },
            Stamp { length: 1, ..stamp },
            Stamp { modified_s: 3, ..stamp },
            Stamp { modified_ns: 8, ..stamp },
        ] {
            assert!(!stamp.is_of(&other) && !other.is_of(&stamp), "{other:?}");
        }
    }
}
