//! OPEN, CLOSE, OPEN_DOWNGRADE and delegations (RFC 8881 §18.16, §10.2).

use xdr::Xdr;

use crate::{
    Bitmap4, ChangeInfo4, ClientId4, Component4, Fattr4, NfsAce4, NfsTime4, StateId4, StateOwner4, Verifier4,
};

pub const OPEN4_SHARE_ACCESS_READ: u32 = 0x1;
pub const OPEN4_SHARE_ACCESS_WRITE: u32 = 0x2;
pub const OPEN4_SHARE_ACCESS_BOTH: u32 = 0x3;
pub const OPEN4_SHARE_DENY_NONE: u32 = 0x0;
pub const OPEN4_SHARE_DENY_READ: u32 = 0x1;
pub const OPEN4_SHARE_DENY_WRITE: u32 = 0x2;
pub const OPEN4_SHARE_DENY_BOTH: u32 = 0x3;
/// The client's wishes for delegations are bits of `share_access`.
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_MASK: u32 = 0xff00;
pub const OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE: u32 = 0x0000;
pub const OPEN4_SHARE_ACCESS_WANT_READ_DELEG: u32 = 0x0100;
pub const OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG: u32 = 0x0200;
pub const OPEN4_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 0x0300;
pub const OPEN4_SHARE_ACCESS_WANT_NO_DELEG: u32 = 0x0400;
pub const OPEN4_SHARE_ACCESS_WANT_CANCEL: u32 = 0x0500;
pub const OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 0x1_0000;
pub const OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 0x2_0000;
/// RFC 9754; sent only to servers that say so in the open_arguments attribute.
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 0x10_0000;
pub const OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 0x20_0000;

pub const OPEN4_RESULT_CONFIRM: u32 = 0x02;
pub const OPEN4_RESULT_LOCKTYPE_POSIX: u32 = 0x04;
pub const OPEN4_RESULT_PRESERVE_UNLINKED: u32 = 0x08;
/// RFC 9754 §4: there is a delegation instead of an open, and the stateid of the open is all zeros.
pub const OPEN4_RESULT_NO_OPEN_STATEID: u32 = 0x10;
pub const OPEN4_RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CreatVerfAttr {
    pub verf: Verifier4,
    pub attrs: Fattr4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum CreateHow4 {
    #[xdr(0)]
    Unchecked(Fattr4),
    #[xdr(1)]
    Guarded(Fattr4),
    /// Of NFSv4.0; a 4.1 client should not, and may, use it.
    #[xdr(2)]
    Exclusive(Verifier4),
    #[xdr(3)]
    Exclusive41(CreatVerfAttr),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum OpenFlag4 {
    #[xdr(0)]
    NoCreate,
    #[xdr(1)]
    Create(CreateHow4),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[repr(u32)]
pub enum OpenDelegationType4 {
    None = 0,
    Read = 1,
    Write = 2,
    NoneExt = 3,
    /// RFC 9754 §5: as Read and Write, and the client keeps the file's times.
    ReadAttrs = 4,
    WriteAttrs = 5,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenClaimDelegateCur4 {
    pub delegate_stateid: StateId4,
    pub file: Component4,
}

/// By what right the file is opened, and which file: the name in the current directory, or the current file.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum OpenClaim4 {
    #[xdr(0)]
    Null(Component4),
    #[xdr(1)]
    Previous(OpenDelegationType4),
    #[xdr(2)]
    DelegateCur(OpenClaimDelegateCur4),
    #[xdr(3)]
    DelegatePrev(Component4),
    #[xdr(4)]
    Fh,
    #[xdr(5)]
    DelegCurFh(StateId4),
    #[xdr(6)]
    DelegPrevFh,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Open4Args {
    /// Ignored in 4.1: the slot orders requests.
    pub seqid: u32,
    pub share_access: u32,
    pub share_deny: u32,
    pub owner: StateOwner4,
    pub openhow: OpenFlag4,
    pub claim: OpenClaim4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenReadDelegation4 {
    pub stateid: StateId4,
    pub recall: bool,
    pub permissions: NfsAce4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct NfsModifiedLimit4 {
    pub num_blocks: u32,
    pub bytes_per_block: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum NfsSpaceLimit4 {
    #[xdr(1)]
    Size(u64),
    #[xdr(2)]
    Blocks(NfsModifiedLimit4),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenWriteDelegation4 {
    pub stateid: StateId4,
    pub recall: bool,
    pub space_limit: NfsSpaceLimit4,
    pub permissions: NfsAce4,
}

/// `why_no_delegation4` values without parameters.
pub const WND4_NOT_WANTED: u32 = 0;
pub const WND4_NOT_SUPP_FTYPE: u32 = 3;
pub const WND4_WRITE_DELEG_NOT_SUPP_FTYPE: u32 = 4;
pub const WND4_NOT_SUPP_UPGRADE: u32 = 5;
pub const WND4_NOT_SUPP_DOWNGRADE: u32 = 6;
pub const WND4_CANCELLED: u32 = 7;
pub const WND4_IS_DIR: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum OpenNoneDelegation4 {
    #[xdr(1)]
    Contention { server_will_push_deleg: bool },
    #[xdr(2)]
    Resource { server_will_signal_avail: bool },
    /// One of the `WND4_*` reasons that have no parameter.
    #[xdr(default)]
    Why(u32),
}

/// A write delegation is boxed: it is rare, and would make every OPEN result as large as itself.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum OpenDelegation4 {
    #[xdr(0)]
    None,
    #[xdr(1)]
    Read(Box<OpenReadDelegation4>),
    #[xdr(2)]
    Write(Box<OpenWriteDelegation4>),
    #[xdr(3)]
    NoneExt(OpenNoneDelegation4),
    #[xdr(4)]
    ReadAttrs(Box<OpenReadDelegation4>),
    #[xdr(5)]
    WriteAttrs(Box<OpenWriteDelegation4>),
}

/// Arguments that OPEN supports: a bitmap of the values of each (RFC 9754 §3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct OpenArguments4 {
    pub share_access: Bitmap4,
    pub share_deny: Bitmap4,
    /// By their bit numbers in `share_access`, those of `OPEN4_SHARE_ACCESS_WANT_DELEG_MASK` by their values.
    pub share_access_want: Bitmap4,
    pub open_claim: Bitmap4,
    pub create_mode: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Open4ResOk {
    pub stateid: StateId4,
    pub cinfo: ChangeInfo4,
    pub rflags: u32,
    pub attrset: Bitmap4,
    pub delegation: OpenDelegation4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenDowngrade4Args {
    pub open_stateid: StateId4,
    pub seqid: u32,
    pub share_access: u32,
    pub share_deny: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenDowngrade4ResOk {
    pub open_stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Close4Args {
    pub seqid: u32,
    pub open_stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Close4ResOk {
    pub open_stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DelegPurge4Args {
    pub clientid: ClientId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DelegReturn4Args {
    pub deleg_stateid: StateId4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum DelegClaim4 {
    #[xdr(1)]
    Previous(OpenDelegationType4),
    #[xdr(4)]
    Fh,
    #[xdr(6)]
    DelegPrevFh,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct WantDelegation4Args {
    pub want: u32,
    pub claim: DelegClaim4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDirDelegation4Args {
    pub signal_deleg_avail: bool,
    pub notification_types: Bitmap4,
    pub child_attr_delay: NfsTime4,
    pub dir_attr_delay: NfsTime4,
    pub child_attributes: Bitmap4,
    pub dir_attributes: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDirDelegation4ResOk {
    pub cookieverf: Verifier4,
    pub stateid: StateId4,
    pub notification: Bitmap4,
    pub child_attributes: Bitmap4,
    pub dir_attributes: Bitmap4,
}

/// A status inside the status: no delegation is no error.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum GetDirDelegation4ResNonFatal {
    #[xdr(0)]
    Ok(Box<GetDirDelegation4ResOk>),
    #[xdr(1)]
    Unavail { will_signal_deleg_avail: bool },
}
