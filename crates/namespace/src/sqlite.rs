//! The engine on SQLite: one file, one connection that writes, a few that read.

mod accounts;
mod acls;
pub mod check;
pub mod open;
mod paths;
mod reader;
mod reserve;
pub mod rows;
pub mod schema;
mod store;
mod wal_frames;
mod wal_length;
pub mod wal_sync;
mod xattrs;

pub use open::open;
