//! How many calls the head has sent to a pool on another host, by procedure.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::procedure::{NAMES, OPEN};

/// A call that is sent once more over another connection counts again.
#[derive(Default)]
pub(super) struct Calls([AtomicU64; NAMES.len()]);

impl Calls {
    pub fn count(&self, procedure: u32) {
        let at = procedure.checked_sub(OPEN).expect("procedures of the pool seam begin with OPEN");
        self.0[at as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Since the start of the head, in the order of the numbers of the procedures.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        NAMES.into_iter().zip(counts).collect()
    }
}
