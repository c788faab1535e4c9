//! `sync = interval`: the WAL is synced by the clock instead of by each commit.
//!
//! Commits have reached the operating system, so a crash of the process loses none. After a power cut SQLite replays the
//! WAL up to the last commit whose frames are whole; a checkpoint syncs the WAL first by itself. So at most the
//! interval, and the sync under way, is lost, and never the order.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::open::spawn;
use crate::queue::Queue;

pub struct WalSync {
    thread: JoinHandle<()>,
    stop: Arc<Queue<()>>,
}

impl WalSync {
    pub fn start(wal: &Path, interval: Duration, commits: Arc<AtomicU64>) -> io::Result<WalSync> {
        // There is a WAL by now: the start was counted in it. SQLite keeps the file while a connection is open.
        let wal = File::open(wal)?;
        let stop = Arc::new(Queue::<()>::new(0));
        let stopped = Arc::clone(&stop);
        let thread = spawn("namespace-sync", move || {
            let mut synced = 0;
            loop {
                let is_end = stopped.take(0, Some(interval)).is_closed;
                let committed = commits.load(Ordering::Acquire);
                if committed != synced {
                    match wal.sync_data() {
                        Ok(()) => synced = committed,
                        Err(error) => tracing::error!(%error, "namespace cannot sync its log"),
                    }
                }
                if is_end {
                    return;
                }
            }
        })?;
        Ok(WalSync { thread, stop })
    }

    /// Syncs once more and ends.
    pub fn stop(self) {
        self.stop.close();
        // It does not panic; if it did there is nothing to add.
        let _ = self.thread.join();
    }
}
