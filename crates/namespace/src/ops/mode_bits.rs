//! Bits of a mode beside the nine of access.

pub const SET_GID: u32 = 0o2000;
pub const SET_UID: u32 = 0o4000;
