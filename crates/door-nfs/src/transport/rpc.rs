//! The RPC layer of the doors: which record is a call, whose it is, and what is answered to what is no NFS.

use std::sync::Arc;

use bytes::Bytes;
use nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL};
use oncrpc::{
    AuthStat, AuthSys, CallError, CallHeader, Credential, MessageType, ReplyHeader, message_type,
    signed_header,
};
use types::Identity;
use xdr::Decoder;

use super::connection::Connection;
use super::gss::{self, Admission, Protection, encode};
use super::{Squash, Terms};
use crate::compound::{self, Caller, Face};
use crate::context::Principal;
use crate::security::Flavor;

/// A record that needs an answer.
pub(super) enum Call {
    Request {
        header: CallHeader,
        /// What a verifier of RPCSEC_GSS signs: the header up to the end of the credential.
        signed: Bytes,
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
    let mut decoder = Decoder::new(record.clone());
    match CallHeader::decode(&mut decoder) {
        Ok(header) => {
            let signed = signed_header(&record)?;
            Some(Some(Call::Request { header, signed, body: decoder.rest() }))
        }
        Err(CallError::Garbled(_)) => None,
        Err(error) => error.reply().map(|reply| Some(Call::Refused(reply))),
    }
}

/// The reply's record, as segments; none for a call that is to be dropped.
pub(super) async fn answer(
    face: &dyn Face,
    connection: &Arc<Connection>,
    terms: &Terms,
    call: Call,
) -> Option<Vec<Bytes>> {
    let (header, signed, body) = match call {
        Call::Request { header, signed, body } => (header, signed, body),
        Call::Refused(reply) => return Some(encode(&reply, Vec::new())),
    };
    let Credential::RpcsecGss(credential) = &header.credential else {
        let who = Who::by_word(&header.credential, terms.squash);
        let (reply, results) = run(face, connection, who, &header, body).await;
        return Some(encode(&reply, results));
    };
    let Some(kerberos) = terms.security.kerberos() else {
        return Some(encode(&ReplyHeader::auth_error(header.xid, AuthStat::TooWeak), Vec::new()));
    };
    match gss::admit(kerberos, connection, &header, credential, &signed, body).await {
        Admission::Call(arguments, protection) => {
            let who = Some(Who::by_context(&protection, terms.squash));
            let (reply, results) = run(face, connection, who, &header, arguments).await;
            Some(protection.reply(kerberos, reply, results))
        }
        Admission::Answer(reply) => Some(reply),
        Admission::Drop => None,
    }
}

/// The reply's header and results, which follow a success. `who` is `None` for flavors that are not served.
async fn run(
    face: &dyn Face,
    connection: &Arc<Connection>,
    who: Option<Who>,
    header: &CallHeader,
    body: Bytes,
) -> (ReplyHeader, Vec<Bytes>) {
    let xid = header.xid;
    if header.program != NFS4_PROGRAM {
        return (ReplyHeader::prog_unavail(xid), Vec::new());
    }
    if header.version != NFS_V4 {
        return (ReplyHeader::prog_mismatch(xid, NFS_V4, NFS_V4), Vec::new());
    }
    match header.procedure {
        NFSPROC4_NULL => (ReplyHeader::success(xid), Vec::new()),
        NFSPROC4_COMPOUND => {
            let Some(Who { identity, principal, flavor }) = who else {
                return (ReplyHeader::auth_error(xid, AuthStat::TooWeak), Vec::new());
            };
            let caller = Caller { connection: Arc::clone(connection), identity, principal, flavor };
            match compound::run(face, caller, body).await {
                Ok(segments) => (ReplyHeader::success(xid), segments),
                Err(compound::GarbageArguments) => (ReplyHeader::garbage_args(xid), Vec::new()),
            }
        }
        _ => (ReplyHeader::proc_unavail(xid), Vec::new()),
    }
}

/// Who the caller is.
struct Who {
    identity: Identity,
    principal: Principal,
    flavor: Option<Flavor>,
}

impl Who {
    /// By the word of its host, squashed. `None` for flavors that are not served.
    fn by_word(credential: &Credential, squash: Squash) -> Option<Who> {
        match credential {
            Credential::None => {
                Some(Who { identity: Identity::nobody(), principal: Principal::NONE, flavor: None })
            }
            Credential::Sys(sys) => {
                let flavor = Some(Flavor::Sys);
                Some(Who { identity: identity(sys, squash), principal: Principal::sys(sys.uid), flavor })
            }
            Credential::RpcsecGss(_) | Credential::Other(_) => None,
        }
    }

    /// By its ticket, squashed.
    fn by_context(protection: &Protection, squash: Squash) -> Who {
        let established = &protection.established;
        Who {
            identity: squashed(&established.identity, squash),
            principal: Principal::gss(established.name),
            flavor: Some(Flavor::of(protection.service)),
        }
    }
}

fn identity(sys: &AuthSys, squash: Squash) -> Identity {
    squashed(&Identity::new(sys.uid, sys.gid, &sys.gids), squash)
}

fn squashed(identity: &Identity, squash: Squash) -> Identity {
    let is_touched = identity.uid == 0 || identity.is_member_of(0);
    if !squash.root || !is_touched {
        return identity.clone();
    }
    let id = |id: u32| if id == 0 { Identity::NOBODY_ID } else { id };
    let groups: Vec<u32> = identity.groups.iter().map(|gid| id(*gid)).collect();
    Identity::new(id(identity.uid), id(identity.gid), &groups)
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
