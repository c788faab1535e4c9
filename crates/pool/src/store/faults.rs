//! Disk faults that a test injects. Outside tests there are none.

use rustix::io::Errno;

#[cfg(test)]
pub use self::injected::Faults;

#[cfg(not(test))]
pub struct Faults;

#[cfg(not(test))]
impl Faults {
    pub fn none() -> Faults {
        Faults
    }

    pub fn of_sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    pub fn of_open(&self) -> Result<(), Errno> {
        Ok(())
    }
}

#[cfg(test)]
mod injected {
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;

    use super::Errno;

    #[derive(Default)]
    pub struct Faults {
        pub fail_syncs: AtomicBool,
        /// As the kernel tells of lost data: one sync, the first to end.
        pub fail_one_sync: AtomicBool,
        /// As a file system that is mounted to be read only.
        pub read_only: AtomicBool,
        /// Run by the next sync while it waits for the disk.
        pub in_next_sync: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl Faults {
        pub fn none() -> Faults {
            Faults::default()
        }

        pub fn of_sync(&self) -> Result<(), Errno> {
            let wait = self.in_next_sync.lock().take();
            if let Some(wait) = wait {
                wait();
            }
            let fails =
                self.fail_one_sync.swap(false, Ordering::SeqCst) || self.fail_syncs.load(Ordering::SeqCst);
            if fails { Err(Errno::IO) } else { Ok(()) }
        }

        pub fn of_open(&self) -> Result<(), Errno> {
            if self.read_only.load(Ordering::SeqCst) { Err(Errno::ROFS) } else { Ok(()) }
        }
    }
}
