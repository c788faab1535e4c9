//! The engine on SQLite: one file, one connection that writes, a few that read.

mod rows;
mod store;

pub use rows::*;
pub use store::{SqliteStore, read_checksums, read_child, read_inode, read_locations, read_properties};
