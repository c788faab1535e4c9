//! OPEN, OPEN_DOWNGRADE and CLOSE as far as they are state.

use bytes::Bytes;
use file_state::{Modes, Share};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::owners::OwnerKind;
use super::table::{Kind, Shares, State, StateKey};
use super::{ClientState, owner_of, refusal};

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

impl ClientState {
    /// A first open gets a new stateid; another one by the same owner upgrades it. RECALLCONFLICT if the delegation of
    /// another client must be returned first.
    pub fn open(&mut self, request: OpenRequest) -> Result<StateId4, NfsStat4> {
        let OpenRequest { client, file, is_unlinked, .. } = request;
        let share = share(request.access, request.deny)?;
        let number = self.owners.acquire(client, OwnerKind::Open, &request.owner);
        let opened = {
            let mut files = self.files.lock();
            let owner = owner_of(self.door, client, number);
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
        let (key, number) = self.judge_open_stateid(client, file, stateid)?;
        let shares = self.states.shares(key).down_to(share).ok_or(NfsStat4::Inval)?;
        let is_part = self.files.lock().downgrade(file, owner_of(self.door, client, number), share);
        if !is_part {
            return Err(NfsStat4::Inval);
        }
        self.states.set_shares(key, shares);
        Ok(self.states.bump(key))
    }

    /// Closes, with the locks that were taken through the open (RFC 8881 §18.2.3: a server may free them). With the last
    /// open of the client the file's layouts go too, unless a delegation covers them.
    pub fn close(&mut self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        self.take_back_open(client, file, stateid)?;
        self.note_closed(client, file);
        Ok(())
    }

    /// As `close`, of an open that the client has not heard of.
    pub fn take_back_open(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(), NfsStat4> {
        let (key, number) = self.judge_open_stateid(client, file, stateid)?;
        for lock in self.states.locks_of(key) {
            self.free_lock(lock);
        }
        self.files.lock().close(file, owner_of(self.door, client, number));
        self.states.remove(key);
        self.owners.release(number);
        self.drop_uncovered_layouts(client, file);
        self.release_forgotten_waiters();
        Ok(())
    }

    /// The open behind an open stateid, and its owner.
    pub(super) fn judge_open_stateid(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(StateKey, u64), NfsStat4> {
        match self.states.judge(client, stateid, file)? {
            State { key, kind: Kind::Open { owner, .. }, .. } => Ok((key, owner)),
            _ => Err(NfsStat4::BadStateId),
        }
    }
}

fn share(access: u32, deny: u32) -> Result<Share, NfsStat4> {
    let access = Modes::from_bits(access).filter(|access| *access != Modes::NONE).ok_or(NfsStat4::Inval)?;
    let deny = Modes::from_bits(deny).ok_or(NfsStat4::Inval)?;
    Ok(Share::new(access, deny))
}
