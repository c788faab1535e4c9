//! The memory that a pool's requests meet, sampled once a second for the decisions about modes of I/O.

use std::time::Instant;

use io_engine::SystemFiles;
use io_engine::pressure::MemorySampler;
use parking_lot::Mutex;

use crate::parts::PoolParts;

pub struct Pressure {
    /// Locked by the thread that looks.
    memory: Mutex<MemorySampler>,
}

impl Pressure {
    pub fn new() -> Pressure {
        Pressure { memory: Mutex::new(MemorySampler::new(SystemFiles::default())) }
    }

    /// Reads files of the kernel, which may block, if a decision can depend on them.
    pub fn look(&self, shared: &PoolParts, now: Instant) {
        let (path, budget) = (shared.engine.path(), shared.gathering.budget());
        path.expire_read_ahead(now);
        if !path.needs_pressure() && budget.is_none() {
            return;
        }
        let memory = self.memory.lock().sample(now);
        if let Some(budget) = budget {
            budget.set_tight(memory.is_tight());
        }
        path.set_pressure(memory.is_tight(), memory.dirty_headroom_bytes);
    }
}
