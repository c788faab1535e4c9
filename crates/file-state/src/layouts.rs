//! Layouts of one file: who may read and write it at the pools without asking (RFC 8881 §12.5).
//!
//! A layout is of the whole file. While one is being recalled nobody gets another.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutMode {
    Read,
    ReadWrite,
}

/// The layouts that a holder has of one file: one of each mode at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutModes {
    pub read: bool,
    pub read_write: bool,
}

impl LayoutModes {
    pub const NONE: LayoutModes = LayoutModes { read: false, read_write: false };
    pub const ALL: LayoutModes = LayoutModes { read: true, read_write: true };

    pub fn only(mode: LayoutMode) -> LayoutModes {
        LayoutModes { read: mode == LayoutMode::Read, read_write: mode == LayoutMode::ReadWrite }
    }

    pub fn is_empty(self) -> bool {
        self == LayoutModes::NONE
    }

    pub(crate) fn with(self, mode: LayoutMode) -> LayoutModes {
        let more = LayoutModes::only(mode);
        LayoutModes { read: self.read || more.read, read_write: self.read_write || more.read_write }
    }

    pub(crate) fn without(self, other: LayoutModes) -> LayoutModes {
        LayoutModes { read: self.read && !other.read, read_write: self.read_write && !other.read_write }
    }
}
