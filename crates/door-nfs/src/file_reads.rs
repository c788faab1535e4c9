//! READ replies whose bytes go from the page cache to the socket without a copy.
//!
//! The bytes wait in a pipe (`splice`), so the length that the reply promises is there, whatever becomes of the file. A
//! read that cannot go this way goes through memory: the replica is not a file of this host, all pipes are in use, the
//! bytes are few, or the file ends early, which only the pool can judge.

use std::sync::Arc;
use std::time::Duration;

use api::LocalRange;
use rustix::fs::fstat;
use rustix::param::page_size;
use splice::{LOAD_BYTES_MAX, Load, Pipes, Resident, are_all_cached};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Fewer are cheaper to copy.
const BYTES_MIN: u64 = 64 << 10;
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
    /// be read through memory. The range, which begins at `offset`, is asked for only if it can go through a pipe.
    pub async fn read(
        &self,
        offset: u64,
        length: u32,
        range: impl FnOnce() -> Option<Arc<dyn LocalRange>>,
    ) -> Option<(Load, bool)> {
        if u64::from(length) < BYTES_MIN
            || offset % page_size() as u64 + u64::from(length) > LOAD_BYTES_MAX as u64
        {
            return None;
        }
        let load = self.pipes.take()?;
        let range = range()?;
        let size = fstat(range.file()).ok()?.st_size.cast_unsigned();
        let wanted = size.saturating_sub(range.offset()).min(length.into());
        if wanted < BYTES_MIN {
            return None;
        }
        // A worker must not wait: where the kernel cannot tell, a thread looks.
        let is_here = are_all_cached(range.file(), range.offset(), wanted) == Some(true)
            && Resident::default().covers(range.file(), range.offset(), wanted);
        let load = if is_here {
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
        Some((load, range.offset() + wanted >= size))
    }
}

/// `None`: the file has not so many bytes now, or cannot be read.
fn filled(mut load: Load, range: &dyn LocalRange, wanted: u64) -> Option<Load> {
    // At most LOAD_BYTES_MAX, so it fits.
    let wanted = wanted as usize;
    (load.fill(range.file(), range.offset(), wanted) == Ok(wanted)).then_some(load)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};

    use super::*;

    struct Range(File, u64);

    impl LocalRange for Range {
        fn file(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn offset(&self) -> u64 {
            self.1
        }

        fn sent(&self, _: u64) {}
    }

    /// Of a file of 2 MiB and 100,000 bytes.
    async fn read(reads: &FileReads, offset: u64, length: u32) -> Option<(usize, bool)> {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; (2 << 20) + 100_000]).unwrap();
        let range = move || Some(Arc::new(Range(file, offset)) as Arc<dyn LocalRange>);
        reads.read(offset, length, range).await.map(|(load, is_end)| (load.bytes(), is_end))
    }

    #[tokio::test]
    async fn long_reads_wait_in_a_pipe_and_others_go_through_memory() {
        let reads = FileReads::new();
        assert_eq!(read(&reads, 0, 1 << 20).await, Some((1 << 20, false)));
        assert_eq!(read(&reads, 5, 300_001).await, Some((300_001, false)));
        assert_eq!(read(&reads, (1 << 20) + 100_000, 1 << 20).await, None, "it begins within a page");
        assert_eq!(read(&reads, 2 << 20, 1 << 20).await, Some((100_000, true)));
        assert_eq!(read(&reads, (2 << 20) + 50_000, 1 << 17).await, None, "few are left");
        assert_eq!(read(&reads, 0, 60_000).await, None);
        let held: Vec<_> = std::iter::from_fn(|| reads.pipes.take()).collect();
        assert_eq!(read(&reads, 0, 1 << 20).await, None, "no pipe is free");
        drop(held);
        assert_eq!(read(&reads, 0, 1 << 20).await, Some((1 << 20, false)));
    }
}
