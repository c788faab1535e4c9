//! Operations of NFSv4.2 (RFC 7862 §15) and extended attributes (RFC 8276).

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::{OpResult, bare_error};
use crate::{
    Bitmap4, ChangeInfo4, Component4, DeviceId4, LayoutUpdate4, NFS4_OPAQUE_LIMIT, NetAddr4, NfsStat4,
    NfsTime4, StableHow4, StateId4, Verifier4,
};

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Allocate4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub length: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Deallocate4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub length: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum NetLoc4 {
    #[xdr(1)]
    Name(#[xdr(max = NFS4_OPAQUE_LIMIT)] Opaque),
    #[xdr(2)]
    Url(#[xdr(max = NFS4_OPAQUE_LIMIT)] Opaque),
    #[xdr(3)]
    NetAddr(NetAddr4),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Copy4Args {
    pub src_stateid: StateId4,
    pub dst_stateid: StateId4,
    pub src_offset: u64,
    pub dst_offset: u64,
    /// 0 means up to the end of the source.
    pub count: u64,
    pub consecutive: bool,
    pub synchronous: bool,
    /// Empty: the source is the saved file handle of this server.
    #[xdr(max = 64)]
    pub source_server: Vec<NetLoc4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct WriteResponse4 {
    /// `wr_callback_id<1>`: present when the copy goes on asynchronously.
    pub callback_id: Option<StateId4>,
    pub count: u64,
    pub committed: StableHow4,
    pub writeverf: Verifier4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct CopyRequirements4 {
    pub consecutive: bool,
    pub synchronous: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Copy4ResOk {
    pub response: WriteResponse4,
    pub requirements: CopyRequirements4,
}

/// Result of COPY; `Err` never holds Ok or OffloadNoReqs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy4Res {
    Ok(Copy4ResOk),
    /// OFFLOAD_NO_REQS: what the server could do instead.
    NoReqs(CopyRequirements4),
    Err(NfsStat4),
}

impl OpResult for Copy4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::NoReqs(_) => NfsStat4::OffloadNoReqs,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::OffloadNoReqs => {
                Self::NoReqs(CopyRequirements4 { consecutive: true, synchronous: true })
            }
            status => Self::Err(bare_error(status)),
        }
    }
}

impl Xdr for Copy4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok(body) => body.encode(e),
            Self::NoReqs(requirements) => requirements.encode(e),
            Self::Err(status) => {
                assert!(
                    !matches!(status, NfsStat4::Ok | NfsStat4::OffloadNoReqs),
                    "{status} announces a body"
                );
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(Copy4ResOk::decode(d)?),
            NfsStat4::OffloadNoReqs => Self::NoReqs(CopyRequirements4::decode(d)?),
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CopyNotify4Args {
    pub src_stateid: StateId4,
    pub destination_server: NetLoc4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CopyNotify4ResOk {
    pub lease_time: NfsTime4,
    pub stateid: StateId4,
    #[xdr(max = 64)]
    pub source_server: Vec<NetLoc4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OffloadCancel4Args {
    pub stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OffloadStatus4Args {
    pub stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OffloadStatus4ResOk {
    pub count: u64,
    /// `osr_complete<1>`: present when the copy has ended.
    pub complete: Option<NfsStat4>,
}

/// Hints of IO_ADVISE: bits of `hints`.
pub const IO_ADVISE4_NORMAL: u32 = 0;
pub const IO_ADVISE4_SEQUENTIAL: u32 = 1;
pub const IO_ADVISE4_SEQUENTIAL_BACKWARDS: u32 = 2;
pub const IO_ADVISE4_RANDOM: u32 = 3;
pub const IO_ADVISE4_WILLNEED: u32 = 4;
pub const IO_ADVISE4_WILLNEED_OPPORTUNISTIC: u32 = 5;
pub const IO_ADVISE4_DONTNEED: u32 = 6;
pub const IO_ADVISE4_NOREUSE: u32 = 7;
pub const IO_ADVISE4_READ: u32 = 8;
pub const IO_ADVISE4_WRITE: u32 = 9;
pub const IO_ADVISE4_INIT_PROXIMITY: u32 = 10;

/// `count` is a `length4` (RFC 7862 §15.5; RFC 7863 wrote `offset4`, the same eight bytes).
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct IoAdvise4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub count: u64,
    pub hints: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct IoAdvise4ResOk {
    pub hints: Bitmap4,
}

/// An error at a data server; `opnum` is left a number, since a server need not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct DeviceError4 {
    pub deviceid: DeviceId4,
    pub status: NfsStat4,
    pub opnum: u32,
}

/// Bound of error and statistics reports in one request; Linux sends at most 20 and 4.
pub const REPORTS_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutError4Args {
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
    #[xdr(max = REPORTS_MAX)]
    pub errors: Vec<DeviceError4>,
}

/// RFC 7863: both are 64 bits (the draft of flex files had a 32-bit count; RFC 8435 refers to this one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub struct IoInfo4 {
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutStats4Args {
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
    pub read: IoInfo4,
    pub write: IoInfo4,
    pub deviceid: DeviceId4,
    pub layoutupdate: LayoutUpdate4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReadPlus4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum ReadPlusContent {
    #[xdr(0)]
    Data { offset: u64, data: Opaque },
    #[xdr(1)]
    Hole { offset: u64, length: u64 },
    #[xdr(default)]
    Other(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReadPlus4ResOk {
    pub eof: bool,
    pub contents: Vec<ReadPlusContent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum DataContent4 {
    Data = 0,
    Hole = 1,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Seek4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub what: DataContent4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Seek4ResOk {
    pub eof: bool,
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct AppDataBlock4 {
    pub offset: u64,
    pub block_size: u64,
    pub block_count: u64,
    pub reloff_blocknum: u64,
    pub block_num: u32,
    pub reloff_pattern: u64,
    pub pattern: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct WriteSame4Args {
    pub stateid: StateId4,
    pub stable: StableHow4,
    pub adb: AppDataBlock4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Clone4Args {
    pub src_stateid: StateId4,
    pub dst_stateid: StateId4,
    pub src_offset: u64,
    pub dst_offset: u64,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetXattr4Args {
    pub name: Component4,
}

/// Bounded by the record: the server answers XATTR2BIG.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetXattr4ResOk {
    pub value: Opaque,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum SetXattrOption4 {
    Either = 0,
    Create = 1,
    Replace = 2,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetXattr4Args {
    pub option: SetXattrOption4,
    pub key: Component4,
    pub value: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetXattr4ResOk {
    pub info: ChangeInfo4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ListXattrs4Args {
    pub cookie: u64,
    /// Bytes of the names in the reply with their lengths.
    pub maxcount: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ListXattrs4ResOk {
    pub cookie: u64,
    pub names: Vec<Component4>,
    pub eof: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct RemoveXattr4Args {
    pub name: Component4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct RemoveXattr4ResOk {
    pub info: ChangeInfo4,
}
