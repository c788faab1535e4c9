//! Layouts and delegations: granting them, and getting them back before a file is changed.

use super::*;
use crate::change::Pending;
use crate::grants::Ended;
use crate::{ChangeVerdict, Granted, LayoutMode, Recall, Revoke};

impl File {
    /// Whether delegations of others let a holder (or somebody who holds nothing) do this.
    pub(super) fn judge_delegations(&self, by: Option<Holder>, change: Change) -> Result<(), FileStateError> {
        let mut others = self.delegations.of_others(by);
        let is_in_the_way = others.any(|(_, kind)| kind.is_in_the_way_of(change));
        if is_in_the_way { Err(FileStateError::RecallConflict) } else { Ok(()) }
    }

    fn judge_layout(&self, holder: Holder, mode: LayoutMode, now: Duration) -> Result<(), FileStateError> {
        let access = if mode == LayoutMode::Read { Modes::READ } else { Modes::WRITE };
        self.judge_delegations(Some(holder), Change::Access(Share::new(access, Modes::NONE)))?;
        let is_pending =
            self.pending.as_ref().is_some_and(|pending| pending.is_of_layouts && pending.stops(holder, now));
        // By a delegation that is being taken from it the holder gets nothing that would not be fenced off with it.
        let is_recalled = is_pending || self.layouts.is_any_recalled() || self.delegations.is_due(holder);
        if is_recalled { Err(FileStateError::RecallConflict) } else { Ok(()) }
    }

    fn judge_delegation(
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
    fn in_the_way(&self, by: Option<Holder>, change: Change) -> Vec<(Holder, GrantKind)> {
        let layouts =
            self.layouts.of_others(by).filter(|_| change.recalls_layouts()).map(|(holder, _)| holder);
        let delegations = self.delegations.of_others(by).filter(|(_, kind)| kind.is_in_the_way_of(change));
        // Delegations first: a holder that gives one back gives the layouts back that it covers.
        let delegations = delegations.map(|(holder, _)| (holder, GrantKind::Delegation));
        delegations.chain(layouts.map(|holder| (holder, GrantKind::Layout))).collect()
    }
}

impl FileState {
    // Layouts.

    pub fn grant_layout(
        &mut self,
        file: FileId,
        holder: Holder,
        mode: LayoutMode,
        now: Duration,
    ) -> Result<(), FileStateError> {
        if self.is_recalled_at_once(holder) {
            return Err(FileStateError::RecallConflict);
        }
        if let Some(known) = self.files.get(&file) {
            known.judge_layout(holder, mode, now)?;
        }
        let before = self.layout_of(file, holder);
        if before.is_empty() && self.held(holder).layouts >= self.limits.layouts_per_holder {
            return Err(FileStateError::Limit("layouts of a client"));
        }
        let layouts = &mut self.files.entry(file).or_default().layouts;
        layouts.put(holder, before.with(mode));
        layouts.stamp(holder, now);
        self.record(holder, file).held.layouts += usize::from(before.is_empty());
        Ok(())
    }

    /// Returns what is left. A recall ends when nothing is.
    pub fn return_layout(&mut self, file: FileId, holder: Holder, modes: LayoutModes) -> LayoutModes {
        let before = self.layout_of(file, holder);
        if before.is_empty() {
            return before;
        }
        let left = before.without(modes);
        let layouts = &mut self.files.entry(file).or_default().layouts;
        if !left.is_empty() {
            layouts.put(holder, left);
            return left;
        }
        if let Some(Ended { recall_deadline: Some(deadline) }) = layouts.remove(holder) {
            self.recalls.remove(&(deadline, file, holder, GrantKind::Layout));
        }
        self.unheard.remove(file, holder, GrantKind::Layout);
        bulk::came_back(&mut self.at_once, file, holder);
        self.record(holder, file).held.layouts -= 1;
        self.settle(file, holder);
        left
    }

    pub fn layout_of(&self, file: FileId, holder: Holder) -> LayoutModes {
        self.files.get(&file).and_then(|known| known.layouts.of(holder)).unwrap_or_default()
    }

    /// When the holder was last granted a layout of the file, if it has one.
    pub fn layout_granted(&self, file: FileId, holder: Holder) -> Option<Duration> {
        self.files.get(&file).and_then(|known| known.layouts.granted(holder))
    }

    /// Whether somebody may be writing the file at the pools right now.
    pub fn is_written_at_pools(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|known| known.layouts.iter().any(|(_, modes)| modes.read_write))
    }

    /// All layouts of one holder.
    pub fn layouts_of(&self, holder: Holder) -> impl Iterator<Item = (FileId, LayoutModes)> {
        let files = self.holders.get(&holder).into_iter().flat_map(|record| record.files.iter());
        files.map(move |file| (*file, self.layout_of(*file, holder))).filter(|(_, modes)| !modes.is_empty())
    }

    /// Every layout, for draining a pool.
    pub fn layouts(&self) -> impl Iterator<Item = (FileId, Holder, LayoutModes)> {
        let files = self.files.iter();
        files.flat_map(|(file, known)| known.layouts.iter().map(|(holder, modes)| (*file, holder, modes)))
    }

    // Delegations.

    /// Delegates a file to a holder that has none of it, or to write where it has it to read. INUSE where somebody uses
    /// it in a way that would end the delegation at once, RECALL_CONFLICT while a change of it waits or is being made.
    pub fn delegate(
        &mut self,
        file: FileId,
        holder: Holder,
        kind: DelegationKind,
        now: Duration,
    ) -> Result<(), FileStateError> {
        if let Some(known) = self.files.get(&file) {
            known.judge_delegation(holder, kind, now)?;
        }
        let is_more = self.delegation_of(file, holder).is_none();
        if is_more && self.held(holder).delegations >= self.limits.delegations_per_holder {
            return Err(FileStateError::Limit("delegations of a client"));
        }
        self.files.entry(file).or_default().delegations.put(holder, kind);
        self.record(holder, file).held.delegations += usize::from(is_more);
        self.delegations += usize::from(is_more);
        Ok(())
    }

    /// Returns the kind that it had. Its recall ends.
    pub fn return_delegation(&mut self, file: FileId, holder: Holder) -> Option<DelegationKind> {
        let kind = self.delegation_of(file, holder)?;
        let delegations = &mut self.files.get_mut(&file)?.delegations;
        if let Some(Ended { recall_deadline: Some(deadline) }) = delegations.remove(holder) {
            self.recalls.remove(&(deadline, file, holder, GrantKind::Delegation));
        }
        self.unheard.remove(file, holder, GrantKind::Delegation);
        self.record(holder, file).held.delegations -= 1;
        self.delegations -= 1;
        self.settle(file, holder);
        Some(kind)
    }

    pub fn delegation_of(&self, file: FileId, holder: Holder) -> Option<DelegationKind> {
        self.files.get(&file)?.delegations.of(holder)
    }

    /// Whether the holder has locks on the file, denies something to others, or may do so without a word, by a delegation to
    /// write.
    pub fn may_have_locked(&self, file: FileId, holder: Holder) -> bool {
        self.files.get(&file).is_some_and(|known| {
            known.locks.has_locks_of(holder)
                || known.delegations.of(holder) == Some(DelegationKind::Write)
                || known.shares.of_holder(holder).any(|(_, share)| share.deny != Modes::NONE)
        })
    }

    /// The other holder that may be changing the file without a call: that of a write delegation.
    pub fn writer_beside(&self, file: FileId, by: Option<Holder>) -> Option<Holder> {
        let mut others = self.files.get(&file)?.delegations.of_others(by);
        others.find(|(_, kind)| *kind == DelegationKind::Write).map(|(holder, _)| holder)
    }

    /// Whether anybody but `by` has a delegation of any file. If not, a caller that changes a name need not find out
    /// for which file it stands.
    pub fn has_delegations_of_others(&self, by: Option<Holder>) -> bool {
        self.delegations > by.map_or(0, |holder| self.held(holder).delegations)
    }

    // Changes.

    /// Judges a change of a file by a holder (or by a caller that cannot hold anything). On `Wait` the caller asks
    /// again: grants that are being recalled are not recalled again, and no other holder is granted them anew until
    /// `deadline`. On `Proceed` the caller calls [`FileState::begin_change`] in the same hold of the table.
    pub fn change(
        &mut self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        deadline: Duration,
    ) -> ChangeVerdict {
        let Some(known) = self.files.get_mut(&file) else { return ChangeVerdict::Proceed };
        let is_free = known.in_the_way(by, change).is_empty();
        // If the file is free, the wait of another change stays.
        let before = known.pending.take_if(|pending| !is_free || pending.by == by);
        if let Some(before) = &before {
            self.pending.remove(&(before.until, file));
        }
        if is_free {
            self.drop_if_idle(file);
            return ChangeVerdict::Proceed;
        }
        let others = before.filter(|before| before.by != by);
        let until = others.as_ref().map_or(deadline, |others| others.until.max(deadline));
        let is_of_layouts = change.recalls_layouts() || others.is_some_and(|others| others.is_of_layouts);
        known.pending = Some(Box::new(Pending { by, until, is_of_layouts }));
        self.pending.insert((until, file));
        ChangeVerdict::Wait { recalls: self.recall_for(file, by, change, deadline) }
    }

    /// Recalls whatever is in the way of a change that waits, or that was made already.
    pub fn recall_for(
        &mut self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        deadline: Duration,
    ) -> Vec<Recall> {
        let in_the_way = self.files.get(&file).map_or_else(Vec::new, |known| known.in_the_way(by, change));
        in_the_way
            .into_iter()
            .filter_map(|(holder, kind)| self.recall(file, holder, kind, deadline))
            .collect()
    }

    /// Recalls all layouts of a file: for its pool, and not for what becomes of the file.
    pub fn recall_layouts(&mut self, file: FileId, deadline: Duration) -> Vec<Recall> {
        let holders: Vec<_> = self.layout_holders(file).collect();
        let recall = |holder| self.recall(file, holder, GrantKind::Layout, deadline);
        holders.into_iter().filter_map(recall).collect()
    }

    /// Whether a layout of the file has not been recalled.
    pub fn has_layouts_to_recall(&self, file: FileId) -> bool {
        self.layout_holders_to_recall(file).next().is_some()
    }

    pub fn layout_holders(&self, file: FileId) -> impl Iterator<Item = Holder> {
        let known = self.files.get(&file).into_iter();
        known.flat_map(|known| known.layouts.iter().map(|(holder, _)| holder))
    }

    /// A change that may proceed is about to be made: until it has ended nobody is delegated the file.
    pub fn begin_change(&mut self, file: FileId) {
        self.files.entry(file).or_default().changing += 1;
    }

    pub fn end_change(&mut self, file: FileId) {
        let Some(known) = self.files.get_mut(&file) else { return };
        known.changing -= 1;
        self.drop_if_idle(file);
    }

    // Recalls.

    /// Recalls what a holder has of a file. `None` if that is nothing, or was recalled already. A repeated recall keeps
    /// its first deadline.
    pub fn recall(
        &mut self,
        file: FileId,
        holder: Holder,
        kind: GrantKind,
        deadline: Duration,
    ) -> Option<Recall> {
        let known = self.files.get_mut(&file)?;
        let (granted, is_repeated) = match kind {
            GrantKind::Layout => {
                let (modes, is_repeated) = known.layouts.recall(holder, deadline)?;
                (Granted::Layout(modes), is_repeated)
            }
            GrantKind::Delegation => {
                let (kind, is_repeated) = known.delegations.recall(holder, deadline)?;
                (Granted::Delegation(kind), is_repeated)
            }
        };
        if is_repeated {
            self.unheard.remove(file, holder, kind);
        } else {
            self.recalls.insert((deadline, file, holder, kind));
        }
        Some(Recall { file, holder, granted, is_repeated })
    }

    /// Whether a recall of the holder's grant on the file is under way. A caller that sends recalls asks again, for
    /// between the verdict and the message the grant may have come back.
    pub fn is_recalled(&self, file: FileId, holder: Holder, kind: GrantKind) -> bool {
        self.files.get(&file).is_some_and(|known| match kind {
            GrantKind::Layout => known.layouts.is_recalled(holder),
            GrantKind::Delegation => known.delegations.is_recalled(holder),
        })
    }

    /// Whether its time is over, as [`FileState::expired_recalls`] has told: of what came back since, and was granted and
    /// recalled anew, it is not.
    pub fn is_due(&self, file: FileId, holder: Holder, kind: GrantKind) -> bool {
        self.files.get(&file).is_some_and(|known| match kind {
            GrantKind::Layout => known.layouts.is_due(holder),
            GrantKind::Delegation => known.delegations.is_due(holder),
        })
    }

    /// A recall did not reach the holder: the next change sends it again, or [`FileState::unheard_recalls`] does.
    pub fn recall_unheard(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let is_under_way = match kind {
            GrantKind::Layout => known.layouts.recall_unheard(holder),
            GrantKind::Delegation => known.delegations.recall_unheard(holder),
        };
        if is_under_way {
            self.unheard.insert(file, holder, kind);
        }
    }

    /// Recalls of clients of a door that are to be sent again, at most `each` of a client and `max` in all. The others
    /// come first the next time.
    pub fn unheard_recalls(&mut self, door: Door, each: usize, max: usize) -> Vec<Recall> {
        let again = self.unheard.next(door, each, max);
        // Their first deadlines stand.
        let tell = |(file, holder, kind)| self.recall(file, holder, kind, Duration::ZERO);
        again.into_iter().filter_map(tell).collect()
    }

    /// A recall that nobody will answer: it is due at once.
    pub fn expire_recall(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let before = match kind {
            GrantKind::Layout => known.layouts.expire(holder),
            GrantKind::Delegation => known.delegations.expire(holder),
        };
        if let Some(before) = before {
            self.recalls.remove(&(before, file, holder, kind));
            self.recalls.insert((Duration::ZERO, file, holder, kind));
        }
    }

    /// Recalls whose deadline has passed. Each comes again after `retry_at` until what was granted is returned in its
    /// holder's place: which is done when the holder's access has been fenced off. Meanwhile the holder is granted no layout
    /// of the file, which the fence might miss.
    pub fn expired_recalls(&mut self, now: Duration, retry_at: Duration) -> Vec<Revoke> {
        while let Some((until, file)) = self.pending.first().copied().filter(|(until, _)| *until <= now) {
            self.pending.remove(&(until, file));
            if let Some(known) = self.files.get_mut(&file) {
                known.pending = None;
            }
            self.drop_if_idle(file);
        }
        let due: Vec<_> =
            self.recalls.iter().take_while(|(deadline, ..)| *deadline <= now).copied().collect();
        due.into_iter()
            .filter_map(|(deadline, file, holder, kind)| {
                let known = self.files.get_mut(&file)?;
                let (granted, is_overdue) = match kind {
                    GrantKind::Layout => {
                        let (modes, is_overdue) = known.layouts.take_due(holder, retry_at)?;
                        // Those that were asked for with it have the same deadline; a fence may be long in coming.
                        bulk::came_back(&mut self.at_once, file, holder);
                        (Granted::Layout(modes), is_overdue)
                    }
                    GrantKind::Delegation => {
                        let (kind, is_overdue) = known.delegations.take_due(holder, retry_at)?;
                        (Granted::Delegation(kind), is_overdue)
                    }
                };
                self.recalls.remove(&(deadline, file, holder, kind));
                self.recalls.insert((retry_at, file, holder, kind));
                Some(Revoke { file, holder, granted, is_overdue })
            })
            .collect()
    }
}
