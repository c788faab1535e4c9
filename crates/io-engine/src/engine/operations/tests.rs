//! Each path that the engine chooses for a read, a write or a sync.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::*;
use crate::engine::EngineConfig;
use crate::file_io::FileIo;
use crate::sync::SyncGate;

const POOL: PoolId = PoolId(4);
/// Bytes that do not agree with their checksums begin so.
const BAD: &[u8] = b"bad";
const VERIFIER: Verifier = Verifier([7; 8]);

/// A file that notes each step with the thread that it ran in.
#[derive(Clone)]
struct Noted(Arc<State>);

struct State {
    file: Option<File>,
    is_loaded: AtomicBool,
    is_refused: bool,
    gate: SyncGate,
    io: FileIo,
    steps: Mutex<Vec<(&'static str, String)>>,
}

impl Noted {
    fn new(is_loaded: bool, content: Option<&[u8]>, is_refused: bool) -> Noted {
        let file = content.map(|content| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(content, 0).unwrap();
            file
        });
        let is_loaded = AtomicBool::new(is_loaded);
        Noted(Arc::new(State {
            file,
            is_loaded,
            is_refused,
            gate: SyncGate::default(),
            io: FileIo::default(),
            steps: Mutex::default(),
        }))
    }

    fn loaded(content: &[u8]) -> Noted {
        Noted::new(true, Some(content), false)
    }

    fn note(&self, step: &'static str) {
        let thread = std::thread::current();
        let lane = thread.name().and_then(|name| name.strip_prefix("pool-4-")).unwrap_or("caller");
        self.0.steps.lock().push((step, lane.to_owned()));
    }

    fn steps(&self) -> Vec<String> {
        self.0.steps.lock().iter().map(|(step, lane)| format!("{step} {lane}")).collect()
    }
}

impl Readable for Noted {
    type KnownBefore = ();

    fn is_loaded(&self, _length: u32) -> bool {
        self.0.is_loaded.load(Ordering::SeqCst)
    }

    fn load(&self, _length: u32) -> Result<(), PoolError> {
        self.note("load");
        self.0.is_loaded.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn known(&self) {}

    fn open(&self) -> Result<Option<BorrowedFd<'_>>, PoolError> {
        self.note("open");
        if self.0.is_refused {
            Err(PoolError::ReadOnlyTicket)
        } else {
            Ok(self.0.file.as_ref().map(AsFd::as_fd))
        }
    }

    fn opened(&self) -> BorrowedFd<'_> {
        self.0.file.as_ref().unwrap().as_fd()
    }

    fn io(&self) -> &FileIo {
        &self.0.io
    }

    fn agrees(&self, data: &[u8], _offset: u64) -> bool {
        !data.starts_with(BAD)
    }

    fn reread(&self, read: ReadData, _offset: u64) -> Result<ReadData, PoolError> {
        self.note("reread");
        Ok(ReadData { data: Bytes::from_static(b"good"), ..read })
    }

    fn judge(&self, read: ReadData, _offset: u64, (): ()) -> Result<ReadData, PoolError> {
        self.note("judge");
        Ok(read)
    }
}

impl Syncable for Noted {
    fn gate(&self) -> &SyncGate {
        &self.0.gate
    }

    fn sync(&self) -> Result<(), PoolError> {
        self.note("sync");
        Ok(())
    }

    fn verifier(&self) -> Verifier {
        VERIFIER
    }
}

impl Writable for Noted {
    fn write(&self, offset: u64, data: &[u8], stability: Stability) -> Result<(), PoolError> {
        self.note(if stability == Stability::Unstable { "write" } else { "write stable" });
        if self.0.is_refused {
            return Err(PoolError::ReadOnlyTicket);
        }
        crate::write::write_all(self.opened(), data, offset)
            .map_err(|errno| pool_error(POOL, "write data", errno))
    }
}

fn engine(queue_len_max: usize) -> Engine {
    let config =
        EngineConfig { pool: POOL, data_threads: 1, sync_threads: 1, queue_len_max, buffer_bytes_max: 0 };
    Engine::start(config, DataPath::buffered())
}

/// An engine whose queues take nothing more.
fn stopped() -> Engine {
    let engine = engine(4);
    engine.stop();
    engine
}

fn poll<T: Unpin>(handle: &mut IoHandle<T>) -> Poll<Result<T, PoolError>> {
    Pin::new(handle).poll(&mut Context::from_waker(Waker::noop()))
}

fn ended<T: Unpin>(handle: &mut IoHandle<T>) -> Result<T, PoolError> {
    let Poll::Ready(result) = poll(handle) else { panic!("no answer") };
    result
}

fn bytes(read: &ReadData) -> (&[u8], bool) {
    (&read.data, read.end_of_file)
}

#[test]
fn a_read_of_resident_bytes_is_answered_in_the_callers_thread() {
    // The engine is stopped, so no thread could answer.
    let file = Noted::loaded(b"0123456789");
    let engine = stopped();
    let mut handle = engine.read(&file, 2, 3);
    match poll(&mut handle) {
        Poll::Ready(Ok(read)) => {
            assert_eq!(bytes(&read), (&b"234"[..], false));
            assert_eq!(file.steps(), ["open caller", "judge caller"]);
        }
        Poll::Ready(Err(error)) => {
            assert!(matches!(error, PoolError::Busy(POOL)));
            let reason = "only a file system that cannot tell resident pages needs a thread";
            assert!(engine.reader.is_blind_for_test(), "{reason}");
        }
        Poll::Pending => panic!("a stopped engine answers at once"),
    }
}

#[test]
fn a_read_that_needs_the_disk_is_finished_in_the_data_lane() {
    let (engine, file) = (engine(4), Noted::loaded(b"0123456789"));
    engine.reader.blind_for_test();
    let mut handle = engine.read(&file, 8, 100);
    engine.stop();
    assert_eq!(bytes(&ended(&mut handle).unwrap()), (&b"89"[..], true));
    assert_eq!(file.steps(), ["open caller", "judge data"]);
}

#[test]
fn a_strided_stream_finds_its_records_in_memory_and_reads_that_hit_go_on_to_read_ahead() {
    const RECORD: u32 = 64 << 10;
    let engine = engine(64);
    let file = Noted::loaded(&vec![7; 64 << 20]);
    let inner = file.0.file.as_ref().unwrap();
    inner.sync_all().unwrap();
    rustix::fs::fadvise(inner, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let counted =
        |at: u64| splice::cachestat(inner.as_fd(), at << 20, RECORD.into()).map(|pages| pages.cached);
    if counted(40) != Ok(0) {
        println!("skipped: pages are not counted here, or stay in memory");
        return;
    }
    let mut read = |at: u64| {
        let mut handle = engine.read(&file, at << 20, RECORD);
        while poll(&mut handle).is_pending() {
            std::thread::yield_now();
        }
        // Behind the advice, if there was any.
        let mut idle = engine.run(crate::Work::Inspect, || Ok(()));
        while poll(&mut idle).is_pending() {
            std::thread::yield_now();
        }
    };
    (8..40).for_each(&mut read);
    let hits = file.steps().iter().filter(|step| *step == "judge caller").count();
    assert!(hits > 16, "{hits} of 32");
    assert_ne!(counted(40), Ok(0));
    let counts = engine.path().read_ahead();
    assert!(counts.used_bytes >= 24 * u64::from(RECORD), "{counts:?}");
    assert_eq!(counts.dropped_bytes, 0, "reads that hit have their advice followed, too");
    assert_eq!(Arc::strong_count(&file.0), 1, "the file is let go");
}

#[test]
fn reads_that_may_have_been_in_memory_are_not_read_ahead() {
    let engine = engine(64);
    engine.reader.blind_for_test();
    let file = Noted::loaded(&[7; 64 << 10]);
    let mut reads: Vec<_> = (0..16).rev().map(|at| engine.read(&file, at * 4096, 4096)).collect();
    engine.stop();
    assert!(reads.iter_mut().all(|read| ended(read).is_ok()));
    assert_eq!(engine.path().read_ahead().issued_bytes, 0);
}

#[test]
fn a_read_of_a_file_that_is_not_loaded_runs_as_one_job_in_the_data_lane() {
    for is_blind in [false, true] {
        let (engine, file) = (engine(4), Noted::new(false, Some(b"0123456789"), false));
        if is_blind {
            engine.reader.blind_for_test();
        }
        let mut handle = engine.read(&file, 0, 4);
        engine.stop();
        assert_eq!(bytes(&ended(&mut handle).unwrap()), (&b"0123"[..], false));
        assert_eq!(file.steps(), ["load data", "open data", "judge data"]);
    }
}

#[test]
fn a_read_without_a_file_is_empty_and_needs_no_thread() {
    let file = Noted::new(true, None, false);
    let read = ended(&mut stopped().read(&file, 5, 3)).unwrap();
    assert_eq!(bytes(&read), (&b""[..], true));
    assert_eq!(file.steps(), ["open caller", "judge caller"]);
}

#[test]
fn a_refused_read_needs_no_thread() {
    let file = Noted::new(true, Some(b"0"), true);
    let result = ended(&mut stopped().read(&file, 0, 1));
    assert!(matches!(result, Err(PoolError::ReadOnlyTicket)));
}

#[test]
fn an_unstable_write_runs_in_the_data_lane_without_a_sync() {
    let (engine, file) = (engine(4), Noted::loaded(b""));
    let mut handle = engine.write(file.clone(), 1, Bytes::from_static(b"ab"), Stability::Unstable);
    engine.stop();
    assert_eq!(ended(&mut handle).unwrap(), Stability::Unstable);
    assert_eq!(file.steps(), ["write data"]);
    assert_eq!(Arc::strong_count(&file.0), 1, "the file is let go");
}

#[test]
fn a_stable_write_and_its_sync_run_as_one_job_in_the_sync_lane() {
    for stability in [Stability::DataSync, Stability::FileSync] {
        let (engine, file) = (engine(4), Noted::loaded(b""));
        let mut handle = engine.write(file.clone(), 0, Bytes::from_static(b"ab"), stability);
        engine.stop();
        assert_eq!(ended(&mut handle).unwrap(), Stability::FileSync);
        assert_eq!(file.steps(), ["write stable sync", "sync sync"]);
        assert_eq!(Arc::strong_count(&file.0), 1, "the file is let go");
    }
}

#[test]
fn a_write_through_is_answered_twice_from_one_job_in_the_sync_lane() {
    let (engine, file) = (engine(4), Noted::loaded(b""));
    let mut through = engine.write_through(file.clone(), 0, Bytes::from_static(b"ab"));
    engine.stop();
    assert_eq!(ended(&mut through.written).unwrap(), Stability::Unstable);
    assert_eq!(ended(&mut through.synced).unwrap(), Synced { verifier: VERIFIER, keeps_length: false });
    assert_eq!(file.steps(), ["write stable sync", "sync sync"]);
}

#[test]
fn a_write_that_fails_is_not_synced_and_both_answers_say_so() {
    let (engine, file) = (engine(4), Noted::new(true, Some(b""), true));
    let mut through = engine.write_through(file.clone(), 0, Bytes::from_static(b"ab"));
    let mut stable = engine.write(file.clone(), 0, Bytes::from_static(b"ab"), Stability::FileSync);
    engine.stop();
    assert!(matches!(ended(&mut through.written), Err(PoolError::ReadOnlyTicket)));
    assert!(matches!(ended(&mut through.synced), Err(PoolError::ReadOnlyTicket)));
    assert!(matches!(ended(&mut stable), Err(PoolError::ReadOnlyTicket)));
    assert_eq!(file.steps(), ["write stable sync", "write stable sync"]);
}

#[test]
fn a_sync_runs_in_the_sync_lane_and_later_ones_share_a_run() {
    let (engine, file) = (engine(4), Noted::loaded(b""));
    let (open, gate) = mpsc::channel::<()>();
    let _first = engine.submit(Lane::Sync, move || {
        let _ = gate.recv();
        Ok(())
    });
    let (mut one, mut other) = (engine.sync(&file), engine.sync(&file));
    engine.settle(&file);
    drop(open);
    engine.stop();
    assert_eq!((ended(&mut one).unwrap(), ended(&mut other).unwrap()), (VERIFIER, VERIFIER));
    assert_eq!(file.steps(), ["sync sync"]);
    assert_eq!(Arc::strong_count(&file.0), 1, "the file is let go");
}

#[test]
fn a_sync_or_write_that_finds_no_thread_is_told_at_once_and_the_gate_opens_again() {
    let (engine, file) = (stopped(), Noted::loaded(b""));
    for _ in 0..2 {
        assert!(matches!(ended(&mut engine.sync(&file)), Err(PoolError::Busy(POOL))));
    }
    for stability in [Stability::Unstable, Stability::FileSync] {
        let mut handle = engine.write(file.clone(), 0, Bytes::from_static(b"ab"), stability);
        assert!(matches!(ended(&mut handle), Err(PoolError::Busy(POOL))));
    }
    let mut through = engine.write_through(file.clone(), 0, Bytes::from_static(b"ab"));
    assert!(matches!(ended(&mut through.written), Err(PoolError::Busy(POOL))));
    assert!(matches!(ended(&mut through.synced), Err(PoolError::Busy(POOL))));
    assert_eq!(file.steps(), Vec::<String>::new());
}

#[test]
fn bytes_that_do_not_agree_with_their_checksums_are_read_again_in_a_thread_before_they_are_judged() {
    let file = Noted::loaded(b"bad bytes");
    let engine = engine(4);
    let mut into = BytesMut::from(&b"head "[..]);
    assert!(!engine.read_resident(&file, 0, 9, &mut into) && into == b"head "[..]);
    let mut handle = engine.read(&file, 0, 9);
    let read = loop {
        match poll(&mut handle) {
            Poll::Ready(read) => break read.unwrap(),
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(read.data[..], *b"good");
    assert!(engine.read_resident(&file, 4, 5, &mut into) || engine.reader.is_blind_for_test());
    engine.reader.blind_for_test();
    let mut handle = engine.read(&file, 0, 9);
    let mut good = engine.read(&file, 4, 5);
    engine.stop();
    assert_eq!(ended(&mut handle).unwrap().data[..], *b"good");
    assert_eq!(ended(&mut good).unwrap().data[..], *b"bytes");
    let steps = file.steps();
    assert_eq!(steps.iter().filter(|step| *step == "reread data").count(), 2, "{steps:?}");
    assert_eq!(steps.iter().filter(|step| *step == "judge data").count(), 3, "{steps:?}");
}
