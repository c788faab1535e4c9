//! The seam from a pool's data face to the head: versions to read, and uploads that come in at the pool. One process calls;
//! a pool elsewhere would send messages, so all that passes is a value, but for the hold on a version.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use api::{NamespaceError, Published};
use async_trait::async_trait;
use file_state::{Modes, Share};
use files::{FilesError, Received, Upload};
use http::StatusCode;
use types::{Attributes, ChecksumKind, FileId};

use crate::front::Front;
use crate::put::under_way::Admitted;
use crate::refusal::Refusal;
use crate::upload::LockOwner;

/// A file that stays what it is while this lives.
pub(crate) type Hold = Box<dyn Any + Send + Sync>;

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

/// An upload that was sent to a pool.
pub(crate) struct Redirected {
    upload: Upload,
    is_begun: bool,
    terms: RedirectTerms,
}

pub(crate) struct RedirectTerms {
    pub owner: LockOwner,
    pub _admitted: Admitted,
    /// Given up then if nothing was heard. Its ticket ends at that time too.
    pub deadline: Duration,
}

impl Redirected {
    pub fn new(upload: Upload, terms: RedirectTerms) -> Redirected {
        Redirected { upload, is_begun: false, terms }
    }

    /// One that is begun ends with its request.
    pub fn is_over(&self, now: Duration) -> bool {
        !self.is_begun && self.terms.deadline <= now
    }
}

/// The head in the process of its pools.
pub(crate) struct LocalCompletions(pub Arc<Front>);

#[async_trait]
impl Completions for LocalCompletions {
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, Attributes)>, Refusal> {
        let share = Share::new(Modes::READ, Modes::NONE);
        match self.0.services.files.open(file, self.0.requests, share).await {
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
        let mut redirected = self.0.redirected.lock();
        match redirected.get_mut(&file).filter(|upload| !upload.is_begun) {
            Some(upload) => {
                upload.is_begun = true;
                Ok(upload.upload.kinds())
            }
            None => Err(over()),
        }
    }

    fn put_off(&self, file: FileId) {
        if let Some(upload) = self.0.redirected.lock().get_mut(&file) {
            upload.is_begun = false;
        }
    }

    fn give_up(&self, file: FileId) {
        // It closes its open in the conflict table when it is dropped, which is another lock.
        let _over = self.0.redirected.lock().remove(&file);
    }

    async fn complete(&self, file: FileId, received: Received) -> Result<Published, Refusal> {
        let Redirected { mut upload, terms, .. } = self.0.redirected.lock().remove(&file).ok_or_else(over)?;
        let (front, owner) = (Arc::clone(&self.0), terms.owner.clone());
        upload.keep_by(move |upload| {
            let _other = front.redirected.lock().insert(file, Redirected::new(upload, terms));
        });
        self.0.publish(upload.received(received), owner).await
    }
}

fn over() -> Refusal {
    Refusal::new(StatusCode::GONE, "this upload is over; start again at the head")
}
