//! OPEN: finds or makes the file, asks the conflict table, and makes it the current file handle (RFC 8881 §18.16).

use std::sync::Arc;

use api::{CreateKind, CreateMode, CreateSpec, SetAttributes};
use aws_lc_rs::digest;
use files::{FilesError, RemovalsSeen, Share, Want};
use nfs4::attr::number;
use nfs4::{
    Bitmap4, ChangeInfo4, ClientId4, Component4, CreateHow4, Fattr4, NfsStat4, OPEN4_RESULT_LOCKTYPE_POSIX,
    OPEN4_RESULT_NO_OPEN_STATEID, OPEN4_RESULT_PRESERVE_UNLINKED, OPEN4_SHARE_ACCESS_BOTH, Open4Args,
    Open4ResOk, OpenClaim4, OpenFlag4, StateId4, Verifier4,
};
use nfs4_state::Incarnation;
use nfs4_state::stateid::{Modes, OpenRequest};
use types::{Access, Attributes, FileId, FileKind, Name, permission};

use super::change::make_way;
use super::clients::Clients;
use super::component::name;
use super::file_system::FileSystem;
use super::grants::Grants;
use super::lost_locks::LostLocks;
use super::setattr::{self, Requested};
use super::{courtesy, delegation, directory, lock_notice, names};
use crate::context::Compound;
use crate::status;

/// For a client that names no mode.
const PERMISSIONS_DEFAULT: u32 = 0o644;
/// The share bits, delegation wants and their signals: all that RFC 8881 and 9754 define.
const SHARE_ACCESS_KNOWN: u32 = 0x33_ff03;

/// The parts of the MDS that an OPEN needs.
pub(crate) struct Opening {
    pub clients: Arc<Clients>,
    pub grants: Arc<Grants>,
    pub lost_locks: Arc<LostLocks>,
}

/// The file that an OPEN found or made.
struct Target {
    attributes: Attributes,
    /// The directory and name that led to it.
    entry: Option<(FileId, Name)>,
    cinfo: ChangeInfo4,
    attrset: Bitmap4,
    is_new: bool,
    /// The size a new file gets, or 0 to truncate an existing one.
    size: Option<u64>,
    permission: Permission,
}

impl Target {
    fn found(&self) -> delegation::Found<'_> {
        delegation::Found { file: &self.attributes, entry: self.entry.as_ref() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Permission {
    /// Mode or ACL decide.
    ByMode,
    /// The owner may, whatever the mode says: it has just made the file, or opened it by its delegation before.
    ByModeOrOwner,
    /// Checked before the restart.
    Reclaimed,
}

pub(super) async fn open(
    compound: &mut Compound,
    opening: &Opening,
    args: Open4Args,
) -> Result<Open4ResOk, NfsStat4> {
    let is_reclaim = matches!(args.claim, OpenClaim4::Previous(_));
    let opened = try_open(compound, opening, &args, is_reclaim).await;
    if let (true, Err(status)) = (is_reclaim, &opened) {
        opening.lost_locks.note_refused(compound, *status).await;
    }
    opened
}

async fn try_open(
    compound: &mut Compound,
    opening: &Opening,
    args: &Open4Args,
    is_reclaim: bool,
) -> Result<Open4ResOk, NfsStat4> {
    let Opening { clients, grants, lost_locks } = opening;
    let Clients { fs, sessions, states, .. } = &**clients;
    let client = compound.client()?;
    let share = judge_shares(args)?;
    sessions.reclaims.judge(client, is_reclaim)?;
    lost_locks.introduce(client, is_reclaim).await;
    if is_reclaim {
        lost_locks.note_reclaim(compound).await;
    }

    let seen = fs.files.removals();
    let target = find(compound, clients, args, share).await?;
    let file = target.attributes.file;
    judge_kind(target.attributes.kind)?;
    judge_permission(compound, fs, &target, share.access).await?;
    if share.deny != Modes::NONE && !is_reclaim {
        grants.fencing.require_former_void()?;
    }

    // The reaper may be at it; in the grace period it keeps its hands off.
    let is_unlinked = target.attributes.nlink == 0 && !is_reclaim;
    let owner = args.owner.owner.0.clone();
    let (access, deny) = (share.access.bits(), share.deny.bits());
    let request = OpenRequest { client, owner, file, access, deny, is_unlinked };
    let stateid = admit(compound, clients, request, share).await.map_err(|status| match status {
        // Somebody else came first (RFC 8881 §8.4.2.1).
        NfsStat4::ShareDenied if is_reclaim => NfsStat4::ReclaimConflict,
        status => status,
    })?;
    // Nothing is truncated that cannot be opened, and nothing stays open that cannot be truncated.
    if let Err(status) = finish(compound, fs, &target, seen).await {
        undo(clients, client, file, stateid);
        return Err(status);
    }
    if target.is_new {
        states.lock().lost().created(client, file);
    }
    compound.set_file(file);
    compound.current.stateid = Some(stateid);
    let is_reachable = sessions.callbacks.is_reachable(client);
    if is_reachable {
        // Before there is anything to recall.
        sessions.note_grant(compound, file);
    }
    let mut opened = Open4ResOk {
        stateid,
        cinfo: target.cinfo,
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX
            | OPEN4_RESULT_PRESERVE_UNLINKED
            | lock_notice::promise(is_reachable),
        attrset: target.attrset,
        delegation: delegation::offer(compound, grants, target.found(), args, is_reachable).await,
    };
    if let Some(delegated) = delegation::instead_of_open(compound, args, &opened.delegation)
        && undo(clients, client, file, stateid)
    {
        // RFC 9754 §4. For what follows in the COMPOUND the delegation is as good.
        opened.stateid = StateId4::ANONYMOUS;
        opened.rflags |= OPEN4_RESULT_NO_OPEN_STATEID;
        compound.current.stateid = Some(delegated);
    }
    Ok(opened)
}

/// The share reservation that is asked for, without wants of delegations.
fn judge_shares(args: &Open4Args) -> Result<Share, NfsStat4> {
    if args.share_access & !SHARE_ACCESS_KNOWN != 0 {
        return Err(NfsStat4::Inval);
    }
    let modes = |bits| Modes::from_bits(bits).ok_or(NfsStat4::Inval);
    let access = modes(args.share_access & OPEN4_SHARE_ACCESS_BOTH)?;
    if access == Modes::NONE { Err(NfsStat4::Inval) } else { Ok(Share::new(access, modes(args.share_deny)?)) }
}

/// Enters the open into the conflict table. If conflicting delegations are not returned in time, the answer is DELAY.
async fn admit(
    compound: &Compound,
    clients: &Clients,
    request: OpenRequest,
    share: Share,
) -> Result<StateId4, NfsStat4> {
    let mut opened = clients.states.lock().opens().open(request.clone());
    let want = Want::Share(share);
    if opened == Err(NfsStat4::ShareDenied) && courtesy::dislodge(&clients.fs, request.file, want).await? {
        opened = clients.states.lock().opens().open(request.clone());
    }
    let Err(NfsStat4::RecallConflict) = opened else { return opened };
    let changing = make_way(compound, &clients.fs, request.file, share.access, share.deny).await?;
    let opened = clients.states.lock().opens().open(request);
    drop(changing);
    // Another client was faster.
    opened.map_err(|status| if status == NfsStat4::RecallConflict { NfsStat4::Delay } else { status })
}

/// Steps that need the file held open.
async fn finish(
    compound: &Compound,
    fs: &FileSystem,
    target: &Target,
    seen: RemovalsSeen,
) -> Result<(), NfsStat4> {
    let file = &target.attributes;
    fs.files.judge_still_named(file, seen).await.map_err(status::of_files)?;
    match target.size {
        // The permission is checked. A new file keeps the set-id bits that it was made with.
        Some(size) => {
            let set = fs.files.set_length(fs.by(compound), file, size, target.is_new).await;
            set.map(drop).map_err(status::of_files)
        }
        None => Ok(()),
    }
}

/// Takes a first open back. An upgrade stays: the owner had the file open before, and closes all of it at once.
fn undo(clients: &Clients, client: ClientId4, file: FileId, stateid: StateId4) -> bool {
    // If another request has used the stateid meanwhile, it is that one's.
    stateid.seqid == 1 && clients.states.lock().opens().take_back(client, file, stateid).is_ok()
}

async fn find(
    compound: &Compound,
    clients: &Clients,
    args: &Open4Args,
    share: Share,
) -> Result<Target, NfsStat4> {
    let fs = &*clients.fs;
    match (&args.claim, &args.openhow) {
        (OpenClaim4::Null(component), OpenFlag4::NoCreate) => look_up(compound, fs, component).await,
        (OpenClaim4::Null(component), OpenFlag4::Create(how)) => {
            let created = create(compound, clients, component, how).await;
            // That the handle is of no directory goes before all else that is wrong.
            if created.is_err() {
                names::directory(fs, compound.file()?).await?;
            }
            created
        }
        // Linux opens by handle what it has looked up before, and leaves it to the server to judge writing.
        (OpenClaim4::Fh, OpenFlag4::NoCreate) => current(compound, fs, Permission::ByMode).await,
        (OpenClaim4::Previous(_), OpenFlag4::NoCreate) => current(compound, fs, Permission::Reclaimed).await,
        (OpenClaim4::Fh | OpenClaim4::Previous(_), OpenFlag4::Create(_)) => Err(NfsStat4::Inval),
        // The client enters opens that it made locally under a delegation, before it returns the delegation.
        (OpenClaim4::DelegCurFh(stateid), OpenFlag4::NoCreate) => {
            let target = current(compound, fs, Permission::ByModeOrOwner).await?;
            by_delegation(compound, clients, *stateid, share.access, target)
        }
        (OpenClaim4::DelegateCur(claim), OpenFlag4::NoCreate) => {
            let target = look_up(compound, fs, &claim.file).await?;
            let target = Target { permission: Permission::ByModeOrOwner, ..target };
            by_delegation(compound, clients, claim.delegate_stateid, share.access, target)
        }
        (OpenClaim4::DelegateCur(_) | OpenClaim4::DelegCurFh(_), OpenFlag4::Create(_)) => {
            Err(NfsStat4::Inval)
        }
        (OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh, _) => Err(NfsStat4::NotSupp),
    }
}

fn by_delegation(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    access: Modes,
    target: Target,
) -> Result<Target, NfsStat4> {
    let (client, file) = (compound.client()?, target.attributes.file);
    let kind = clients.states.lock().delegations().judge(client, file, compound.resolve(stateid)?)?;
    if kind.access().contains(access) { Ok(target) } else { Err(NfsStat4::Inval) }
}

async fn current(compound: &Compound, fs: &FileSystem, permission: Permission) -> Result<Target, NfsStat4> {
    let attributes = fs.attributes(compound.file()?).await?;
    Ok(Target {
        attributes,
        entry: None,
        // No directory is known (RFC 8881 §18.16.3): neutral values.
        cinfo: ChangeInfo4 { atomic: false, before: 0, after: 0 },
        attrset: Bitmap4::EMPTY,
        is_new: false,
        size: None,
        permission,
    })
}

async fn look_up(compound: &Compound, fs: &FileSystem, component: &Component4) -> Result<Target, NfsStat4> {
    let found = names::look_up(compound, fs, component).await?;
    let change = found.dir.change;
    Ok(Target {
        attributes: found.entry,
        entry: Some((found.dir.file, name(component)?)),
        cinfo: ChangeInfo4 { atomic: false, before: change, after: change },
        attrset: Bitmap4::EMPTY,
        is_new: false,
        size: None,
        permission: Permission::ByMode,
    })
}

async fn create(
    compound: &Compound,
    clients: &Clients,
    component: &Component4,
    how: &CreateHow4,
) -> Result<Target, NfsStat4> {
    let fs = &*clients.fs;
    let (dir, name) = (compound.file()?, name(component)?);
    let nothing = Fattr4::default();
    let (mode, given) = match how {
        CreateHow4::Unchecked(given) => (CreateMode::Unchecked, given),
        CreateHow4::Guarded(given) => (CreateMode::Guarded, given),
        CreateHow4::Exclusive(verifier) => (exclusive(compound, clients, verifier), &nothing),
        CreateHow4::Exclusive41(with) => (exclusive(compound, clients, &with.verf), &with.attrs),
    };
    let requested = setattr::parse_for_creation(compound, fs, given).await?;
    requested.judge_kind(FileKind::Regular)?;
    let (permissions, umask) = requested.permissions(PERMISSIONS_DEFAULT);
    let spec = CreateSpec {
        kind: CreateKind::Regular,
        mode,
        permissions,
        umask,
        // The size is the data's matter: set when the file is open.
        set: SetAttributes { size: None, ..requested.beside_mode() },
        location: None,
    };
    let created = match fs.files.make(fs.by(compound), dir, &name, spec).await {
        Ok(created) => created,
        // Without space for new data an existing file can still be opened.
        Err(FilesError::Select(error)) if mode == CreateMode::Unchecked => {
            return look_up(compound, fs, component).await.map_err(|status| match status {
                NfsStat4::NoEnt => status::of_select(error),
                status => status,
            });
        }
        Err(error) => return Err(status::of_files(error)),
    };
    let is_repeated = matches!(mode, CreateMode::Exclusive { .. });
    let size = requested_size(&requested, created.is_new);
    Ok(Target {
        attributes: created.attributes,
        entry: Some((dir, name)),
        cinfo: directory::change_info(created.parent),
        attrset: attrset(given.attrmask, created.is_new || is_repeated, size),
        is_new: created.is_new || is_repeated,
        size,
        permission: if created.is_new || is_repeated {
            Permission::ByModeOrOwner
        } else {
            Permission::ByMode
        },
    })
}

/// The mode of an exclusive creation. The verifier that is kept stands for the client as well: Linux makes its own of the time since
/// boot and the thread id, which are the same on two nodes that were booted together from one image. A client that repeats the
/// call over a restart of the head has the same owner and boot verifier as before (RFC 8881 §18.16.3, §18.35.3).
fn exclusive(compound: &Compound, clients: &Clients, given: &Verifier4) -> CreateMode {
    let mut digest = digest::Context::new(&digest::SHA256);
    if let Some(Incarnation { owner, verifier }) =
        compound.client.and_then(|client| clients.sessions.incarnation(client))
    {
        digest.update(&verifier);
        digest.update(&owner);
    }
    digest.update(&given.0);
    let mut verifier = [0; 8];
    verifier.copy_from_slice(&digest.finish().as_ref()[..8]);
    CreateMode::Exclusive { verifier }
}

/// Of an existing file only truncation to nothing is asked by UNCHECKED (RFC 8881 §18.16.3); a new one may get a length.
fn requested_size(requested: &Requested, is_new: bool) -> Option<u64> {
    requested.size().filter(|size| (*size == 0) != is_new)
}

fn attrset(asked: Bitmap4, is_new: bool, size: Option<u64>) -> Bitmap4 {
    if !is_new {
        return if size.is_some() { Bitmap4::of(&[number::SIZE]) } else { Bitmap4::EMPTY };
    }
    setattr::set_at_creation(asked)
}

fn judge_kind(kind: FileKind) -> Result<(), NfsStat4> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(NfsStat4::IsDir),
        FileKind::Symlink => Err(NfsStat4::SymLink),
        _ => Err(NfsStat4::WrongType),
    }
}

async fn judge_permission(
    compound: &Compound,
    fs: &FileSystem,
    target: &Target,
    access: Modes,
) -> Result<(), NfsStat4> {
    let file = &target.attributes;
    let is_free = match target.permission {
        Permission::Reclaimed => true,
        Permission::ByModeOrOwner => permission::is_owner(&compound.identity, file),
        Permission::ByMode => false,
    };
    if is_free {
        return Ok(());
    }
    let granted = fs.granted(&compound.identity, file).await?;
    // Permission to execute a file includes reading it: the client reads the file to run it.
    let may_read = granted.contains(Access::READ) || granted.contains(Access::EXECUTE);
    let may_write = granted.contains(Access::WRITE);
    let wants_write = access.contains(Modes::WRITE) || (target.size == Some(0) && !target.is_new);
    let wants_read = access.contains(Modes::READ);
    if (wants_read && !may_read) || (wants_write && !may_write) {
        return Err(NfsStat4::Access);
    }
    Ok(())
}
