//! Bytes of files onto sockets without a copy in user space, by splice(2).
//!
//! A pipe takes pages of the page cache and gives them to a socket. It holds them: what is in the pipe can be promised to
//! a peer, whatever becomes of the file, and a socket that is full costs no second look at the disk. `sendfile(2)` does
//! the same with sixteen pages at a time; a pipe of 256 pages costs half of that (docs/decisions/0020-io-engine.md).

mod pipes;
mod resident;

pub use pipes::{LOAD_BYTES_MAX, Load, Pipes};
pub use resident::Resident;
