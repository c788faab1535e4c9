//! The words every crate uses: ids, names, attributes, ranges, time, identity.
//!
//! Floor 0. Plain values without behaviour beyond their own invariants; no I/O, no clock, no randomness. A value is
//! checked where it is made (parse, don't validate), and not again.

mod access;
pub mod acl;
pub mod attributes;
pub mod calendar;
pub mod capability;
pub mod checksum;
pub mod display;
pub mod hex;
pub mod id;
pub mod identity;
pub mod name;
pub mod network;
pub mod permission;
pub mod range;
pub mod shares;
pub mod time;
pub mod xattr;

pub use access::Access;
pub use acl::{Ace, AceFlags, AceKind, AceWho, Acl};
pub use attributes::{Attributes, ChangeInfo, Device, FileKind, IoMode};
pub use calendar::DateTime;
pub use capability::{Clock, Random};
pub use checksum::{Checksum, ChecksumKind};
pub use id::{Epoch, FileId, PoolId};
pub use identity::Identity;
pub use name::{Name, NameError, SymlinkTarget};
pub use network::Network;
pub use range::ByteRange;
pub use shares::Shares;
pub use time::Timestamp;
pub use xattr::{XattrName, XattrNameError};
