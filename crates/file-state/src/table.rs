//! The table: files with their opens, locks and layouts, and what each holder has.
//!
//! Invariants: a file is in the table while somebody holds something of it or a change of it waits; a holder's counts
//! are the sums over its files; a refused call has changed nothing.

mod bulk;
mod granted;
mod in_the_way;
mod unheard;
mod waiters;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use types::{ByteRange, FileId};

use crate::change::Pending;
use crate::grants::Grants;
use crate::locks::{Changed, FileLocks, Locks};
use crate::share::Shares;
use crate::{
    Change, DelegationKind, Door, FileStateError, GrantKind, Holder, LayoutModes, Lock, LockKind, Modes,
    Owner, Share,
};

use unheard::Unheard;
use waiters::Waiting;

pub use in_the_way::Want;
pub use waiters::LockNotice;

/// Bounds of the state that clients can make grow. At a bound the call is refused with [`FileStateError::Limit`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub opens_per_holder: usize,
    pub locks_per_holder: usize,
    pub locks_per_file: usize,
    /// Beyond it a waiter for a lock is not remembered, and has to ask now and then.
    pub waiters_per_file: usize,
    pub waiters_per_holder: usize,
    pub layouts_per_holder: usize,
    pub delegations_per_holder: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            opens_per_holder: 1 << 18,
            locks_per_holder: 1 << 17,
            locks_per_file: 1 << 16,
            waiters_per_file: 1 << 10,
            waiters_per_holder: 1 << 12,
            layouts_per_holder: 1 << 18,
            delegations_per_holder: 1 << 16,
        }
    }
}

/// Counts of what a holder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub opens: usize,
    pub locks: usize,
    /// Files of which it has a layout.
    pub layouts: usize,
    pub delegations: usize,
}

#[derive(Debug, Default)]
struct File {
    shares: Shares,
    locks: FileLocks,
    layouts: Grants<LayoutModes>,
    delegations: Grants<DelegationKind>,
    /// A change that had to wait.
    pending: Option<Box<Pending>>,
    /// Changes that were let through and are not done yet: nobody is delegated what is about to be another.
    changing: u32,
}

impl File {
    /// Whether nothing would be forgotten with the file's entry.
    fn is_idle(&self) -> bool {
        self.shares.is_empty()
            && self.locks.is_empty()
            && self.layouts.is_empty()
            && self.delegations.is_empty()
            && self.pending.is_none()
            && self.changing == 0
    }

    fn has(&self, holder: Holder) -> bool {
        self.shares.of_holder(holder).next().is_some()
            || self.locks.has_locks_of(holder)
            || self.layouts.of(holder).is_some()
            || self.delegations.of(holder).is_some()
    }
}

#[derive(Debug, Default)]
struct HolderRecord {
    files: BTreeSet<FileId>,
    held: Held,
}

#[derive(Debug, Default)]
pub struct FileState {
    limits: Limits,
    /// Each in a place of its own: a node of the tree has room for eleven and is mostly half full.
    files: BTreeMap<FileId, Box<File>>,
    holders: BTreeMap<Holder, HolderRecord>,
    /// Recalls under way by their deadlines.
    recalls: BTreeSet<(Duration, FileId, Holder, GrantKind)>,
    /// Of whom all layouts are asked for by one question, and which of them are wanted back.
    at_once: bulk::AtOnce,
    /// Files with a change that waits, by when that ends.
    pending: BTreeSet<(Duration, FileId)>,
    /// Opens that deny writing, by the door they came through.
    denials: BTreeMap<Door, usize>,
    /// Delegations of all holders.
    delegations: usize,
    /// Recalls under way whose holder could not be told.
    unheard: Unheard,
    waiting: Waiting,
}

impl FileState {
    pub fn new(limits: Limits) -> FileState {
        FileState { limits, ..FileState::default() }
    }

    // Opens.

    /// Adds to what the owner has open and returns all of it: opening again is an upgrade. RECALL_CONFLICT where the
    /// delegation of another is in the way: [`FileState::change`] says which.
    pub fn open(&mut self, file: FileId, owner: Owner, share: Share) -> Result<Share, FileStateError> {
        let before = self.share_of(file, owner);
        self.judge_open(file, owner, share)?;
        if before.is_none() && self.held(owner.holder).opens >= self.limits.opens_per_holder {
            return Err(FileStateError::Limit("opens of a client"));
        }
        let share = share.union(before.unwrap_or_default());
        self.put_share(file, owner, Some(share));
        let record = self.record(owner.holder, file);
        record.held.opens += usize::from(before.is_none());
        Ok(share)
    }

    /// As [`FileState::open`], of a file that has no name any more: only while somebody holds it. A caller that frees
    /// such a file asks [`FileState::is_in_use`] first, and from then on nobody can open it by this call.
    pub fn open_unlinked(
        &mut self,
        file: FileId,
        owner: Owner,
        share: Share,
    ) -> Result<Share, FileStateError> {
        if self.is_in_use(file) { self.open(file, owner, share) } else { Err(FileStateError::Gone) }
    }

    /// Whether [`FileState::open`] would find no other open and no delegation in the way.
    fn judge_open(&self, file: FileId, owner: Owner, share: Share) -> Result<(), FileStateError> {
        let Some(known) = self.files.get(&file) else { return Ok(()) };
        known.shares.judge(owner, share)?;
        known.judge_delegations(Some(owner.holder), Change::Access(share))
    }

    /// Reduces an open to `share`, which must be part of what it has: `false` if it is not, or there is no open.
    pub fn downgrade(&mut self, file: FileId, owner: Owner, share: Share) -> bool {
        let has = self.share_of(file, owner).is_some_and(|before| before.contains(share));
        if has {
            self.put_share(file, owner, Some(share));
        }
        has
    }

    /// Closes and returns what was open. Locks are apart: see [`FileState::release_locks`].
    pub fn close(&mut self, file: FileId, owner: Owner) -> Option<Share> {
        self.share_of(file, owner)?;
        let before = self.put_share(file, owner, None)?;
        self.record(owner.holder, file).held.opens -= 1;
        self.settle(file, owner.holder);
        Some(before)
    }

    pub fn share_of(&self, file: FileId, owner: Owner) -> Option<Share> {
        self.files.get(&file)?.shares.of(owner)
    }

    /// All that the holder's owners have open of the file, together, and what it may open by itself.
    pub fn access_of(&self, file: FileId, holder: Holder) -> Modes {
        let Some(known) = self.files.get(&file) else { return Modes::NONE };
        let delegated = known.delegations.of(holder).map_or(Modes::NONE, DelegationKind::access);
        known.shares.of_holder(holder).fold(delegated, |access, (_, share)| access.union(share.access))
    }

    /// Whether `by` may do I/O without an open: no delegation is in the way, and no open denies it. In this order, for
    /// a caller that may read past a denial must not read past writes that a delegation hides.
    pub fn check_io(&self, file: FileId, by: Holder, access: Modes) -> Result<(), FileStateError> {
        let Some(known) = self.files.get(&file) else { return Ok(()) };
        known.judge_delegations(Some(by), Change::Access(Share::new(access, Modes::NONE)))?;
        known.shares.judge_io(access)
    }

    /// Also by the holder of a write delegation, who may open the file without a call.
    pub fn is_open_for_writing(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|known| {
            known.shares.has_writers()
                || known.delegations.iter().any(|(_, kind)| kind == DelegationKind::Write)
        })
    }

    /// Whether a holder (or somebody who holds nothing anywhere) may take the file's name or bytes away: not while a
    /// client of another door denies writing. [`FileState::change`] does not ask this by itself.
    pub fn judge_change(&self, file: FileId, by: Option<Holder>) -> Result<(), FileStateError> {
        self.files.get(&file).map_or(Ok(()), |known| known.shares.judge_change(by.map(|holder| holder.door)))
    }

    /// Whether [`FileState::judge_change`] has anything to say against this holder, of any file. If not, a caller that
    /// changes a name need not find out for which file it stands.
    pub fn has_denials_of_others(&self, by: Option<Holder>) -> bool {
        let door = by.map(|holder| holder.door);
        self.denials.keys().any(|other| Some(*other) != door)
    }

    fn put_share(&mut self, file: FileId, owner: Owner, share: Option<Share>) -> Option<Share> {
        let before = self.files.entry(file).or_default().shares.put(owner, share);
        let denies = |share: Option<Share>| share.is_some_and(|share| share.deny.contains(Modes::WRITE));
        let door = owner.holder.door;
        match (denies(before), denies(share)) {
            (false, true) => *self.denials.entry(door).or_default() += 1,
            (true, false) => {
                let count = self.denials.get_mut(&door).expect("what goes was counted when it came");
                *count -= 1;
                if *count == 0 {
                    self.denials.remove(&door);
                }
            }
            _ => {}
        }
        before
    }

    // Byte ranges.

    pub fn lock(
        &mut self,
        file: FileId,
        owner: Owner,
        range: ByteRange,
        kind: LockKind,
    ) -> Result<(), FileStateError> {
        if let Some(lock) = self.test_lock(file, Some(owner), range, kind) {
            return Err(FileStateError::Locked(lock));
        }
        self.set_range(file, owner, range, Some(kind))?;
        self.got_lock(file, owner, range, kind);
        Ok(())
    }

    /// Unlocking what is not locked is fine. Splitting a lock makes one more, and may so meet the bound.
    pub fn unlock(&mut self, file: FileId, owner: Owner, range: ByteRange) -> Result<(), FileStateError> {
        if self.locks_of(file, owner) == 0 {
            return Ok(());
        }
        self.set_range(file, owner, range, None)
    }

    /// A lock that stands in the way of one that `owner` (or somebody without any lock) might want.
    pub fn test_lock(
        &self,
        file: FileId,
        owner: Option<Owner>,
        range: ByteRange,
        kind: LockKind,
    ) -> Option<Lock> {
        self.files.get(&file)?.locks.conflict(owner, range, kind)
    }

    pub fn locks_of(&self, file: FileId, owner: Owner) -> usize {
        self.files.get(&file).map_or(0, |known| known.locks.of(owner))
    }

    pub fn release_locks(&mut self, file: FileId, owner: Owner) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let released = known.locks.release(owner);
        self.stir(file);
        self.record(owner.holder, file).held.locks -= released;
        self.settle(file, owner.holder);
    }

    fn set_range(
        &mut self,
        file: FileId,
        owner: Owner,
        range: ByteRange,
        kind: Option<LockKind>,
    ) -> Result<(), FileStateError> {
        let changed = match self.files.get(&file) {
            Some(known) => known.locks.change(owner, range, kind),
            None => Locks::default().change(owner, range, kind),
        };
        self.judge_lock_bounds(file, owner.holder, &changed)?;
        let delta = changed.delta;
        self.files.entry(file).or_default().locks.apply(changed);
        if kind != Some(LockKind::Write) {
            self.stir(file);
        }
        let held = &mut self.record(owner.holder, file).held;
        held.locks =
            held.locks.checked_add_signed(delta).expect("a holder's locks are the sum over its files");
        self.settle(file, owner.holder);
        Ok(())
    }

    fn judge_lock_bounds(
        &self,
        file: FileId,
        holder: Holder,
        changed: &Changed,
    ) -> Result<(), FileStateError> {
        let Ok(more) = usize::try_from(changed.delta) else { return Ok(()) };
        if more == 0 {
            return Ok(());
        }
        let of_file = self.files.get(&file).map_or(0, |known| known.locks.count());
        if of_file + more > self.limits.locks_per_file {
            return Err(FileStateError::Limit("locks of a file"));
        }
        if self.held(holder).locks + more > self.limits.locks_per_holder {
            return Err(FileStateError::Limit("locks of a client"));
        }
        Ok(())
    }

    // Holders.

    /// Whether somebody has the file open, a layout or a delegation of it: an unlinked file keeps its data so long.
    pub fn is_in_use(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|known| {
            !known.shares.is_empty() || !known.layouts.is_empty() || !known.delegations.is_empty()
        })
    }

    /// Every open, for reports to an operator.
    pub fn opens(&self) -> impl Iterator<Item = (FileId, Owner, Share)> {
        let files = self.files.iter();
        files.flat_map(|(file, known)| known.shares.all().map(|(owner, share)| (*file, owner, share)))
    }

    pub fn held(&self, holder: Holder) -> Held {
        self.holders.get(&holder).map_or(Held::default(), |record| record.held)
    }

    /// Counts over all holders.
    pub fn total(&self) -> Held {
        self.holders.values().fold(Held::default(), |sum, record| Held {
            opens: sum.opens + record.held.opens,
            locks: sum.locks + record.held.locks,
            layouts: sum.layouts + record.held.layouts,
            delegations: sum.delegations + record.held.delegations,
        })
    }

    /// Locks that somebody waits for, and is to be told of.
    pub fn waiter_count(&self) -> usize {
        self.waiting.count()
    }

    /// Nobody has anything, asks for anything, or is asked for it.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.holders.is_empty()
            && self.recalls.is_empty()
            && self.at_once.is_empty()
            && self.pending.is_empty()
            && self.denials.is_empty()
            && self.delegations == 0
            && self.unheard.is_empty()
            && self.waiting.is_empty()
    }

    /// The holders that have any state.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.holders.keys().copied()
    }

    /// Removes everything that the holder has.
    pub fn release_holder(&mut self, holder: Holder) {
        for file in self.files_of(holder) {
            self.release(file, holder);
        }
    }

    /// Files of which the holder has anything.
    pub fn files_of(&self, holder: Holder) -> Vec<FileId> {
        self.holders.get(&holder).map(|record| record.files.iter().copied().collect()).unwrap_or_default()
    }

    /// Everything the holder has of one file goes.
    pub fn release(&mut self, file: FileId, holder: Holder) {
        self.return_layout(file, holder, LayoutModes::ALL);
        self.return_delegation(file, holder);
        let Some(known) = self.files.get(&file) else { return };
        let opens: Vec<Owner> = known.shares.of_holder(holder).map(|(owner, _)| owner).collect();
        for owner in known.locks.owners_of(holder) {
            self.release_locks(file, owner);
        }
        for owner in opens {
            self.close(file, owner);
        }
    }

    fn record(&mut self, holder: Holder, file: FileId) -> &mut HolderRecord {
        let record = self.holders.entry(holder).or_default();
        record.files.insert(file);
        record
    }

    /// Forgets what is empty after something of the holder's went.
    fn settle(&mut self, file: FileId, holder: Holder) {
        self.forget_waiters_without_open(file, holder);
        let has = self.files.get_mut(&file).is_some_and(|known| {
            known.locks.tidy();
            known.has(holder)
        });
        if !has && let Some(record) = self.holders.get_mut(&holder) {
            record.files.remove(&file);
            if record.files.is_empty() {
                self.holders.remove(&holder);
            }
        }
        self.drop_if_idle(file);
    }

    fn drop_if_idle(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(|known| known.is_idle()) {
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests;
