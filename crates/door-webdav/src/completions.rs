//! The seam from a pool's data face to the head: versions to read, and uploads that come in at the pool. In one process the
//! face calls; that of a pool on another host sends messages. So all that passes is a value, but for the hold on a version.

use std::sync::Arc;

use api::{NamespaceError, Published};
use async_trait::async_trait;
use file_state::{Modes, Share};
use files::{FilesError, Received, UploadsAtPools};
use http::StatusCode;
use types::{Attributes, ChecksumKind, FileId, IoMode, PoolId, Timestamp};

use crate::access::FileAccess;
use crate::lock_table::LockOwner;
use crate::refusal::Refusal;
use crate::representation::Hold;
use crate::upload::Uploading;

/// A file as it is while it is held.
#[derive(Clone, Copy, Debug)]
pub struct FileVersion {
    pub file: FileId,
    pub change: u64,
    pub birth: Timestamp,
    pub size: u64,
    pub mtime: Timestamp,
    pub io: IoMode,
}

impl FileVersion {
    pub fn of(file: &Attributes) -> FileVersion {
        let Attributes { file, change, birth, size, mtime, io, .. } = *file;
        FileVersion { file, change, birth, size, mtime, io }
    }
}

/// An upload that has its name.
#[derive(Clone, Copy, Debug)]
pub struct StoredUpload {
    pub file: FileId,
    pub change: u64,
    /// Nothing had the name before.
    pub is_new: bool,
}

impl StoredUpload {
    pub fn of(published: &Published) -> StoredUpload {
        let Attributes { file, change, .. } = published.attributes;
        StoredUpload { file, change, is_new: published.replaced.is_none() }
    }
}

#[async_trait]
pub trait Completions: Send + Sync {
    /// Holds the file if it is still the version of this change attribute, has a name, and may be read.
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, FileVersion)>, Refusal>;

    /// The body of an upload is about to come in; `has_bytes` if all of it is at the pool already. Until the upload is put
    /// off it cannot be begun again. The answer tells the sums that the head will compare or keep.
    async fn begin(&self, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Refusal>;

    /// The upload may be begun again.
    fn put_off(&self, file: FileId);

    /// The upload is over: its bytes will never be complete.
    fn give_up(&self, file: FileId);

    /// All bytes are on the pool's disk, and the file gets its name. If it is refused and [`Refusal::may_pass`], or if the
    /// answer is not waited for, the upload may be begun again.
    async fn complete(&self, file: FileId, received: Received) -> Result<StoredUpload, Refusal>;
}

/// The head in the process of its pools.
#[derive(Clone)]
pub struct LocalCompletions {
    pub(crate) access: Arc<FileAccess>,
    pub(crate) uploading: Arc<Uploading>,
    pub(crate) at_pools: Arc<UploadsAtPools<LockOwner>>,
}

#[async_trait]
impl Completions for LocalCompletions {
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, FileVersion)>, Refusal> {
        let share = Share::new(Modes::READ, Modes::NONE);
        match self.access.files.open(file, self.access.requests, share).await {
            Ok((held, now)) if now.nlink > 0 && now.change == change => {
                Ok(Some((Box::new(held), FileVersion::of(&now))))
            }
            Ok(_)
            | Err(
                FilesError::Denied
                | FilesError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)),
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn begin(&self, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Refusal> {
        self.at_pools.begin(file, has_bytes).ok_or_else(over)
    }

    fn put_off(&self, file: FileId) {
        self.at_pools.put_off(file);
    }

    fn give_up(&self, file: FileId) {
        self.at_pools.give_up(file);
    }

    async fn complete(&self, file: FileId, received: Received) -> Result<StoredUpload, Refusal> {
        let (complete, owner) = self.at_pools.complete(file, received).ok_or_else(over)?;
        Ok(StoredUpload::of(&self.uploading.publish(complete, owner).await?))
    }
}

impl LocalCompletions {
    /// For the face of a pool on another host: it is answered for files and uploads of that pool, and for no others.
    pub fn of_pool(&self, pool: PoolId) -> PoolCompletions {
        PoolCompletions { head: self.clone(), pool }
    }
}

/// The head, as the data face of one pool may ask it.
#[derive(Clone)]
pub struct PoolCompletions {
    head: LocalCompletions,
    pool: PoolId,
}

impl PoolCompletions {
    fn has_upload(&self, file: FileId) -> bool {
        self.head.at_pools.pool_of(file) == Some(self.pool)
    }
}

#[async_trait]
impl Completions for PoolCompletions {
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, FileVersion)>, Refusal> {
        let pools = match self.head.access.files.pools().of_file(file).await {
            Ok(pools) => pools,
            Err(NamespaceError::NotFound | NamespaceError::Stale(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !pools.contains(&self.pool) {
            return Ok(None);
        }
        self.head.hold_version(file, change).await
    }

    async fn begin(&self, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Refusal> {
        if !self.has_upload(file) {
            return Err(over());
        }
        self.head.begin(file, has_bytes).await
    }

    fn put_off(&self, file: FileId) {
        if self.has_upload(file) {
            self.head.put_off(file);
        }
    }

    fn give_up(&self, file: FileId) {
        if self.has_upload(file) {
            self.head.give_up(file);
        }
    }

    async fn complete(&self, file: FileId, received: Received) -> Result<StoredUpload, Refusal> {
        if !self.has_upload(file) {
            return Err(over());
        }
        self.head.complete(file, received).await
    }
}

fn over() -> Refusal {
    Refusal::new(StatusCode::GONE, "this upload is over; start again at the head")
}
