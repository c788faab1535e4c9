//! The WAL is synced by the clock where commits do not sync it: with `sync = interval` all, with `sync = names` those of
//! attributes.
//!
//! Commits have reached the operating system, so a crash of the process loses none. After a power cut SQLite replays the
//! WAL up to the last commit whose frames are whole; a checkpoint syncs the WAL first by itself, and so does a commit that
//! is synced. So at most the interval, and the sync under way, is lost, and never the order.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::wal_frames;
use crate::queue::Queue;
use crate::thread::spawn;

pub struct WalSync {
    thread: JoinHandle<()>,
    stop: Arc<Queue<()>>,
    log: Arc<Log>,
}

/// The WAL as a file that is synced.
pub struct Log {
    file: File,
    /// Held while the disk is asked for a sync, until what it tells is remembered. A leaf lock.
    syncing: Mutex<()>,
    /// A sync failed. The kernel then takes the pages for clean, and a later sync says nothing of them (fsync(2)): before
    /// the next group, all that the log holds is carried into the database (`store`).
    has_failed: AtomicBool,
}

impl Log {
    pub fn open(wal: &Path) -> io::Result<Log> {
        Ok(Log { file: File::open(wal)?, syncing: Mutex::default(), has_failed: AtomicBool::new(false) })
    }

    /// Everything committed so far is on disk when it returns. Blocks.
    pub fn sync(&self) -> io::Result<()> {
        self.sync_by(File::sync_data)
    }

    /// The disk reports lost data once, to the first sync that asks. Another sync that runs at the same time would not hear
    /// of it: so one runs at a time, and the next one finds that it has failed.
    fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        if self.has_failed() {
            return Err(io::Error::other("an earlier sync of the log failed"));
        }
        sync(&self.file).inspect_err(|_| self.fail())
    }

    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// All that it held is on disk, in the database.
    pub fn mend(&self) {
        self.has_failed.store(false, Ordering::Release);
    }

    /// Whether so many frames are in it, as they were written. Blocks.
    pub fn holds(&self, frames: u32) -> io::Result<bool> {
        wal_frames::are_whole(&self.file, frames)
    }
}

impl WalSync {
    pub fn start(wal: &Path, interval: Duration, commits: Arc<AtomicU64>) -> io::Result<WalSync> {
        // There is a WAL by now: the start was counted in it. SQLite keeps the file while a connection is open.
        let log = Arc::new(Log::open(wal)?);
        let synced_here = Arc::clone(&log);
        let stop = Arc::new(Queue::<()>::new(0));
        let stopped = Arc::clone(&stop);
        let thread = spawn("namespace-sync", move || {
            let mut synced = 0;
            loop {
                let is_end = stopped.take(0, Some(interval)).is_closed;
                let committed = commits.load(Ordering::Acquire);
                if committed != synced {
                    if let Err(error) = synced_here.sync() {
                        tracing::error!(%error, "namespace cannot sync its log");
                    }
                    // Also after a failure, of which more tries know nothing better.
                    synced = committed;
                }
                if is_end {
                    return;
                }
            }
        })?;
        Ok(WalSync { thread, stop, log })
    }

    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Syncs once more and ends.
    pub fn stop(self) {
        self.stop.close();
        // It does not panic; if it did there is nothing to add.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    use super::*;

    /// The reaper's sync succeeded while that of the interval thread failed, and the reaper removed replicas.
    #[test]
    fn a_sync_that_runs_beside_one_that_fails_fails_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = Log::open(file.path()).unwrap();
        let ((begin, begun), (answer, answered)) = (channel(), channel());
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                log.sync_by(move |_| {
                    begin.send(()).unwrap();
                    // Without the lock the other sync is through by now; with it, it waits for this one.
                    let early = answered.recv_timeout(Duration::from_millis(200));
                    assert_eq!(early, Err(RecvTimeoutError::Timeout), "a sync was answered beside this one");
                    Err(io::ErrorKind::Other.into())
                })
            });
            begun.recv().unwrap();
            let second = log.sync();
            // The first may have ended.
            let _ = answer.send(());
            assert!(second.is_err());
            assert!(first.join().unwrap().is_err());
        });
        assert!(log.has_failed());
    }
}
