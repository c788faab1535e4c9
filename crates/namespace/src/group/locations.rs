//! Replicas of a file: its rows, and what its inode says of them, which go together.

use std::collections::HashMap;
use std::sync::Arc;

use api::ReplicaRef;
use types::{FileId, PoolId, Timestamp};

use super::error::OpResult;
use super::inodes::Inodes;
use super::rows::Rows;
use crate::cache::Changes;
use crate::counts::Question;
use crate::inode::Inode;
use crate::locality::Placement;

/// Of files whose replicas changed. `None`: the file was removed.
#[derive(Default)]
pub struct ChangedLocations {
    by_file: HashMap<FileId, Option<Vec<ReplicaRef>>>,
}

impl ChangedLocations {
    /// For the cache, once the group is committed.
    pub fn tell(self, changes: &mut Changes) {
        changes.locations =
            self.by_file.into_iter().map(|(file, known)| (file, known.map(Arc::from))).collect();
    }
}

pub struct Locations<'g, 'a> {
    pub changed: &'g mut ChangedLocations,
    pub inodes: &'g mut Inodes<'a>,
    pub rows: &'g mut Rows,
}

impl Locations<'_, '_> {
    /// Of a file that this group makes, whose inode says that it has replicas: costs no row besides.
    pub fn begin(&mut self, file: FileId, pool: PoolId, now: Timestamp) {
        self.put(file, ReplicaRef::good(pool, now), Vec::new());
    }

    pub fn add(&mut self, inode: &mut Inode, replica: ReplicaRef) -> OpResult<()> {
        let known = self.of(inode)?;
        if known.iter().any(|known| known.pool == replica.pool) {
            return Ok(());
        }
        self.put(inode.id(), replica, known);
        inode.extras.placement = Placement::Replicas;
        self.inodes.put(*inode);
        Ok(())
    }

    /// Sets the states of replicas, noted or not, if those that are noted allow it. `false`: they do not, and nothing changes.
    pub fn set_states(
        &mut self,
        inode: &Inode,
        replicas: &[ReplicaRef],
        is_allowed: impl FnOnce(&[ReplicaRef]) -> bool,
    ) -> OpResult<bool> {
        let mut known = self.of(inode)?;
        let is_allowed = is_allowed(&known);
        if is_allowed {
            for replica in replicas {
                known.retain(|known| known.pool != replica.pool);
                self.put(inode.id(), *replica, known.clone());
                known.push(*replica);
            }
        }
        Ok(is_allowed)
    }

    pub fn drop_one(&mut self, inode: &mut Inode, pool: PoolId) -> OpResult<()> {
        let mut known = self.of(inode)?;
        let Some(at) = known.iter().position(|known| known.pool == pool) else { return Ok(()) };
        known.remove(at);
        let file = inode.id();
        self.rows.change().locations.remove(file, pool);
        if known.is_empty() {
            inode.extras.placement = Placement::without_replicas(inode.attributes.size);
            self.inodes.put(*inode);
        }
        self.changed.by_file.insert(file, Some(known));
        Ok(())
    }

    /// Of a file that is removed.
    pub fn clear(&mut self, file: FileId) {
        self.rows.change().locations.clear(file);
        self.changed.by_file.insert(file, None);
    }

    /// In the order of their pools.
    fn of(&mut self, inode: &Inode) -> OpResult<Vec<ReplicaRef>> {
        if inode.extras.placement != Placement::Replicas {
            return Ok(Vec::new());
        }
        let file = inode.id();
        match self.changed.by_file.get(&file) {
            Some(locations) => Ok(locations.clone().unwrap_or_default()),
            None => match self.inodes.source.cache.locations(file) {
                Some(locations) => Ok(locations.to_vec()),
                None => Ok(self.inodes.source.ask(Question::Locations).locations(file)?),
            },
        }
    }

    fn put(&mut self, file: FileId, replica: ReplicaRef, mut known: Vec<ReplicaRef>) {
        known.push(replica);
        known.sort_by_key(|known| known.pool);
        self.rows.change().locations.put(file, replica.pool, replica);
        self.changed.by_file.insert(file, Some(known));
    }
}
