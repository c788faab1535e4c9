//! OPEN, OPEN_DOWNGRADE and CLOSE as far as they are state.

use bytes::Bytes;
use file_state::{Modes, Share};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::access::judge_open;
use super::door_table::{DoorTable, refusal};
use super::layouts::Layouts;
use super::locks::Locks;
use super::lost::LostLocks;
use super::owners::{OwnerKind, Owners};
use super::table::{Kind, Shares, StateTable};
use super::waiters::Waiters;

/// An OPEN whose file is known and whose opener is allowed to.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    pub client: ClientId4,
    /// The open-owner's name.
    pub owner: Bytes,
    pub file: FileId,
    /// OPEN4_SHARE_ACCESS_*, without wants.
    pub access: u32,
    pub deny: u32,
    /// The file has lost its last name: it can be opened only while somebody, of whatever door, holds it; else STALE.
    pub is_unlinked: bool,
}

pub struct Opens<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) states: &'a mut StateTable,
    pub(super) owners: &'a mut Owners,
    pub(super) lost: &'a mut LostLocks,
    pub(super) lock_states_max: usize,
}

impl Opens<'_> {
    /// A first open gets a new stateid; another one by the same owner upgrades it. RECALLCONFLICT if the delegation of
    /// another client must be returned first.
    pub fn open(&mut self, request: OpenRequest) -> Result<StateId4, NfsStat4> {
        let OpenRequest { client, file, is_unlinked, .. } = request;
        let share = share(request.access, request.deny)?;
        let number = self.owners.acquire(client, OwnerKind::Open, &request.owner);
        let opened = {
            let mut files = self.table.lock();
            let owner = self.table.owner(client, number);
            if is_unlinked { files.open_unlinked(file, owner, share) } else { files.open(file, owner, share) }
        };
        if let Err(error) = opened {
            self.owners.release(number);
            return Err(refusal(error));
        }
        let key = match self.states.open_of(number, file) {
            Some(key) => {
                // One use of the owner for each stateid.
                self.owners.release(number);
                key
            }
            None => self.states.insert(client, file, Kind::Open { owner: number, shares: Shares::default() }),
        };
        self.states.set_shares(key, self.states.shares(key).with(share));
        Ok(self.states.bump(key))
    }

    pub fn downgrade(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        access: u32,
        deny: u32,
    ) -> Result<StateId4, NfsStat4> {
        let share = share(access, deny)?;
        let (key, number) = judge_open(self.states, client, file, stateid)?;
        let shares = self.states.shares(key).down_to(share).ok_or(NfsStat4::Inval)?;
        let is_part = self.table.lock().downgrade(file, self.table.owner(client, number), share);
        if !is_part {
            return Err(NfsStat4::Inval);
        }
        self.states.set_shares(key, shares);
        Ok(self.states.bump(key))
    }

    /// Closes, with the locks that were taken through the open (RFC 8881 §18.2.3: a server may free them). With the last
    /// open of the client the file's layouts go too, unless a delegation covers them.
    pub fn close(&mut self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        self.take_back(client, file, stateid)?;
        self.lost.note_closed(self.table, client, file);
        Ok(())
    }

    /// As `close`, of an open that the client has not heard of.
    pub fn take_back(&mut self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        let (key, number) = judge_open(self.states, client, file, stateid)?;
        for lock in self.states.locks_of(key) {
            self.locks().free(lock);
        }
        self.table.lock().close(file, self.table.owner(client, number));
        self.states.remove(key);
        self.owners.release(number);
        self.layouts().drop_uncovered(client, file);
        self.waiters().release_forgotten();
        Ok(())
    }

    fn locks(&mut self) -> Locks<'_> {
        Locks {
            table: self.table,
            states: &mut *self.states,
            owners: &mut *self.owners,
            states_max: self.lock_states_max,
        }
    }

    fn layouts(&mut self) -> Layouts<'_> {
        Layouts { table: self.table, states: &mut *self.states, lost: &*self.lost }
    }

    fn waiters(&mut self) -> Waiters<'_> {
        Waiters { table: self.table, owners: &mut *self.owners }
    }
}

fn share(access: u32, deny: u32) -> Result<Share, NfsStat4> {
    let access = Modes::from_bits(access).filter(|access| *access != Modes::NONE).ok_or(NfsStat4::Inval)?;
    let deny = Modes::from_bits(deny).ok_or(NfsStat4::Inval)?;
    Ok(Share::new(access, deny))
}
