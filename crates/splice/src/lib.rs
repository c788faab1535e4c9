//! Bytes of files onto sockets without a copy in user space, by splice(2).
//!
//! A pipe takes pages of the page cache and gives them to a socket. It holds them, so that a socket that is full costs no
//! second look at the disk. The bytes are those of the page cache when they are sent: a write or a cut in between shows.
//! `sendfile(2)` does the same with sixteen pages at a time; a pipe of 256 pages costs half of that
//! (docs/decisions/0020-splice.md).

mod cachestat;
mod pipes;
mod resident;

pub use cachestat::{CachedPages, cachestat};
pub use pipes::{LOAD_BYTES_MAX, Load, Pipes};
pub use resident::Resident;
