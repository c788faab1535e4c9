//! The common shape of results: a status, and a body when it is NFS4_OK.
//!
//! Results whose errors carry a body (LOCK, LAYOUTGET, GETDEVICEINFO, ...) are types of their own beside their
//! operation; all of them answer `OpResult`.

use xdr::{Decoder, Encoder, Xdr, XdrError};

use crate::NfsStat4;

/// Behaviour common to every operation's result.
pub trait OpResult {
    fn status(&self) -> NfsStat4;

    /// The result that says `status`. Where the error has a body it gets the body's neutral value (for LOCK: the
    /// whole file is locked by somebody). `Ok` is for results that are a bare status; any other becomes SERVERFAULT.
    fn error(status: NfsStat4) -> Self;
}

/// An error status that may stand without a body: NFS4_OK would announce one that is missing.
pub(crate) fn bare_error(status: NfsStat4) -> NfsStat4 {
    if status == NfsStat4::Ok { NfsStat4::ServerFault } else { status }
}

impl OpResult for NfsStat4 {
    fn status(&self) -> NfsStat4 {
        *self
    }

    fn error(status: NfsStat4) -> Self {
        status
    }
}

/// `union switch (nfsstat4 status) { case NFS4_OK: T; default: void; }`. `Err` never holds `NfsStat4::Ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Res<T> {
    Ok(T),
    Err(NfsStat4),
}

impl<T> Res<T> {
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Ok(body) => Some(body),
            Self::Err(_) => None,
        }
    }
}

impl<T> From<Result<T, NfsStat4>> for Res<T> {
    fn from(result: Result<T, NfsStat4>) -> Self {
        match result {
            Ok(body) => Self::Ok(body),
            Err(status) => Self::error(status),
        }
    }
}

impl<T> OpResult for Res<T> {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        Self::Err(bare_error(status))
    }
}

impl<T: Xdr> Xdr for Res<T> {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Ok(body) => {
                NfsStat4::Ok.encode(e);
                body.encode(e);
            }
            Self::Err(status) => {
                assert!(*status != NfsStat4::Ok, "NFS4_OK announces a body");
                status.encode(e);
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(T::decode(d)?),
            status => Self::Err(status),
        })
    }
}
