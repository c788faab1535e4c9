//! Arguments and results of the operations, grouped by concern.
//!
//! `CURRENT_FH` and `SAVED_FH` are not on the wire and not here. Fields lose the RFC's per-operation prefix.

mod io;
mod layout;
mod lock;
mod namespace;
mod obsolete;
mod open;
mod session;
mod v42;

pub use io::*;
pub use layout::*;
pub use lock::*;
pub use namespace::*;
pub use obsolete::*;
pub use open::*;
pub use session::*;
pub use v42::*;
