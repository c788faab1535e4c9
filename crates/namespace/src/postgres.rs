//! The engine on PostgreSQL 15 or newer, in the schema `forebay` of one database.
//!
//! A group costs two round trips: what its operations will look up is asked for at once, and everything they changed is
//! sent at once, as one statement or, where its parts need an order, as a pipeline. A batch is plain data, so a group whose
//! connection was lost is sent again; whether it had arrived is told by its number in `progress`.
//!
//! One head writes. It holds an advisory lock while it is connected, and every transaction checks its epoch: a head that
//! another has taken over from changes nothing more.

mod accounts;
mod acls;
pub mod check;
pub mod connection;
mod kept;
pub mod open;
mod presence;
mod reads;
mod rows;
pub mod schema;
pub mod store;
mod tls;
pub mod trouble;
mod url;
mod whole;
mod writer;
mod xattrs;

pub use open::{database_name, open};
