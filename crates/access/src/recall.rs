//! Before a file is changed: who stands in the way is asked to give back, and waited for.

use std::sync::Arc;
use std::time::Duration;

use file_state::{Change, ChangeVerdict, Door, Holder, Recall};
use types::FileId;

use crate::{AccessError, FileAccess};

/// Asks clients of a door to give back what they hold, in the door's own words.
///
/// The call returns at once. What has come back is told by [`FileAccess::returned`]; what has not by its deadline the
/// door takes away (`FileState::expired_recalls`). It is called without any lock, so the state may have moved on.
pub trait Recaller: Send + Sync {
    fn recall(&self, recalls: &[Recall]);
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
    /// others are recalled where the change asks for that. Their holders have `recall_time` to give back, then their door
    /// takes them; this call waits up to `patience` and then answers `Recalled`. Who asks again finds the recalls under
    /// way, and meanwhile nobody else gets a new one. Between the answer and the change itself no layout is held back:
    /// what comes in between comes after it.
    pub async fn before_change(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        patience: Duration,
        recall_time: Duration,
    ) -> Result<Changing, AccessError> {
        // Mostly nothing stands in the way.
        if let Some(begun) = self.ask(file, by, change, recall_time)? {
            return Ok(begun);
        }
        let settled = async {
            loop {
                let returned = self.returned.notified();
                tokio::pin!(returned);
                // Registered before looking, or a return in between would be missed.
                returned.as_mut().enable();
                if let Some(begun) = self.ask(file, by, change, recall_time)? {
                    return Ok(begun);
                }
                returned.await;
            }
        };
        tokio::time::timeout(patience, settled).await.unwrap_or(Err(AccessError::Recalled))
    }

    /// After a change: what others hold that should have come home before it is asked for, and not waited for.
    pub fn call_back(&self, file: FileId, by: Option<Holder>, change: Change, recall_time: Duration) {
        let deadline = self.services.clock.monotonic() + recall_time;
        let recalls = {
            let mut table = self.table();
            if !table.has_delegations_of_others(by) {
                return;
            }
            table.recall_for(file, by, change, deadline)
        };
        self.send(&recalls);
    }

    /// The change, begun; or else what stands in its way has been asked for.
    fn ask(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        recall_time: Duration,
    ) -> Result<Option<Changing>, AccessError> {
        let deadline = self.services.clock.monotonic() + recall_time;
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

    fn send(&self, recalls: &[Recall]) {
        if recalls.is_empty() {
            return;
        }
        let recallers = self.recallers.lock().clone();
        for (door, recaller) in recallers {
            let of_door: Vec<Recall> =
                recalls.iter().filter(|recall| recall.holder.door == door).copied().collect();
            if !of_door.is_empty() {
                recaller.recall(&of_door);
            }
        }
    }
}
