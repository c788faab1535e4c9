//! Disk faults that a test injects. Outside tests there are none.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use types::FileId;

#[cfg(test)]
pub use self::injected::{Faults, OnDisk, Operation};

#[cfg(not(test))]
pub struct Faults;

#[cfg(not(test))]
impl Faults {
    pub fn none() -> Faults {
        Faults
    }

    pub fn of_read(&self, _file: FileId) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_write(&self, _file: FileId) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_sync(&self, _file: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_write_back(&self, _file: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_names(&self) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_open(&self) -> Result<(), Errno> {
        Ok(())
    }

    pub fn note_synced(&self, _file: BorrowedFd<'_>, _is_whole: bool) {}

    pub fn of_journal(&self) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_flush(&self) -> Result<(), Errno> {
        Ok(())
    }

    pub fn in_cut(&self) {}

    pub fn of_blocks(&self, _first: u64, _count: u64) -> Result<(), Errno> {
        Ok(())
    }

    pub fn hides_disk(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod injected {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;
    use rustix::fs::fstat;

    use super::{BorrowedFd, Errno, FileId};
    use crate::label::Label;

    type InRecord = Box<dyn FnOnce() -> Result<(), Errno> + Send>;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Operation {
        Read,
        Write,
        Sync,
    }

    /// An error, or a wait.
    type Fault = Arc<dyn Fn() -> Result<(), Errno> + Send + Sync>;

    #[derive(Default)]
    pub struct Faults {
        /// Of one file each.
        of_files: Mutex<HashMap<(FileId, Operation), Fault>>,
        pub fail_syncs: AtomicBool,
        /// As the kernel tells of lost data: one sync, the first to end.
        pub fail_one_sync: AtomicBool,
        /// As a file system that is mounted to be read only.
        pub read_only: AtomicBool,
        /// A scrub cannot read this block of any replica.
        pub bad_block: Mutex<Option<u64>>,
        /// Bytes that are read for a verdict may be those of the page cache.
        pub hide_disk: AtomicBool,
        /// Run by the next read for a verdict.
        pub in_next_verdict: Mutex<Option<Hook>>,
        /// Run by the next sync while it waits for the disk.
        pub in_next_sync: Mutex<Option<Hook>>,
        /// Each replica as of its last sync: all that a power cut leaves.
        pub on_disk: Mutex<Option<HashMap<FileId, OnDisk>>>,
        pub fail_journal: AtomicBool,
        /// Run by the next write of the journal while it waits for the disk.
        pub in_next_record: Mutex<Option<InRecord>>,
        /// Of a flush of gathered writes.
        pub flush: Mutex<Option<Errno>>,
        /// Of the next flush.
        pub panic_in_flush: AtomicBool,
        /// Run by the next truncation, between the cut of the file and that of gathered writes.
        pub in_next_cut: Mutex<Option<Hook>>,
    }

    pub struct OnDisk {
        pub bytes: Vec<u8>,
        /// As of the last sync of more than data.
        pub label: Label,
    }

    type Hook = Box<dyn FnOnce() + Send>;

    fn run_next(hook: &Mutex<Option<Hook>>) {
        let run = hook.lock().take();
        if let Some(run) = run {
            run();
        }
    }

    impl Faults {
        pub fn none() -> Faults {
            Faults::default()
        }

        /// Asked by each such operation of the file, until it is another or none.
        pub fn set(
            &self,
            file: FileId,
            operation: Operation,
            fault: Option<impl Fn() -> Result<(), Errno> + Send + Sync + 'static>,
        ) {
            match fault {
                Some(fault) => self.of_files.lock().insert((file, operation), Arc::new(fault)),
                None => self.of_files.lock().remove(&(file, operation)),
            };
        }

        fn of(&self, file: FileId, operation: Operation) -> Result<(), Errno> {
            // It may wait, and is not to keep other files.
            let fault = self.of_files.lock().get(&(file, operation)).cloned();
            fault.map_or(Ok(()), |fault| fault())
        }

        pub fn of_read(&self, file: FileId) -> Result<(), Errno> {
            self.of(file, Operation::Read)
        }

        pub fn of_write(&self, file: FileId) -> Result<(), Errno> {
            self.of(file, Operation::Write)
        }

        pub fn of_sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
            run_next(&self.in_next_sync);
            self.of_write_back(file)
        }

        /// The kernel tells of lost data to the first that asks.
        pub fn of_write_back(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
            if let Ok(Some(label)) = crate::label::read(file) {
                self.of(label.file, Operation::Sync)?;
            }
            self.of_names()
        }

        pub fn of_names(&self) -> Result<(), Errno> {
            let fails =
                self.fail_one_sync.swap(false, Ordering::SeqCst) || self.fail_syncs.load(Ordering::SeqCst);
            if fails { Err(Errno::IO) } else { Ok(()) }
        }

        pub fn of_open(&self) -> Result<(), Errno> {
            if self.read_only.load(Ordering::SeqCst) { Err(Errno::ROFS) } else { Ok(()) }
        }

        pub fn note_synced(&self, file: BorrowedFd<'_>, is_whole: bool) {
            if let Some(on_disk) = &mut *self.on_disk.lock() {
                let stat = fstat(file).expect("it is open");
                let mut bytes = vec![0; usize::try_from(stat.st_size).expect("it is small")];
                rustix::io::pread(file, &mut bytes, 0).expect("it can be read");
                // Inodes are used again.
                let label = crate::label::read(file).expect("it can be read").expect("it has one");
                // A length is lowered before the file is cut, and file systems keep that order.
                let is_kept = |old: &&OnDisk| !is_whole && old.label.length <= label.length;
                let old = on_disk.get(&label.file).filter(is_kept).map(|old| old.label);
                on_disk.insert(label.file, OnDisk { bytes, label: old.unwrap_or(label) });
            }
        }

        /// Of a write or a sync of the write journal.
        pub fn of_journal(&self) -> Result<(), Errno> {
            let wait = self.in_next_record.lock().take();
            if let Some(wait) = wait {
                wait()?;
            }
            if self.fail_journal.load(Ordering::SeqCst) { Err(Errno::IO) } else { Ok(()) }
        }

        pub fn of_flush(&self) -> Result<(), Errno> {
            assert!(!self.panic_in_flush.swap(false, Ordering::SeqCst), "expected by this test");
            self.flush.lock().map_or(Ok(()), Err)
        }

        pub fn in_cut(&self) {
            run_next(&self.in_next_cut);
        }

        pub fn of_blocks(&self, first: u64, count: u64) -> Result<(), Errno> {
            let is_bad = self.bad_block.lock().is_some_and(|bad| (first..first + count).contains(&bad));
            if is_bad { Err(Errno::IO) } else { Ok(()) }
        }

        /// In each verdict, so it runs the hook of verdicts as well.
        pub fn hides_disk(&self) -> bool {
            run_next(&self.in_next_verdict);
            self.hide_disk.load(Ordering::SeqCst)
        }
    }
}
