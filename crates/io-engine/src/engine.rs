//! The engine of one pool: two lanes of threads, and the lane of each kind of work.
//!
//! Data and syncs have threads of their own: a sync waits for a journal or a device for milliseconds, and the more of
//! them wait together the fewer flushes the disk makes, while a read must not stand behind them.

mod operations;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{IoHandle, PoolError};
use futures_channel::oneshot;
use types::PoolId;

use crate::buffer::Buffers;
use crate::data_path::DataPath;
use crate::queue::{Job, Queue, QueueLoad, Refused};
use crate::read::Reader;

/// Work on files beside reads, writes and syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Open,
    Read,
    Create,
    Record,
    WriteBack,
    Flush,
    Inspect,
    Extend,
    Seek,
    Advise,
    Copy,
    Allocate,
    Deallocate,
    Share,
    Truncate,
    Remove,
    SyncNames,
    Fence,
    List,
    Describe,
}

impl Work {
    fn lane(self) -> Lane {
        match self {
            Work::Open
            | Work::Read
            | Work::Create
            | Work::Inspect
            | Work::Extend
            | Work::Seek
            | Work::Advise
            | Work::Copy => Lane::Data,
            // To find blocks may take long, and a share first writes the pages of its source to the disk.
            Work::Allocate | Work::Deallocate | Work::Share => Lane::Sync,
            // The first two end with a sync, of the write journal or of a file. A flush may write many files.
            Work::Record | Work::WriteBack | Work::Flush => Lane::Sync,
            Work::Truncate | Work::Remove | Work::SyncNames | Work::Fence | Work::List | Work::Describe => {
                Lane::Sync
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Short: reads, writes into the page cache, looks at a file.
    Data,
    /// Long: syncs and writes that end with one, truncations, removals, listings.
    Sync,
}

#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    pub pool: PoolId,
    pub data_threads: usize,
    pub sync_threads: usize,
    /// Jobs that wait per lane; one more is answered `PoolError::Busy`.
    pub queue_len_max: usize,
    /// Free read buffers that are kept for the next reads.
    pub buffer_bytes_max: usize,
}

/// Threads for data when nothing is configured: twice the cores, at most eight.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| (2 * cores.get()).min(8))
}

/// The duty to answer an [`IoHandle`].
pub struct Answer<T>(oneshot::Sender<Result<T, PoolError>>);

impl<T> Answer<T> {
    pub fn give(self, result: Result<T, PoolError>) {
        // Nobody waits any more if this fails; what was done is done all the same.
        let _ = self.0.send(result);
    }
}

pub struct Engine {
    pool: PoolId,
    data: Arc<Queue>,
    sync: Arc<Queue>,
    /// Shared with reads that load their file first.
    reader: Arc<Reader>,
    path: Arc<DataPath>,
    /// Jobs that were asked for so far.
    jobs: AtomicU64,
}

impl Engine {
    pub fn start(config: EngineConfig, path: DataPath) -> Engine {
        let queue = |name: &str, threads| {
            Queue::new(format!("{}-{name}", config.pool), threads, config.queue_len_max)
        };
        Engine {
            pool: config.pool,
            data: queue("data", config.data_threads),
            sync: queue("sync", config.sync_threads),
            reader: Arc::new(Reader::new(Buffers::new(config.buffer_bytes_max))),
            path: Arc::new(path),
            jobs: AtomicU64::new(0),
        }
    }

    /// Jobs that were asked for since the start: work of any kind but reads that memory served.
    pub fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::Relaxed)
    }

    /// The work of the lanes, by their names.
    pub fn loads(&self) -> [(&'static str, QueueLoad); 2] {
        [("data", self.data.load()), ("sync", self.sync.load())]
    }

    /// The way of a write's bytes, for files that the engine asks to write.
    pub fn path(&self) -> &DataPath {
        &self.path
    }

    /// Runs `job` in a thread. A full queue is told at once as `Busy`, and so is an engine that stops: the caller asks again, of the next process perhaps.
    pub fn run<T, F>(&self, work: Work, job: F) -> IoHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, PoolError> + Send + 'static,
    {
        self.submit(work.lane(), job)
    }

    /// Answers when a thread has come to all the syncs that are queued now.
    pub fn wait_behind_syncs(&self) -> IoHandle<()> {
        self.submit(Lane::Sync, || Ok(()))
    }

    fn submit<T, F>(&self, lane: Lane, job: F) -> IoHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, PoolError> + Send + 'static,
    {
        let (answer, handle) = self.answer();
        let run = Box::new(move || {
            answer.give(job());
        });
        match self.enqueue(lane, run) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    /// An answer, and the handle that waits for it. An answer that is dropped is an error to its handle.
    pub fn answer<T>(&self) -> (Answer<T>, IoHandle<T>) {
        let (sender, receiver) = oneshot::channel();
        let reason = "a disk job ended without an answer".to_owned();
        let dropped = PoolError::Io { pool: self.pool, operation: "finish", reason };
        (Answer(sender), IoHandle::waiting(receiver, dropped))
    }

    /// Runs a job that answers by itself, perhaps after its end.
    pub fn begin(&self, work: Work, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.enqueue(work.lane(), Box::new(job))
    }

    fn enqueue(&self, lane: Lane, job: Job) -> Result<(), PoolError> {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        let queue = match lane {
            Lane::Data => &self.data,
            Lane::Sync => &self.sync,
        };
        queue.push(job).map_err(|refused| match refused {
            Refused::Full | Refused::Stopped => PoolError::Busy(self.pool),
        })
    }

    /// Takes no more jobs, runs what is queued, and waits for the threads. Blocks.
    pub fn stop(&self) {
        self.data.stop();
        self.sync.stop();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn engine(queue_len_max: usize) -> Engine {
        let pool = PoolId(4);
        let config =
            EngineConfig { pool, data_threads: 1, sync_threads: 1, queue_len_max, buffer_bytes_max: 0 };
        Engine::start(config, DataPath::buffered())
    }

    fn poll<T: Unpin>(handle: &mut IoHandle<T>) -> Poll<Result<T, PoolError>> {
        Pin::new(handle).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_full_lane_is_busy_and_the_other_is_not() {
        let engine = engine(1);
        let (open, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let mut first = engine.submit(Lane::Data, move || {
            started.send(()).unwrap();
            let _ = gate.recv();
            Ok(1)
        });
        running.recv().unwrap();
        let mut second = engine.submit(Lane::Data, || Ok(2));
        let mut third = engine.submit(Lane::Data, || Ok(3));
        assert!(matches!(poll(&mut third), Poll::Ready(Err(PoolError::Busy(PoolId(4))))));
        let mut other = engine.submit(Lane::Sync, || Ok(4));
        drop(open);
        engine.stop();
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(1))));
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(2))));
        assert!(matches!(poll(&mut other), Poll::Ready(Ok(4))));
        let mut late = engine.submit(Lane::Data, || Ok(5));
        assert!(matches!(poll(&mut late), Poll::Ready(Err(PoolError::Busy(PoolId(4))))));
    }

    fn lane_that_runs(work: Work) -> String {
        let engine = engine(4);
        let name = move || Ok(std::thread::current().name().unwrap_or_default().to_owned());
        let mut handle = engine.run(work, name);
        engine.stop();
        let Poll::Ready(Ok(name)) = poll(&mut handle) else { panic!("no answer") };
        name
    }

    #[test]
    fn short_work_runs_in_the_data_lane() {
        use Work::{Advise, Copy, Create, Extend, Inspect, Open, Read, Seek};
        for work in [Open, Read, Create, Inspect, Extend, Seek, Advise, Copy] {
            assert_eq!(lane_that_runs(work), "pool-4-data", "{work:?}");
        }
    }

    #[test]
    fn long_work_runs_in_the_sync_lane() {
        use Work::{
            Allocate, Deallocate, Describe, Fence, Flush, List, Record, Remove, Share, SyncNames, Truncate,
            WriteBack,
        };
        for work in [
            Allocate, Deallocate, Share, Truncate, Remove, SyncNames, Fence, Flush, List, Describe, Record,
            WriteBack,
        ] {
            assert_eq!(lane_that_runs(work), "pool-4-sync", "{work:?}");
        }
    }

    #[test]
    fn a_wait_behind_syncs_ends_after_the_queued_ones_have_begun() {
        let engine = engine(4);
        let (open, gate) = mpsc::channel::<()>();
        let mut first = engine.submit(Lane::Sync, move || {
            let _ = gate.recv();
            Ok(())
        });
        let mut behind = engine.wait_behind_syncs();
        assert!(poll(&mut behind).is_pending());
        drop(open);
        engine.stop();
        assert!(matches!((poll(&mut first), poll(&mut behind)), (Poll::Ready(Ok(())), Poll::Ready(Ok(())))));
    }

    #[test]
    fn a_job_that_panics_is_an_error_to_its_caller() {
        let engine = engine(4);
        let mut handle = engine.submit::<(), _>(Lane::Data, || panic!("expected by this test"));
        engine.stop();
        assert!(matches!(poll(&mut handle), Poll::Ready(Err(PoolError::Io { .. }))));
    }
}
