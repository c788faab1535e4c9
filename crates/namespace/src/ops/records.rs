//! Locations, fencing epochs, orphans, and the records of NFS clients.

use api::{ClientRecord, NamespaceError, ReplicaRef, ReplicaState};
use types::{Attributes, Epoch, FileId, PoolId};

use super::writes::require_regular;
use crate::group::{Group, OpError, OpResult};
use crate::inode::Inode;

/// RFC 8881 §2.4: NFS4_OPAQUE_LIMIT.
pub const OWNER_BYTES_MAX: usize = 1024;

pub fn add_location(group: &mut Group<'_>, file: FileId, pool: PoolId) -> OpResult<()> {
    let mut inode = group.inode(file)?;
    require_regular(&inode)?;
    let now = group.now();
    group.locations().add(&mut inode, ReplicaRef::good(pool, now))
}

/// Also of a file that is no more.
pub fn drop_location(group: &mut Group<'_>, file: FileId, pool: PoolId) -> OpResult<()> {
    match group.inode(file) {
        Ok(mut inode) => group.locations().drop_one(&mut inode, pool),
        Err(OpError::Refused(NamespaceError::Stale(_))) => Ok(()),
        Err(error) => Err(error),
    }
}

pub fn begin_filling(group: &mut Group<'_>, file: FileId, pool: PoolId) -> OpResult<Attributes> {
    let inode = group.inode(file)?;
    require_regular(&inode)?;
    let filling = ReplicaRef::new(pool, ReplicaState::Filling, group.now());
    let is_allowed = |known: &[ReplicaRef]| {
        let is_source = |known: &ReplicaRef| known.pool != pool && known.state == ReplicaState::Good;
        let is_free = known.iter().all(|known| known.pool != pool || known.state == ReplicaState::Filling);
        is_free && known.iter().any(is_source)
    };
    if !group.locations().set_states(&inode, &[filling], is_allowed)? {
        return Err(NamespaceError::Moved.into());
    }
    raised(group, inode)
}

pub fn replace_location(
    group: &mut Group<'_>,
    file: FileId,
    (from, to): (PoolId, PoolId),
    change: u64,
) -> OpResult<Attributes> {
    let inode = group.inode(file)?;
    require_regular(&inode)?;
    let now = group.now();
    let replicas = [ReplicaRef::good(to, now), ReplicaRef::new(from, ReplicaState::Stale, now)];
    let is_allowed = |known: &[ReplicaRef]| {
        let has = |pool, state| known.iter().any(|known| (known.pool, known.state) == (pool, state));
        has(from, ReplicaState::Good) && has(to, ReplicaState::Filling)
    };
    if inode.attributes.change != change || !group.locations().set_states(&inode, &replicas, is_allowed)? {
        return Err(NamespaceError::Moved.into());
    }
    raised(group, inode)
}

pub fn raise_epoch(group: &mut Group<'_>, file: FileId) -> OpResult<Epoch> {
    let inode = group.inode(file)?;
    require_regular(&inode)?;
    raised(group, inode).map(|raised| raised.epoch)
}

fn raised(group: &mut Group<'_>, mut inode: Inode) -> OpResult<Attributes> {
    inode.attributes.epoch = inode.attributes.epoch.next();
    // Of copies of an inode the highest change wins, so this has to move it, too.
    inode.attributes.change = group.instance.next_change(inode.attributes.change);
    group.put(inode);
    // A pool that learns the epoch keeps it.
    group.rows.batch.is_durable = true;
    Ok(inode.attributes)
}

pub fn forget(group: &mut Group<'_>, files: &[FileId]) -> OpResult<()> {
    for file in files {
        match group.inode(*file) {
            Ok(inode) if inode.is_nameless() => group.remove(&inode),
            Ok(_) | Err(OpError::Refused(NamespaceError::Stale(_))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Changes nothing: the group is written all the same, and where it can say so on disk when it is answered.
pub fn settle(group: &mut Group<'_>) -> OpResult<()> {
    group.rows.be_durable();
    Ok(())
}

pub fn put_client(group: &mut Group<'_>, record: &ClientRecord) -> OpResult<()> {
    group.rows.change().clients.insert(record.owner.clone(), Some(record.reclaim_complete));
    Ok(())
}

pub fn remove_client(group: &mut Group<'_>, owner: &[u8]) -> OpResult<()> {
    group.rows.change().clients.insert(owner.to_vec(), None);
    Ok(())
}
