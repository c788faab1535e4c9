//! The rows that a group writes.
//!
//! Invariant: a group that changed any row but those of inodes knows it, so that it is written. Inodes and names are added at
//! the end, each once however often it was touched.

use crate::store::Batch;

#[derive(Default)]
pub struct Rows {
    /// Without its inodes and names, until the end.
    pub batch: Batch,
    /// Something other than inodes is to be written.
    is_written: bool,
}

impl Rows {
    /// To change something other than inodes.
    pub fn change(&mut self) -> &mut Batch {
        self.is_written = true;
        &mut self.batch
    }

    /// The group is written also if it changes nothing, and is on disk when it is answered, where that can be.
    pub fn be_durable(&mut self) {
        self.change().is_durable = true;
    }

    pub fn is_written(&self) -> bool {
        self.is_written
    }
}
