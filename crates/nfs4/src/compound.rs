//! COMPOUND: every operation's arguments and results in two unions, made from one table.
//!
//! A server decodes the header, then one operation at a time (`CompoundArgs`): what stands before a malformed
//! operation is carried out and answered, as RFC 8881 §15.1.1.3 wants it. Clients and tests use `Compound4Args` and
//! `Compound4Res` whole.

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::OpResult;
use crate::*;

/// Longest tag that is taken.
pub const TAG_BYTES_MAX: usize = 1024;

macro_rules! operations {
    ($($number:ident $variant:ident $(($args:ident: $argtype:ty))? -> $res:ty;)+) => {
        /// An operation and its arguments.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum NfsArgop4 {
            $($variant $(($argtype))?,)+
            /// A number that names no operation. Nothing after it in the COMPOUND can be read.
            Illegal(u32),
        }

        impl NfsArgop4 {
            pub fn opnum(&self) -> u32 {
                match self {
                    $(Self::$variant { .. } => op::$number,)+
                    Self::Illegal(number) => *number,
                }
            }

            /// Reads the arguments of an operation whose number has been read.
            pub fn decode_args(opnum: u32, d: &mut Decoder) -> Result<Self, XdrError> {
                Ok(match opnum {
                    $(op::$number => Self::$variant $((<$argtype as Xdr>::decode(d)?))?,)+
                    number => Self::Illegal(number),
                })
            }
        }

        impl Xdr for NfsArgop4 {
            fn encode(&self, e: &mut Encoder) {
                self.opnum().encode(e);
                match self {
                    $(Self::$variant $(($args))? => { $($args.encode(e);)? })+
                    Self::Illegal(_) => {}
                }
            }

            fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
                let opnum = u32::decode(d)?;
                Self::decode_args(opnum, d)
            }
        }

        /// An operation's result. Operations that answer a status only hold that.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum NfsResop4 {
            $($variant($res),)+
            Illegal(NfsStat4),
        }

        impl NfsResop4 {
            /// The number under which the result is sent: that of the operation, or `op::ILLEGAL`.
            pub fn opnum(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => op::$number,)+
                    Self::Illegal(_) => op::ILLEGAL,
                }
            }

            pub fn status(&self) -> NfsStat4 {
                match self {
                    $(Self::$variant(result) => OpResult::status(result),)+
                    Self::Illegal(status) => *status,
                }
            }

            /// The result of operation `opnum` that says `status`; see `OpResult::error` for errors with a body.
            /// A number that names no operation is answered as OP_ILLEGAL, whatever the status.
            pub fn error(opnum: u32, status: NfsStat4) -> Self {
                match opnum {
                    $(op::$number => Self::$variant(OpResult::error(status)),)+
                    _ => Self::Illegal(NfsStat4::OpIllegal),
                }
            }
        }

        impl Xdr for NfsResop4 {
            fn encode(&self, e: &mut Encoder) {
                self.opnum().encode(e);
                match self {
                    $(Self::$variant(result) => result.encode(e),)+
                    Self::Illegal(status) => status.encode(e),
                }
            }

            fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
                Ok(match u32::decode(d)? {
                    $(op::$number => Self::$variant(<$res as Xdr>::decode(d)?),)+
                    op::ILLEGAL => Self::Illegal(NfsStat4::decode(d)?),
                    value => return Err(XdrError::InvalidDiscriminant { type_name: "nfs_opnum4", value }),
                })
            }
        }
    };
}

operations! {
    ACCESS Access(a: Access4Args) -> Res<Access4ResOk>;
    CLOSE Close(a: Close4Args) -> Res<Close4ResOk>;
    COMMIT Commit(a: Commit4Args) -> Res<Commit4ResOk>;
    CREATE Create(a: Create4Args) -> Res<Create4ResOk>;
    DELEGPURGE DelegPurge(a: DelegPurge4Args) -> NfsStat4;
    DELEGRETURN DelegReturn(a: DelegReturn4Args) -> NfsStat4;
    GETATTR GetAttr(a: GetAttr4Args) -> Res<GetAttr4ResOk>;
    GETFH GetFh -> Res<GetFh4ResOk>;
    LINK Link(a: Link4Args) -> Res<Link4ResOk>;
    LOCK Lock(a: Lock4Args) -> Lock4Res;
    LOCKT LockT(a: LockT4Args) -> LockT4Res;
    LOCKU LockU(a: LockU4Args) -> Res<LockU4ResOk>;
    LOOKUP Lookup(a: Lookup4Args) -> NfsStat4;
    LOOKUPP LookupP -> NfsStat4;
    NVERIFY NVerify(a: NVerify4Args) -> NfsStat4;
    OPEN Open(a: Open4Args) -> Res<Open4ResOk>;
    OPENATTR OpenAttr(a: OpenAttr4Args) -> NfsStat4;
    OPEN_CONFIRM OpenConfirm(a: OpenConfirm4Args) -> Res<OpenConfirm4ResOk>;
    OPEN_DOWNGRADE OpenDowngrade(a: OpenDowngrade4Args) -> Res<OpenDowngrade4ResOk>;
    PUTFH PutFh(a: PutFh4Args) -> NfsStat4;
    PUTPUBFH PutPubFh -> NfsStat4;
    PUTROOTFH PutRootFh -> NfsStat4;
    READ Read(a: Read4Args) -> Res<Read4ResOk>;
    READDIR ReadDir(a: ReadDir4Args) -> Res<ReadDir4ResOk>;
    READLINK ReadLink -> Res<ReadLink4ResOk>;
    REMOVE Remove(a: Remove4Args) -> Res<Remove4ResOk>;
    RENAME Rename(a: Rename4Args) -> Res<Rename4ResOk>;
    RENEW Renew(a: Renew4Args) -> NfsStat4;
    RESTOREFH RestoreFh -> NfsStat4;
    SAVEFH SaveFh -> NfsStat4;
    SECINFO SecInfo(a: SecInfo4Args) -> Res<SecInfo4ResOk>;
    SETATTR SetAttr(a: SetAttr4Args) -> SetAttr4Res;
    SETCLIENTID SetClientId(a: SetClientId4Args) -> SetClientId4Res;
    SETCLIENTID_CONFIRM SetClientIdConfirm(a: SetClientIdConfirm4Args) -> NfsStat4;
    VERIFY Verify(a: Verify4Args) -> NfsStat4;
    WRITE Write(a: Write4Args) -> Res<Write4ResOk>;
    RELEASE_LOCKOWNER ReleaseLockOwner(a: ReleaseLockOwner4Args) -> NfsStat4;
    BACKCHANNEL_CTL BackchannelCtl(a: BackchannelCtl4Args) -> NfsStat4;
    BIND_CONN_TO_SESSION BindConnToSession(a: BindConnToSession4Args) -> Res<BindConnToSession4ResOk>;
    EXCHANGE_ID ExchangeId(a: ExchangeId4Args) -> Res<ExchangeId4ResOk>;
    CREATE_SESSION CreateSession(a: CreateSession4Args) -> Res<CreateSession4ResOk>;
    DESTROY_SESSION DestroySession(a: DestroySession4Args) -> NfsStat4;
    FREE_STATEID FreeStateId(a: FreeStateId4Args) -> NfsStat4;
    GET_DIR_DELEGATION GetDirDelegation(a: GetDirDelegation4Args) -> Res<GetDirDelegation4ResNonFatal>;
    GETDEVICEINFO GetDeviceInfo(a: GetDeviceInfo4Args) -> GetDeviceInfo4Res;
    GETDEVICELIST GetDeviceList(a: GetDeviceList4Args) -> Res<GetDeviceList4ResOk>;
    LAYOUTCOMMIT LayoutCommit(a: LayoutCommit4Args) -> Res<LayoutCommit4ResOk>;
    LAYOUTGET LayoutGet(a: LayoutGet4Args) -> LayoutGet4Res;
    LAYOUTRETURN LayoutReturn(a: LayoutReturn4Args) -> Res<LayoutReturn4ResOk>;
    SECINFO_NO_NAME SecInfoNoName(a: SecInfoNoName4Args) -> Res<SecInfo4ResOk>;
    SEQUENCE Sequence(a: Sequence4Args) -> Res<Sequence4ResOk>;
    SET_SSV SetSsv(a: SetSsv4Args) -> Res<SetSsv4ResOk>;
    TEST_STATEID TestStateId(a: TestStateId4Args) -> Res<TestStateId4ResOk>;
    WANT_DELEGATION WantDelegation(a: WantDelegation4Args) -> Res<OpenDelegation4>;
    DESTROY_CLIENTID DestroyClientId(a: DestroyClientId4Args) -> NfsStat4;
    RECLAIM_COMPLETE ReclaimComplete(a: ReclaimComplete4Args) -> NfsStat4;
    ALLOCATE Allocate(a: Allocate4Args) -> NfsStat4;
    COPY Copy(a: Copy4Args) -> Copy4Res;
    COPY_NOTIFY CopyNotify(a: CopyNotify4Args) -> Res<CopyNotify4ResOk>;
    DEALLOCATE Deallocate(a: Deallocate4Args) -> NfsStat4;
    IO_ADVISE IoAdvise(a: IoAdvise4Args) -> Res<IoAdvise4ResOk>;
    LAYOUTERROR LayoutError(a: LayoutError4Args) -> NfsStat4;
    LAYOUTSTATS LayoutStats(a: LayoutStats4Args) -> NfsStat4;
    OFFLOAD_CANCEL OffloadCancel(a: OffloadCancel4Args) -> NfsStat4;
    OFFLOAD_STATUS OffloadStatus(a: OffloadStatus4Args) -> Res<OffloadStatus4ResOk>;
    READ_PLUS ReadPlus(a: ReadPlus4Args) -> Res<ReadPlus4ResOk>;
    SEEK Seek(a: Seek4Args) -> Res<Seek4ResOk>;
    WRITE_SAME WriteSame(a: WriteSame4Args) -> Res<WriteResponse4>;
    CLONE Clone(a: Clone4Args) -> NfsStat4;
    GETXATTR GetXattr(a: GetXattr4Args) -> Res<GetXattr4ResOk>;
    SETXATTR SetXattr(a: SetXattr4Args) -> Res<SetXattr4ResOk>;
    LISTXATTRS ListXattrs(a: ListXattrs4Args) -> Res<ListXattrs4ResOk>;
    REMOVEXATTR RemoveXattr(a: RemoveXattr4Args) -> Res<RemoveXattr4ResOk>;
}

/// An operation whose arguments could not be read: its result is `NfsResop4::error(opnum, BADXDR)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedOp {
    /// `op::ILLEGAL` when not even the number could be read.
    pub opnum: u32,
    pub error: XdrError,
}

/// The head of a COMPOUND; the operations follow in the decoder, one `next_op` each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompoundArgs {
    /// Sent back as it came, whatever it holds.
    pub tag: Opaque,
    pub minorversion: u32,
    /// As announced: compare it with the session's limit before believing it.
    pub op_count: u32,
}

impl CompoundArgs {
    pub fn decode_header(d: &mut Decoder) -> Result<Self, XdrError> {
        // A copy: the reply has the tag, and would pin the whole request until it is sent.
        let tag = Opaque::copy_from_slice(&d.opaque(TAG_BYTES_MAX)?);
        Ok(Self { tag, minorversion: u32::decode(d)?, op_count: u32::decode(d)? })
    }

    /// Reads the next operation. If the minor version does not have it, the result is `Illegal`, and its arguments are
    /// not read.
    pub fn next_op(&self, d: &mut Decoder) -> Result<NfsArgop4, MalformedOp> {
        let opnum = u32::decode(d).map_err(|error| MalformedOp { opnum: op::ILLEGAL, error })?;
        match OpProperties::of(opnum) {
            Some(properties) if properties.is_defined_in(self.minorversion) => {
                NfsArgop4::decode_args(opnum, d).map_err(|error| MalformedOp { opnum, error })
            }
            _ => Ok(NfsArgop4::Illegal(opnum)),
        }
    }
}

/// A whole COMPOUND request, read as a server reads it: by `CompoundArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound4Args {
    pub tag: Opaque,
    pub minorversion: u32,
    pub argarray: Vec<NfsArgop4>,
}

impl Xdr for Compound4Args {
    fn encode(&self, e: &mut Encoder) {
        self.tag.encode(e);
        self.minorversion.encode(e);
        self.argarray.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        let header = CompoundArgs::decode_header(d)?;
        // The shortest operation is its number. Nothing is reserved: the list grows as operations arrive.
        if header.op_count as usize > d.remaining() / 4 {
            return Err(XdrError::UnexpectedEnd);
        }
        let mut argarray = Vec::new();
        for _ in 0..header.op_count {
            argarray.push(header.next_op(d).map_err(|malformed| malformed.error)?);
        }
        Ok(Self { tag: header.tag, minorversion: header.minorversion, argarray })
    }
}

/// A whole COMPOUND reply; `status` is that of the last result.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Compound4Res {
    pub status: NfsStat4,
    #[xdr(max = TAG_BYTES_MAX)]
    pub tag: Opaque,
    pub resarray: Vec<NfsResop4>,
}

#[cfg(test)]
mod result_samples;
#[cfg(test)]
mod roundtrip;
#[cfg(test)]
mod samples;
