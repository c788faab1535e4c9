//! The engine on PostgreSQL 15 or newer, in the schema `forebay` of one database.
//!
//! A group costs two round trips: what its operations will look up is asked for at once, and everything they changed is
//! sent at once, as one statement or, where its parts need an order, as a pipeline. A batch is plain data, so a group whose
//! connection was lost is sent again; its number in `progress` tells whether it had arrived.
//!
//! One head writes. It holds an advisory lock while it is connected, and every transaction checks its epoch: a head that
//! another has taken over from changes nothing more.

mod accounts;
mod acls;
mod change;
pub mod check;
pub mod connection;
mod holder;
mod link;
pub mod open;
pub mod presence;
mod reads;
mod rows;
pub mod schema;
mod settings;
pub mod store;
mod tenure;
mod tls;
pub mod trouble;
mod unsynced;
mod url;
mod whole;
mod writer;
mod xattrs;

pub use open::{database_name, open};
