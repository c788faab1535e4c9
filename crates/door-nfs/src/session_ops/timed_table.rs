//! The session table with its lock and its clock.

use std::sync::Arc;
use std::time::Duration;

use nfs4_state::SessionTable;
use parking_lot::{Mutex, MutexGuard};
use types::Clock;

pub(crate) struct TimedTable {
    /// Comes before the head's states (`holds_state`); all others are leaves.
    table: Mutex<SessionTable>,
    clock: Arc<dyn Clock>,
}

impl TimedTable {
    pub fn new(table: SessionTable, clock: Arc<dyn Clock>) -> TimedTable {
        TimedTable { table: Mutex::new(table), clock }
    }

    pub fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock()
    }

    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}
