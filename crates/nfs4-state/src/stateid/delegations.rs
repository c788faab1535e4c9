//! Delegations and their stateids (RFC 8881 §10.2): one per client and file.
//!
//! A delegation counts as an open with the accesses that its holder may open by itself: the holder's layouts stay as
//! long, and I/O may be done by its stateid.

use std::time::Duration;

use file_state::{DelegationKind, FileStateError};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::door_table::DoorTable;
use super::layouts::Layouts;
use super::lost::LostLocks;
use super::table::{Kind, State, StateKey, StateTable};
use super::terms::{DelegatedTimes, DelegationTerms};

/// Revoked delegations whose client has not freed them; beyond it the stateid of one more is a bad one at once.
const REVOKED_MAX: usize = 1 << 16;

pub struct Delegations<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) states: &'a mut StateTable,
    pub(super) lost: &'a mut LostLocks,
}

impl Delegations<'_> {
    /// Delegates a file to a client that has none of it, if nothing stands against it. One to write takes the place of
    /// one to read: the stateid stays, and of the terms what the client was told first (Linux keeps its
    /// `delegation->change_attr`).
    pub fn grant(
        &mut self,
        client: ClientId4,
        file: FileId,
        (kind, terms): (DelegationKind, DelegationTerms),
        now: Duration,
    ) -> Result<StateId4, FileStateError> {
        if self.lost.has(self.table, client, file) {
            return Err(FileStateError::InUse);
        }
        self.table.lock().delegations().grant(file, self.table.holder(client), kind, now)?;
        let key = match self.states.delegation_of(client, file) {
            Some(key) => {
                let before = self.states.terms(key);
                let times = before.times.or(terms.times);
                self.states.set_delegation_kind(key, kind);
                self.states.set_terms(key, DelegationTerms { times, ..before });
                key
            }
            None => {
                let key = self.states.insert(client, file, Kind::Delegation { kind, is_revoked: false });
                self.states.set_terms(key, terms);
                key
            }
        };
        Ok(self.states.bump(key))
    }

    /// Of the delegation that the client has of the file.
    pub fn terms(&self, client: ClientId4, file: FileId) -> Option<DelegationTerms> {
        self.states.delegation_of(client, file).map(|key| self.states.terms(key))
    }

    /// The times that the client may give the file anew by this stateid. INVAL: that was not delegated.
    pub fn judge_times(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(DelegationKind, DelegatedTimes), NfsStat4> {
        let (key, kind) = self.judge_stateid(client, file, stateid)?;
        Ok((kind, self.states.terms(key).times.ok_or(NfsStat4::Inval)?))
    }

    pub fn of(&self, client: ClientId4, file: FileId) -> Option<DelegationKind> {
        self.table.lock().file(file).delegation_of(self.table.holder(client))
    }

    /// The delegation behind a stateid, for opening what was opened by it (CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH).
    pub fn judge(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<DelegationKind, NfsStat4> {
        self.judge_stateid(client, file, stateid).map(|(_, kind)| kind)
    }

    /// DELEGRETURN. Layouts go too that nothing else covers, as with the last CLOSE.
    pub fn give_back(&mut self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        let (key, _) = self.judge_stateid(client, file, stateid)?;
        self.table.lock().delegations().give_back(file, self.table.holder(client));
        self.states.remove(key);
        self.layouts().drop_uncovered(client, file);
        self.lost.note_closed(self.table, client, file);
        Ok(())
    }

    /// Whether the client is still to free delegations that were taken from it.
    pub fn has_revoked(&self, client: ClientId4) -> bool {
        self.states.revoked_count(client) > 0
    }

    /// `is_told` by its stateid, as long as the client has not freed that.
    pub(super) fn revoke(&mut self, client: ClientId4, file: FileId, is_told: bool) {
        self.table.lock().delegations().give_back(file, self.table.holder(client));
        let Some(key) = self.states.delegation_of(client, file) else { return };
        if is_told && self.states.revoked_count(client) < REVOKED_MAX {
            self.states.revoke(key);
        } else {
            self.states.remove(key);
        }
    }

    fn judge_stateid(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(StateKey, DelegationKind), NfsStat4> {
        match self.states.judge(client, stateid, file)? {
            State { key, kind: Kind::Delegation { kind, .. }, .. } => Ok((key, kind)),
            _ => Err(NfsStat4::BadStateId),
        }
    }

    fn layouts(&mut self) -> Layouts<'_> {
        Layouts { table: self.table, states: &mut *self.states, lost: &*self.lost }
    }
}
