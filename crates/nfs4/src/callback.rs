//! The callback program: what the server asks of the client (RFC 8881 §20, RFC 7862 §16).

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::{OpResult, Res};
use crate::{
    Bitmap4, DeviceId4, FsId4, GetAttr4ResOk, LayoutIomode4, LayoutType4, NfsFh4, NfsStat4, OpenDelegation4,
    SessionId4, StateId4, StateOwner4, TAG_BYTES_MAX, WriteResponse4,
};

/// Numbers of the callback operations.
pub mod cb_op {
    pub const GETATTR: u32 = 3;
    pub const RECALL: u32 = 4;
    pub const LAYOUTRECALL: u32 = 5;
    pub const NOTIFY: u32 = 6;
    pub const PUSH_DELEG: u32 = 7;
    pub const RECALL_ANY: u32 = 8;
    pub const RECALLABLE_OBJ_AVAIL: u32 = 9;
    pub const RECALL_SLOT: u32 = 10;
    pub const SEQUENCE: u32 = 11;
    pub const WANTS_CANCELLED: u32 = 12;
    pub const NOTIFY_LOCK: u32 = 13;
    pub const NOTIFY_DEVICEID: u32 = 14;
    pub const OFFLOAD: u32 = 15;
    pub const ILLEGAL: u32 = 10_044;
}

/// Bits of CB_RECALL_ANY's mask (those of flex files are `RCA4_TYPE_MASK_FF_LAYOUT_*`).
pub const RCA4_TYPE_MASK_RDATA_DLG: u32 = 0;
pub const RCA4_TYPE_MASK_WDATA_DLG: u32 = 1;
pub const RCA4_TYPE_MASK_DIR_DLG: u32 = 2;
pub const RCA4_TYPE_MASK_FILE_LAYOUT: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbGetAttr4Args {
    pub fh: NfsFh4,
    pub attr_request: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbRecall4Args {
    pub stateid: StateId4,
    pub truncate: bool,
    pub fh: NfsFh4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutRecallFile4 {
    pub fh: NfsFh4,
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum LayoutRecall4 {
    #[xdr(1)]
    File(LayoutRecallFile4),
    #[xdr(2)]
    FsId(FsId4),
    #[xdr(3)]
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbLayoutRecall4Args {
    pub layout_type: LayoutType4,
    pub iomode: LayoutIomode4,
    /// The layout has changed: the client shall not write through the old one while it returns it.
    pub changed: bool,
    pub recall: LayoutRecall4,
}

/// `notify4`: which notifications, and their values in the order of the mask.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Notify4 {
    pub mask: Bitmap4,
    pub vals: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct NotifyDeviceIdDelete4 {
    pub layout_type: LayoutType4,
    pub deviceid: DeviceId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct NotifyDeviceIdChange4 {
    pub layout_type: LayoutType4,
    pub deviceid: DeviceId4,
    pub immediate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbNotify4Args {
    pub stateid: StateId4,
    pub fh: NfsFh4,
    pub changes: Vec<Notify4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbPushDeleg4Args {
    pub fh: NfsFh4,
    pub delegation: OpenDelegation4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbRecallAny4Args {
    pub objects_to_keep: u32,
    pub type_mask: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbRecallSlot4Args {
    pub target_highest_slotid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ReferringCall4 {
    pub sequenceid: u32,
    pub slotid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReferringCallList4 {
    pub sessionid: SessionId4,
    #[xdr(max = 1024)]
    pub referring_calls: Vec<ReferringCall4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbSequence4Args {
    pub sessionid: SessionId4,
    pub sequenceid: u32,
    pub slotid: u32,
    pub highest_slotid: u32,
    pub cachethis: bool,
    /// Requests of the client whose replies the callback might overtake (RFC 8881 §2.10.6.3).
    #[xdr(max = 1024)]
    pub referring_call_lists: Vec<ReferringCallList4>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct CbSequence4ResOk {
    pub sessionid: SessionId4,
    pub sequenceid: u32,
    pub slotid: u32,
    pub highest_slotid: u32,
    pub target_highest_slotid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbWantsCancelled4Args {
    pub contended_wants_cancelled: bool,
    pub resourced_wants_cancelled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbNotifyLock4Args {
    pub fh: NfsFh4,
    pub lock_owner: StateOwner4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbNotifyDeviceId4Args {
    pub changes: Vec<Notify4>,
}

/// How an asynchronous copy ended: with its result, or with an error and the bytes copied until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadInfo4 {
    Ok(WriteResponse4),
    Err { status: NfsStat4, bytes_copied: u64 },
}

impl Xdr for OffloadInfo4 {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Ok(response) => {
                NfsStat4::Ok.encode(e);
                response.encode(e);
            }
            Self::Err { status, bytes_copied } => {
                assert!(*status != NfsStat4::Ok, "NFS4_OK announces a write response");
                status.encode(e);
                bytes_copied.encode(e);
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(WriteResponse4::decode(d)?),
            status => Self::Err { status, bytes_copied: u64::decode(d)? },
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbOffload4Args {
    pub fh: NfsFh4,
    pub stateid: StateId4,
    pub offload_info: OffloadInfo4,
}

macro_rules! callbacks {
    ($($number:ident $variant:ident($argtype:ty) -> $res:ty;)+) => {
        /// A callback operation and its arguments.
        #[derive(Clone, Debug, PartialEq, Eq, Xdr)]
        #[xdr(union)]
        pub enum NfsCbArgop4 {
            $(#[xdr(cb_op::$number)] $variant($argtype),)+
            #[xdr(default)]
            Illegal(u32),
        }

        /// A callback operation's result.
        #[derive(Clone, Debug, PartialEq, Eq, Xdr)]
        #[xdr(union)]
        pub enum NfsCbResop4 {
            $(#[xdr(cb_op::$number)] $variant($res),)+
            #[xdr(cb_op::ILLEGAL)]
            Illegal(NfsStat4),
        }

        impl NfsCbResop4 {
            pub fn opnum(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => cb_op::$number,)+
                    Self::Illegal(_) => cb_op::ILLEGAL,
                }
            }

            pub fn status(&self) -> NfsStat4 {
                match self {
                    $(Self::$variant(result) => OpResult::status(result),)+
                    Self::Illegal(status) => *status,
                }
            }
        }
    };
}

callbacks! {
    GETATTR GetAttr(CbGetAttr4Args) -> Res<GetAttr4ResOk>;
    RECALL Recall(CbRecall4Args) -> NfsStat4;
    LAYOUTRECALL LayoutRecall(CbLayoutRecall4Args) -> NfsStat4;
    NOTIFY Notify(CbNotify4Args) -> NfsStat4;
    PUSH_DELEG PushDeleg(CbPushDeleg4Args) -> NfsStat4;
    RECALL_ANY RecallAny(CbRecallAny4Args) -> NfsStat4;
    RECALLABLE_OBJ_AVAIL RecallableObjAvail(CbRecallAny4Args) -> NfsStat4;
    RECALL_SLOT RecallSlot(CbRecallSlot4Args) -> NfsStat4;
    SEQUENCE Sequence(CbSequence4Args) -> Res<CbSequence4ResOk>;
    WANTS_CANCELLED WantsCancelled(CbWantsCancelled4Args) -> NfsStat4;
    NOTIFY_LOCK NotifyLock(CbNotifyLock4Args) -> NfsStat4;
    NOTIFY_DEVICEID NotifyDeviceId(CbNotifyDeviceId4Args) -> NfsStat4;
    OFFLOAD Offload(CbOffload4Args) -> NfsStat4;
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbCompound4Args {
    #[xdr(max = TAG_BYTES_MAX)]
    pub tag: Opaque,
    pub minorversion: u32,
    /// Of NFSv4.0; 0.
    pub callback_ident: u32,
    pub argarray: Vec<NfsCbArgop4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbCompound4Res {
    pub status: NfsStat4,
    #[xdr(max = TAG_BYTES_MAX)]
    pub tag: Opaque,
    pub resarray: Vec<NfsCbResop4>,
}
