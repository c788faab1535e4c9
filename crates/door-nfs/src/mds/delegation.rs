//! Delegations: granting by OPEN (RFC 8881 §10.4, RFC 9754), and DELEGRETURN.
//!
//! A client that says what it wants is believed; for the others the adaptive rule decides. A client that cannot be
//! called gets no delegation, and none is granted of a file that was just recalled. Nor is one to write of a file whose
//! writers contend for the same pages at a pool: they would recall it.

use nfs4::{
    ACE4_ACCESS_ALLOWED_ACE_TYPE, ClientId4, DelegReturn4Args, NfsAce4, NfsSpaceLimit4, NfsStat4,
    OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_CANCEL, OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
    OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_ACCESS_WRITE, Open4Args, OpenClaim4, OpenDelegation4,
    OpenDelegationType4, OpenNoneDelegation4, OpenReadDelegation4, OpenWriteDelegation4, StateId4,
    WND4_CANCELLED, WND4_NOT_SUPP_DOWNGRADE, WND4_NOT_WANTED, WND4_WRITE_DELEG_NOT_SUPP_FTYPE,
};
use nfs4_state::stateid::{DelegatedTimes, DelegationKind, DelegationTerms, FileStateError, Granted};
use nfs4_state::{DelegationMode, WriteDelegations};
use types::{Access, Attributes, FileId, Name, permission};
use xdr::Opaque;

use super::clients::Clients;
use super::counts::Step;
use super::file_system::FileSystem;
use super::grants::Grants;
use super::names;
use super::offers::Offers;
use crate::context::Compound;

const NO_ROOM: OpenNoneDelegation4 = OpenNoneDelegation4::Resource { server_will_signal_avail: false };
const CONTENTION: OpenNoneDelegation4 = OpenNoneDelegation4::Contention { server_will_push_deleg: false };
/// Linux keeps as many modified pages over a close as this lets it. At zero a close still writes all of them, so that what
/// a program has closed is lost with the server and the client at once only.
const NOTHING_LEFT_BEHIND: NfsSpaceLimit4 = NfsSpaceLimit4::Size(0);

/// The wish of an OPEN for a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// It leaves it to the server: one that suits the open.
    Any(DelegationKind),
    Wanted(DelegationKind),
    /// It had one before the server was restarted.
    Reclaimed(DelegationKind),
    /// None is possible, and this is why.
    None(u32),
    /// It opens a file of which it has a delegation: another would be a surprise to it.
    Held,
}

/// The file that an OPEN has opened.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    /// As they were before.
    pub file: &'a Attributes,
    /// The directory and name that led to it.
    pub entry: Option<&'a (FileId, Name)>,
}

/// The delegation in the answer to an OPEN of `file` that has succeeded.
pub(super) async fn offer(
    compound: &Compound,
    grants: &Grants,
    found: Found<'_>,
    args: &Open4Args,
    is_reachable: bool,
) -> OpenDelegation4 {
    let Ok(client) = compound.client() else { return OpenDelegation4::None };
    let offers = grants.clients.fs.offers;
    let wish = wish(args);
    let kind = match wish {
        Wish::Held => return OpenDelegation4::None,
        Wish::None(reason) => return why(reason),
        Wish::Any(kind) | Wish::Wanted(kind) | Wish::Reclaimed(kind) => kind,
    };
    if wish == Wish::Wanted(DelegationKind::Write) && offers.write_delegations == WriteDelegations::Off {
        return why(WND4_WRITE_DELEG_NOT_SUPP_FTYPE);
    }
    let may_have_one = is_reachable
        && args.share_deny == 0
        && is_allowed(offers, wish, kind)
        && (kind == DelegationKind::Read
            || may_read_and_write(compound, &grants.clients.fs, found.file, wish).await)
        && is_worth_it(grants, client, found.file.file, wish);
    let granted = if may_have_one {
        grant(compound, grants, (client, found), args, (wish, kind)).await
    } else {
        Err(NO_ROOM)
    };
    match granted {
        Ok(delegation) => delegation,
        // A client that asked for one gets the reason; others would not understand it.
        Err(reason) if matches!(wish, Wish::Wanted(_)) => OpenDelegation4::NoneExt(reason),
        Err(_) => OpenDelegation4::None,
    }
}

fn wish(args: &Open4Args) -> Wish {
    use DelegationKind::{Read, Write};
    use OpenDelegationType4 as Type;
    match args.claim {
        OpenClaim4::Previous(Type::Read | Type::ReadAttrs) => return Wish::Reclaimed(Read),
        OpenClaim4::Previous(Type::Write | Type::WriteAttrs) => return Wish::Reclaimed(Write),
        OpenClaim4::Previous(Type::None | Type::NoneExt)
        | OpenClaim4::DelegateCur(_)
        | OpenClaim4::DelegCurFh(_) => return Wish::Held,
        OpenClaim4::Null(_) | OpenClaim4::Fh | OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => {}
    }
    let is_writing = args.share_access & OPEN4_SHARE_ACCESS_WRITE != 0;
    let suitable = if is_writing { Write } else { Read };
    match args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK {
        OPEN4_SHARE_ACCESS_WANT_NO_DELEG => Wish::None(WND4_NOT_WANTED),
        OPEN4_SHARE_ACCESS_WANT_CANCEL => Wish::None(WND4_CANCELLED),
        OPEN4_SHARE_ACCESS_WANT_ANY_DELEG => Wish::Wanted(suitable),
        OPEN4_SHARE_ACCESS_WANT_READ_DELEG if !is_writing => Wish::Wanted(Read),
        OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG if is_writing => Wish::Wanted(Write),
        // A delegation to read does not fit a writer, and an open to read was not checked for writing.
        OPEN4_SHARE_ACCESS_WANT_READ_DELEG | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG => {
            Wish::None(WND4_WRITE_DELEG_NOT_SUPP_FTYPE)
        }
        _ => Wish::Any(suitable),
    }
}

/// As the site has it.
fn is_allowed(offers: Offers, wish: Wish, kind: DelegationKind) -> bool {
    let may_write = match offers.write_delegations {
        WriteDelegations::Off => false,
        WriteDelegations::Wanted => !matches!(wish, Wish::Any(_)),
        WriteDelegations::On => true,
    };
    offers.delegations != DelegationMode::Off && (may_write || kind == DelegationKind::Read)
}

/// The stateid of a delegation to write reads too, whatever the open was for.
async fn may_read_and_write(compound: &Compound, fs: &FileSystem, file: &Attributes, wish: Wish) -> bool {
    let who = &compound.identity;
    matches!(wish, Wish::Reclaimed(_))
        || permission::is_owner(who, file)
        || fs.allows(who, file, Access::READ | Access::WRITE).await.unwrap_or(false)
}

fn is_worth_it(grants: &Grants, client: ClientId4, file: FileId, wish: Wish) -> bool {
    let now = grants.clients.fs.clock.monotonic();
    let mut adaptive = grants.adaptive.lock();
    // Counted whatever the wish: all opens show which files a client uses.
    let is_offered = adaptive.accessed(client, file, now);
    match wish {
        Wish::Reclaimed(_) => true,
        Wish::Wanted(_) => !adaptive.is_quiet(file, now),
        Wish::Any(_) | Wish::None(_) | Wish::Held => is_offered,
    }
}

async fn grant(
    compound: &Compound,
    grants: &Grants,
    (client, found): (ClientId4, Found<'_>),
    args: &Open4Args,
    (wish, kind): (Wish, DelegationKind),
) -> Result<OpenDelegation4, OpenNoneDelegation4> {
    let Clients { fs, states, .. } = &*grants.clients;
    let file = found.file.file;
    if kind == DelegationKind::Write
        && !matches!(wish, Wish::Reclaimed(_))
        && fs.files.pools().is_contended(file)
    {
        grants.counts.count(Granted::Delegation(kind), Step::Contended);
        return Err(CONTENTION);
    }
    let has_times = keeps_times(compound, args, kind);
    // The open may have changed the attributes. For a delegation to read, those found before it suffice: they are not
    // newer than the client's.
    let before = if has_times || kind == DelegationKind::Write {
        fs.fresh_attributes(file).await.map_err(|_| NO_ROOM)?
    } else {
        *found.file
    };
    // A client with a ticket from before the restart could write bytes that a reader has cached.
    if !matches!(wish, Wish::Reclaimed(_)) {
        grants.fencing.require_former_void().map_err(|_| NO_ROOM)?;
    }
    let terms = DelegationTerms {
        // The change attribute that the client has kept since before the restart is unknown.
        change: (!matches!(wish, Wish::Reclaimed(_))).then_some(before.change),
        times: has_times.then_some(DelegatedTimes { accessed: before.atime, modified: before.mtime }),
    };
    let (held, stateid) = {
        let mut states = states.lock();
        let held = states.delegations().of(client, file);
        if held == Some(DelegationKind::Write) && wish == Wish::Wanted(DelegationKind::Read) {
            return Err(OpenNoneDelegation4::Why(WND4_NOT_SUPP_DOWNGRADE));
        }
        if held.is_some_and(|held| held >= kind) {
            return Err(NO_ROOM);
        }
        let granted = states.delegations().grant(client, file, (kind, terms), fs.clock.monotonic());
        let stateid = granted.map_err(|error| match error {
            FileStateError::Limit(_) => NO_ROOM,
            _ => CONTENTION,
        })?;
        (held, stateid)
    };
    // A removal since the file was looked up met no delegation and recalled nothing; one from now on recalls this one.
    // The holder would go on to open the file by a name that is another's, for as long as it likes.
    if held.is_none() && !still_has_its_name(compound, fs, found).await {
        // It may be gone again already, with its client.
        let _ = states.lock().delegations().give_back(client, file, stateid);
        fs.files.returned();
        return Err(CONTENTION);
    }
    grants.counts.count(Granted::Delegation(kind), Step::Granted);
    Ok(on_wire(kind, stateid, has_times))
}

async fn still_has_its_name(compound: &Compound, fs: &FileSystem, found: Found<'_>) -> bool {
    let file = found.file.file;
    match found.entry {
        Some((dir, name)) => {
            names::lookup(compound, fs, *dir, name).await.is_ok_and(|now| now.entry.file == file)
        }
        None => fs.attributes(file).await.is_ok_and(|now| now.nlink > 0),
    }
}

/// Whether the client is to keep the file's times. A reader that has not asked for a delegation is not to: the server
/// does not track access times, and each return would move the change attribute that validates the caches of others.
fn keeps_times(compound: &Compound, args: &Open4Args, kind: DelegationKind) -> bool {
    match args.claim {
        OpenClaim4::Previous(before) => {
            matches!(before, OpenDelegationType4::ReadAttrs | OpenDelegationType4::WriteAttrs)
        }
        _ => {
            let is_wanted = args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK != 0;
            compound.minorversion >= 2
                && args.share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS != 0
                && (kind == DelegationKind::Write || is_wanted)
        }
    }
}

fn on_wire(kind: DelegationKind, stateid: StateId4, has_times: bool) -> OpenDelegation4 {
    match kind {
        DelegationKind::Read => {
            let granted = Box::new(OpenReadDelegation4 { stateid, recall: false, permissions: nobody() });
            if has_times { OpenDelegation4::ReadAttrs(granted) } else { OpenDelegation4::Read(granted) }
        }
        DelegationKind::Write => {
            let granted = Box::new(OpenWriteDelegation4 {
                stateid,
                recall: false,
                space_limit: NOTHING_LEFT_BEHIND,
                permissions: nobody(),
            });
            if has_times { OpenDelegation4::WriteAttrs(granted) } else { OpenDelegation4::Write(granted) }
        }
    }
}

/// The stateid of a delegation that the client takes for its open (RFC 9754 §4).
pub(super) fn instead_of_open(
    compound: &Compound,
    args: &Open4Args,
    granted: &OpenDelegation4,
) -> Option<StateId4> {
    let is_wanted = compound.minorversion >= 2
        && args.share_access & OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION != 0
        && matches!(args.claim, OpenClaim4::Null(_) | OpenClaim4::Fh);
    match granted {
        _ if !is_wanted => None,
        OpenDelegation4::Read(granted) | OpenDelegation4::ReadAttrs(granted) => Some(granted.stateid),
        OpenDelegation4::Write(granted) | OpenDelegation4::WriteAttrs(granted) => Some(granted.stateid),
        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
    }
}

fn why(reason: u32) -> OpenDelegation4 {
    OpenDelegation4::NoneExt(OpenNoneDelegation4::Why(reason))
}

/// The users that may open the file by the delegation without ACCESS (RFC 8881 §18.16.3): none, since one entry cannot
/// express all users' rights. Linux calls ACCESS in any case.
fn nobody() -> NfsAce4 {
    NfsAce4 {
        ace_type: ACE4_ACCESS_ALLOWED_ACE_TYPE,
        flag: 0,
        access_mask: 0,
        who: Opaque(bytes::Bytes::from_static(b"EVERYONE@")),
    }
}

pub(super) async fn give_back(
    compound: &Compound,
    grants: &Grants,
    args: &DelegReturn4Args,
) -> Result<(), NfsStat4> {
    let clients = &*grants.clients;
    let (client, file) = (compound.client()?, compound.file()?);
    let stateid = compound.resolve(args.deleg_stateid)?;
    // Without an open it covers the file's layouts.
    grants.fencing.before_return(client, file).await;
    clients.states.lock().delegations().give_back(client, file, stateid)?;
    // Requests may wait for it.
    clients.fs.files.returned();
    Ok(())
}
