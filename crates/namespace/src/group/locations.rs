//! Replicas of a file: its rows, and what its inode says of them, which go together.

use api::ReplicaRef;
use types::{FileId, PoolId, Timestamp};

use super::{Group, OpResult};
use crate::counts::Question;
use crate::inode::Inode;
use crate::locality::Placement;

impl Group<'_> {
    /// Of a file that this group makes, whose inode says that it has replicas: costs no row besides.
    pub fn begin_locations(&mut self, file: FileId, pool: PoolId, now: Timestamp) {
        self.put_location(file, ReplicaRef::good(pool, now), Vec::new());
    }

    pub fn add_location(&mut self, inode: &mut Inode, replica: ReplicaRef) -> OpResult<()> {
        let known = self.locations(inode)?;
        if known.iter().any(|known| known.pool == replica.pool) {
            return Ok(());
        }
        self.put_location(inode.id(), replica, known);
        inode.extras.placement = Placement::Replicas;
        self.put(*inode);
        Ok(())
    }

    pub fn drop_location(&mut self, inode: &mut Inode, pool: PoolId) -> OpResult<()> {
        let mut known = self.locations(inode)?;
        let Some(at) = known.iter().position(|known| known.pool == pool) else { return Ok(()) };
        known.remove(at);
        let file = inode.id();
        self.batch.locations.remove(file, pool);
        self.is_written = true;
        if known.is_empty() {
            inode.extras.placement = Placement::without_replicas(inode.attributes.size);
            self.put(*inode);
        }
        self.locations.insert(file, Some(known));
        Ok(())
    }

    /// In the order of their pools.
    fn locations(&mut self, inode: &Inode) -> OpResult<Vec<ReplicaRef>> {
        if inode.extras.placement != Placement::Replicas {
            return Ok(Vec::new());
        }
        let file = inode.id();
        match self.locations.get(&file) {
            Some(locations) => Ok(locations.clone().unwrap_or_default()),
            None => match self.cache.locations(file) {
                Some(locations) => Ok(locations.to_vec()),
                None => Ok(self.ask(Question::Locations).locations(file)?),
            },
        }
    }

    fn put_location(&mut self, file: FileId, replica: ReplicaRef, mut known: Vec<ReplicaRef>) {
        known.push(replica);
        known.sort_by_key(|known| known.pool);
        self.batch.locations.put(file, replica.pool, replica);
        self.is_written = true;
        self.locations.insert(file, Some(known));
    }
}
