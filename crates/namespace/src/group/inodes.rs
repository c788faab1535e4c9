//! Working copies of inodes.
//!
//! Invariant: a copy is made when the inode is first read, and every change of it is charged to the accounts in which it
//! counts (`charges`). The row is written once, at the end.

use std::collections::HashMap;

use api::NamespaceError;
use types::FileId;

use super::charges::{Charges, counted_bytes};
use super::error::{OpError, OpResult};
use super::source::Source;
use crate::accounts::WAY_MAX;
use crate::cache::Changes;
use crate::counts::Question;
use crate::inode::{Inode, NO_PARENT};
use crate::store::{Batch, InodeChange, StoreResult};

pub struct Inodes<'a> {
    pub source: Source<'a>,
    pub charges: Charges,
    pub(super) copies: HashMap<FileId, Working>,
    taken: Vec<FileId>,
}

pub struct Working {
    /// `None`: removed.
    pub inode: Option<Inode>,
    /// The inode in the database.
    pub stored: Option<Inode>,
    /// There may be rows of checksums, also such as this group wrote.
    pub is_summed: bool,
    pub is_dirty: bool,
    /// More than the entries of a directory changed.
    pub is_whole: bool,
    /// How often the entries of a directory changed.
    pub touches: u32,
}

impl Working {
    fn new(inode: Option<Inode>, stored: Option<Inode>) -> Working {
        let is_summed = stored.is_some_and(|stored| stored.extras.has_checksums);
        Working { inode, stored, is_summed, is_dirty: false, is_whole: false, touches: 0 }
    }
}

impl<'a> Inodes<'a> {
    pub fn new(source: Source<'a>, charges: Charges) -> Inodes<'a> {
        Inodes { source, charges, copies: HashMap::new(), taken: Vec::new() }
    }

    /// `Stale` if there is none.
    pub fn read(&mut self, file: FileId) -> OpResult<Inode> {
        if let Some(working) = self.copies.get(&file) {
            return working.inode.ok_or(OpError::Refused(NamespaceError::Stale(file)));
        }
        let cache = self.source.cache;
        let (inode, stored, is_dirty) = match cache.take_unsettled(file) {
            Some(entry) => {
                let is_dirty = entry.is_waiting();
                if is_dirty {
                    self.taken.push(file);
                    self.charges.exchange(Some(&entry.stored), Some(&entry.visible));
                }
                (entry.visible, entry.stored, is_dirty)
            }
            None => match cache.pending.truth(file).or_else(|| cache.stored_inode(file)) {
                Some(inode) => (inode, inode, false),
                None => {
                    let found = self.source.ask(Question::Inode).inode(file)?;
                    let inode = found.ok_or(NamespaceError::Stale(file))?;
                    (inode, inode, false)
                }
            },
        };
        self.copies.insert(file, Working { is_dirty, ..Working::new(Some(inode), Some(stored)) });
        Ok(inode)
    }

    /// Made by this group: it has no names but those it was given since.
    pub fn is_new(&self, file: FileId) -> bool {
        self.copies.get(&file).is_some_and(|working| working.stored.is_none())
    }

    /// Replaces a working copy; the row is written at the end of the group.
    pub fn put(&mut self, inode: Inode) {
        let working =
            self.copies.get_mut(&inode.id()).expect("an inode is put after it was read or inserted");
        self.charges.exchange(working.inode.as_ref(), Some(&inode));
        working.inode = Some(inode);
        (working.is_dirty, working.is_whole) = (true, true);
    }

    pub fn insert(&mut self, inode: Inode) {
        self.charges.exchange(None, Some(&inode));
        let working = Working { is_dirty: true, is_whole: true, ..Working::new(Some(inode), None) };
        self.copies.insert(inode.id(), working);
    }

    pub fn remove(&mut self, file: FileId) {
        let working = self.copies.get_mut(&file).expect("an inode is removed after it was read");
        self.charges.exchange(working.inode.as_ref(), None);
        working.inode = None;
        (working.is_dirty, working.is_whole) = (true, true);
    }

    pub fn is_any_dirty(&self) -> bool {
        self.copies.values().any(|working| working.is_dirty)
    }

    /// Files whose waiting writes this group carries.
    pub fn taken(&self) -> &[FileId] {
        &self.taken
    }

    /// A directory and all above it. `parents` is what was found before.
    pub fn way_up(&mut self, parents: &mut HashMap<FileId, FileId>, dir: FileId) -> StoreResult<Vec<FileId>> {
        let mut way = Vec::new();
        let mut at = dir;
        while at != NO_PARENT && way.len() < WAY_MAX {
            way.push(at);
            at = match parents.get(&at) {
                Some(parent) => *parent,
                None => *parents.entry(at).or_insert(self.parent_of(at)?),
            };
        }
        Ok(way)
    }

    pub fn lies_within(&mut self, dir: FileId, tree: FileId) -> StoreResult<bool> {
        let mut at = dir;
        for _ in 0..WAY_MAX {
            if at == tree || at == NO_PARENT {
                break;
            }
            at = self.parent_of(at)?;
        }
        Ok(at == tree)
    }

    /// `NO_PARENT` also where there is no such directory.
    pub fn parent_of(&mut self, dir: FileId) -> StoreResult<FileId> {
        match self.read(dir) {
            Ok(inode) => Ok(inode.parent),
            Err(OpError::Refused(_)) => Ok(NO_PARENT),
            Err(OpError::Failed(error)) => Err(error),
        }
    }

    /// The rows of this group, after those of directories were written as deltas where they can be.
    pub fn write(&self, batch: &mut Batch) {
        for (file, working) in self.copies.iter().filter(|(_, working)| working.is_dirty) {
            let change = match (&working.stored, working.inode) {
                _ if batch.dir_deltas.contains_key(file) => None,
                (None, Some(inode)) => Some(InodeChange::Insert(inode)),
                (Some(_), Some(inode)) => Some(InodeChange::Update(inode)),
                (Some(_), None) => Some(InodeChange::Remove),
                (None, None) => None,
            };
            batch.inodes.extend(change.map(|change| (*file, change)));
            // Data may have changed in ways that know nothing of this table: the inode says it.
            if working.is_summed && !working.inode.is_some_and(|inode| inode.extras.has_checksums) {
                batch.checksums.clear(*file);
            }
            if let Some(inode) = &working.inode {
                batch.totals.files += 1;
                batch.totals.bytes = batch.totals.bytes.wrapping_add(counted_bytes(inode));
            }
            if let Some(inode) = &working.stored {
                batch.totals.files -= 1;
                batch.totals.bytes = batch.totals.bytes.wrapping_sub(counted_bytes(inode));
            }
        }
    }

    /// For the cache, once the group is committed.
    pub fn tell(self, changes: &mut Changes) {
        for (file, working) in self.copies {
            if working.stored.is_none() && working.inode.is_some_and(|inode| inode.is_directory()) {
                changes.new_directories.push(file);
            }
            match working.inode {
                inode if working.is_dirty => changes.inodes.push((file, inode)),
                Some(inode) => changes.learned.inodes.push(inode),
                None => {}
            }
        }
    }
}
