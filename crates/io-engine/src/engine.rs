//! The engine of one pool: two lanes of threads, and the way to read.
//!
//! Data and syncs have threads of their own: a sync waits for a journal or a device for milliseconds, and the more of
//! them wait together the fewer flushes the disk makes, while a read must not stand behind them.

use std::sync::Arc;

use api::{IoHandle, PoolError};
use futures_channel::oneshot;
use types::PoolId;

use crate::buffer::Buffers;
use crate::queue::{Job, Queue, Refused};
use crate::read::Reader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
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

pub struct Engine {
    pool: PoolId,
    data: Arc<Queue>,
    sync: Arc<Queue>,
    reader: Reader,
}

impl Engine {
    pub fn start(config: EngineConfig) -> Engine {
        let queue = |name: &str, threads| {
            Queue::new(format!("{}-{name}", config.pool), threads, config.queue_len_max)
        };
        Engine {
            pool: config.pool,
            data: queue("data", config.data_threads),
            sync: queue("sync", config.sync_threads),
            reader: Reader::new(Buffers::new(config.buffer_bytes_max)),
        }
    }

    /// Runs `job` in a thread of the lane. A full queue is told at once as `Busy`, a stopped engine as `Offline`.
    pub fn submit<T, F>(&self, lane: Lane, job: F) -> IoHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, PoolError> + Send + 'static,
    {
        let (answer, handle) = self.answer();
        let run = Box::new(move || {
            // Nobody waits any more if this fails; the job is done all the same.
            let _ = answer.send(job());
        });
        match self.enqueue(lane, run) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    /// For jobs that answer by themselves.
    pub fn enqueue(&self, lane: Lane, job: Job) -> Result<(), PoolError> {
        let queue = match lane {
            Lane::Data => &self.data,
            Lane::Sync => &self.sync,
        };
        queue.push(job).map_err(|refused| match refused {
            Refused::Full => PoolError::Busy(self.pool),
            Refused::Stopped => PoolError::Offline(self.pool),
        })
    }

    /// A sender and the handle that waits for it.
    pub fn answer<T>(&self) -> (oneshot::Sender<Result<T, PoolError>>, IoHandle<T>) {
        let (sender, receiver) = oneshot::channel();
        let reason = "a disk job ended without an answer".to_owned();
        (sender, IoHandle::waiting(receiver, PoolError::Io { pool: self.pool, operation: "finish", reason }))
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
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
        Engine::start(EngineConfig {
            pool,
            data_threads: 1,
            sync_threads: 1,
            queue_len_max,
            buffer_bytes_max: 0,
        })
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
        assert!(matches!(poll(&mut late), Poll::Ready(Err(PoolError::Offline(PoolId(4))))));
    }

    #[test]
    fn a_job_that_panics_is_an_error_to_its_caller() {
        let engine = engine(4);
        let mut handle = engine.submit::<(), _>(Lane::Data, || panic!("expected by this test"));
        engine.stop();
        assert!(matches!(poll(&mut handle), Poll::Ready(Err(PoolError::Io { .. }))));
    }
}
