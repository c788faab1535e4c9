//! A pool on a disk in memory that is slow, fails, and loses at a crash what no sync has covered.
//!
//! A [`DiskControl`] decides each step of it and is told of all that happens, so that a simulator can draw faults and check
//! what is promised. A [`LossyDisk`] outlives the processes that serve it ([`LossyPool`]): a fence that is not on disk is lost
//! with its process. Files are rows of [`CELLS`] cells of eight bytes and always exist. A write fills cells, each is old or new
//! after a crash.
//!
//! Deliberately absent: lengths, births, removals and ranges. [`crate::memory_pool`] has them, and passes the suite of pools.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::Ticket;
use parking_lot::Mutex;
use tokio::sync::Notify;
use types::{Epoch, FileId, PoolId};

pub use pool::LossyPool;

/// Of a file.
pub const CELLS: usize = 8;
pub const CELL_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskStep {
    Open,
    Read,
    Write,
    Sync,
    Fence,
}

/// How a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Done,
    Fails,
    /// It is answered first, and done when its time is over: a planted fault.
    AnsweredEarly,
}

/// A write that the pool has let in.
#[derive(Clone, Copy, Debug)]
pub struct BegunWrite {
    pub ticket: Ticket,
    pub value: u64,
    /// It came from a client of the pool, and not from the head.
    pub is_direct: bool,
}

/// Decides the steps of disks, and is told what they do.
pub trait DiskControl: Send + Sync {
    fn decide(&self, pool: PoolId, step: DiskStep) -> (Duration, Fate);

    /// Whether an unsynced cell is on disk after a crash. Called under the lock of the disk, as no other.
    fn survives(&self, pool: PoolId, is_power_cut: bool) -> bool;

    fn has_begun(&self, pool: PoolId, write: BegunWrite);

    /// The cell has that value from now on, by a write or because a crash took what came behind it.
    fn becomes(&self, file: FileId, cell: usize, value: u64);
}

pub struct LossyDisk {
    id: PoolId,
    control: Weak<dyn DiskControl>,
    /// Leaf lock.
    state: Mutex<DiskState>,
    /// A write is over.
    changed: Notify,
}

#[derive(Default)]
struct DiskState {
    /// Of the process that has the disk.
    process: u32,
    is_open: bool,
    files: BTreeMap<FileId, CellFile>,
    /// As the process knows them.
    fences: BTreeMap<FileId, Epoch>,
    fences_on_disk: BTreeMap<FileId, Epoch>,
    versions: u64,
}

#[derive(Default)]
struct CellFile {
    cells: [Cell; CELLS],
    /// Writes under way, by the epoch of their tickets.
    under_way: BTreeMap<Epoch, usize>,
    /// A sync has failed: all that follow fail, too, as long as the process lives.
    has_failed: bool,
}

#[derive(Default)]
struct Cell {
    now: Version,
    on_disk: Version,
    /// The number at which each value was written here, without those that a crash has taken.
    written: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Default)]
struct Version {
    value: u64,
    number: u64,
}

impl LossyDisk {
    pub fn new(id: PoolId, control: Weak<dyn DiskControl>) -> Arc<LossyDisk> {
        Arc::new(LossyDisk { id, control, state: Mutex::default(), changed: Notify::new() })
    }

    /// A process takes the disk. There is none that has it.
    pub fn open(self: &Arc<Self>) -> LossyPool {
        let mut state = self.state.lock();
        assert!(!state.is_open, "one process has the disk");
        state.process += 1;
        state.is_open = true;
        state.fences = state.fences_on_disk.clone();
        LossyPool::new(Arc::clone(self), state.process)
    }

    /// The process is gone, and with it some of what is not synced.
    pub fn end_process(&self, is_power_cut: bool) {
        let Some(control) = self.control.upgrade() else { return };
        let mut changes = Vec::new();
        {
            let mut state = self.state.lock();
            state.is_open = false;
            for (file, content) in &mut state.files {
                content.under_way.clear();
                content.has_failed = false;
                for (number, cell) in content.cells.iter_mut().enumerate() {
                    if cell.now.number == cell.on_disk.number {
                        continue;
                    }
                    if control.survives(self.id, is_power_cut) {
                        // In the page cache, or written back by itself. On disk either way as far as a crash can tell.
                        cell.on_disk = cell.now;
                        continue;
                    }
                    cell.now = cell.on_disk;
                    let kept = cell.on_disk.number;
                    cell.written.retain(|_, number| *number <= kept);
                    changes.push((*file, number, cell.now.value));
                }
            }
        }
        for (file, cell, value) in changes {
            control.becomes(file, cell, value);
        }
    }

    pub fn fence_on_disk(&self, file: FileId) -> Epoch {
        self.state.lock().fences_on_disk.get(&file).copied().unwrap_or_default()
    }

    /// Writes under way by tickets of an epoch below that one.
    pub fn has_writes_below(&self, file: FileId, epoch: Epoch) -> bool {
        let state = self.state.lock();
        state.files.get(&file).is_some_and(|content| content.under_way.range(..epoch).next().is_some())
    }

    /// The value was written to the cell, and that write or a later one is on disk.
    pub fn is_on_disk(&self, file: FileId, cell: usize, value: u64) -> bool {
        let state = self.state.lock();
        let Some(content) = state.files.get(&file) else { return false };
        let cell = &content.cells[cell];
        cell.written.get(&value).is_some_and(|number| *number <= cell.on_disk.number)
    }

    pub fn values(&self, file: FileId) -> [u64; CELLS] {
        let state = self.state.lock();
        state
            .files
            .get(&file)
            .map_or([0; CELLS], |content| content.cells.each_ref().map(|cell| cell.now.value))
    }
}
