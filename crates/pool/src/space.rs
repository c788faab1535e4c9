//! Free space and inodes, and the reserve that new data does not touch.
//!
//! Kept in memory and looked up anew every second, and whenever memory says no. Between two looks what was let in is
//! subtracted, so that a burst of writes cannot run through the reserve.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::fstatvfs;

pub struct Space {
    reserve_bytes: u64,
    reserve_files: u64,
    total_bytes: AtomicU64,
    free_bytes: AtomicU64,
    total_files: AtomicU64,
    free_files: AtomicU64,
    looks: AtomicU64,
    /// Why nothing can be read or written, as of the last look.
    refusal: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

impl Space {
    pub fn new(reserve_bytes: u64, reserve_files: u64) -> Space {
        Space {
            reserve_bytes,
            reserve_files,
            total_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            total_files: AtomicU64::new(0),
            free_files: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            refusal: Mutex::new(None),
        }
    }

    /// Looks at the file system. May wait for a disk.
    pub fn refresh(&self, root: BorrowedFd<'_>) {
        self.looks.fetch_add(1, Relaxed);
        let refusal = match fstatvfs(root) {
            Ok(stat) => {
                self.total_bytes.store(stat.f_blocks.saturating_mul(stat.f_frsize), Relaxed);
                // Space for root alone is the file system's own reserve, also when we are root.
                self.free_bytes.store(stat.f_bavail.saturating_mul(stat.f_frsize), Relaxed);
                // Btrfs makes inodes as it goes and says 0.
                let endless = stat.f_files == 0;
                self.total_files.store(if endless { u64::MAX } else { stat.f_files }, Relaxed);
                self.free_files.store(if endless { u64::MAX } else { stat.f_favail }, Relaxed);
                None
            }
            Err(errno) => Some(format!("its file system does not answer: {errno}")),
        };
        let mut known = self.refusal.lock();
        if *known != refusal {
            match &refusal {
                Some(reason) => tracing::error!(reason, "pool is offline"),
                None => tracing::info!("pool is back"),
            }
            *known = refusal;
        }
    }

    /// Looks so far: at least one a second.
    pub fn looks(&self) -> u64 {
        self.looks.load(Relaxed)
    }

    /// Takes `bytes` if they fit above the reserve.
    pub fn admit_bytes(&self, root: BorrowedFd<'_>, bytes: u64) -> bool {
        take(&self.free_bytes, bytes, self.reserve_bytes) || {
            self.refresh(root);
            take(&self.free_bytes, bytes, self.reserve_bytes)
        }
    }

    /// Takes an inode if there is one above the reserve.
    pub fn admit_file(&self, root: BorrowedFd<'_>) -> bool {
        take(&self.free_files, 1, self.reserve_files) || {
            self.refresh(root);
            take(&self.free_files, 1, self.reserve_files)
        }
    }

    /// Free above the reserve.
    pub fn free(&self) -> Free {
        Free {
            total_bytes: self.total_bytes.load(Relaxed),
            free_bytes: self.free_bytes.load(Relaxed).saturating_sub(self.reserve_bytes),
            total_files: self.total_files.load(Relaxed),
            free_files: self.free_files.load(Relaxed).saturating_sub(self.reserve_files),
        }
    }

    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }
}

fn take(free: &AtomicU64, amount: u64, reserve: u64) -> bool {
    let left = |free: u64| free.checked_sub(amount).filter(|left| *left >= reserve);
    free.fetch_update(Relaxed, Relaxed, left).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn admitted_bytes_are_subtracted_down_to_the_reserve() {
        let free = AtomicU64::new(100);
        assert!(take(&free, 60, 30));
        assert!(!take(&free, 11, 30));
        assert!(take(&free, 10, 30));
        assert!(take(&free, 0, 30));
        assert!(!take(&free, 1, 30));
        assert!(!take(&free, u64::MAX, 0));
    }

    #[test]
    fn a_reserve_larger_than_the_disk_admits_nothing_and_shows_nothing_free() {
        let root = File::open(std::env::temp_dir()).unwrap();
        let space = Space::new(u64::MAX, u64::MAX - 1);
        space.refresh(root.as_fd());
        assert!(!space.admit_bytes(root.as_fd(), 1));
        let free = space.free();
        assert_eq!(free.free_bytes, 0);
        assert!(free.total_bytes > 0);
        let none = Space::new(0, 0);
        assert!(none.admit_bytes(root.as_fd(), 1), "a look is taken when memory says no");
        assert!(none.admit_file(root.as_fd()));
    }
}
