//! Operations of NFSv4.0 that 4.1 forbids (RFC 8881 §18, "mandatory to not implement").
//!
//! Their arguments are decoded so that the reply can name them NOTSUPP; nothing uses the values.

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::{OpResult, bare_error};
use crate::{ClientId4, NFS4_OPAQUE_LIMIT, NetAddr4, NfsStat4, StateId4, StateOwner4, Verifier4};

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenConfirm4Args {
    pub open_stateid: StateId4,
    pub seqid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct OpenConfirm4ResOk {
    pub open_stateid: StateId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Renew4Args {
    pub clientid: ClientId4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct NfsClientId4 {
    pub verifier: Verifier4,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub id: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct CbClient4 {
    pub cb_program: u32,
    pub cb_location: NetAddr4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetClientId4Args {
    pub client: NfsClientId4,
    pub callback: CbClient4,
    pub callback_ident: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetClientId4ResOk {
    pub clientid: ClientId4,
    pub setclientid_confirm: Verifier4,
}

/// Result of SETCLIENTID; `Err` never holds Ok or ClidInUse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetClientId4Res {
    Ok(SetClientId4ResOk),
    InUse(NetAddr4),
    Err(NfsStat4),
}

impl OpResult for SetClientId4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::InUse(_) => NfsStat4::ClidInUse,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::ClidInUse => Self::InUse(NetAddr4::default()),
            status => Self::Err(bare_error(status)),
        }
    }
}

impl Xdr for SetClientId4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok(body) => body.encode(e),
            Self::InUse(client_using) => client_using.encode(e),
            Self::Err(status) => {
                assert!(!matches!(status, NfsStat4::Ok | NfsStat4::ClidInUse), "{status} announces a body");
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(SetClientId4ResOk::decode(d)?),
            NfsStat4::ClidInUse => Self::InUse(NetAddr4::decode(d)?),
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct SetClientIdConfirm4Args {
    pub clientid: ClientId4,
    pub setclientid_confirm: Verifier4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ReleaseLockOwner4Args {
    pub lock_owner: StateOwner4,
}
