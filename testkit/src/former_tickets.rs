//! Tickets of before a restart, where no pool has any.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use api::FormerTickets;
use async_trait::async_trait;

/// Counts how often they were ended.
#[derive(Default)]
pub struct NoFormerTickets {
    /// A pool does not answer.
    pub fails: AtomicBool,
    pub voided: AtomicUsize,
}

#[async_trait]
impl FormerTickets for NoFormerTickets {
    async fn void(&self) -> Result<(), String> {
        if self.fails.load(Ordering::Relaxed) {
            return Err("a pool does not answer".to_owned());
        }
        self.voided.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
