//! The RPC layer of the doors: which record is a call, whose it is, and what is answered to what is no NFS.

use std::sync::Arc;

use bytes::Bytes;
use nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL};
use oncrpc::{AuthStat, CallError, CallHeader, Credential, MessageType, ReplyHeader, message_type};
use types::Identity;
use xdr::{Decoder, Encoder, Xdr};

use super::connection::{Connection, with_record_mark};
use crate::compound::{self, Caller, Face};
use crate::context::Principal;
use crate::exports::{Claimed, View};

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

/// The reply's record, as segments. Who sees nothing is refused here, before he could have a client id: Linux says
/// "access denied by server" to whoever mounts.
pub(super) async fn answer(
    face: &dyn Face,
    connection: &Arc<Connection>,
    view: Option<Arc<View>>,
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
            let (Some(view), Some((claimed, principal))) = (view, identify(&header.credential)) else {
                return encode(&ReplyHeader::auth_error(xid, AuthStat::TooWeak), Vec::new());
            };
            let caller = Caller { connection: Arc::clone(connection), view, claimed, principal };
            match compound::run(face, caller, body).await {
                Ok(segments) => encode(&ReplyHeader::success(xid), segments),
                Err(compound::GarbageArguments) => encode(&ReplyHeader::garbage_args(xid), Vec::new()),
            }
        }
        _ => encode(&ReplyHeader::proc_unavail(xid), Vec::new()),
    }
}

/// Who the caller is, by its own word. `None` for flavors that are not served.
fn identify(credential: &Credential) -> Option<(Claimed, Principal)> {
    match credential {
        Credential::None => Some((Claimed::Nobody, Principal { flavor: nfs4::AUTH_NONE, uid: u32::MAX })),
        Credential::Sys(sys) => {
            let user = Identity::new(sys.uid, sys.gid, &sys.gids);
            Some((Claimed::User(user), Principal { flavor: nfs4::AUTH_SYS, uid: sys.uid }))
        }
        Credential::RpcsecGss(_) | Credential::Other(_) => None,
    }
}

fn encode(header: &ReplyHeader, body: Vec<Bytes>) -> Vec<Bytes> {
    let mut encoder = Encoder::new();
    header.encode(&mut encoder);
    encoder.put_raw_segments(body);
    with_record_mark(encoder)
}
