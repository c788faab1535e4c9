//! The open file of a replica.
//!
//! Invariant: a descriptor is set once and closed with the replica, so a borrowed one stays valid. A file that was opened
//! to read only gets a second descriptor once a change comes and the disk takes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub struct Descriptors {
    /// Set once, when the file is found or made. Shared with those who send from it, so that it is not closed before
    /// they are through, whatever becomes of this object.
    open: OnceLock<Arc<OwnedFd>>,
    /// `open` is to read only, for the disk took no writes when it was opened.
    is_to_read: AtomicBool,
    /// Takes the place of such a one, once a change comes and the disk takes it.
    reopened: OnceLock<Arc<OwnedFd>>,
}

impl Descriptors {
    /// `None`: there is no file.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.shared().map(|file| file.as_fd())
    }

    /// The same, to be held without the replica.
    pub fn lend(&self) -> Option<Arc<OwnedFd>> {
        self.shared().cloned()
    }

    fn shared(&self) -> Option<&Arc<OwnedFd>> {
        self.reopened.get().or_else(|| self.open.get())
    }

    /// Somebody holds a descriptor that was lent.
    pub fn are_lent(&self) -> bool {
        let files = [self.open.get(), self.reopened.get()];
        files.into_iter().flatten().any(|file| Arc::strong_count(file) > 1)
    }

    /// Before the file that was found is kept.
    pub fn set_to_read(&self, is_to_read: bool) {
        self.is_to_read.store(is_to_read, Ordering::Release);
    }

    /// The file can be read and not written.
    pub fn must_be_reopened(&self) -> bool {
        self.is_to_read.load(Ordering::Acquire) && self.reopened.get().is_none()
    }

    pub fn keep(&self, file: OwnedFd) -> BorrowedFd<'_> {
        self.open.get_or_init(|| Arc::new(file)).as_fd()
    }

    pub fn keep_reopened(&self, file: OwnedFd) -> BorrowedFd<'_> {
        self.reopened.get_or_init(|| Arc::new(file)).as_fd()
    }
}
