//! The seam from a pool's data face to the head: versions to read, and uploads that come in at the pool. One process calls;
//! a pool elsewhere would send messages, so all that passes is a value, but for the hold on a version.

use std::sync::Arc;

use api::{NamespaceError, Published};
use async_trait::async_trait;
use file_state::{Modes, Share};
use files::{FilesError, Received, UploadsAtPools};
use http::StatusCode;
use types::{Attributes, ChecksumKind, FileId};

use crate::access::FileAccess;
use crate::lock_table::LockOwner;
use crate::refusal::Refusal;
use crate::representation::Hold;
use crate::upload::Uploading;

#[async_trait]
pub(crate) trait Completions: Send + Sync {
    /// Holds the file if it is still the version of this change attribute, has a name, and may be read.
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, Attributes)>, Refusal>;

    /// The body of an upload is about to come in. Until the upload is put off it cannot be begun again. The answer tells the
    /// sums that the head will compare or keep.
    async fn begin(&self, file: FileId) -> Result<Vec<ChecksumKind>, Refusal>;

    /// The upload may be begun again.
    fn put_off(&self, file: FileId);

    /// The upload is over: its bytes will never be complete.
    fn give_up(&self, file: FileId);

    /// All bytes are on the pool's disk, and the file gets its name. If it is refused and [`Refusal::may_pass`], or if the
    /// answer is not waited for, the upload may be begun again.
    async fn complete(&self, file: FileId, received: Received) -> Result<Published, Refusal>;
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
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, Attributes)>, Refusal> {
        let share = Share::new(Modes::READ, Modes::NONE);
        match self.access.files.open(file, self.access.requests, share).await {
            Ok((held, now)) if now.nlink > 0 && now.change == change => Ok(Some((Box::new(held), now))),
            Ok(_)
            | Err(
                FilesError::Denied
                | FilesError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)),
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn begin(&self, file: FileId) -> Result<Vec<ChecksumKind>, Refusal> {
        self.at_pools.begin(file).ok_or_else(over)
    }

    fn put_off(&self, file: FileId) {
        self.at_pools.put_off(file);
    }

    fn give_up(&self, file: FileId) {
        self.at_pools.give_up(file);
    }

    async fn complete(&self, file: FileId, received: Received) -> Result<Published, Refusal> {
        let (complete, owner) = self.at_pools.complete(file, received).ok_or_else(over)?;
        self.uploading.publish(complete, owner).await
    }
}

fn over() -> Refusal {
    Refusal::new(StatusCode::GONE, "this upload is over; start again at the head")
}
