//! Judging the stateids of I/O, TEST_STATEID and FREE_STATEID.

use file_state::{FileStateError, Modes};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::ClientState;
use super::access::access_of;
use super::table::{Kind, judge_seqid};

impl ClientState {
    /// Whether I/O with this stateid may be done (RFC 8881 §8.2.3, §9.1.2). CURRENT has been put in its place before.
    pub fn check_io(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        access: Modes,
    ) -> Result<(), NfsStat4> {
        if stateid.is_special() {
            return self.check_special(client, file, stateid, access);
        }
        let state = self.states.judge(client, stateid, file)?;
        if access_of(&self.table, &self.states, client, &state)?.contains(access) {
            Ok(())
        } else {
            Err(NfsStat4::OpenMode)
        }
    }

    /// Without an open others' denials and delegations count; the bypass stateid reads past denials.
    fn check_special(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        access: Modes,
    ) -> Result<(), NfsStat4> {
        if stateid != StateId4::ANONYMOUS && stateid != StateId4::BYPASS {
            return Err(NfsStat4::BadStateId);
        }
        match self.table.lock().file(file).check_io(self.table.holder(client), access) {
            Err(FileStateError::RecallConflict) => Err(NfsStat4::Delay),
            Err(_) if stateid == StateId4::BYPASS && access == Modes::READ => Ok(()),
            judged => judged.map_err(|_| NfsStat4::Locked),
        }
    }

    pub fn has_open_for_writing(&self, client: ClientId4, file: FileId) -> bool {
        self.table.lock().file(file).access_of(self.table.holder(client)).contains(Modes::WRITE)
    }

    /// TEST_STATEID: the status that a use would get, of the stateid alone.
    pub fn test(&self, client: ClientId4, stateid: StateId4) -> NfsStat4 {
        let judged = self.states.find(client, stateid).and_then(|state| judge_seqid(stateid, state.seqid));
        judged.err().unwrap_or(NfsStat4::Ok)
    }

    /// FREE_STATEID: frees a lock stateid without locks, or that of a revoked delegation; opens, layouts and delegations
    /// have operations of their own.
    pub fn free(&mut self, client: ClientId4, stateid: StateId4) -> Result<(), NfsStat4> {
        let state = self.states.find_any(client, stateid)?;
        judge_seqid(stateid, state.seqid)?;
        if let Kind::Delegation { is_revoked: true, .. } = state.kind {
            self.states.remove(state.key);
            return Ok(());
        }
        let Kind::Lock { owner, .. } = state.kind else { return Err(NfsStat4::LocksHeld) };
        let locks = self.table.lock().file(state.file).locks_of(self.table.owner(client, owner));
        if locks > 0 {
            return Err(NfsStat4::LocksHeld);
        }
        self.locks().free(state);
        Ok(())
    }
}
