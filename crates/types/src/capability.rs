//! Time and randomness, handed in so that the lower floors stay deterministic.

use std::time::Duration;

use crate::Timestamp;

pub trait Clock: Send + Sync {
    /// The wall clock, as files carry it.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary start; never goes backwards. Leases and deadlines are counted in it.
    fn monotonic(&self) -> Duration;
}

pub trait Random: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Random {
    pub fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}
