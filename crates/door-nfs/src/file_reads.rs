//! READ replies whose bytes go from the page cache to the socket without a copy.
//!
//! The bytes wait in a pipe (`splice`), so the length that the reply promises is there, whatever becomes of the file. A
//! read that cannot go this way goes through memory: the replica is not a file of this host, all pipes are in use, the
//! bytes are few, or the file ends early, which only the pool can judge.

use std::sync::Arc;
use std::time::Duration;

use api::LocalRange;
use rustix::fs::fstat;
use splice::{LOAD_BYTES_MAX, Load, Pipes, Resident};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Fewer are cheaper to copy.
const BYTES_MIN: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// Pipes of one server, of 1 MiB and two descriptors each.
const PIPES_MAX: usize = 64;
/// Threads that wait for a disk at once; further reads wait in the pool's own.
const THREADS_MAX: usize = 8;

/// A disk that takes longer is left to the pool's own threads, and to the deadline of those who ask it.
const DISK_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct FileReads {
    pipes: Arc<Pipes>,
    threads: Arc<Semaphore>,
}

impl FileReads {
    pub fn new() -> FileReads {
        FileReads { pipes: Pipes::new(PIPES_MAX), threads: Arc::new(Semaphore::new(THREADS_MAX)) }
    }

    /// The `length` bytes of the range, or those up to the end of its file, with whether it ends there. `None`: they are to
    /// be read through memory. The range is asked for only if it is long enough.
    pub async fn read(
        &self,
        length: u32,
        range: impl FnOnce() -> Option<Arc<dyn LocalRange>>,
    ) -> Option<(Load, bool)> {
        if u64::from(length) < BYTES_MIN {
            return None;
        }
        let range = range()?;
        let offset = range.offset();
        let size = fstat(range.file()).ok()?.st_size.cast_unsigned();
        let wanted = size.saturating_sub(offset).min(length.into());
        if wanted < BYTES_MIN || offset % PAGE_BYTES + wanted > LOAD_BYTES_MAX as u64 {
            return None;
        }
        let load = self.pipes.take()?;
        let load = if Resident::default().covers(range.file(), offset, wanted) {
            filled(load, &*range, wanted)
        } else {
            let permit = Arc::clone(&self.threads).try_acquire_owned().ok()?;
            let of_thread = Arc::clone(&range);
            let fill = move || {
                let _permit = permit;
                filled(load, &*of_thread, wanted)
            };
            timeout(DISK_PATIENCE, tokio::task::spawn_blocking(fill)).await.ok()?.ok()?
        }?;
        range.sent(wanted);
        Some((load, offset + wanted >= size))
    }
}

/// `None`: the file has not so many bytes now, or cannot be read.
fn filled(mut load: Load, range: &dyn LocalRange, wanted: u64) -> Option<Load> {
    // At most LOAD_BYTES_MAX, so it fits.
    let wanted = wanted as usize;
    (load.fill(range.file(), range.offset(), wanted) == Ok(wanted)).then_some(load)
}
