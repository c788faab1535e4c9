//! Clients and sessions: EXCHANGE_ID, CREATE_SESSION, SEQUENCE and their kin (RFC 8881 §18.33–18.51).

use xdr::{Opaque, Xdr};

use crate::{
    Bitmap4, ClientId4, ClientOwner4, NFS4_OPAQUE_LIMIT, NfsImplId4, NfsStat4, RpcGssSvc, ServerOwner4,
    SessionId4, StateId4,
};

pub const EXCHGID4_FLAG_SUPP_MOVED_REFER: u32 = 0x0000_0001;
pub const EXCHGID4_FLAG_SUPP_MOVED_MIGR: u32 = 0x0000_0002;
/// RFC 7862 §12.1.
pub const EXCHGID4_FLAG_SUPP_FENCE_OPS: u32 = 0x0000_0004;
pub const EXCHGID4_FLAG_BIND_PRINC_STATEID: u32 = 0x0000_0100;
pub const EXCHGID4_FLAG_USE_NON_PNFS: u32 = 0x0001_0000;
pub const EXCHGID4_FLAG_USE_PNFS_MDS: u32 = 0x0002_0000;
pub const EXCHGID4_FLAG_USE_PNFS_DS: u32 = 0x0004_0000;
pub const EXCHGID4_FLAG_MASK_PNFS: u32 = 0x0007_0000;
pub const EXCHGID4_FLAG_UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
pub const EXCHGID4_FLAG_CONFIRMED_R: u32 = 0x8000_0000;

pub const CREATE_SESSION4_FLAG_PERSIST: u32 = 0x1;
pub const CREATE_SESSION4_FLAG_CONN_BACK_CHAN: u32 = 0x2;
pub const CREATE_SESSION4_FLAG_CONN_RDMA: u32 = 0x4;

pub const SEQ4_STATUS_CB_PATH_DOWN: u32 = 0x0001;
pub const SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING: u32 = 0x0002;
pub const SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED: u32 = 0x0004;
pub const SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED: u32 = 0x0008;
pub const SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED: u32 = 0x0010;
pub const SEQ4_STATUS_ADMIN_STATE_REVOKED: u32 = 0x0020;
pub const SEQ4_STATUS_RECALLABLE_STATE_REVOKED: u32 = 0x0040;
pub const SEQ4_STATUS_LEASE_MOVED: u32 = 0x0080;
pub const SEQ4_STATUS_RESTART_RECLAIM_NEEDED: u32 = 0x0100;
pub const SEQ4_STATUS_CB_PATH_DOWN_SESSION: u32 = 0x0200;
pub const SEQ4_STATUS_BACKCHANNEL_FAULT: u32 = 0x0400;
pub const SEQ4_STATUS_DEVID_CHANGED: u32 = 0x0800;
pub const SEQ4_STATUS_DEVID_DELETED: u32 = 0x1000;

/// Bound of lists of algorithms, GSS handles and security parameters: more than any client has to offer.
const PARMS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub struct StateProtectOps4 {
    pub must_enforce: Bitmap4,
    pub must_allow: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SsvSpParms4 {
    pub ops: StateProtectOps4,
    #[xdr(max = PARMS_MAX)]
    pub hash_algs: Vec<Opaque>,
    #[xdr(max = PARMS_MAX)]
    pub encr_algs: Vec<Opaque>,
    pub window: u32,
    pub num_gss_handles: u32,
}

/// `state_protect4_a`: the protection that the client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum StateProtect4A {
    #[xdr(0)]
    None,
    #[xdr(1)]
    MachCred(StateProtectOps4),
    #[xdr(2)]
    Ssv(Box<SsvSpParms4>),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ExchangeId4Args {
    pub clientowner: ClientOwner4,
    pub flags: u32,
    pub state_protect: StateProtect4A,
    /// `nfs_impl_id4<1>`: an array of at most one is an optional on the wire.
    pub client_impl_id: Option<NfsImplId4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SsvProtInfo4 {
    pub ops: StateProtectOps4,
    pub hash_alg: u32,
    pub encr_alg: u32,
    pub ssv_len: u32,
    pub window: u32,
    #[xdr(max = PARMS_MAX)]
    pub handles: Vec<Opaque>,
}

/// `state_protect4_r`: the protection that the server has agreed to.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum StateProtect4R {
    #[xdr(0)]
    None,
    #[xdr(1)]
    MachCred(StateProtectOps4),
    #[xdr(2)]
    Ssv(Box<SsvProtInfo4>),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ExchangeId4ResOk {
    pub clientid: ClientId4,
    pub sequenceid: u32,
    pub flags: u32,
    pub state_protect: StateProtect4R,
    pub server_owner: ServerOwner4,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub server_scope: Opaque,
    pub server_impl_id: Option<NfsImplId4>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub struct ChannelAttrs4 {
    pub headerpadsize: u32,
    pub maxrequestsize: u32,
    pub maxresponsesize: u32,
    pub maxresponsesize_cached: u32,
    pub maxoperations: u32,
    pub maxrequests: u32,
    /// `ca_rdma_ird<1>`.
    pub rdma_ird: Option<u32>,
}

/// AUTH_SYS credentials that the server shall use on the back channel (RFC 5531 appendix A).
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct AuthSysParms {
    pub stamp: u32,
    #[xdr(max = 255)]
    pub machinename: Opaque,
    pub uid: u32,
    pub gid: u32,
    #[xdr(max = 16)]
    pub gids: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GssCbHandles4 {
    pub service: RpcGssSvc,
    pub handle_from_server: Opaque,
    pub handle_from_client: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum CallbackSecParms4 {
    #[xdr(0)]
    None,
    #[xdr(1)]
    Sys(AuthSysParms),
    #[xdr(6)]
    Gss(GssCbHandles4),
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CreateSession4Args {
    pub clientid: ClientId4,
    pub sequence: u32,
    pub flags: u32,
    pub fore_chan_attrs: ChannelAttrs4,
    pub back_chan_attrs: ChannelAttrs4,
    pub cb_program: u32,
    #[xdr(max = PARMS_MAX)]
    pub sec_parms: Vec<CallbackSecParms4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CreateSession4ResOk {
    pub sessionid: SessionId4,
    pub sequence: u32,
    pub flags: u32,
    pub fore_chan_attrs: ChannelAttrs4,
    pub back_chan_attrs: ChannelAttrs4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DestroySession4Args {
    pub sessionid: SessionId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DestroyClientId4Args {
    pub clientid: ClientId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct BackchannelCtl4Args {
    pub cb_program: u32,
    #[xdr(max = PARMS_MAX)]
    pub sec_parms: Vec<CallbackSecParms4>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum ChannelDirFromClient4 {
    Fore = 1,
    Back = 2,
    ForeOrBoth = 3,
    BackOrBoth = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum ChannelDirFromServer4 {
    Fore = 1,
    Back = 2,
    Both = 3,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct BindConnToSession4Args {
    pub sessid: SessionId4,
    pub dir: ChannelDirFromClient4,
    pub use_conn_in_rdma_mode: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct BindConnToSession4ResOk {
    pub sessid: SessionId4,
    pub dir: ChannelDirFromServer4,
    pub use_conn_in_rdma_mode: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Sequence4Args {
    pub sessionid: SessionId4,
    pub sequenceid: u32,
    pub slotid: u32,
    pub highest_slotid: u32,
    pub cachethis: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Sequence4ResOk {
    pub sessionid: SessionId4,
    pub sequenceid: u32,
    pub slotid: u32,
    pub highest_slotid: u32,
    pub target_highest_slotid: u32,
    pub status_flags: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetSsv4Args {
    pub ssv: Opaque,
    pub digest: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetSsv4ResOk {
    pub digest: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FreeStateId4Args {
    pub stateid: StateId4,
}

/// Bounded by the record; the server counts.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct TestStateId4Args {
    pub stateids: Vec<StateId4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct TestStateId4ResOk {
    pub status_codes: Vec<NfsStat4>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReclaimComplete4Args {
    pub one_fs: bool,
}
