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

impl FileAccess {
    /// Recalls of what is held through `door` go there from now on.
    pub fn register(&self, door: Door, recaller: Arc<dyn Recaller>) {
        let mut recallers = self.recallers.lock();
        recallers.retain(|(other, _)| *other != door);
        recallers.push((door, recaller));
    }

    /// Called before a file is changed, by a client or by nobody who could hold anything of it.
    ///
    /// `Denied`: a client of another door has locked it; to nobody every door is another. Layouts of others are recalled
    /// where the change asks for that. Their holders have `recall_time` to give back, then their door takes them; this
    /// call waits up to `patience` and then answers `Recalled`. Who asks again finds the recalls under way, and
    /// meanwhile nobody else gets a new layout. Between the answer and the change itself nothing is held: what comes in
    /// between comes after it.
    pub async fn before_change(
        &self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        patience: Duration,
        recall_time: Duration,
    ) -> Result<(), AccessError> {
        let settled = async {
            loop {
                let returned = self.returned.notified();
                tokio::pin!(returned);
                // Registered before looking, or a return in between would be missed.
                returned.as_mut().enable();
                match self.ask(file, by, change, recall_time)? {
                    ChangeVerdict::Proceed => return Ok(()),
                    ChangeVerdict::Wait { recalls } => self.send(&recalls),
                }
                returned.await;
            }
        };
        tokio::time::timeout(patience, settled).await.unwrap_or(Err(AccessError::Recalled))
    }

    /// Whether a client of another door has locked the file against a change of its name or its bytes.
    pub fn judge_change(&self, file: FileId, by: Option<Holder>) -> Result<(), AccessError> {
        let judged = self.table().judge_change(file, by);
        judged.map_err(|error| AccessError::of_table(file, error))
    }

    fn ask(
        &self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        recall_time: Duration,
    ) -> Result<ChangeVerdict, AccessError> {
        let deadline = self.services.clock.monotonic() + recall_time;
        let mut table = self.table();
        if change != Change::SetAttributes {
            table.judge_change(file, by).map_err(|error| AccessError::of_table(file, error))?;
        }
        Ok(table.change(file, by, change, deadline))
    }

    fn send(&self, recalls: &[Recall]) {
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
