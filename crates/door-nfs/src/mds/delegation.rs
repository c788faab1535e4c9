//! Delegations: whom OPEN offers one (RFC 8881 §10.4), and DELEGRETURN.
//!
//! A client that says what it wants is believed; for the others the adaptive rule decides. Nobody is offered one who could
//! not be asked for it, nor a file that was just recalled from somebody.

use nfs4::{
    ACE4_ACCESS_ALLOWED_ACE_TYPE, ClientId4, DelegReturn4Args, NfsAce4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_CANCEL,
    OPEN4_SHARE_ACCESS_WANT_DELEG_MASK, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, Open4Args, OpenClaim4, OpenDelegation4, OpenDelegationType4,
    OpenNoneDelegation4, OpenReadDelegation4, WND4_CANCELLED, WND4_NOT_WANTED,
    WND4_WRITE_DELEG_NOT_SUPP_FTYPE,
};
use nfs4_state::DelegationMode;
use nfs4_state::stateid::{DelegationKind, FileStateError};
use types::FileId;
use xdr::Opaque;

use super::Head;
use crate::context::Compound;

const NO_ROOM: OpenNoneDelegation4 = OpenNoneDelegation4::Resource { server_will_signal_avail: false };

/// What an OPEN says of delegations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// It leaves it to the server.
    None,
    Never,
    Cancel,
    Read,
    Write,
    /// It had one before the server was restarted.
    Reclaim,
    /// It opens what it has a delegation of: another would be a surprise to it.
    Held,
}

/// What goes with the answer to an OPEN that has succeeded.
pub(super) fn offer(
    head: &Head,
    (client, file): (ClientId4, FileId),
    args: &Open4Args,
    is_reachable: bool,
) -> OpenDelegation4 {
    let wish = wish(args);
    match wish {
        Wish::Held => return OpenDelegation4::None,
        Wish::Never => return why(WND4_NOT_WANTED),
        Wish::Cancel => return why(WND4_CANCELLED),
        // Only reads are delegated.
        Wish::Write => return why(WND4_WRITE_DELEG_NOT_SUPP_FTYPE),
        Wish::None | Wish::Read | Wish::Reclaim => {}
    }
    let may_have_one = is_reachable && args.share_deny == 0 && head.delegation_mode != DelegationMode::Off;
    let granted = if may_have_one && is_worth_it(head, client, file, wish) {
        grant(head, client, file)
    } else {
        Err(NO_ROOM)
    };
    match granted {
        Ok(delegation) => OpenDelegation4::Read(Box::new(delegation)),
        // Who asked for one is told why not; others would not understand it.
        Err(reason) if wish == Wish::Read => OpenDelegation4::NoneExt(reason),
        Err(_) => OpenDelegation4::None,
    }
}

fn wish(args: &Open4Args) -> Wish {
    match args.claim {
        OpenClaim4::Previous(OpenDelegationType4::Read) => return Wish::Reclaim,
        // What cannot be given again is gone; the client sees that it has no delegation any more.
        OpenClaim4::Previous(_) | OpenClaim4::DelegateCur(_) | OpenClaim4::DelegCurFh(_) => {
            return Wish::Held;
        }
        OpenClaim4::Null(_) | OpenClaim4::Fh | OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => {}
    }
    let is_reading = args.share_access & OPEN4_SHARE_ACCESS_BOTH == OPEN4_SHARE_ACCESS_READ;
    match args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK {
        OPEN4_SHARE_ACCESS_WANT_NO_DELEG => Wish::Never,
        OPEN4_SHARE_ACCESS_WANT_CANCEL => Wish::Cancel,
        OPEN4_SHARE_ACCESS_WANT_READ_DELEG | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG if is_reading => Wish::Read,
        OPEN4_SHARE_ACCESS_WANT_READ_DELEG
        | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG
        | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG => Wish::Write,
        _ if is_reading => Wish::None,
        _ => Wish::Held,
    }
}

fn is_worth_it(head: &Head, client: ClientId4, file: FileId, wish: Wish) -> bool {
    let now = head.clock.monotonic();
    let mut adaptive = head.adaptive.lock();
    // Counted whatever the wish: what a client uses is learnt from all its opens.
    let is_offered = adaptive.accessed(client, file, now);
    match wish {
        Wish::Reclaim => true,
        Wish::Read => !adaptive.is_quiet(file, now),
        _ => is_offered,
    }
}

fn grant(head: &Head, client: ClientId4, file: FileId) -> Result<OpenReadDelegation4, OpenNoneDelegation4> {
    let mut states = head.states.lock();
    if states.delegation_of(client, file).is_some() {
        return Err(NO_ROOM);
    }
    let granted = states.delegate(client, file, DelegationKind::Read, head.clock.monotonic());
    let stateid = granted.map_err(|error| match error {
        FileStateError::Limit(_) => NO_ROOM,
        _ => OpenNoneDelegation4::Contention { server_will_push_deleg: false },
    })?;
    Ok(OpenReadDelegation4 { stateid, recall: false, permissions: nobody() })
}

fn why(reason: u32) -> OpenDelegation4 {
    OpenDelegation4::NoneExt(OpenNoneDelegation4::Why(reason))
}

/// Who may open the file by the delegation without asking ACCESS (RFC 8881 §18.16.3): nobody, since users' rights are
/// judged by more than one entry could say. Linux asks in any case.
fn nobody() -> NfsAce4 {
    NfsAce4 {
        ace_type: ACE4_ACCESS_ALLOWED_ACE_TYPE,
        flag: 0,
        access_mask: 0,
        who: Opaque(bytes::Bytes::from_static(b"EVERYONE@")),
    }
}

pub(super) fn give_back(
    compound: &Compound<'_>,
    head: &Head,
    args: &DelegReturn4Args,
) -> Result<(), NfsStat4> {
    let (client, file) = (compound.client()?, compound.file()?);
    let stateid = compound.resolve(args.deleg_stateid)?;
    head.states.lock().return_delegation(client, file, stateid)?;
    // Somebody may wait for it.
    head.access.returned();
    Ok(())
}
