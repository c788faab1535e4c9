//! The basic data types of RFC 8881 §3: identifiers, handles, names, times, owners, addresses.
//!
//! Byte strings are kept as bytes: whether a name is too long or an owner is well formed is the server's judgement
//! and has its own status; only absurd lengths are refused here as BADXDR.

use bytes::Bytes;
use xdr::{Opaque, Xdr};

/// Longest file handle (RFC 8881 §3.3).
pub const NFS4_FHSIZE: usize = 128;
/// Bound of client owners, state owners, server owners and scopes.
pub const NFS4_OPAQUE_LIMIT: usize = 1024;
/// Longest name let through to the server, which answers NAMETOOLONG from 256 on.
pub const COMPONENT_BYTES_MAX: usize = 4096;
/// Longest symbolic link text let through to the server, which judges it.
pub const LINKTEXT_BYTES_MAX: usize = 64 * 1024;

/// A client id given by the server in EXCHANGE_ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct ClientId4(pub u64);

/// A session id given by the server in CREATE_SESSION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct SessionId4(pub [u8; 16]);

/// A verifier: opaque eight bytes that are compared for equality only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct Verifier4(pub [u8; 8]);

/// The name of a data server (or of a set of addresses of one) in a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct DeviceId4(pub [u8; 16]);

/// A reference to server state (RFC 8881 §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct StateId4 {
    pub seqid: u32,
    pub other: [u8; 12],
}

impl StateId4 {
    /// No state: I/O judged as if by a client that holds nothing (RFC 8881 §8.2.3).
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// READ that goes past other clients' share denials where the server wants to; all bits one.
    pub const BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// "The stateid that the COMPOUND has set last" (RFC 8881 §16.2.3.1.2).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// A stateid that the server never gives out and always refuses.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// Whether it is one of the reserved values (RFC 8881 §8.2.3): `other` all zeros or all ones.
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

/// A file handle: at most 128 bytes that mean something to the server only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct NfsFh4(#[xdr(max = NFS4_FHSIZE)] pub Opaque);

impl NfsFh4 {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for NfsFh4 {
    fn from(bytes: Bytes) -> Self {
        Self(Opaque(bytes))
    }
}

impl From<Vec<u8>> for NfsFh4 {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Opaque(Bytes::from(bytes)))
    }
}

/// One name in a directory; its rules (length, `/`, NUL, encoding) are the server's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct Component4(#[xdr(max = COMPONENT_BYTES_MAX)] pub Opaque);

impl Component4 {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Component4 {
    fn from(bytes: Bytes) -> Self {
        Self(Opaque(bytes))
    }
}

impl From<&[u8]> for Component4 {
    fn from(bytes: &[u8]) -> Self {
        Self(Opaque(Bytes::copy_from_slice(bytes)))
    }
}

impl From<&str> for Component4 {
    fn from(name: &str) -> Self {
        name.as_bytes().into()
    }
}

/// Text of a symbolic link, never interpreted by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct LinkText4(#[xdr(max = LINKTEXT_BYTES_MAX)] pub Opaque);

impl LinkText4 {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for LinkText4 {
    fn from(bytes: Bytes) -> Self {
        Self(Opaque(bytes))
    }
}

/// Seconds and nanoseconds since 1970-01-01T00:00Z; `nseconds` of a second or more is INVAL, judged by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub struct NfsTime4 {
    pub seconds: i64,
    pub nseconds: u32,
}

/// How SETATTR sets a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum SetTime4 {
    #[xdr(0)]
    ServerTime,
    #[xdr(1)]
    ClientTime(NfsTime4),
}

/// The change attribute of a directory before and after an operation in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub struct ChangeInfo4 {
    pub atomic: bool,
    pub before: u64,
    pub after: u64,
}

/// Identity of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct FsId4 {
    pub major: u64,
    pub minor: u64,
}

/// Device numbers of a block or character special file: major, minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct SpecData4 {
    pub specdata1: u32,
    pub specdata2: u32,
}

/// Network id ("tcp", "tcp6", "rdma") and universal address ("192.0.2.1.8.1": the port is the last two octets).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct NetAddr4 {
    #[xdr(max = 64)]
    pub netid: String,
    #[xdr(max = 256)]
    pub addr: String,
}

/// The owner of opens or locks: an open owner or a lock owner of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Xdr)]
pub struct StateOwner4 {
    /// Ignored in 4.1 (RFC 8881 §8.8): the session tells the client.
    pub clientid: ClientId4,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub owner: Opaque,
}

/// `co_verifier`, `co_ownerid`: the client's own name for itself, and its boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Xdr)]
pub struct ClientOwner4 {
    pub verifier: Verifier4,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub ownerid: Opaque,
}

/// Identity of the server; the client may trunk connections with equal `major_id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Xdr)]
pub struct ServerOwner4 {
    pub minor_id: u64,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub major_id: Opaque,
}

/// Name and date of an implementation; for people only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct NfsImplId4 {
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub domain: Opaque,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub name: Opaque,
    pub date: NfsTime4,
}

/// File types (RFC 8881 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[repr(u32)]
pub enum NfsFtype4 {
    Reg = 1,
    Dir = 2,
    Blk = 3,
    Chr = 4,
    Lnk = 5,
    Sock = 6,
    Fifo = 7,
    AttrDir = 8,
    NamedAttr = 9,
}

/// Values of the fh_expire_type attribute.
pub const FH4_PERSISTENT: u32 = 0;
pub const FH4_NOEXPIRE_WITH_OPEN: u32 = 1;
pub const FH4_VOLATILE_ANY: u32 = 2;
pub const FH4_VOL_MIGRATION: u32 = 4;
pub const FH4_VOL_RENAME: u32 = 8;

/// Bits of the mode attribute.
pub const MODE4_SUID: u32 = 0x800;
pub const MODE4_SGID: u32 = 0x400;
pub const MODE4_SVTX: u32 = 0x200;
pub const MODE4_RUSR: u32 = 0x100;
pub const MODE4_WUSR: u32 = 0x080;
pub const MODE4_XUSR: u32 = 0x040;
pub const MODE4_RGRP: u32 = 0x020;
pub const MODE4_WGRP: u32 = 0x010;
pub const MODE4_XGRP: u32 = 0x008;
pub const MODE4_ROTH: u32 = 0x004;
pub const MODE4_WOTH: u32 = 0x002;
pub const MODE4_XOTH: u32 = 0x001;

/// An access control entry, of an ACL or of a delegation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct NfsAce4 {
    pub ace_type: u32,
    pub flag: u32,
    pub access_mask: u32,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub who: Opaque,
}

pub const ACE4_ACCESS_ALLOWED_ACE_TYPE: u32 = 0;
pub const ACE4_ACCESS_DENIED_ACE_TYPE: u32 = 1;
pub const ACE4_SYSTEM_AUDIT_ACE_TYPE: u32 = 2;
pub const ACE4_SYSTEM_ALARM_ACE_TYPE: u32 = 3;
pub const ACE4_SUCCESSFUL_ACCESS_ACE_FLAG: u32 = 0x10;
pub const ACE4_FAILED_ACCESS_ACE_FLAG: u32 = 0x20;
pub const ACE4_IDENTIFIER_GROUP: u32 = 0x40;
pub const ACE4_INHERITED_ACE: u32 = 0x80;
/// Bits of the aclsupport attribute.
pub const ACL4_SUPPORT_ALLOW_ACL: u32 = 1;
pub const ACL4_SUPPORT_DENY_ACL: u32 = 2;
pub const ACE4_GENERIC_READ: u32 = 0x0012_0081;
pub const ACE4_GENERIC_WRITE: u32 = 0x0016_0106;
pub const ACE4_GENERIC_EXECUTE: u32 = 0x0012_00a0;
