//! The table: files with their opens, locks, layouts and delegations, and what each holder has.
//!
//! [`FileState`] has the opens and the questions over all files. Every other kind of state has a part of its own, which
//! borrows what it may change: [`RangeLocks`], [`Waiters`], [`Layouts`], [`Delegations`], [`Changes`], [`Recalls`].
//! Invariant: a refused call has changed nothing.

mod at_once;
mod changes;
mod delegations;
mod denials;
mod entries;
mod entry;
mod holders;
mod layouts;
mod range_locks;
mod recalls;
mod under_way;
mod unheard;
mod waiters;
mod waiting;

use std::time::Duration;

use types::FileId;

use crate::limits::Limits;
use crate::{Change, FileStateError, Holder, LayoutModes, Owner, Revoke, Share};

use changes::Pendings;
use denials::Denials;
use entries::Entries;
use under_way::UnderWay;

pub use changes::Changes;
pub use delegations::Delegations;
pub use entry::{FileEntry, Want};
pub use holders::{Held, Holders};
pub use layouts::Layouts;
pub use range_locks::RangeLocks;
pub use recalls::Recalls;
pub use waiters::{LockNotice, Waiters};

#[derive(Debug, Default)]
pub struct FileState {
    limits: Limits,
    entries: Entries,
    denials: Denials,
    under_way: UnderWay,
    pending: Pendings,
}

impl FileState {
    pub fn new(limits: Limits) -> FileState {
        FileState { limits, ..FileState::default() }
    }

    // Parts.

    /// The opens, locks and grants of one file, for questions.
    pub fn file(&self, file: FileId) -> &FileEntry {
        self.entries.of(file)
    }

    pub fn holders(&self) -> &Holders {
        &self.entries.holders
    }

    pub fn locks(&mut self) -> RangeLocks<'_> {
        RangeLocks { limits: &self.limits, entries: &mut self.entries }
    }

    pub fn waiters(&mut self) -> Waiters<'_> {
        Waiters { limits: &self.limits, entries: &mut self.entries }
    }

    pub fn layouts(&mut self) -> Layouts<'_> {
        Layouts { limits: &self.limits, entries: &mut self.entries, under_way: &mut self.under_way }
    }

    pub fn delegations(&mut self) -> Delegations<'_> {
        Delegations { limits: &self.limits, entries: &mut self.entries, under_way: &mut self.under_way }
    }

    pub fn changes(&mut self) -> Changes<'_> {
        Changes { entries: &mut self.entries, under_way: &mut self.under_way, pending: &mut self.pending }
    }

    pub fn recalls(&mut self) -> Recalls<'_> {
        Recalls { entries: &mut self.entries, under_way: &mut self.under_way }
    }

    // Opens.

    /// Adds to what the owner has open and returns all of it: opening again is an upgrade. RECALL_CONFLICT where the
    /// delegation of another is in the way: [`Changes::ask`] says which.
    pub fn open(&mut self, file: FileId, owner: Owner, share: Share) -> Result<Share, FileStateError> {
        let known = self.file(file);
        let before = known.share_of(owner);
        known.shares.judge(owner, share)?;
        known.judge_delegations(Some(owner.holder), Change::Access(share))?;
        if before.is_none() && self.holders().held(owner.holder).opens >= self.limits.opens_per_holder {
            return Err(FileStateError::Limit("opens of a client"));
        }
        let share = share.union(before.unwrap_or_default());
        self.put_share(file, owner, Some(share));
        self.entries.holders.enter(owner.holder, file).opens += usize::from(before.is_none());
        Ok(share)
    }

    /// As [`FileState::open`], of a file that has no name any more: only while somebody holds it. A caller that frees
    /// such a file asks [`FileEntry::is_in_use`] first, and from then on nobody can open it by this call.
    pub fn open_unlinked(
        &mut self,
        file: FileId,
        owner: Owner,
        share: Share,
    ) -> Result<Share, FileStateError> {
        if self.file(file).is_in_use() { self.open(file, owner, share) } else { Err(FileStateError::Gone) }
    }

    /// Reduces an open to `share`, which must be part of what it has: `false` if it is not, or there is no open.
    pub fn downgrade(&mut self, file: FileId, owner: Owner, share: Share) -> bool {
        let has = self.file(file).share_of(owner).is_some_and(|before| before.contains(share));
        if has {
            self.put_share(file, owner, Some(share));
        }
        has
    }

    /// Closes and returns what was open. Locks are apart: see [`RangeLocks::release`].
    pub fn close(&mut self, file: FileId, owner: Owner) -> Option<Share> {
        self.file(file).share_of(owner)?;
        let before = self.put_share(file, owner, None)?;
        self.entries.holders.enter(owner.holder, file).opens -= 1;
        self.entries.settle(file, owner.holder);
        Some(before)
    }

    /// Whether [`FileEntry::judge_change`] has anything to say against this holder, of any file. If not, a caller that
    /// changes a name need not find out for which file it stands.
    pub fn has_denials_of_others(&self, by: Option<Holder>) -> bool {
        self.denials.has_others(by.map(|holder| holder.door))
    }

    fn put_share(&mut self, file: FileId, owner: Owner, share: Option<Share>) -> Option<Share> {
        let before = self.entries.enter(file).shares.put(owner, share);
        self.denials.replace(owner.holder.door, before, share);
        before
    }

    // All files.

    /// Every open, for reports to an operator.
    pub fn all_opens(&self) -> impl Iterator<Item = (FileId, Owner, Share)> {
        let files = self.entries.iter();
        files.flat_map(|(file, known)| known.shares.all().map(move |(owner, share)| (file, owner, share)))
    }

    /// Every layout, for draining a pool.
    pub fn all_layouts(&self) -> impl Iterator<Item = (FileId, Holder, LayoutModes)> {
        let files = self.entries.iter();
        files.flat_map(|(file, known)| known.layouts.iter().map(move |(holder, modes)| (file, holder, modes)))
    }

    /// All layouts of one holder.
    pub fn layouts_of(&self, holder: Holder) -> impl Iterator<Item = (FileId, LayoutModes)> {
        let files = self.holders().files_of(holder);
        files
            .map(move |file| (file, self.file(file).layout_of(holder)))
            .filter(|(_, modes)| !modes.is_empty())
    }

    /// Locks that somebody waits for, and is to be told of.
    pub fn waiter_count(&self) -> usize {
        self.entries.waiting.count()
    }

    /// Whether somebody waits in a file in which the holder has locks: perhaps for one of these.
    pub fn is_waited_for(&self, holder: Holder) -> bool {
        let (holders, waiting) = (&self.entries.holders, &self.entries.waiting);
        holders.held(holder).locks > 0
            && holders.files_among(holder, waiting.files()).any(|file| {
                let locks = &self.file(file).locks;
                locks.has_locks_of(holder)
                    && locks.waiters().iter().any(|waiter| waiter.owner.holder != holder)
            })
    }

    /// Nobody has anything, asks for anything, or is asked for it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.denials.is_empty()
            && self.under_way.is_empty()
            && self.pending.is_empty()
    }

    /// Recalls whose deadline has passed. Each comes again after `retry_at` until what was granted is returned in its
    /// holder's place: which is done when the holder's access has been fenced off. Meanwhile the holder is granted no layout
    /// of the file, which the fence might miss.
    pub fn expired_recalls(&mut self, now: Duration, retry_at: Duration) -> Vec<Revoke> {
        self.changes().expire(now);
        self.recalls().take_due(now, retry_at)
    }

    /// Removes everything that the holder has.
    pub fn release_holder(&mut self, holder: Holder) {
        let files: Vec<FileId> = self.holders().files_of(holder).collect();
        for file in files {
            self.release(file, holder);
        }
    }

    /// Everything the holder has of one file goes.
    pub fn release(&mut self, file: FileId, holder: Holder) {
        self.layouts().give_back(file, holder, LayoutModes::ALL);
        self.delegations().give_back(file, holder);
        let known = self.file(file);
        let opens: Vec<Owner> = known.shares.of_holder(holder).map(|(owner, _)| owner).collect();
        for owner in known.locks.owners_of(holder) {
            self.locks().release(file, owner);
        }
        for owner in opens {
            self.close(file, owner);
        }
    }
}

#[cfg(test)]
mod tests;
