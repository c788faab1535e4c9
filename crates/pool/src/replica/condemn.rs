//! A replica whose bytes on the disk are not those that were written.

use std::os::fd::BorrowedFd;

use api::PoolError;

use super::Replica;
use crate::parts::PoolParts;

impl Replica {
    /// Every write that runs now is done when this returns.
    pub fn wait_for_writers(&self) {
        drop(self.ordering.write());
    }

    /// Marks the replica as damaged if `is_damaged` says so of its file, which nobody changes meanwhile. Whether it did.
    pub fn condemn(
        &self,
        shared: &PoolParts,
        is_damaged: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> Result<bool, PoolError> {
        let _ordering = self.ordering.write();
        self.file.load(shared)?;
        let Some(file) = self.file.open().filter(|_| !self.file.is_removed()) else { return Ok(false) };
        if !is_damaged(file) {
            return Ok(false);
        }
        self.file.record().faults.mark_damaged(shared, file);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use types::FileId;

    use super::*;

    #[test]
    fn a_scrub_waits_for_the_writes_that_run() {
        let replica = Replica::new(FileId(1));
        let write = replica.ordering.read();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                replica.wait_for_writers();
                done.send(()).unwrap();
            });
            assert_eq!(is_done.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
            drop(write);
            is_done.recv().unwrap();
        });
    }
}
