//! Memory and device of a pool, sampled once a second for the decisions about modes of I/O.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use io_engine::SystemFiles;
use io_engine::pressure::{DeviceSampler, MemorySampler};
use parking_lot::Mutex;

use crate::parts::PoolParts;

pub struct Pressure {
    /// Locked by the thread that looks.
    samplers: Mutex<Samplers>,
}

struct Samplers {
    memory: MemorySampler,
    /// `None`: the file system is on no device that the kernel counts.
    device: Option<DeviceSampler>,
}

impl Pressure {
    pub fn new(root: BorrowedFd<'_>) -> Pressure {
        let memory = MemorySampler::new(SystemFiles::default());
        let device = DeviceSampler::new(SystemFiles::default(), root).ok();
        Pressure { samplers: Mutex::new(Samplers { memory, device }) }
    }

    /// Reads files of the kernel, which may block, if a decision can depend on them.
    pub fn look(&self, shared: &PoolParts, now: Instant) {
        let (path, budget) = (shared.engine.path(), shared.gathering.budget());
        path.expire_read_ahead(now);
        if !path.needs_pressure() && budget.is_none() {
            return;
        }
        let mut samplers = self.samplers.lock();
        let memory = samplers.memory.sample(now);
        let latency = samplers.device.as_mut().and_then(|device| device.sample(now).latency());
        if let Some(budget) = budget {
            budget.set_tight(memory.is_tight());
        }
        path.set_pressure(memory.is_tight(), memory.dirty_headroom_bytes, latency);
    }
}
