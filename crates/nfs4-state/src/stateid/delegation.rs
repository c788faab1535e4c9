//! Delegations and their stateids (RFC 8881 §10.2): one per client and file.
//!
//! What a delegation lets its holder open by itself counts as open: its layouts stay while it does, and I/O may be done
//! by its stateid.

use std::time::Duration;

use file_state::{DelegationKind, FileStateError, LayoutModes, Modes};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::table::{Kind, State, StateKey};
use super::{ClientState, holder};

/// Revoked delegations whose client has not freed them; beyond it the stateid of one more is a bad one at once.
const REVOKED_MAX: usize = 1 << 16;

impl ClientState {
    /// Delegates a file to a client that has none of it, if nothing stands against it.
    pub fn delegate(
        &mut self,
        client: ClientId4,
        file: FileId,
        kind: DelegationKind,
        now: Duration,
    ) -> Result<StateId4, FileStateError> {
        self.files.lock().delegate(file, holder(client), kind, now)?;
        let key = self.states.insert(client, file, Kind::Delegation { kind, is_revoked: false });
        Ok(self.states.bump(key))
    }

    pub fn delegation_of(&self, client: ClientId4, file: FileId) -> Option<DelegationKind> {
        self.files.lock().delegation_of(file, holder(client))
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
        self.files.lock().return_delegation(file, holder(client));
        self.states.remove(key);
        self.drop_uncovered_layouts(client, file);
        Ok(())
    }

    /// Whether the client is still to free delegations that were taken from it.
    pub fn has_revoked(&self, client: ClientId4) -> bool {
        self.states.revoked_count(client) > 0
    }

    /// `is_told` by its stateid, as long as the client has not freed that.
    pub(super) fn revoke_delegation(&mut self, client: ClientId4, file: FileId, is_told: bool) {
        self.files.lock().return_delegation(file, holder(client));
        let Some(key) = self.states.delegation_of(client, file) else { return };
        if is_told && self.states.revoked_count(client) < REVOKED_MAX {
            self.states.revoke(key);
        } else {
            self.states.remove(key);
        }
    }

    /// Layouts were given with `return_on_close`: with the last open go those that no delegation covers.
    pub(super) fn drop_uncovered_layouts(&mut self, client: ClientId4, file: FileId) {
        let left = self.files.lock().access_of(file, holder(client));
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
