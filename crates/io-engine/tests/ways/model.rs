//! Reads, writes, cuts and holes in any order and any mixture of ways give what an array of bytes gives.

use std::os::fd::AsFd;
use std::path::Path;

use aligned::{AlignedBuffer, AlignedBuffers};
use forebay_io_engine::capabilities::Capabilities;
use forebay_io_engine::{Ran, range};
use proptest::prelude::*;
use rustix::fs::{Advice, fadvise};
use types::ByteRange;

use crate::file::{Ways, capabilities, directories};
use crate::steps::{Random, SIZE_MAX, Step};

struct Model {
    ways: Ways,
    expected: Vec<u8>,
    source: AlignedBuffer,
    /// The file system has blocks to reserve and to free.
    has_blocks: bool,
}

impl Model {
    fn new(directory: &Path, capabilities: Capabilities) -> Model {
        let ways = Ways::new(directory, capabilities);
        let whole = ByteRange::new(0, 4096).unwrap();
        let has_blocks = range::allocate(ways.file.as_fd(), whole).is_ok()
            && range::deallocate(ways.file.as_fd(), whole).is_ok();
        ways.file.set_len(0).unwrap();
        let source = AlignedBuffers::new(4096, 0).take(SIZE_MAX as usize + 4096);
        Model { ways, expected: Vec::new(), source, has_blocks }
    }

    fn reach(&mut self, end: u64) {
        let size = self.expected.len().max(end as usize);
        self.expected.resize(size, 0);
    }

    fn run(&mut self, step: Step) {
        let file = &self.ways.file;
        match step {
            Step::Write { way, offset, length, stamp, memory_offset } => {
                let data = &mut self.source.bytes_mut()[memory_offset..memory_offset + length];
                for (byte, at) in data.iter_mut().zip(offset..) {
                    *byte = stamp.wrapping_add((at % 253) as u8);
                }
                self.ways.write(way, &self.source.bytes()[memory_offset..memory_offset + length], offset);
                self.reach(offset + length as u64);
                let data = &self.source.bytes()[memory_offset..memory_offset + length];
                self.expected[offset as usize..offset as usize + length].copy_from_slice(data);
            }
            Step::Read { way, offset, length } => self.check(way, offset, length),
            Step::Truncate(size) => {
                file.set_len(size).unwrap();
                self.expected.resize(size as usize, 0);
            }
            Step::Allocate { offset, end } if self.has_blocks => {
                range::allocate(file.as_fd(), ByteRange::from_bounds(offset, end).unwrap()).unwrap();
                self.reach(end);
            }
            Step::Deallocate { offset, end } if self.has_blocks => {
                range::deallocate(file.as_fd(), ByteRange::from_bounds(offset, end).unwrap()).unwrap();
                let end = self.expected.len().min(end as usize);
                self.expected.get_mut(offset as usize..end).unwrap_or_default().fill(0);
            }
            Step::Allocate { .. } | Step::Deallocate { .. } => {}
            Step::Sync => file.sync_data().unwrap(),
            Step::Drop => fadvise(file, 0, None, Advice::DontNeed).unwrap(),
        }
        assert_eq!(self.ways.file.metadata().unwrap().len(), self.expected.len() as u64);
    }

    fn check(&self, way: Ran, offset: u64, length: u32) {
        let size = self.expected.len();
        let from = size.min(offset as usize);
        let to = size.min((offset + u64::from(length)) as usize);
        let (read, end_of_file) = self.ways.read(way, offset, length);
        assert_eq!(read.len(), to - from);
        assert_eq!(end_of_file, offset + u64::from(length) >= size as u64);
        let wrong = read.iter().zip(&self.expected[from..to]).position(|(read, expected)| read != expected);
        assert_eq!(wrong, None, "first wrong byte of {way:?} {offset}+{length}");
    }

    fn check_all(&self) {
        for way in [Ran::Direct, Ran::Uncached, Ran::Buffered] {
            self.check(way, 0, SIZE_MAX as u32 + 1);
        }
        self.ways.file.sync_data().unwrap();
    }
}

fn runs_as_the_model(directory: &Path, capabilities: Capabilities, words: &[[u64; 3]]) {
    let mut model = Model::new(directory, capabilities);
    for words in words {
        model.run(Step::of(*words));
    }
    model.check_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_any_ways_gives_the_bytes_of_the_model(
        words in proptest::collection::vec(any::<[u64; 3]>(), 1..60),
    ) {
        for directory in directories() {
            runs_as_the_model(&directory, capabilities(&directory), &words);
        }
    }

    #[test]
    fn without_capabilities_every_request_is_buffered_and_right(
        words in proptest::collection::vec(any::<[u64; 3]>(), 1..60),
    ) {
        for directory in directories() {
            runs_as_the_model(&directory, Capabilities::NONE, &words);
        }
    }
}

fn long_run(directory: &Path, steps: u64, seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let mut model = Model::new(directory, capabilities(directory));
    for at in 0..steps {
        model.run(Step::of([random.next(), random.next(), random.next()]));
        if at % 10_000 == 0 {
            model.check_all();
        }
    }
    model.check_all();
    model.ways.ran()
}

#[test]
fn a_run_takes_every_way_that_the_file_system_has() {
    for directory in directories() {
        let found = capabilities(&directory);
        let [buffered, uncached, direct] = long_run(&directory, 500, 7);
        assert!(buffered > 0);
        assert_eq!((uncached > 0, direct > 0), (found.uncached, found.direct.is_some()), "{found:?}");
    }
}

#[test]
#[ignore = "a million operations take minutes"]
fn a_million_operations_give_the_bytes_of_the_model() {
    for directory in directories() {
        let ran = long_run(&directory, 1_000_000, 20_260_101);
        println!("{}: buffered, uncached, direct: {ran:?}", directory.display());
    }
}
