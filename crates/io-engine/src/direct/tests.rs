//! Direct requests on one file of the temporary directory, where it has direct I/O.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::*;
use crate::capabilities::Capabilities;
use crate::reopen::reopen_direct;

struct Bench {
    file: File,
    direct: OwnedFd,
    io: DirectIo,
}

impl Bench {
    /// `None` where there is no direct I/O.
    fn new() -> Option<Bench> {
        let directory = File::open(std::env::temp_dir()).unwrap();
        let alignment = Capabilities::probe(directory.as_fd()).unwrap().direct;
        let file = tempfile::tempfile().unwrap();
        let opened = alignment.zip(reopen_direct(file.as_fd()).unwrap());
        if opened.is_none() {
            println!("skipped: no direct I/O here");
        }
        let (alignment, direct) = opened?;
        Some(Bench { file, direct, io: DirectIo::new(alignment, AlignedBuffers::new(4096, 8 << 20)) })
    }

    fn pair(&self) -> DirectFile<'_> {
        DirectFile { buffered: self.file.as_fd(), direct: self.direct.as_fd() }
    }

    fn read(&self, offset: u64, length: u32) -> (Vec<u8>, bool) {
        let (read, ran) = self.io.read(self.pair(), offset, length).unwrap();
        assert_eq!(ran, Ran::Direct);
        (read.data.to_vec(), read.end_of_file)
    }

    /// As a file system that has O_DIRECT and refuses it for this file: the descriptor does not take requests that the
    /// blocks of `io` are too small for.
    fn refusing(mut self) -> Bench {
        self.io.memory_bytes = 1;
        self.io.read_block_bytes = 1;
        self.io.write_block_bytes = 1;
        self
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn the_end_of_file_is_told_exactly() {
    let Some(bench) = Bench::new() else { return };
    bench.file.write_all_at(b"0123456789", 0).unwrap();
    assert_eq!(bench.read(0, 9), (b"012345678".to_vec(), false));
    assert_eq!(bench.read(0, 10), (b"0123456789".to_vec(), true));
    assert_eq!(bench.read(8, 100), (b"89".to_vec(), true));
    assert_eq!(bench.read(10, 1), (Vec::new(), true));
    assert_eq!(bench.read(u64::MAX, u32::MAX), (Vec::new(), true));
    assert_eq!(bench.read(3, 0), (Vec::new(), false));
}

#[test]
fn reads_around_blocks_give_the_bytes_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let content = pattern(3 * 4096 + 100);
    bench.file.write_all_at(&content, 0).unwrap();
    for offset in [0, 1, 511, 512, 513, 4095, 4096, 8191, 12_287, 12_288, 12_387] {
        for length in [1, 511, 512, 513, 4096, 4097, 8192, 20_000] {
            let end = (offset + length).min(content.len());
            let expected = (content[offset..end].to_vec(), end == content.len());
            assert!(bench.read(offset as u64, length as u32) == expected, "{offset} {length}");
        }
    }
}

#[test]
fn an_unaligned_write_changes_its_own_bytes_and_the_size_only() {
    let Some(bench) = Bench::new() else { return };
    let content = pattern(40_000);
    for (offset, length, ran) in [
        (0, 4096, Ran::Direct),
        (0, 8193, Ran::Direct),
        (1, 4096, Ran::Buffered),
        (4095, 4097, Ran::Direct),
        (100, 20_000, Ran::Direct),
        (30_000, 4000, Ran::Buffered),
        (19_000, 40_000, Ran::Direct),
    ] {
        for from in [0, 1] {
            bench.file.set_len(0).unwrap();
            bench.file.write_all_at(&content[..30_000], 0).unwrap();
            let mut expected = content[..30_000].to_vec();
            expected.resize(expected.len().max(offset + length), 0);
            // One of two neighbouring addresses is not aligned.
            let source: Vec<u8> = pattern(length + 1).iter().map(|byte| !byte).collect();
            let data = &source[from..from + length];
            expected[offset..offset + length].copy_from_slice(data);
            assert_eq!(bench.io.write(bench.pair(), data, offset as u64), Ok(ran), "{offset} {length}");
            assert_eq!(bench.file.metadata().unwrap().len() as usize, expected.len());
            assert!(std::mem::take(&mut bench.read(0, 1 << 20).0) == expected, "{offset} {length}");
            let mut buffered = vec![0; expected.len()];
            bench.file.read_exact_at(&mut buffered, 0).unwrap();
            assert!(buffered == expected, "{offset} {length}");
        }
    }
}

#[test]
fn a_direct_write_goes_over_dirty_pages_and_a_direct_read_sees_them() {
    let Some(bench) = Bench::new() else { return };
    bench.file.write_all_at(&[1; 64 << 10], 0).unwrap();
    assert!(bench.read(0, 64 << 10).0 == [1; 64 << 10]);
    bench.file.write_all_at(&[2; 64 << 10], 0).unwrap();
    bench.io.write(bench.pair(), &[3; 8192], 4096).unwrap();
    let mut buffered = [0; 16 << 10];
    bench.file.read_exact_at(&mut buffered, 0).unwrap();
    assert!(buffered[..4096] == [2; 4096] && buffered[4096..12_288] == [3; 8192]);
    bench.file.write_all_at(&[4; 100], 5000).unwrap();
    assert!(bench.read(5000, 101).0 == [&[4; 100][..], &[3]].concat());
}

#[test]
fn a_write_with_whole_blocks_leaves_the_edges_in_memory_only() {
    let Some(bench) = Bench::new() else { return };
    bench.io.write(bench.pair(), &pattern(64 << 10), 1000).unwrap();
    let Ok(counts) = splice::cachestat(bench.file.as_fd(), 0, 0) else { return };
    assert_eq!(counts.cached, 2, "the first page and the last one");
}

#[test]
fn aligned_memory_is_written_without_a_copy() {
    let Some(bench) = Bench::new() else { return };
    let mut source = AlignedBuffers::new(4096, 0).take(2 << 20);
    source.bytes_mut().fill(9);
    bench.io.write(bench.pair(), source.bytes(), 0).unwrap();
    assert_eq!(bench.io.buffers.kept_bytes(), 0, "no buffer was taken");
    bench.io.write(bench.pair(), &source.bytes()[1..], 0).unwrap();
    assert!(bench.io.buffers.kept_bytes() > 0);
    assert!(bench.read(1 << 20, 4 << 20).0 == vec![9; 1 << 20]);
}

#[test]
fn a_refused_request_is_done_through_the_page_cache() {
    let Some(bench) = Bench::new().map(Bench::refusing) else { return };
    let content = pattern(10_000);
    assert_eq!(bench.io.write(bench.pair(), &content, 7), Ok(Ran::Buffered));
    let (read, ran) = bench.io.read(bench.pair(), 7, 20_000).unwrap();
    assert_eq!((ran, read.end_of_file), (Ran::Buffered, true));
    assert!(read.data[..] == content[..]);
}

#[test]
fn a_write_past_the_largest_offset_is_too_large() {
    let Some(bench) = Bench::new() else { return };
    for offset in [OFFSET_MAX, u64::MAX - 1, u64::MAX] {
        assert_eq!(bench.io.write(bench.pair(), b"ab", offset), Err(Errno::FBIG));
    }
}

#[test]
fn a_file_that_shrinks_under_a_read_ends_where_it_ends() {
    let Some(bench) = Bench::new() else { return };
    bench.file.write_all_at(&pattern(5000), 0).unwrap();
    let wanted = Wanted::of(bench.file.as_fd(), 600, 4000).unwrap().unwrap();
    let answer = wanted.answer(bytes::Bytes::from_static(b"abc"), 600);
    assert!(answer.end_of_file, "fewer bytes came than the file had");
}
