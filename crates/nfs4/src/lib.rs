//! NFSv4.1 and 4.2 on the wire (RFC 8881/5662, RFC 7862/7863, RFC 8276, RFC 8435).
//!
//! Pure values and their XDR: no sessions, no policy, no I/O. Names are the RFC's in Rust case; fields lose the
//! operation's prefix. Payloads (`READ`, `WRITE`, layout bodies) are shared bytes and are never copied.
//! Every field that a peer can make long has a bound, or is bounded by the record it came in.

#![forbid(unsafe_code)]

pub mod attr;
mod basic;
mod bitmap;
mod callback;
mod compound;
pub mod flexfiles;
pub mod op;
mod ops;
mod result;
mod status;

pub use attr::{AttrError, Fattr4, FileAttributes};
pub use basic::*;
pub use bitmap::Bitmap4;
pub use callback::*;
pub use compound::*;
pub use flexfiles::*;
pub use op::OpProperties;
pub use ops::*;
pub use result::{OpResult, Res};
pub use status::NfsStat4;

/// ONC RPC program number of NFS (RFC 8881 §2.3).
pub const NFS4_PROGRAM: u32 = 100_003;
/// ONC RPC program version of NFSv4, all minor versions.
pub const NFS_V4: u32 = 4;
/// Procedure 0: does nothing, answers nothing.
pub const NFSPROC4_NULL: u32 = 0;
/// Procedure 1: every operation travels in a COMPOUND.
pub const NFSPROC4_COMPOUND: u32 = 1;
/// Procedures of the callback program, whose number the client chooses in CREATE_SESSION.
pub const CB_NULL: u32 = 0;
pub const CB_COMPOUND: u32 = 1;
/// Program version of the callback program (RFC 5662: `version NFS_CB = 1`; Linux serves 1 for 4.1 and up).
pub const NFS_CB_VERSION: u32 = 1;
