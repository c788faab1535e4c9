//! LOCK, LOCKT and LOCKU as far as they are state.

use bytes::Bytes;
use file_state::{FileStateError, Lock, LockKind, Modes};
use nfs4::{ClientId4, Lock4Denied, NfsLockType4, NfsStat4, StateId4, StateOwner4};
use types::{ByteRange, FileId};
use xdr::Opaque;

use super::access::judge_open;
use super::door_table::{DoorTable, refusal};
use super::owners::{OwnerKind, Owners};
use super::table::{Kind, State, StateKey, StateTable};
use super::waiters::Waiters;

/// By which right a lock is taken (RFC 8881 §18.10.3).
#[derive(Clone, Debug)]
pub enum Locker {
    /// The first lock of an owner through an open.
    New {
        open: StateId4,
        owner: Bytes,
    },
    Existing(StateId4),
}

#[derive(Clone, Debug)]
pub struct LockRequest {
    pub client: ClientId4,
    pub file: FileId,
    pub locker: Locker,
    pub locktype: NfsLockType4,
    pub range: ByteRange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    Granted(StateId4),
    Denied(Lock4Denied),
}

/// The lock state to use: there already, or to be made if the lock is granted.
struct ResolvedLocker {
    open: StateKey,
    open_owner: u64,
    lock: Option<StateKey>,
    owner: u64,
}

pub struct Locks<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) states: &'a mut StateTable,
    pub(super) owners: &'a mut Owners,
    pub(super) states_max: usize,
}

impl Locks<'_> {
    pub fn lock(&mut self, request: LockRequest) -> Result<LockOutcome, NfsStat4> {
        let LockRequest { client, file, ref locker, locktype, range } = request;
        let place = self.place(client, file, locker)?;
        let kind = kind(locktype);
        let share = self.table.lock().file(file).share_of(self.table.owner(client, place.open_owner));
        let access = share.unwrap_or_default().access;
        let wanted = if kind == LockKind::Write { Modes::WRITE } else { Modes::READ };
        if !access.contains(wanted) {
            return Err(NfsStat4::OpenMode);
        }
        if place.lock.is_none() && self.states.lock_count(client) >= self.states_max {
            return Err(NfsStat4::ServerFault);
        }
        let number = match locker {
            Locker::New { owner, .. } if place.lock.is_none() => {
                self.owners.acquire(client, OwnerKind::Lock, owner)
            }
            _ => place.owner,
        };
        let by = self.table.owner(client, number);
        let locked = self.table.lock().locks().lock(file, by, range, kind);
        if let Err(error) = locked {
            if matches!(error, FileStateError::Locked(_)) && locktype.is_waiting() {
                self.waiters().wait(file, by, range, kind);
            }
            if place.lock.is_none() {
                self.owners.release(number);
            }
            return match error {
                FileStateError::Locked(lock) => Ok(LockOutcome::Denied(self.denied(lock))),
                error => Err(refusal(error)),
            };
        }
        let key = place.lock.unwrap_or_else(|| {
            self.states.insert(client, file, Kind::Lock { owner: number, open: place.open })
        });
        self.waiters().release_forgotten();
        Ok(LockOutcome::Granted(self.states.bump(key)))
    }

    fn place(&self, client: ClientId4, file: FileId, locker: &Locker) -> Result<ResolvedLocker, NfsStat4> {
        match locker {
            Locker::New { open, owner } => {
                let (open, open_owner) = judge_open(self.states, client, file, *open)?;
                let owner = self.owners.find(client, OwnerKind::Lock, owner);
                Ok(ResolvedLocker { open, open_owner, lock: self.states.lock_of(open, owner), owner })
            }
            Locker::Existing(stateid) => {
                let (key, owner, open) = self.judge_stateid(client, file, *stateid)?;
                let open_owner = self.states.open_owner(client, open).ok_or(NfsStat4::BadStateId)?;
                Ok(ResolvedLocker { open, open_owner, lock: Some(key), owner })
            }
        }
    }

    /// The lock that stands in the way of this one, if any.
    pub fn test(
        &self,
        client: ClientId4,
        file: FileId,
        owner: &Bytes,
        locktype: NfsLockType4,
        range: ByteRange,
    ) -> Option<Lock4Denied> {
        let number = self.owners.find(client, OwnerKind::Lock, owner);
        let owner = (number != Owners::UNKNOWN).then(|| self.table.owner(client, number));
        let lock = self.table.lock().file(file).test_lock(owner, range, kind(locktype))?;
        Some(self.denied(lock))
    }

    pub fn unlock(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        range: ByteRange,
    ) -> Result<StateId4, NfsStat4> {
        let (key, owner, _) = self.judge_stateid(client, file, stateid)?;
        self.table.lock().locks().unlock(file, self.table.owner(client, owner), range).map_err(refusal)?;
        Ok(self.states.bump(key))
    }

    /// Removes a lock state with its locks.
    pub(super) fn free(&mut self, lock: State) {
        if let Kind::Lock { owner, .. } = lock.kind {
            self.table.lock().locks().release(lock.file, self.table.owner(lock.client, owner));
            self.states.remove(lock.key);
            self.owners.release(owner);
        }
    }

    /// The lock state behind a lock stateid, its owner and its open.
    fn judge_stateid(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(StateKey, u64, StateKey), NfsStat4> {
        match self.states.judge(client, stateid, file)? {
            State { key, kind: Kind::Lock { owner, open }, .. } => Ok((key, owner, open)),
            _ => Err(NfsStat4::BadStateId),
        }
    }

    /// Names the other owner as its own client does. Holders of other doors have neither client id nor name, and their
    /// owners' numbers mean nothing here.
    fn denied(&self, lock: Lock) -> Lock4Denied {
        let client = self.table.client_of(lock.owner.holder);
        let owner = client.and_then(|_| self.owners.name(lock.owner.number)).unwrap_or_default();
        Lock4Denied {
            offset: lock.range.offset(),
            length: lock.range.length(),
            locktype: if lock.kind == LockKind::Write { NfsLockType4::Write } else { NfsLockType4::Read },
            owner: StateOwner4 { clientid: client.unwrap_or(ClientId4(0)), owner: Opaque(owner) },
        }
    }

    fn waiters(&mut self) -> Waiters<'_> {
        Waiters { table: self.table, owners: &mut *self.owners }
    }
}

fn kind(locktype: NfsLockType4) -> LockKind {
    if locktype.is_write() { LockKind::Write } else { LockKind::Read }
}
