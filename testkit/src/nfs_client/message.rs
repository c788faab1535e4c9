//! Calls and replies of the NFS program as bytes: no socket, no session.

use bytes::Bytes;
use nfs4::{
    Compound4Args, Compound4Res, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NfsArgop4, NfsResop4, NfsStat4,
};
use oncrpc::{AuthSys, CallHeader, Credential, OpaqueAuth, ReplyHeader, record_header};
use xdr::{Decoder, Encoder, Opaque, Xdr};

use super::ClientError;

/// The caller as AUTH_SYS names it.
pub fn auth_sys(uid: u32, gid: u32, gids: &[u32]) -> Credential {
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"testkit"),
        uid,
        gid,
        gids: gids.to_vec(),
    })
}

/// One COMPOUND call as a record, with its record mark.
pub fn compound_record(xid: u32, credential: &Credential, minorversion: u32, ops: &[NfsArgop4]) -> Bytes {
    call_record(xid, credential, NFSPROC4_COMPOUND, |encoder| {
        Compound4Args { tag: Opaque::new(), minorversion, argarray: ops.to_vec() }.encode(encoder);
    })
}

/// A call of the NFS program whose arguments `arguments` writes, well formed or not.
pub fn call_record(
    xid: u32,
    credential: &Credential,
    procedure: u32,
    arguments: impl FnOnce(&mut Encoder),
) -> Bytes {
    let mut encoder = Encoder::new();
    CallHeader {
        xid,
        program: NFS4_PROGRAM,
        version: NFS_V4,
        procedure,
        credential: credential.clone(),
        verifier: OpaqueAuth::NONE,
    }
    .encode(&mut encoder);
    arguments(&mut encoder);
    framed(&encoder.into_bytes())
}

/// `message` as a record of one fragment.
pub fn framed(message: &[u8]) -> Bytes {
    [&record_header(message.len()), message].concat().into()
}

/// A COMPOUND's reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: NfsStat4,
    pub results: Vec<NfsResop4>,
    /// The `COMPOUND4res` as it came, for comparison byte by byte.
    pub body: Bytes,
}

impl Reply {
    /// Reads a reply message; anything but an accepted and successful one is an error.
    pub fn decode(message: Bytes) -> Result<Reply, ClientError> {
        let mut decoder = Decoder::new(message);
        let header = ReplyHeader::decode(&mut decoder)?;
        if !header.is_success() {
            return Err(ClientError::Rpc(header.body));
        }
        let body = decoder.rest();
        let Compound4Res { status, resarray, .. } = xdr::from_bytes(body.clone())?;
        Ok(Reply { status, results: resarray, body })
    }

    /// The reply if every operation succeeded, else the operation that failed and how.
    pub fn ok(self) -> Result<Reply, ClientError> {
        match (self.status, self.results.last()) {
            (NfsStat4::Ok, _) => Ok(self),
            (status, last) => Err(ClientError::Status { status, opnum: last.map_or(0, NfsResop4::opnum) }),
        }
    }

    /// Status of the operation at `index`; SEQUENCE counts.
    pub fn status_at(&self, index: usize) -> Option<NfsStat4> {
        self.results.get(index).map(NfsResop4::status)
    }
}

/// The body of the last result of the named operation, if the reply holds one: `body!(reply, GetFh)`.
///
/// For results that are `Res<Body>`; a failed operation gives `None`.
#[macro_export]
macro_rules! body {
    ($reply:expr, $variant:ident) => {
        $reply.results.iter().rev().find_map(|result| match result {
            $crate::nfs_client::nfs4::NfsResop4::$variant($crate::nfs_client::nfs4::Res::Ok(body)) => {
                Some(body.clone())
            }
            _ => None,
        })
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::{GetFh4ResOk, NfsFh4, Res, op};

    fn reply_of(status: NfsStat4, results: Vec<NfsResop4>) -> Bytes {
        let mut encoder = Encoder::new();
        ReplyHeader::success(7).encode(&mut encoder);
        Compound4Res { status, tag: Opaque::new(), resarray: results }.encode(&mut encoder);
        encoder.into_bytes()
    }

    #[test]
    fn a_record_announces_its_length_and_that_it_is_whole() {
        let record = compound_record(7, &auth_sys(1, 2, &[3]), 1, &[NfsArgop4::PutRootFh]);
        let announced = u32::from_be_bytes(record[..4].try_into().unwrap());
        assert_eq!(announced, 1 << 31 | (record.len() as u32 - 4));
    }

    #[test]
    fn a_failed_reply_names_the_operation() {
        let results = vec![NfsResop4::PutRootFh(NfsStat4::Ok), NfsResop4::Lookup(NfsStat4::NoEnt)];
        let reply = Reply::decode(reply_of(NfsStat4::NoEnt, results)).unwrap();
        assert_eq!(reply.status_at(0), Some(NfsStat4::Ok));
        let error = reply.ok().unwrap_err();
        assert_eq!(error.status(), Some(NfsStat4::NoEnt));
        assert!(matches!(error, ClientError::Status { opnum: op::LOOKUP, .. }));
    }

    #[test]
    fn a_body_is_found_by_its_operation() {
        let object = NfsFh4::from(vec![1, 2]);
        let results = vec![NfsResop4::GetFh(Res::Ok(GetFh4ResOk { object: object.clone() }))];
        let reply = Reply::decode(reply_of(NfsStat4::Ok, results)).unwrap();
        assert_eq!(body!(reply, GetFh).map(|body| body.object), Some(object));
        assert!(body!(reply, Open).is_none());
    }

    #[test]
    fn a_denied_call_is_no_reply() {
        let denied = xdr::to_bytes(&ReplyHeader::garbage_args(7));
        assert!(matches!(Reply::decode(denied), Err(ClientError::Rpc(_))));
    }
}
