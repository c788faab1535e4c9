//! The opens, locks, layouts and delegations of one file, and what they let others do.
//!
//! A file of which nobody has anything is judged by an empty entry.

use std::collections::BTreeSet;
use std::time::Duration;

use types::ByteRange;

use crate::change::Pending;
use crate::grants::Grants;
use crate::locks::FileLocks;
use crate::share::Shares;
use crate::{
    Change, DelegationKind, FileStateError, GrantKind, Holder, LayoutMode, LayoutModes, Lock, LockKind,
    Modes, Owner, Share,
};

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An open, or I/O without one.
    Share(Share),
    Lock(ByteRange, LockKind),
}

#[derive(Debug, Default)]
pub struct FileEntry {
    pub(super) shares: Shares,
    pub(super) locks: FileLocks,
    pub(super) layouts: Grants<LayoutModes>,
    pub(super) delegations: Grants<DelegationKind>,
    /// A change that had to wait.
    pub(super) pending: Option<Box<Pending>>,
    /// Changes that were let through and are not done yet: nobody is delegated what is about to be another.
    pub(super) changing: u32,
}

// Questions of any caller.
impl FileEntry {
    /// Whether somebody has the file open, a layout or a delegation of it: an unlinked file keeps its data so long.
    pub fn is_in_use(&self) -> bool {
        !self.shares.is_empty() || !self.layouts.is_empty() || !self.delegations.is_empty()
    }

    /// Holders whose opens or locks conflict with the request. The caller may be among them, if it has such.
    pub fn in_the_way_of(&self, want: Want) -> BTreeSet<Holder> {
        match want {
            Want::Share(share) => {
                let others = self.shares.all().filter(|(_, other)| share.conflicts(*other));
                others.map(|(owner, _)| owner.holder).collect()
            }
            Want::Lock(range, kind) => self.locks.conflicts(range, kind).map(|owner| owner.holder).collect(),
        }
    }

    pub fn share_of(&self, owner: Owner) -> Option<Share> {
        self.shares.of(owner)
    }

    /// All that the holder's owners have open of the file, together, and what it may open by itself.
    pub fn access_of(&self, holder: Holder) -> Modes {
        let delegated = self.delegations.of(holder).map_or(Modes::NONE, DelegationKind::access);
        self.shares.of_holder(holder).fold(delegated, |access, (_, share)| access.union(share.access))
    }

    /// Whether `by` may do I/O without an open: no delegation is in the way, and no open denies it. In this order, for
    /// a caller that may read past a denial must not read past writes that a delegation hides.
    pub fn check_io(&self, by: Holder, access: Modes) -> Result<(), FileStateError> {
        self.judge_delegations(Some(by), Change::Access(Share::new(access, Modes::NONE)))?;
        self.shares.judge_io(access)
    }

    /// Also by the holder of a write delegation, who may open the file without a call.
    pub fn is_open_for_writing(&self) -> bool {
        self.shares.has_writers() || self.delegations.iter().any(|(_, kind)| kind == DelegationKind::Write)
    }

    /// Whether a holder (or somebody who holds nothing anywhere) may take the file's name or bytes away: not while a
    /// client of another door denies writing. [`Changes::ask`](crate::Changes::ask) does not ask this by itself.
    pub fn judge_change(&self, by: Option<Holder>) -> Result<(), FileStateError> {
        self.shares.judge_change(by.map(|holder| holder.door))
    }

    /// A lock that stands in the way of one that `owner` (or somebody without any lock) might want.
    pub fn test_lock(&self, owner: Option<Owner>, range: ByteRange, kind: LockKind) -> Option<Lock> {
        self.locks.conflict(owner, range, kind)
    }

    pub fn locks_of(&self, owner: Owner) -> usize {
        self.locks.of(owner)
    }

    /// Whether the holder has locks on the file, denies something to others, or may do so without a word, by a delegation to
    /// write.
    pub fn may_have_locked(&self, holder: Holder) -> bool {
        self.locks.has_locks_of(holder)
            || self.delegations.of(holder) == Some(DelegationKind::Write)
            || self.shares.of_holder(holder).any(|(_, share)| share.deny != Modes::NONE)
    }

    pub fn layout_of(&self, holder: Holder) -> LayoutModes {
        self.layouts.of(holder).unwrap_or_default()
    }

    /// When the holder was last granted a layout of the file, if it has one.
    pub fn layout_granted(&self, holder: Holder) -> Option<Duration> {
        self.layouts.granted(holder)
    }

    pub fn layout_holders(&self) -> impl Iterator<Item = Holder> {
        self.layouts.iter().map(|(holder, _)| holder)
    }

    /// Holders with a layout of the file that has not been recalled.
    pub fn layout_holders_to_recall(&self) -> impl Iterator<Item = Holder> {
        self.layout_holders().filter(|holder| !self.layouts.is_recalled(*holder))
    }

    /// Whether somebody may be writing the file at the pools right now.
    pub fn is_written_at_pools(&self) -> bool {
        self.layouts.iter().any(|(_, modes)| modes.read_write)
    }

    /// Whether the holder itself may be.
    pub fn is_writing_at_pools(&self, holder: Holder) -> bool {
        self.layouts.iter().any(|(of, modes)| of == holder && modes.read_write)
    }

    pub fn delegation_of(&self, holder: Holder) -> Option<DelegationKind> {
        self.delegations.of(holder)
    }

    /// The other holder that may be changing the file without a call: that of a write delegation.
    pub fn writer_beside(&self, by: Option<Holder>) -> Option<Holder> {
        let mut others = self.delegations.of_others(by);
        others.find(|(_, kind)| *kind == DelegationKind::Write).map(|(holder, _)| holder)
    }

    /// Whether a recall of the holder's grant on the file is under way. A caller that sends recalls asks again, for
    /// between the verdict and the message the grant may have come back.
    pub fn is_recalled(&self, holder: Holder, kind: GrantKind) -> bool {
        match kind {
            GrantKind::Layout => self.layouts.is_recalled(holder),
            GrantKind::Delegation => self.delegations.is_recalled(holder),
        }
    }

    /// Whether its time is over, as [`FileState::expired_recalls`](crate::FileState::expired_recalls) has told: of what
    /// came back since, and was granted and recalled anew, it is not.
    pub fn is_due(&self, holder: Holder, kind: GrantKind) -> bool {
        match kind {
            GrantKind::Layout => self.layouts.is_due(holder),
            GrantKind::Delegation => self.delegations.is_due(holder),
        }
    }
}

// Judgements of the parts of the table.
impl FileEntry {
    pub(super) const NONE: FileEntry = FileEntry {
        shares: Shares::NONE,
        locks: FileLocks::NONE,
        layouts: Grants::NONE,
        delegations: Grants::NONE,
        pending: None,
        changing: 0,
    };

    /// Whether nothing would be forgotten with the file's entry.
    pub(super) fn is_idle(&self) -> bool {
        self.shares.is_empty()
            && self.locks.is_empty()
            && self.layouts.is_empty()
            && self.delegations.is_empty()
            && self.pending.is_none()
            && self.changing == 0
    }

    pub(super) fn has(&self, holder: Holder) -> bool {
        self.shares.of_holder(holder).next().is_some()
            || self.locks.has_locks_of(holder)
            || self.layouts.of(holder).is_some()
            || self.delegations.of(holder).is_some()
    }

    /// Whether delegations of others let a holder (or somebody who holds nothing) do this.
    pub(super) fn judge_delegations(&self, by: Option<Holder>, change: Change) -> Result<(), FileStateError> {
        let is_in_the_way = self.delegations.of_others(by).any(|(_, kind)| change.ends(kind));
        if is_in_the_way { Err(FileStateError::RecallConflict) } else { Ok(()) }
    }

    pub(super) fn judge_layout(
        &self,
        holder: Holder,
        mode: LayoutMode,
        now: Duration,
    ) -> Result<(), FileStateError> {
        let access = if mode == LayoutMode::Read { Modes::READ } else { Modes::WRITE };
        self.judge_delegations(Some(holder), Change::Access(Share::new(access, Modes::NONE)))?;
        let is_pending =
            self.pending.as_ref().is_some_and(|pending| pending.is_of_layouts && pending.stops(holder, now));
        // By a delegation that is being taken from it the holder gets nothing that would not be fenced off with it.
        let is_recalled = is_pending || self.layouts.is_any_recalled() || self.delegations.is_due(holder);
        if is_recalled { Err(FileStateError::RecallConflict) } else { Ok(()) }
    }

    pub(super) fn judge_delegation(
        &self,
        holder: Holder,
        kind: DelegationKind,
        now: Duration,
    ) -> Result<(), FileStateError> {
        let is_pending = self.pending.as_ref().is_some_and(|pending| pending.stops(holder, now));
        if is_pending
            || self.changing > 0
            || self.delegations.is_any_recalled()
            || self.layouts.is_any_recalled()
        {
            return Err(FileStateError::RecallConflict);
        }
        let is_writing = kind == DelegationKind::Write;
        // While a holder writes, no other cache is believed; the holder of a write delegation is alone with the file.
        let stands_against = |share: Share| {
            is_writing || share.access.contains(Modes::WRITE) || share.deny.contains(Modes::READ)
        };
        let is_opened = self
            .shares
            .all()
            .filter(|(owner, _)| owner.holder != holder || !is_writing)
            .any(|(_, share)| stands_against(share));
        let is_at_pools =
            self.layouts.of_others(Some(holder)).any(|(_, modes)| is_writing || modes.read_write);
        let is_delegated = self
            .delegations
            .of_others(Some(holder))
            .any(|(_, held)| is_writing || held == DelegationKind::Write);
        let has_as_much = self.delegations.of(holder).is_some_and(|held| held >= kind);
        if is_opened || is_at_pools || is_delegated || has_as_much {
            Err(FileStateError::InUse)
        } else {
            Ok(())
        }
    }

    /// The holders that a change has to wait for, and the kinds of their grants.
    pub(super) fn in_the_way(&self, by: Option<Holder>, change: Change) -> Vec<(Holder, GrantKind)> {
        let layouts =
            self.layouts.of_others(by).filter(|_| change.recalls_layouts()).map(|(holder, _)| holder);
        let delegations = self.delegations.of_others(by).filter(|(_, kind)| change.ends(*kind));
        // Delegations first: a holder that gives one back gives the layouts back that it covers.
        let delegations = delegations.map(|(holder, _)| (holder, GrantKind::Delegation));
        delegations.chain(layouts.map(|holder| (holder, GrantKind::Layout))).collect()
    }
}
