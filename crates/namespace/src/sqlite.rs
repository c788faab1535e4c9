//! The engine on SQLite: one file, one connection that writes, a few that read.

mod accounts;
mod acls;
pub mod check;
pub mod open;
mod paths;
mod reader;
pub mod rows;
pub mod schema;
mod store;
mod wal_length;
mod wal_sync;
mod xattrs;

pub use open::open;
