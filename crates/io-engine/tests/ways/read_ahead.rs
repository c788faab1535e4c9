//! Rates of cold reads with and without read-ahead, for the notes of a change; nothing is asserted.
//! `cargo test --release -p forebay-io-engine --test ways -- --ignored --nocapture read_ahead` prints them, of a file in the
//! directory that `READ_AHEAD_DIR` names, or in that of the build.

use std::fs::File;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use api::{PoolError, ReadData};
use forebay_io_engine::{DataPath, Engine, EngineConfig, FileIo, Readable};
use rustix::fs::{Advice, fadvise};
use types::PoolId;

use crate::file::directories;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 512 * MIB;

#[derive(Clone)]
struct Opened(Arc<(File, FileIo)>);

impl Readable for Opened {
    type KnownBefore = ();

    fn is_loaded(&self, _length: u32) -> bool {
        true
    }

    fn load(&self, _length: u32) -> Result<(), PoolError> {
        Ok(())
    }

    fn known(&self) {}

    fn open(&self) -> Result<Option<BorrowedFd<'_>>, PoolError> {
        Ok(Some(self.0.0.as_fd()))
    }

    fn opened(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }

    fn io(&self) -> &FileIo {
        &self.0.1
    }

    fn agrees(&self, _data: &[u8], _offset: u64) -> bool {
        true
    }

    fn reread(&self, read: ReadData, _offset: u64) -> Result<ReadData, PoolError> {
        Ok(read)
    }

    fn judge(&self, read: ReadData, _offset: u64, (): ()) -> Result<ReadData, PoolError> {
        Ok(read)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Readers, each a list of offsets in the order of its reads.
type Readers = Vec<Vec<u64>>;

fn offsets(from: u64, step: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| from + at * step).collect()
}

/// Name, bytes of a read, readers, and the threads of each reader: each thread takes the next offset of the list.
fn patterns() -> Vec<(&'static str, u64, Readers, usize)> {
    let quarter = FILE_BYTES / 4;
    let interleaved =
        |block| (0..4).map(|at| offsets(at * quarter, block, quarter / block)).collect::<Readers>();
    let in_turn = |block: u64| {
        let turns = quarter / block;
        (0..turns).flat_map(|turn| (0..4).map(move |at| at * quarter + turn * block)).collect::<Vec<u64>>()
    };
    let backward = |block: u64| offsets(0, block, FILE_BYTES / block).into_iter().rev().collect::<Vec<u64>>();
    vec![
        ("strided, 128 KiB of each MiB", 128 * KIB, vec![offsets(0, MIB, FILE_BYTES / MIB)], 1),
        (
            "strided, 16 KiB of each 256 KiB",
            16 * KIB,
            vec![offsets(0, 256 * KIB, FILE_BYTES / (256 * KIB))],
            1,
        ),
        ("backward, 128 KiB", 128 * KIB, vec![backward(128 * KIB)], 1),
        ("4 streams of 128 KiB, a thread each", 128 * KIB, interleaved(128 * KIB), 1),
        ("4 streams of 128 KiB, in turn", 128 * KIB, vec![in_turn(128 * KIB)], 1),
        ("4 streams of 1 MiB, a thread each", MIB, interleaved(MIB), 1),
        ("1 stream of 1 MiB", MIB, vec![offsets(0, MIB, FILE_BYTES / MIB)], 1),
        ("1 stream of 1 MiB, 8 reads at once", MIB, vec![offsets(0, MIB, FILE_BYTES / MIB)], 8),
        ("1 stream of 64 KiB", 64 * KIB, vec![offsets(0, 64 * KIB, FILE_BYTES / (64 * KIB))], 1),
    ]
}

/// Returns the seconds that it took, and the counts of read-ahead.
fn run(file: &File, is_ahead: bool, block: u64, readers: &Readers, threads_each: usize) -> (f64, String) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let config = EngineConfig {
        pool: PoolId(0),
        data_threads: 4,
        sync_threads: 1,
        queue_len_max: 1024,
        buffer_bytes_max: 64 << 20,
    };
    let engine = Engine::start(config, DataPath::buffered());
    // Nothing is read ahead while memory is tight.
    engine.path().set_pressure(!is_ahead, None);
    let opened = Opened(Arc::new((file.try_clone().unwrap(), FileIo::default())));
    let begun = Instant::now();
    thread::scope(|scope| {
        for offsets in readers {
            let left = Arc::new(Mutex::new(offsets.clone().into_iter()));
            for _ in 0..threads_each {
                let (left, engine, opened) = (Arc::clone(&left), &engine, &opened);
                scope.spawn(move || {
                    let next = || left.lock().unwrap().next();
                    while let Some(offset) = next() {
                        wait(engine.read(opened, offset, block as u32)).unwrap();
                    }
                });
            }
        }
    });
    (begun.elapsed().as_secs_f64(), format!("{:?}", engine.path().read_ahead()))
}

#[test]
#[ignore = "it measures"]
fn rates_of_cold_reads() {
    let directory = std::env::var_os("READ_AHEAD_DIR").map_or_else(|| directories().remove(0), PathBuf::from);
    let file = tempfile::tempfile_in(directory).unwrap();
    for at in 0..FILE_BYTES / MIB {
        file.write_all_at(&vec![at as u8; MIB as usize], at * MIB).unwrap();
    }
    file.sync_all().unwrap();
    for (name, block, readers, threads_each) in patterns() {
        let bytes = readers.iter().map(Vec::len).sum::<usize>() as u64 * block;
        // The first run warms the caches below this machine.
        run(&file, false, block, &readers, threads_each);
        let mut rates = [Vec::new(), Vec::new()];
        let mut counts = String::new();
        for round in 0..10 {
            let is_ahead = round % 2 == 1;
            let (seconds, counted) = run(&file, is_ahead, block, &readers, threads_each);
            rates[usize::from(is_ahead)].push(bytes as f64 / seconds / 1e6);
            counts = counted;
        }
        // The best of each: other work on the machine only makes a run slower.
        let [without, with] = rates.map(|rates| rates.into_iter().fold(0.0, f64::max));
        println!("{name}: {without:.0} MB/s without, {with:.0} MB/s with ({:.2}), {counts}", with / without);
    }
}
