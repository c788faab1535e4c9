//! Bits of a mode beside the nine of access.

/// Only owners remove entries of the directory.
pub const STICKY: u32 = 0o1000;
pub const SET_GID: u32 = 0o2000;
pub const SET_UID: u32 = 0o4000;
