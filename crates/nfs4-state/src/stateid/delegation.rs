//! Delegations and their stateids (RFC 8881 §10.2): one per client and file.
//!
//! A delegation counts as an open with the accesses that its holder may open by itself: the holder's layouts stay as
//! long, and I/O may be done by its stateid.

use std::time::Duration;

use file_state::{DelegationKind, FileStateError, LayoutModes, Modes};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::{FileId, Timestamp};

use super::table::{Kind, State, StateKey};
use super::{ClientState, holder};

/// Revoked delegations whose client has not freed them; beyond it the stateid of one more is a bad one at once.
const REVOKED_MAX: usize = 1 << 16;

/// The terms of a delegation beside its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationTerms {
    /// The change attribute when the client had none yet: what it says later differs from that of the file as it was
    /// (RFC 8881 §10.4.3), and never by chance, for the client's own is not older. `None`: not known what the client has.
    pub change: Option<u64>,
    /// The client keeps the file's times (RFC 9754 §5), which were these.
    pub times: Option<DelegatedTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedTimes {
    pub accessed: Timestamp,
    pub modified: Timestamp,
}

impl DelegatedTimes {
    /// Of a time that the client gives, what is taken: nothing from before the delegation, and nothing from the future
    /// (RFC 9754 §5).
    pub fn vet(original: Timestamp, given: Timestamp, now: Timestamp) -> Option<Timestamp> {
        Some(given.min(now)).filter(|taken| *taken > original)
    }
}

impl ClientState {
    /// Delegates a file to a client that has none of it, if nothing stands against it. One to write takes the place of
    /// one to read: the stateid stays, and of the terms what the client was told first (Linux keeps its
    /// `delegation->change_attr`).
    pub fn delegate(
        &mut self,
        client: ClientId4,
        file: FileId,
        (kind, terms): (DelegationKind, DelegationTerms),
        now: Duration,
    ) -> Result<StateId4, FileStateError> {
        if self.has_lost_locks(client, file) {
            return Err(FileStateError::InUse);
        }
        self.files.lock().delegations().grant(file, holder(self.door, client), kind, now)?;
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
    pub fn delegation_terms(&self, client: ClientId4, file: FileId) -> Option<DelegationTerms> {
        self.states.delegation_of(client, file).map(|key| self.states.terms(key))
    }

    /// The times that the client may give the file anew by this stateid. INVAL: that was not delegated.
    pub fn judge_delegated_times(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(DelegationKind, DelegatedTimes), NfsStat4> {
        let (key, kind) = self.judge_delegation_stateid(client, file, stateid)?;
        Ok((kind, self.states.terms(key).times.ok_or(NfsStat4::Inval)?))
    }

    pub fn delegation_of(&self, client: ClientId4, file: FileId) -> Option<DelegationKind> {
        self.files.lock().file(file).delegation_of(holder(self.door, client))
    }

    /// The delegation behind a stateid, for opening what was opened by it (CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH).
    pub fn judge_delegation(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<DelegationKind, NfsStat4> {
        self.judge_delegation_stateid(client, file, stateid).map(|(_, kind)| kind)
    }

    /// DELEGRETURN. Layouts go too that nothing else covers, as with the last CLOSE.
    pub fn return_delegation(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(), NfsStat4> {
        let (key, _) = self.judge_delegation_stateid(client, file, stateid)?;
        self.files.lock().delegations().give_back(file, holder(self.door, client));
        self.states.remove(key);
        self.drop_uncovered_layouts(client, file);
        self.note_closed(client, file);
        Ok(())
    }

    /// Whether the client is still to free delegations that were taken from it.
    pub fn has_revoked(&self, client: ClientId4) -> bool {
        self.states.revoked_count(client) > 0
    }

    /// `is_told` by its stateid, as long as the client has not freed that.
    pub(super) fn revoke_delegation(&mut self, client: ClientId4, file: FileId, is_told: bool) {
        self.files.lock().delegations().give_back(file, holder(self.door, client));
        let Some(key) = self.states.delegation_of(client, file) else { return };
        if is_told && self.states.revoked_count(client) < REVOKED_MAX {
            self.states.revoke(key);
        } else {
            self.states.remove(key);
        }
    }

    /// Layouts were given with `return_on_close`: with the last open go those that no delegation covers. For the door, when
    /// what it held open itself for the client is closed.
    pub fn drop_uncovered_layouts(&mut self, client: ClientId4, file: FileId) {
        let left = self.files.lock().file(file).access_of(holder(self.door, client));
        if left == Modes::NONE {
            self.drop_layouts(client, file, LayoutModes::ALL);
        }
    }

    fn judge_delegation_stateid(
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
}
