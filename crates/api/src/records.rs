//! Data that the namespace's database keeps besides names: locations of replicas, and NFS recovery records.

use async_trait::async_trait;
use types::{Attributes, Epoch, FileId, PoolId};

use crate::{Locality, NamespaceError};

/// Where the bytes of files are. Additions and removals are idempotent and durable when answered.
#[async_trait]
pub trait Locations: Send + Sync {
    async fn locality(&self, file: FileId) -> Result<Locality, NamespaceError>;
    /// Notes a good replica. One that is noted already stays as it is.
    async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError>;
    /// A file that loses its last replica is `Empty` or `Lost`, by its length.
    async fn drop_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError>;

    /// Notes a replica that is going to be made of a good one at another pool, and raises the epoch: tickets that were sealed
    /// before write nothing that the copy could miss. The answer is the file as it is then. One that is being made already is
    /// noted anew. `Moved`: the pool has a replica in another state, or no other pool has a good one.
    async fn begin_filling(&self, file: FileId, pool: PoolId) -> Result<Attributes, NamespaceError>;
    /// In one commit: the replica at `to`, which was being made, is good, the good one at `from` is stale, and the epoch rises.
    /// `Moved`: the replicas are in other states, or the file has not that `change` any more.
    async fn replace_location(
        &self,
        file: FileId,
        from: PoolId,
        to: PoolId,
        change: u64,
    ) -> Result<Attributes, NamespaceError>;
    /// Files with a replica that is not good, by id behind `after`. Costs no look at the others.
    async fn unsettled(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError>;

    /// Raises the fencing epoch of a file and returns the new one.
    async fn raise_epoch(&self, file: FileId) -> Result<Epoch, NamespaceError>;

    /// Answered when every change that was answered before is on disk, also where changes are answered earlier
    /// (`namespace.sync`). Replicas that a change frees may go then, and not before: a power cut would bring the names back.
    async fn settle(&self) -> Result<(), NamespaceError>;

    /// Files without a name that still have a row, by id behind `after`.
    async fn orphans(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError>;

    /// Removes the rows of orphans whose replicas are gone. A file that has a name again is left alone.
    /// Answered, also for no files, when every change of the namespace that was asked for before can be seen, or was
    /// refused.
    async fn forget(&self, files: &[FileId]) -> Result<(), NamespaceError>;

    /// Regular files by id behind `after`, for checks.
    async fn files(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocations {
    pub attributes: Attributes,
    pub locality: Locality,
}

/// NFS clients that may reclaim after a restart (RFC 8881 §8.4.2.1).
#[async_trait]
pub trait RecoveryRecords: Send + Sync {
    async fn load(&self) -> Result<Vec<ClientRecord>, NamespaceError>;
    async fn put(&self, record: &ClientRecord) -> Result<(), NamespaceError>;
    async fn remove(&self, owner: &[u8]) -> Result<(), NamespaceError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// `co_ownerid`, at most 1024 bytes.
    pub owner: Vec<u8>,
    /// The client said RECLAIM_COMPLETE in the instance that wrote this.
    pub reclaim_complete: bool,
}
