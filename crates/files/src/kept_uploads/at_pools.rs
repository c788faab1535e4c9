//! Uploads whose bytes come in at a pool, which says when they are there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Caller;
use parking_lot::Mutex;
use types::{ChecksumKind, Clock, FileId, PoolId};

use super::places::Places;
use super::{UploadBounds, UploadPlace};
use crate::{Complete, Received, Upload, UploadError};

/// `T` is what a door keeps beside an upload until it gets its name.
pub struct UploadsAtPools<T>(Arc<SentUploads<T>>);

struct SentUploads<T> {
    /// As many as have places. Leaf lock.
    uploads: Mutex<HashMap<FileId, Sent<T>>>,
    places: Places,
    clock: Arc<dyn Clock>,
}

/// An upload that was sent to a pool.
struct Sent<T> {
    upload: Upload,
    is_begun: bool,
    /// Bytes have come to the pool.
    was_begun: bool,
    terms: Terms<T>,
}

struct Terms<T> {
    of_door: T,
    /// Given up then if nothing was heard.
    deadline: Duration,
    _place: UploadPlace,
}

impl<T: Clone + Send + Sync + 'static> UploadsAtPools<T> {
    pub fn new(bounds: UploadBounds, clock: Arc<dyn Clock>) -> UploadsAtPools<T> {
        UploadsAtPools(Arc::new(SentUploads {
            uploads: Mutex::default(),
            places: Places::new(bounds),
            clock,
        }))
    }

    pub fn admit(&self, caller: &Caller) -> Result<UploadPlace, UploadError> {
        self.0.places.admit(caller)
    }

    /// Keeps an upload for as long as it may be begun, counted from now.
    pub fn keep(&self, upload: Upload, place: UploadPlace, of_door: T, patience: Duration) {
        let deadline = self.0.clock.monotonic() + patience;
        self.0.put(upload, Terms { of_door, deadline, _place: place }, false);
    }

    /// Where the bytes come in.
    pub fn pool_of(&self, file: FileId) -> Option<PoolId> {
        self.0.uploads.lock().get(&file).map(|sent| sent.upload.pool())
    }

    /// The bytes are about to come in, or are at the pool already (`has_bytes`). Until the upload is put off it cannot be
    /// begun again. The answer tells the sums that will be compared or kept; `None`: the upload is over, or was begun. It is
    /// over where the pool has lost the bytes that came before: others would mix with what is left of them.
    pub fn begin(&self, file: FileId, has_bytes: bool) -> Option<Vec<ChecksumKind>> {
        let mut uploads = self.0.uploads.lock();
        let sent = uploads.get_mut(&file).filter(|sent| !sent.is_begun)?;
        if sent.was_begun && !has_bytes {
            let over = uploads.remove(&file);
            drop(uploads);
            drop(over);
            return None;
        }
        (sent.is_begun, sent.was_begun) = (true, true);
        Some(sent.upload.kinds())
    }

    /// The upload may be begun again.
    pub fn put_off(&self, file: FileId) {
        if let Some(sent) = self.0.uploads.lock().get_mut(&file) {
            sent.is_begun = false;
        }
    }

    /// The bytes will never be complete.
    pub fn give_up(&self, file: FileId) {
        // An upload that is dropped closes its open in the conflict table, which is another lock.
        let _over = self.0.uploads.lock().remove(&file);
    }

    /// All bytes are on the pool's disk. If the upload is dropped before it is over it may be begun again. `None`: it is
    /// over.
    pub fn complete(&self, file: FileId, received: Received) -> Option<(Complete, T)> {
        let Sent { mut upload, terms, .. } = self.0.uploads.lock().remove(&file)?;
        let (shared, of_door) = (Arc::clone(&self.0), terms.of_door.clone());
        upload.keep_by(move |upload| shared.put(upload, terms, true));
        Some((upload.received(received), of_door))
    }

    /// To be called every second or so. An upload that is begun ends with its request.
    pub fn give_up_idle(&self) {
        let now = self.0.clock.monotonic();
        let is_over = |sent: &Sent<T>| !sent.is_begun && sent.terms.deadline <= now;
        // Dropped without the lock, as above.
        let _over: Vec<_> = self.0.uploads.lock().extract_if(|_, sent| is_over(sent)).collect();
    }
}

impl<T> SentUploads<T> {
    fn put(&self, upload: Upload, terms: Terms<T>, was_begun: bool) {
        let file = upload.file().file;
        let sent = Sent { upload, is_begun: false, was_begun, terms };
        let _other = self.uploads.lock().insert(file, sent);
    }
}
