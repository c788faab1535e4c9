//! Directories in a group: their entries change them in one way, and the group writes them as a row or as a delta.

use types::{ChangeInfo, FileId, Timestamp};

use super::error::OpError;
use super::inodes::{Inodes, Working};
use crate::consistency::DirectoryChange;
use crate::inode::{Inode, Instance};
use crate::store::{Batch, StoreError};
use api::Consistency;

impl Inodes<'_> {
    /// The entries of a directory changed, and nothing else of it but its link count.
    pub fn touch_entries(&mut self, mut dir: Inode, now: Timestamp, instance: Instance) -> ChangeInfo {
        let before = self.copies.get(&dir.id()).and_then(|working| working.inode);
        dir.touch_entries(now, instance);
        let working = self.copies.get_mut(&dir.id()).expect("a directory is touched after it was read");
        working.inode = Some(dir);
        working.is_dirty = true;
        working.touches += 1;
        self.change_info(before.as_ref().unwrap_or(&dir), &dir)
    }

    /// Of a directory before and after one operation.
    pub fn change_info(&self, before: &Inode, after: &Inode) -> ChangeInfo {
        if self.source.cache.pending.modes.of(after) == Consistency::Weak {
            // Neither value may go beyond what a reader is shown. Not atomic: clients ask again for what they hold.
            let shown = self.shown(before).attributes.change;
            return ChangeInfo { atomic: false, before: shown, after: shown };
        }
        // The committer is the only one who changes anything, and it does one thing after the other.
        ChangeInfo { atomic: true, before: before.attributes.change, after: after.attributes.change }
    }

    /// As readers see it until the group is written, where that is less than the truth.
    pub fn shown(&self, inode: &Inode) -> Inode {
        if !inode.is_directory() || self.source.cache.pending.modes.of(inode) != Consistency::Weak {
            return *inode;
        }
        match self.copies.get(&inode.id()) {
            Some(working) if !working.is_whole => {
                self.source.cache.pending.shown(inode.id()).or(working.stored).unwrap_or(*inode)
            }
            _ => *inode,
        }
    }

    /// Writes what waits of a directory. One that was removed has nothing to write.
    pub fn fold(&mut self, dir: FileId) -> Result<(), StoreError> {
        match self.read(dir) {
            Ok(_) => {}
            Err(OpError::Refused(_)) => return Ok(()),
            Err(OpError::Failed(error)) => return Err(error),
        }
        if let Some(working) = self.copies.get_mut(&dir) {
            (working.is_dirty, working.is_whole) = (true, true);
        }
        Ok(())
    }

    /// Which directories are left with deltas, and which lose theirs.
    pub fn write_directories(&self, batch: &mut Batch) {
        let pending = &self.source.cache.pending;
        pending.begin_group();
        let mut room = pending.room();
        for (dir, working) in self.copies.iter().filter(|(_, working)| working.is_dirty) {
            let delta = match (&working.stored, &working.inode) {
                (Some(stored), Some(inode)) if !working.is_whole && inode.is_directory() => {
                    pending.delta(stored, inode, working.touches, &mut room)
                }
                _ => None,
            };
            if let Some(delta) = delta {
                batch.dir_deltas.insert(*dir, delta);
            } else if pending.is_waiting(*dir) {
                batch.folded.insert(*dir);
            }
        }
    }

    /// Changes of directories, once the group is committed.
    pub fn directory_changes(&self, batch: &Batch) -> Vec<DirectoryChange> {
        let pending = &self.source.cache.pending;
        if pending.is_empty() && batch.dir_deltas.is_empty() {
            return Vec::new();
        }
        let written = self.copies.iter().filter(|(_, working)| working.is_dirty);
        let change = |(dir, working): (&FileId, &Working)| DirectoryChange {
            dir: *dir,
            before: working.stored,
            after: working.inode,
            is_delta: batch.dir_deltas.contains_key(dir),
        };
        written.map(change).filter(|change| change.is_delta || pending.holds(change.dir)).collect()
    }
}
