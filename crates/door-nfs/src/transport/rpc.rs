//! The RPC layer of the doors: tells calls from replies, identifies the caller, and answers calls that are not NFS.

use std::sync::Arc;

use bytes::Bytes;
use nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL};
use nfs4_state::Principal;
use oncrpc::{
    AuthStat, CallError, CallHeader, Credential, MessageType, ReplyHeader, message_type, signed_header,
};
use types::Identity;
use xdr::Decoder;

use super::connection::{Connection, reply_record};
use super::flight::CallPlace;
use super::gss::{self, Admission, Protection};
use super::program::{Caller, GarbageArguments, Program};
use crate::exports::{Claimed, View};
use crate::security::Flavor;

/// A record that needs an answer.
pub(super) enum Call {
    Request {
        header: CallHeader,
        /// All of it: a verifier of RPCSEC_GSS signs its beginning.
        record: Bytes,
        body: Bytes,
    },
    /// The answer is known already: the header says what was wrong.
    Refused(ReplyHeader),
}

/// `None`: the stream makes no sense any more. `Some(None)`: it was a reply, delivered to the call that waits for it.
pub(super) fn route(connection: &Arc<Connection>, record: Bytes) -> Option<Option<Call>> {
    let (xid, kind) = message_type(&record).ok()?;
    if kind == MessageType::Reply {
        connection.deliver(xid, record);
        return Some(None);
    }
    let mut decoder = Decoder::new(record.clone());
    match CallHeader::decode(&mut decoder) {
        Ok(header) => Some(Some(Call::Request { header, record, body: decoder.rest() })),
        Err(CallError::Garbled(_)) => None,
        Err(error) => error.reply().map(|reply| Some(Call::Refused(reply))),
    }
}

/// The reply's record, as segments; none for a call that is to be dropped. A caller that sees no export is refused
/// here, before it could get a client id: the Linux mount then fails with "access denied by server".
pub(super) async fn answer<P: Program>(
    program: &P,
    connection: &Arc<Connection>,
    view: Option<Arc<View>>,
    call: Call,
    place: &mut CallPlace,
) -> Option<Vec<Bytes>> {
    let (header, record, body) = match call {
        Call::Request { header, record, body } => (header, record, body),
        Call::Refused(reply) => return Some(reply_record(&reply, Vec::new())),
    };
    let Credential::RpcsecGss(credential) = &header.credential else {
        let who = Who::by_word(&header.credential);
        let address = record.as_ptr().addr();
        let (reply, results) = run(program, connection, view.zip(who), &header, (body, address, place)).await;
        return Some(reply_record(&reply, results));
    };
    let Some(kerberos) = program.kerberos() else {
        return Some(reply_record(&ReplyHeader::auth_error(header.xid, AuthStat::TooWeak), Vec::new()));
    };
    let signed = signed_header(&record)?;
    match gss::admit(kerberos, connection, &header, credential, &signed, body).await {
        Admission::Call(arguments, protection) => {
            let who = view.map(|view| (view, Who::by_context(&protection)));
            let (reply, results) =
                run(program, connection, who, &header, (arguments, record.as_ptr().addr(), place)).await;
            Some(protection.reply(kerberos, reply, results))
        }
        Admission::Answer(reply) => Some(reply),
        Admission::Drop => None,
    }
}

/// The reply's header and results, which follow a success. `who` is `None` for flavors that are not served, and for
/// hosts that see nothing.
async fn run(
    program: &impl Program,
    connection: &Arc<Connection>,
    who: Option<(Arc<View>, Who)>,
    header: &CallHeader,
    (body, record_address, place): (Bytes, usize, &mut CallPlace),
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
            let Some((view, Who { claimed, principal, flavor })) = who else {
                return (ReplyHeader::auth_error(xid, AuthStat::TooWeak), Vec::new());
            };
            let caller = Caller {
                connection: Arc::clone(connection),
                view,
                claimed,
                principal,
                flavor,
                record_address,
            };
            match program.call(caller, body, place).await {
                Ok(segments) => (ReplyHeader::success(xid), segments),
                Err(GarbageArguments) => (ReplyHeader::garbage_args(xid), Vec::new()),
            }
        }
        _ => (ReplyHeader::proc_unavail(xid), Vec::new()),
    }
}

/// The caller, before any export squashes it.
struct Who {
    claimed: Claimed,
    principal: Principal,
    flavor: Option<Flavor>,
}

impl Who {
    /// By the word of its host. `None` for flavors that are not served.
    fn by_word(credential: &Credential) -> Option<Who> {
        match credential {
            Credential::None => {
                Some(Who { claimed: Claimed::Nobody, principal: Principal::NONE, flavor: None })
            }
            Credential::Sys(sys) => Some(Who {
                claimed: Claimed::User(Identity::new(sys.uid, sys.gid, &sys.gids)),
                principal: Principal::sys(sys.uid),
                flavor: Some(Flavor::Sys),
            }),
            Credential::RpcsecGss(_) | Credential::Other(_) => None,
        }
    }

    /// By its ticket.
    fn by_context(protection: &Protection) -> Who {
        let established = &protection.established;
        Who {
            claimed: Claimed::User(established.identity.clone()),
            principal: Principal::gss(established.name),
            flavor: Some(Flavor::of(protection.service)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F: Future>(
        _: impl FnOnce(
            &'static crate::compound::Engine,
            &'static Arc<Connection>,
            Option<Arc<View>>,
            Call,
            &'static mut CallPlace,
        ) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// A session of 64 slots may have as many under way, and there are many sessions. The state of an operation itself
    /// is boxed apart.
    #[test]
    fn a_call_under_way_takes_less_than_five_kib() {
        let size = size_of_future(answer);
        assert!(size < 5 << 10, "{size} bytes");
    }
}
