//! The engine on PostgreSQL 15 or newer, in the schema `forebay` of one database.
//!
//! A group costs two round trips: what its operations will look up is asked for at once, and everything they changed is
//! sent with its BEGIN and COMMIT without waiting for an answer in between, a statement for each table. A batch is plain
//! data, so a group whose connection was lost is sent again; whether it had arrived is told by its number in `progress`.
//!
//! One head writes. It holds an advisory lock while it is connected, and every transaction checks its epoch: a head that
//! another has taken over from changes nothing more.

mod accounts;
mod check;
mod connection;
mod open;
mod reads;
mod rows;
mod schema;
mod store;

pub use open::{database_name, open};
