//! Before a file is changed: who stands in the way is asked to give back, and waited for.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use file_state::{Change, ChangeVerdict, Door, Holder, Modes, Recall, Share, Want};
use types::FileId;

use crate::{AccessError, FileAccess, Told};

/// Who changes a file meets those who deny writing to it.
const WRITING: Want = Want::Share(Share::new(Modes::WRITE, Modes::NONE));

/// Asks clients of a door for what they hold, in the door's own words.
#[async_trait]
pub trait Recaller: Send + Sync {
    /// To give it back. The call returns at once. What has come back is told by [`FileAccess::returned`]; what has not by
    /// its deadline the door takes away (`FileState::expired_recalls`). It is called without any lock, so the state may
    /// have moved on.
    fn recall(&self, recalls: &[Recall]);

    /// What the holder of a delegation to write has made of the file. `None`: it does not say within `patience`, or has no
    /// such delegation any more.
    async fn ask_writer(&self, file: FileId, writer: Holder, patience: Duration) -> Option<Told>;

    /// Somebody cannot have what these hold. Those of them that were lost, and keep it only because nobody wanted it, are
    /// ended. `true`: some are, or are about to be; [`FileAccess::returned`] says when.
    fn dislodge(&self, holders: &[Holder]) -> bool;
}

/// A change that is being made. Until this is dropped nobody is delegated the file, or what its holder believes would be
/// another file's state than the one that comes out of it. Not to be dropped by who holds the table.
#[must_use = "the change is over when this is dropped"]
pub struct Changing {
    access: Arc<FileAccess>,
    file: FileId,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.access.table().end_change(self.file);
    }
}

impl FileAccess {
    /// Recalls of what is held through `door` go there from now on.
    pub fn register(&self, door: Door, recaller: Arc<dyn Recaller>) {
        let mut recallers = self.recallers.lock();
        recallers.retain(|(other, _)| *other != door);
        recallers.push((door, recaller));
    }

    /// Called before a file is changed, by a client or by nobody who could hold anything of it. What is answered is kept
    /// until the change is made.
    ///
    /// `Denied`: a client of another door has locked it; to nobody every door is another. Layouts and delegations of
    /// others are recalled where the change asks for that. Their holders have [`FileAccess::recall_time`] to give back,
    /// whichever door asks, then their door takes them; this call waits up to `patience` and then answers `Recalled`. Who asks again finds the recalls under
    /// way, and meanwhile nobody else gets a new one. Between the answer and the change itself no layout is held back:
    /// what comes in between comes after it.
    pub async fn before_change(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        patience: Duration,
    ) -> Result<Changing, AccessError> {
        // Mostly nothing stands in the way.
        match self.ask(file, by, change) {
            Ok(Some(begun)) => return Ok(begun),
            Ok(None) => {}
            Err(AccessError::Denied) => {
                if !self.dislodge(file, WRITING, patience).await? {
                    return Err(AccessError::Denied);
                }
            }
            Err(error) => return Err(error),
        }
        self.once_returned(patience, || self.ask(file, by, change)).await
    }

    /// What `look` finds; it looks again whenever something has come back. `Recalled`: nothing within `patience`.
    pub(crate) async fn once_returned<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<Option<T>, AccessError>,
    ) -> Result<T, AccessError> {
        let found = async {
            loop {
                let returned = self.returned.notified();
                tokio::pin!(returned);
                // Registered before looking, or a return in between would be missed.
                returned.as_mut().enable();
                if let Some(found) = look()? {
                    return Ok(found);
                }
                returned.await;
            }
        };
        tokio::time::timeout(patience, found).await.unwrap_or(Err(AccessError::Recalled))
    }

    /// After a change: what others hold that should have come home before it is asked for, and not waited for.
    pub fn call_back(&self, file: FileId, by: Option<Holder>, change: Change) {
        let deadline = self.recall_deadline();
        let recalls = {
            let mut table = self.table();
            if !table.has_delegations_of_others(by) {
                return;
            }
            table.recall_for(file, by, change, deadline)
        };
        self.send(&recalls);
    }

    /// Calls all layouts of a file back, for its pool is closed to clients. It is not waited for.
    pub fn call_back_layouts(&self, file: FileId) {
        let deadline = self.recall_deadline();
        let recalls = self.table().recall_layouts(file, deadline);
        self.send(&recalls);
    }

    /// The change, begun; or else what stands in its way has been asked for.
    fn ask(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
    ) -> Result<Option<Changing>, AccessError> {
        let deadline = self.recall_deadline();
        let verdict = {
            let mut table = self.table();
            if change.is_deniable() {
                table.judge_change(file, by).map_err(|error| AccessError::of_table(file, error))?;
            }
            let verdict = table.change(file, by, change, deadline);
            if verdict == ChangeVerdict::Proceed {
                table.begin_change(file);
            }
            verdict
        };
        match verdict {
            ChangeVerdict::Proceed => Ok(Some(Changing { access: Arc::clone(self), file })),
            ChangeVerdict::Wait { recalls } => {
                self.send(&recalls);
                Ok(None)
            }
        }
    }

    /// Of what is recalled now.
    fn recall_deadline(&self) -> Duration {
        self.services.clock.monotonic() + self.recall_time()
    }

    pub(crate) fn recaller(&self, door: Door) -> Option<Arc<dyn Recaller>> {
        let recallers = self.recallers.lock();
        recallers.iter().find(|(of, _)| *of == door).map(|(_, recaller)| Arc::clone(recaller))
    }

    /// What each door has to be asked, of all that concerns some holders.
    pub(crate) fn by_door<T: Copy>(
        &self,
        all: &[T],
        holder: impl Fn(&T) -> Holder,
    ) -> Vec<(Arc<dyn Recaller>, Vec<T>)> {
        if all.is_empty() {
            return Vec::new();
        }
        let of = |door| all.iter().filter(|one| holder(one).door == door).copied().collect::<Vec<T>>();
        let recallers = self.recallers.lock();
        let each = recallers.iter().map(|(door, recaller)| (Arc::clone(recaller), of(*door)));
        each.filter(|(_, of_door)| !of_door.is_empty()).collect()
    }

    fn send(&self, recalls: &[Recall]) {
        for (recaller, of_door) in self.by_door(recalls, |recall| recall.holder) {
            recaller.recall(&of_door);
        }
    }
}
