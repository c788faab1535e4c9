//! LOCK, LOCKT, LOCKU: byte-range locks (RFC 8881 §18.10–18.12).

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::{OpResult, bare_error};
use crate::{ClientId4, NfsStat4, StateId4, StateOwner4};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[repr(u32)]
pub enum NfsLockType4 {
    Read = 1,
    Write = 2,
    /// A reader that would wait; the server answers at once all the same.
    ReadW = 3,
    WriteW = 4,
}

impl NfsLockType4 {
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteW)
    }

    /// Whether the client is going to wait, and may be told by CB_NOTIFY_LOCK.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::ReadW | Self::WriteW)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenToLockOwner4 {
    pub open_seqid: u32,
    pub open_stateid: StateId4,
    pub lock_seqid: u32,
    pub lock_owner: StateOwner4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ExistLockOwner4 {
    pub lock_stateid: StateId4,
    pub lock_seqid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum Locker4 {
    #[xdr(0)]
    Exist(ExistLockOwner4),
    #[xdr(1)]
    New(OpenToLockOwner4),
}

/// `length` of all ones means "to the end of the file, wherever it will be".
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Lock4Args {
    pub locktype: NfsLockType4,
    pub reclaim: bool,
    pub offset: u64,
    pub length: u64,
    pub locker: Locker4,
}

/// The lock that stands in the way, and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Lock4Denied {
    pub offset: u64,
    pub length: u64,
    pub locktype: NfsLockType4,
    pub owner: StateOwner4,
}

impl Lock4Denied {
    /// The whole file, write-locked by nobody in particular: for when the holder is not known (a local lock).
    pub fn unknown_holder() -> Self {
        let owner = StateOwner4 { clientid: ClientId4(0), owner: Opaque::default() };
        Self { offset: 0, length: u64::MAX, locktype: NfsLockType4::Write, owner }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Lock4ResOk {
    pub lock_stateid: StateId4,
}

/// Result of LOCK; `Err` never holds Ok or Denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock4Res {
    Ok(Lock4ResOk),
    Denied(Lock4Denied),
    Err(NfsStat4),
}

impl OpResult for Lock4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::Denied(_) => NfsStat4::Denied,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::Denied => Self::Denied(Lock4Denied::unknown_holder()),
            status => Self::Err(bare_error(status)),
        }
    }
}

impl Xdr for Lock4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok(body) => body.encode(e),
            Self::Denied(holder) => holder.encode(e),
            Self::Err(status) => {
                assert!(!matches!(status, NfsStat4::Ok | NfsStat4::Denied), "{status} announces a body");
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(Lock4ResOk::decode(d)?),
            NfsStat4::Denied => Self::Denied(Lock4Denied::decode(d)?),
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LockT4Args {
    pub locktype: NfsLockType4,
    pub offset: u64,
    pub length: u64,
    pub owner: StateOwner4,
}

/// Result of LOCKT; `Ok` has no body, `Err` never holds Ok or Denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockT4Res {
    Ok,
    Denied(Lock4Denied),
    Err(NfsStat4),
}

impl OpResult for LockT4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok => NfsStat4::Ok,
            Self::Denied(_) => NfsStat4::Denied,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::Ok => Self::Ok,
            NfsStat4::Denied => Self::Denied(Lock4Denied::unknown_holder()),
            status => Self::Err(status),
        }
    }
}

impl Xdr for LockT4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok => {}
            Self::Denied(holder) => holder.encode(e),
            Self::Err(status) => assert!(*status != NfsStat4::Denied, "{status} announces a body"),
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok,
            NfsStat4::Denied => Self::Denied(Lock4Denied::decode(d)?),
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LockU4Args {
    pub locktype: NfsLockType4,
    pub seqid: u32,
    pub lock_stateid: StateId4,
    pub offset: u64,
    pub length: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LockU4ResOk {
    pub lock_stateid: StateId4,
}
