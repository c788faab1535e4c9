//! One file that is read and written in all ways, each with what the file system has.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned::AlignedBuffers;
use forebay_io_engine::Ran;
use forebay_io_engine::capabilities::Capabilities;
use forebay_io_engine::direct::{DirectFile, DirectIo};
use forebay_io_engine::reopen::reopen_direct;
use forebay_io_engine::uncached::{UncachedIo, WritePace};
use forebay_io_engine::write::write_all;
use rustix::param::page_size;

/// Where the tests run: the file system of the build, and tmpfs if it is there.
pub fn directories() -> Vec<PathBuf> {
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { vec![built, memory] } else { vec![built] }
}

pub fn capabilities(directory: &Path) -> Capabilities {
    Capabilities::probe(File::open(directory).unwrap().as_fd()).unwrap()
}

pub struct Ways {
    pub file: File,
    direct: Option<(OwnedFd, DirectIo)>,
    uncached: UncachedIo,
    pace: WritePace,
    /// Requests by the way that they took: buffered, uncached, direct.
    ran: [AtomicU64; 3],
}

impl Ways {
    pub fn new(directory: &Path, capabilities: Capabilities) -> Ways {
        let file = tempfile::tempfile_in(directory).unwrap();
        let buffers = AlignedBuffers::new(4096, 8 << 20);
        let direct = capabilities.direct.map(|alignment| {
            let direct = reopen_direct(file.as_fd()).unwrap().unwrap();
            (direct, DirectIo::new(alignment, Arc::clone(&buffers)))
        });
        let uncached = UncachedIo::new(buffers, 128 << 10, capabilities.uncached);
        Ways { file, direct, uncached, pace: WritePace::default(), ran: Default::default() }
    }

    pub fn ran(&self) -> [u64; 3] {
        [Ran::Buffered, Ran::Uncached, Ran::Direct].map(|ran| self.ran[ran as usize].load(Ordering::Relaxed))
    }

    fn count(&self, ran: Ran) {
        self.ran[ran as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn write(&self, way: Ran, data: &[u8], offset: u64) {
        let ran = match (way, &self.direct) {
            (Ran::Direct, Some((direct, io))) => {
                let file = DirectFile { buffered: self.file.as_fd(), direct: direct.as_fd() };
                let ran = io.write(file, data, offset).unwrap();
                // Falling back would hide a mistake in the alignment.
                assert_eq!(
                    ran == Ran::Direct,
                    has_whole_page(data, offset),
                    "{} bytes at {offset}",
                    data.len()
                );
                ran
            }
            (Ran::Uncached, _) => {
                self.uncached.write(self.file.as_fd(), None, &self.pace, data, offset).unwrap()
            }
            _ => write_all(self.file.as_fd(), data, offset).map(|()| Ran::Buffered).unwrap(),
        };
        self.count(ran);
    }

    /// The bytes, and whether they reach the end of the file.
    pub fn read(&self, way: Ran, offset: u64, length: u32) -> (Vec<u8>, bool) {
        let (read, ran) = match (way, &self.direct) {
            (Ran::Direct, Some((direct, io))) => {
                let file = DirectFile { buffered: self.file.as_fd(), direct: direct.as_fd() };
                let (read, ran) = io.read(file, offset, length).unwrap();
                assert_eq!(ran, Ran::Direct, "{length} bytes at {offset}");
                (read, ran)
            }
            (Ran::Uncached, _) => self.uncached.read(self.file.as_fd(), offset, length).unwrap(),
            _ => {
                let file = self.file.as_fd();
                let mut bytes = vec![0; length as usize];
                let mut filled = 0;
                while filled < bytes.len() {
                    match rustix::io::pread(file, &mut bytes[filled..], offset + filled as u64).unwrap() {
                        0 => break,
                        read => filled += read,
                    }
                }
                bytes.truncate(filled);
                let end_of_file = offset + u64::from(length) >= self.file.metadata().unwrap().len();
                (api::ReadData { data: bytes.into(), end_of_file }, Ran::Buffered)
            }
        };
        self.count(ran);
        (read.data.to_vec(), read.end_of_file)
    }
}

fn has_whole_page(data: &[u8], offset: u64) -> bool {
    let page = page_size() as u64;
    offset.next_multiple_of(page) + page <= offset + data.len() as u64
}
