//! The fencing epoch of a replica.
//!
//! Invariant: the lowest epoch whose tickets are honoured only rises, and rises before it is on disk. A fence is answered
//! when it is on disk.

use std::sync::atomic::{AtomicU32, Ordering};

use api::PoolError;
use types::Epoch;

#[derive(Default)]
pub struct Fence {
    /// The lowest epoch whose tickets are honoured.
    epoch: AtomicU32,
    /// The highest epoch that is known to be on disk.
    recorded: AtomicU32,
}

impl Fence {
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// An error if tickets of this epoch are not honoured any more.
    pub fn check(&self, epoch: Epoch) -> Result<(), PoolError> {
        if epoch < self.epoch() { Err(PoolError::Fenced) } else { Ok(()) }
    }

    /// As found on disk.
    pub fn learn(&self, epoch: Epoch) {
        self.recorded.store(epoch.0, Ordering::Release);
        self.raise(epoch);
    }

    pub fn raise(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
    }

    pub fn note_recorded(&self, epoch: Epoch) {
        self.recorded.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// The disk has this epoch, or a higher one.
    pub fn has_recorded(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.recorded.load(Ordering::Acquire)
    }

    /// Nothing of the fence would be lost with this object.
    pub fn is_recorded(&self) -> bool {
        self.epoch.load(Ordering::Acquire) == self.recorded.load(Ordering::Acquire)
    }
}
