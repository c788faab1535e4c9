//! The entries of all files, with their holders and the waiters for their locks.
//!
//! Invariants: a file has an entry while somebody holds something of it, waits for a lock or a change of it waits or is
//! made; a holder has a record while it holds something of a file.

use std::collections::BTreeMap;

use types::FileId;

use super::entry::FileEntry;
use super::holders::Holders;
use super::waiting::Waiting;
use crate::Holder;
use crate::locks::Waiter;

static NO_ENTRY: FileEntry = FileEntry::NONE;

#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Each in a place of its own: a node of the tree has room for eleven and is mostly half full.
    files: BTreeMap<FileId, Box<FileEntry>>,
    pub holders: Holders,
    pub waiting: Waiting,
}

impl Entries {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.holders.is_empty() && self.waiting.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (FileId, &FileEntry)> {
        self.files.iter().map(|(file, entry)| (*file, &**entry))
    }

    /// An empty one if nobody has anything of the file.
    pub fn of(&self, file: FileId) -> &FileEntry {
        self.files.get(&file).map_or(&NO_ENTRY, |entry| entry)
    }

    pub fn get_mut(&mut self, file: FileId) -> Option<&mut FileEntry> {
        self.files.get_mut(&file).map(|entry| &mut **entry)
    }

    /// The entry of a file of which somebody is about to have something.
    pub fn enter(&mut self, file: FileId) -> &mut FileEntry {
        self.files.entry(file).or_default()
    }

    /// Forgets what is empty after something of the holder's went.
    pub fn settle(&mut self, file: FileId, holder: Holder) {
        self.forget_waiters_without_open(file, holder);
        let has = self.get_mut(file).is_some_and(|known| {
            known.locks.tidy();
            known.has(holder)
        });
        if !has {
            self.holders.leave(holder, file);
        }
        self.drop_if_idle(file);
    }

    pub fn drop_if_idle(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(|known| known.is_idle()) {
            self.files.remove(&file);
        }
    }

    /// Something may have been released in the file: those who wait for it are to be looked at.
    pub fn stir(&mut self, file: FileId) {
        if let Some(known) = self.files.get(&file) {
            self.waiting.stir(file, &known.locks);
        }
    }

    /// Forgets who will not come. If it was told it was in the way of others.
    pub fn give_up(&mut self, file: FileId, which: impl Fn(&Waiter) -> bool) {
        let Some(known) = self.files.get_mut(&file) else { return };
        self.waiting.give_up(file, &mut known.locks, which);
        self.drop_if_idle(file);
    }

    pub fn forget_waiters(&mut self, file: FileId, which: impl Fn(&Waiter) -> bool) {
        let Some(known) = self.files.get_mut(&file) else { return };
        self.waiting.forget(file, &mut known.locks, which);
        self.drop_if_idle(file);
    }

    /// Forgets the waits of a holder that has closed the file.
    fn forget_waiters_without_open(&mut self, file: FileId, holder: Holder) {
        let known = self.of(file);
        if known.locks.waiters().is_empty() || known.shares.of_holder(holder).next().is_some() {
            return;
        }
        self.give_up(file, |waiter| waiter.owner.holder == holder);
    }
}
