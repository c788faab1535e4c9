//! Directories in a group: their entries change them in one way, and the group writes them as a row or as a delta.

use types::{ChangeInfo, FileId, Timestamp};

use super::{Group, OpError};
use crate::consistency::DirectoryChange;
use crate::inode::Inode;
use crate::store::StoreError;
use api::Consistency;

impl Group<'_> {
    /// The entries of a directory changed, and nothing else of it but its link count.
    pub fn touch_entries(&mut self, mut dir: Inode, now: Timestamp) -> ChangeInfo {
        let before = self.inodes.get(&dir.id()).and_then(|working| working.inode);
        dir.touch_entries(now, self.instance);
        let working = self.inodes.get_mut(&dir.id()).expect("a directory is touched after it was read");
        working.inode = Some(dir);
        working.is_dirty = true;
        working.touches += 1;
        self.change_info(before.as_ref().unwrap_or(&dir), &dir)
    }

    /// Of a directory before and after one operation.
    pub fn change_info(&self, before: &Inode, after: &Inode) -> ChangeInfo {
        if self.cache.pending.mode(after) == Consistency::Weak {
            // Neither value may go beyond what a reader is shown. Not atomic: clients ask again for what they hold.
            let shown = self.shown(before).attributes.change;
            return ChangeInfo { atomic: false, before: shown, after: shown };
        }
        // The committer is the only one who changes anything, and it does one thing after the other.
        ChangeInfo { atomic: true, before: before.attributes.change, after: after.attributes.change }
    }

    /// As readers see it until the group is written, where that is less than the truth.
    pub fn shown(&self, inode: &Inode) -> Inode {
        if !inode.is_directory() || self.cache.pending.mode(inode) != Consistency::Weak {
            return *inode;
        }
        match self.inodes.get(&inode.id()) {
            Some(working) if !working.is_whole => {
                self.cache.pending.shown(inode.id()).or(working.stored).unwrap_or(*inode)
            }
            _ => *inode,
        }
    }

    /// Writes what waits of a directory. One that was removed has nothing to write.
    pub fn fold(&mut self, dir: FileId) -> Result<(), StoreError> {
        match self.inode(dir) {
            Ok(_) => {}
            Err(OpError::Refused(_)) => return Ok(()),
            Err(OpError::Failed(error)) => return Err(error),
        }
        if let Some(working) = self.inodes.get_mut(&dir) {
            (working.is_dirty, working.is_whole) = (true, true);
        }
        Ok(())
    }

    /// Which directories are left with deltas, and which lose theirs.
    pub(super) fn write_directories(&mut self) {
        let pending = &self.cache.pending;
        pending.begin_group();
        let mut room = pending.room();
        for (dir, working) in self.inodes.iter().filter(|(_, working)| working.is_dirty) {
            let delta = match (&working.stored, &working.inode) {
                (Some(stored), Some(inode)) if !working.is_whole && inode.is_directory() => {
                    pending.delta(stored, inode, working.touches, &mut room)
                }
                _ => None,
            };
            if let Some(delta) = delta {
                self.batch.dir_deltas.insert(*dir, delta);
            } else if pending.is_waiting(*dir) {
                self.batch.folded.insert(*dir);
            }
        }
    }

    /// Changes of directories, once the group is committed.
    pub(super) fn directory_changes(&self) -> Vec<DirectoryChange> {
        let pending = &self.cache.pending;
        if pending.is_empty() && self.batch.dir_deltas.is_empty() {
            return Vec::new();
        }
        let written = self.inodes.iter().filter(|(_, working)| working.is_dirty);
        let change = |(dir, working): (&FileId, &super::Working)| DirectoryChange {
            dir: *dir,
            before: working.stored,
            after: working.inode,
            is_delta: self.batch.dir_deltas.contains_key(dir),
        };
        written.map(change).filter(|change| change.is_delta || pending.holds(change.dir)).collect()
    }
}
