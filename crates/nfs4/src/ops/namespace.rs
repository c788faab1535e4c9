//! Names, attributes, handles and security: LOOKUP, READDIR, CREATE, GETATTR, PUTFH, SECINFO and their kin.

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::OpResult;
use crate::{
    Bitmap4, ChangeInfo4, Component4, Fattr4, LinkText4, NfsFh4, NfsStat4, SpecData4, StateId4, Verifier4,
};

/// Bits of ACCESS (RFC 8881 §18.1; the XA ones are RFC 8276 §8.4).
pub const ACCESS4_READ: u32 = 0x0001;
pub const ACCESS4_LOOKUP: u32 = 0x0002;
pub const ACCESS4_MODIFY: u32 = 0x0004;
pub const ACCESS4_EXTEND: u32 = 0x0008;
pub const ACCESS4_DELETE: u32 = 0x0010;
pub const ACCESS4_EXECUTE: u32 = 0x0020;
pub const ACCESS4_XAREAD: u32 = 0x0040;
pub const ACCESS4_XAWRITE: u32 = 0x0080;
pub const ACCESS4_XALIST: u32 = 0x0100;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Access4Args {
    pub access: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Access4ResOk {
    pub supported: u32,
    pub access: u32,
}

/// The type of object to CREATE. Regular files and types that cannot be made come as `Other`: BADTYPE (RFC 8881 §18.4).
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum CreateType4 {
    #[xdr(2)]
    Dir,
    #[xdr(3)]
    Blk(SpecData4),
    #[xdr(4)]
    Chr(SpecData4),
    #[xdr(5)]
    Lnk(LinkText4),
    #[xdr(6)]
    Sock,
    #[xdr(7)]
    Fifo,
    #[xdr(default)]
    Other(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Create4Args {
    pub objtype: CreateType4,
    pub objname: Component4,
    pub createattrs: Fattr4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Create4ResOk {
    pub cinfo: ChangeInfo4,
    pub attrset: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetAttr4Args {
    pub attr_request: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetAttr4ResOk {
    pub obj_attributes: Fattr4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetFh4ResOk {
    pub object: NfsFh4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct PutFh4Args {
    pub object: NfsFh4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Link4Args {
    pub newname: Component4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Link4ResOk {
    pub cinfo: ChangeInfo4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Lookup4Args {
    pub objname: Component4,
}

/// Arguments of VERIFY.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Verify4Args {
    pub obj_attributes: Fattr4,
}

/// Arguments of NVERIFY.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct NVerify4Args {
    pub obj_attributes: Fattr4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReadDir4Args {
    pub cookie: u64,
    pub cookieverf: Verifier4,
    /// Bytes of names and cookies; a hint.
    pub dircount: u32,
    /// Bytes of the whole `READDIR4resok`; a limit.
    pub maxcount: u32,
    pub attr_request: Bitmap4,
}

/// `entry4` without its link to the next one.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DirEntry4 {
    pub cookie: u64,
    pub name: Component4,
    pub attrs: Fattr4,
}

impl DirEntry4 {
    /// Bytes that the entry takes in a READDIR reply, with the "there is an entry" word before it.
    pub fn encoded_len(&self) -> usize {
        4 + 8 + 4 + self.name.as_bytes().len().next_multiple_of(4) + self.attrs.encoded_len()
    }
}

/// Entries are a linked list on the wire: TRUE before each, FALSE after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDir4ResOk {
    pub cookieverf: Verifier4,
    pub entries: Vec<DirEntry4>,
    pub eof: bool,
}

impl ReadDir4ResOk {
    /// Bytes of the reply without entries: verifier, end of list, eof. `maxcount` counts these too.
    pub const EMPTY_LEN: usize = 8 + 4 + 4;
}

impl Xdr for ReadDir4ResOk {
    fn encode(&self, e: &mut Encoder) {
        self.cookieverf.encode(e);
        for entry in &self.entries {
            true.encode(e);
            entry.encode(e);
        }
        false.encode(e);
        self.eof.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        let cookieverf = Verifier4::decode(d)?;
        let mut entries = Vec::new();
        // The list announces no count; it grows by at least 24 bytes of input an entry.
        while bool::decode(d)? {
            entries.push(DirEntry4::decode(d)?);
        }
        Ok(Self { cookieverf, entries, eof: bool::decode(d)? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReadLink4ResOk {
    pub link: LinkText4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Remove4Args {
    pub target: Component4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Remove4ResOk {
    pub cinfo: ChangeInfo4,
}

/// `oldname` is in the saved, `newname` in the current directory.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Rename4Args {
    pub oldname: Component4,
    pub newname: Component4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Rename4ResOk {
    pub source_cinfo: ChangeInfo4,
    pub target_cinfo: ChangeInfo4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetAttr4Args {
    pub stateid: StateId4,
    pub obj_attributes: Fattr4,
}

/// Result of SETATTR: what was set is said on failure too, since it may have been set in part.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetAttr4Res {
    pub status: NfsStat4,
    pub attrsset: Bitmap4,
}

impl OpResult for SetAttr4Res {
    fn status(&self) -> NfsStat4 {
        self.status
    }

    fn error(status: NfsStat4) -> Self {
        Self { status, attrsset: Bitmap4::EMPTY }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SecInfo4Args {
    pub name: Component4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum SecInfoStyle4 {
    CurrentFh = 0,
    Parent = 1,
}

/// SECINFO_NO_NAME's arguments are the bare style.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SecInfoNoName4Args {
    pub style: SecInfoStyle4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum RpcGssSvc {
    None = 1,
    Integrity = 2,
    Privacy = 3,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct RpcSecGssInfo {
    #[xdr(max = 256)]
    pub oid: Opaque,
    pub qop: u32,
    pub service: RpcGssSvc,
}

/// RPC flavors that SECINFO names.
pub const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;
pub const RPCSEC_GSS: u32 = 6;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum SecInfo4 {
    #[xdr(6)]
    RpcSecGss(RpcSecGssInfo),
    /// Any flavor without parameters: AUTH_NONE, AUTH_SYS, ...
    #[xdr(default)]
    Flavor(u32),
}

/// Result of SECINFO and SECINFO_NO_NAME: flavors in the server's order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SecInfo4ResOk {
    #[xdr(max = 64)]
    pub flavors: Vec<SecInfo4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenAttr4Args {
    pub createdir: bool,
}
