//! Delegations over all files: granting them, and taking them back.

use std::time::Duration;

use types::FileId;

use super::entries::Entries;
use super::under_way::UnderWay;
use crate::grants::Ended;
use crate::limits::Limits;
use crate::{DelegationKind, FileStateError, GrantKind, Holder};

pub struct Delegations<'a> {
    pub(super) limits: &'a Limits,
    pub(super) entries: &'a mut Entries,
    pub(super) under_way: &'a mut UnderWay,
}

impl Delegations<'_> {
    /// Delegates a file to a holder that has none of it, or to write where it has it to read. INUSE where somebody uses
    /// it in a way that would end the delegation at once, RECALL_CONFLICT while a change of it waits or is being made.
    pub fn grant(
        &mut self,
        file: FileId,
        holder: Holder,
        kind: DelegationKind,
        now: Duration,
    ) -> Result<(), FileStateError> {
        let known = self.entries.of(file);
        known.judge_delegation(holder, kind, now)?;
        let is_more = known.delegation_of(holder).is_none();
        let held = self.entries.holders.held(holder).delegations;
        if is_more && held >= self.limits.delegations_per_holder {
            return Err(FileStateError::Limit("delegations of a client"));
        }
        self.entries.enter(file).delegations.put(holder, kind);
        if is_more {
            self.entries.holders.add_delegation(holder, file);
        }
        Ok(())
    }

    /// Takes it back and returns the kind that it had. Its recall ends.
    pub fn give_back(&mut self, file: FileId, holder: Holder) -> Option<DelegationKind> {
        let known = self.entries.get_mut(file)?;
        let kind = known.delegation_of(holder)?;
        let deadline = known.delegations.remove(holder).and_then(|Ended { recall_deadline }| recall_deadline);
        self.under_way.end(file, holder, GrantKind::Delegation, deadline);
        self.entries.holders.remove_delegation(holder, file);
        self.entries.settle(file, holder);
        Some(kind)
    }
}
