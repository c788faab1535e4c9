//! LOCK, LOCKT and LOCKU: byte-range locks in the conflict table of all doors.

use files::{LockKind, Want};
use nfs4::{
    Lock4Args, Lock4Res, Lock4ResOk, LockT4Args, LockT4Res, LockU4Args, LockU4ResOk, Locker4, NfsLockType4,
    NfsStat4,
};
use nfs4_state::stateid::{LockOutcome, LockRequest, Locker, Modes};
use types::{ByteRange, FileId, FileKind};

use super::change::make_way;
use super::clients::Clients;
use super::file_system::FileSystem;
use super::lost_locks::LostLocks;
use super::{courtesy, lock_notice};
use crate::context::Compound;

pub(super) async fn lock(compound: &mut Compound, lost_locks: &LostLocks, args: Lock4Args) -> Lock4Res {
    let is_reclaim = args.reclaim;
    match try_lock(compound, lost_locks, args).await {
        Ok(LockOutcome::Granted(lock_stateid)) => {
            compound.current.stateid = Some(lock_stateid);
            // A lock to write that only reads from now on lets readers through.
            lock_notice::tell_waiters(&lost_locks.clients);
            Lock4Res::Ok(Lock4ResOk { lock_stateid })
        }
        Ok(LockOutcome::Denied(denied)) => Lock4Res::Denied(denied),
        Err(status) => {
            if is_reclaim {
                lost_locks.note_refused(compound, status).await;
            }
            Lock4Res::Err(status)
        }
    }
}

async fn try_lock(
    compound: &Compound,
    lost_locks: &LostLocks,
    args: Lock4Args,
) -> Result<LockOutcome, NfsStat4> {
    let Clients { fs, sessions, states, .. } = &*lost_locks.clients;
    let (client, file) = (compound.client()?, compound.file()?);
    let range = range(args.offset, args.length)?;
    sessions.reclaims.judge(client, args.reclaim)?;
    if !args.reclaim {
        lost_locks.grants.fencing.require_former_void()?;
    }
    let locker = match args.locker {
        Locker4::New(new) => {
            Locker::New { open: compound.resolve(new.open_stateid)?, owner: new.lock_owner.owner.0 }
        }
        Locker4::Exist(existing) => Locker::Existing(compound.resolve(existing.lock_stateid)?),
    };
    let request = LockRequest { client, file, locker, locktype: args.locktype, range };
    let mut outcome = states.lock().locks().lock(request.clone())?;
    if matches!(outcome, LockOutcome::Denied(_)) && dislodge(fs, file, args.locktype, range).await? {
        outcome = states.lock().locks().lock(request)?;
    }
    match outcome {
        // Somebody else has it before its owner came back (RFC 8881 §18.10.4).
        LockOutcome::Denied(_) if args.reclaim => Err(NfsStat4::ReclaimConflict),
        outcome => Ok(outcome),
    }
}

pub(super) async fn test(compound: &Compound, clients: &Clients, args: LockT4Args) -> LockT4Res {
    match try_test(compound, clients, &args).await {
        Ok(()) => LockT4Res::Ok,
        Err(Refusal::Denied(denied)) => LockT4Res::Denied(denied),
        Err(Refusal::Status(status)) => LockT4Res::Err(status),
    }
}

enum Refusal {
    Denied(nfs4::Lock4Denied),
    Status(NfsStat4),
}

impl From<NfsStat4> for Refusal {
    fn from(status: NfsStat4) -> Refusal {
        Refusal::Status(status)
    }
}

async fn try_test(compound: &Compound, clients: &Clients, args: &LockT4Args) -> Result<(), Refusal> {
    let (client, file) = (compound.client()?, compound.file()?);
    let range = range(args.offset, args.length)?;
    match clients.fs.attributes(file).await?.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(NfsStat4::IsDir.into()),
        FileKind::Symlink => return Err(NfsStat4::SymLink.into()),
        _ => return Err(NfsStat4::WrongType.into()),
    }
    clients.sessions.reclaims.judge(client, false)?;
    // The holder of a delegation to write locks without asking the server (RFC 8881 §10.4.2).
    drop(make_way(compound, &clients.fs, file, Modes::READ, Modes::NONE).await?);
    let test = || clients.states.lock().locks().test(client, file, &args.owner.owner.0, args.locktype, range);
    let mut denied = test();
    if denied.is_some() && dislodge(&clients.fs, file, args.locktype, range).await? {
        denied = test();
    }
    denied.map_or(Ok(()), |denied| Err(Refusal::Denied(denied)))
}

pub(super) fn unlock(
    compound: &mut Compound,
    clients: &Clients,
    args: &LockU4Args,
) -> Result<LockU4ResOk, NfsStat4> {
    let (client, file) = (compound.client()?, compound.file()?);
    let range = range(args.offset, args.length)?;
    let stateid = compound.resolve(args.lock_stateid)?;
    let lock_stateid = clients.states.lock().locks().unlock(client, file, stateid, range)?;
    lock_notice::tell_waiters(clients);
    compound.current.stateid = Some(lock_stateid);
    Ok(LockU4ResOk { lock_stateid })
}

/// Whether locks of lost clients stood in the way, and are gone.
async fn dislodge(
    fs: &FileSystem,
    file: FileId,
    locktype: NfsLockType4,
    range: ByteRange,
) -> Result<bool, NfsStat4> {
    let kind = if locktype.is_write() { LockKind::Write } else { LockKind::Read };
    courtesy::dislodge(fs, file, Want::Lock(range, kind)).await
}

/// RFC 8881 §18.10.3: a length of zero, and a range past the largest offset, are INVAL.
fn range(offset: u64, length: u64) -> Result<ByteRange, NfsStat4> {
    ByteRange::new(offset, length).ok_or(NfsStat4::Inval)
}
