//! The consistency of each directory: its own, or that of the instance.

use api::Consistency;
use parking_lot::Mutex;

use crate::inode::Inode;

#[derive(Default)]
pub struct Modes {
    /// Of directories that have none of their own. Leaf lock.
    default: Mutex<Consistency>,
}

impl Modes {
    pub fn set_default(&self, mode: Consistency) {
        *self.default.lock() = mode;
    }

    pub fn default_mode(&self) -> Consistency {
        *self.default.lock()
    }

    pub fn of(&self, dir: &Inode) -> Consistency {
        dir.extras.consistency.unwrap_or_else(|| self.default_mode())
    }
}
