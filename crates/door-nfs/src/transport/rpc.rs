//! The RPC layer of the doors: which record is a call, whose it is, and what is answered to what is no NFS.

use std::sync::Arc;

use bytes::Bytes;
use nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL};
use oncrpc::{AuthStat, AuthSys, CallError, CallHeader, Credential, MessageType, ReplyHeader, message_type};
use types::Identity;
use xdr::{Decoder, Encoder, Xdr};

use super::Squash;
use super::connection::{Connection, with_record_mark};
use crate::compound::{self, Caller, Face};
use crate::context::Principal;

/// A record that needs an answer.
pub(super) enum Call {
    Request {
        header: CallHeader,
        body: Bytes,
    },
    /// The answer is known already: the header says what was wrong.
    Refused(ReplyHeader),
}

/// `None`: the stream makes no sense any more. `Some(None)`: it was a reply, delivered to who waits for it.
pub(super) fn route(connection: &Arc<Connection>, record: Bytes) -> Option<Option<Call>> {
    let (xid, kind) = message_type(&record).ok()?;
    if kind == MessageType::Reply {
        connection.deliver(xid, record);
        return Some(None);
    }
    let mut decoder = Decoder::new(record);
    match CallHeader::decode(&mut decoder) {
        Ok(header) => Some(Some(Call::Request { header, body: decoder.rest() })),
        Err(CallError::Garbled(_)) => None,
        Err(error) => error.reply().map(|reply| Some(Call::Refused(reply))),
    }
}

/// The reply's record, as segments.
pub(super) async fn answer(
    face: &dyn Face,
    connection: &Arc<Connection>,
    squash: Squash,
    call: Call,
) -> Vec<Bytes> {
    let (header, body) = match call {
        Call::Request { header, body } => (header, body),
        Call::Refused(reply) => return encode(&reply, Vec::new()),
    };
    let xid = header.xid;
    if header.program != NFS4_PROGRAM {
        return encode(&ReplyHeader::prog_unavail(xid), Vec::new());
    }
    if header.version != NFS_V4 {
        return encode(&ReplyHeader::prog_mismatch(xid, NFS_V4, NFS_V4), Vec::new());
    }
    match header.procedure {
        NFSPROC4_NULL => encode(&ReplyHeader::success(xid), Vec::new()),
        NFSPROC4_COMPOUND => {
            let Some((identity, principal)) = identify(&header.credential, squash) else {
                return encode(&ReplyHeader::auth_error(xid, AuthStat::TooWeak), Vec::new());
            };
            let caller = Caller { connection: Arc::clone(connection), identity, principal };
            match compound::run(face, caller, body).await {
                Ok(segments) => encode(&ReplyHeader::success(xid), segments),
                Err(compound::GarbageArguments) => encode(&ReplyHeader::garbage_args(xid), Vec::new()),
            }
        }
        _ => encode(&ReplyHeader::proc_unavail(xid), Vec::new()),
    }
}

/// Who the caller is: by its own word, squashed. `None` for flavors that are not served.
fn identify(credential: &Credential, squash: Squash) -> Option<(Identity, Principal)> {
    match credential {
        Credential::None => Some((Identity::nobody(), Principal { flavor: nfs4::AUTH_NONE, uid: u32::MAX })),
        Credential::Sys(sys) => {
            Some((identity(sys, squash), Principal { flavor: nfs4::AUTH_SYS, uid: sys.uid }))
        }
        Credential::RpcsecGss(_) | Credential::Other(_) => None,
    }
}

fn identity(sys: &AuthSys, squash: Squash) -> Identity {
    let id = |id: u32| if squash.root && id == 0 { Identity::NOBODY_ID } else { id };
    let groups: Vec<u32> = sys.gids.iter().map(|gid| id(*gid)).collect();
    Identity::new(id(sys.uid), id(sys.gid), &groups)
}

fn encode(header: &ReplyHeader, body: Vec<Bytes>) -> Vec<Bytes> {
    let mut encoder = Encoder::new();
    header.encode(&mut encoder);
    encoder.put_raw_segments(body);
    with_record_mark(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys(uid: u32, gids: Vec<u32>) -> AuthSys {
        AuthSys { stamp: 0, machine_name: xdr::Opaque(Bytes::new()), uid, gid: uid, gids }
    }

    #[test]
    fn root_becomes_nobody_with_all_its_groups() {
        let squashed = identity(&sys(0, vec![0, 5]), Squash { root: true });
        assert_eq!(squashed, Identity::new(65534, 65534, &[65534, 5]));
        assert_eq!(identity(&sys(0, vec![0]), Squash { root: false }), Identity::new(0, 0, &[0]));
        assert_eq!(identity(&sys(7, vec![5]), Squash { root: true }), Identity::new(7, 7, &[5]));
    }
}
