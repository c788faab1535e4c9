//! Before a file is changed: recalls conflicting layouts and delegations, and waits for their return.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use file_state::{Change, ChangeVerdict, DelegationKind, Holder, Modes, Recall, Share, Want};
use types::FileId;

use crate::{Files, FilesError, Told};

/// A change to a file conflicts with opens that deny writing to it.
const WRITING: Want = Want::Share(Share::new(Modes::WRITE, Modes::NONE));

/// Asks clients of a door for what they hold, in the door's own words.
#[async_trait]
pub trait Recaller: Send + Sync {
    /// To give it back. The call returns at once. The door reports returns by [`Files::returned`], and revokes
    /// grants that are not returned by their deadline (`FileState::expired_recalls`). It is called without any lock, so
    /// the state may have moved on.
    fn recall(&self, recalls: &[Recall]);

    /// Asks the holder of a delegation to write for the file's size and times. `None`: the holder does not answer
    /// within `patience`, or has no such delegation any more.
    /// A door whose clients get no delegations to write leaves this as it is.
    async fn ask_writer(&self, file: FileId, writer: Holder, patience: Duration) -> Option<Told> {
        let _ = (file, writer, patience);
        None
    }

    /// A request conflicts with the state of these holders. The door ends those that were lost, and that keep their
    /// state only until it is wanted. `true`: some are ended, or about to be; [`Files::returned`] says when.
    /// A door whose clients lose their state with their connection leaves this as it is.
    fn dislodge(&self, holders: &[Holder]) -> bool {
        let _ = holders;
        false
    }

    /// Whether clients that were granted something before a restart, and are not known now, have no access any more.
    /// A door whose grants end with it leaves this as it is.
    fn are_missing_shut_out(&self) -> bool {
        true
    }
}

/// A change that is being made. Until this is dropped no client gets a delegation of the file: its holder would cache
/// the state before the change. Not to be dropped while the table is locked.
#[must_use = "the change is over when this is dropped"]
pub struct FileChangeGuard {
    files: Arc<Files>,
    file: FileId,
    is_rename: bool,
}

impl Drop for FileChangeGuard {
    fn drop(&mut self) {
        if self.is_rename {
            self.files.moves.note();
        }
        self.files.table().changes().end(self.file);
    }
}

impl Files {
    /// Called before a file is changed, by a client or by the server itself (`by` is `None`). The caller keeps the
    /// answer until the change is made.
    ///
    /// `Denied`: a client of another door has locked it; to the server itself every door is another. Layouts and
    /// delegations of other clients are recalled if the change requires it. Their holders have
    /// [`Files::recall_time`] to return them, whichever door asks; then their door revokes them. This call waits
    /// up to `patience` and then answers `Recalled`. A caller that asks again finds the recalls under way, and until
    /// then no other client gets a new layout. Between the answer and the change layouts are granted again: their
    /// writes count as after the change.
    pub async fn before_change(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        patience: Duration,
    ) -> Result<FileChangeGuard, FilesError> {
        // Mostly nothing stands in the way.
        match self.ask(file, by, change) {
            Ok(Some(begun)) => return Ok(begun),
            Ok(None) => {}
            Err(FilesError::Denied) => {
                if !self.dislodge(file, WRITING, patience).await? {
                    return Err(FilesError::Denied);
                }
            }
            Err(error) => return Err(error),
        }
        self.once_returned(patience, || self.ask(file, by, change)).await
    }

    /// Delegates reading of a file that the holder has open. From then on the holder's door is told before others change
    /// the file ([`Recaller::recall`]). `Recalled`: others write the file, or a change of it is under way.
    pub fn delegate_reading(&self, file: FileId, holder: Holder) -> Result<(), FilesError> {
        let now = self.services.clock.monotonic();
        let delegated = self.table().delegations().grant(file, holder, DelegationKind::Read, now);
        delegated.map_err(|error| FilesError::of_table(file, error))
    }

    /// A holder has given a delegation back, as its door was asked for: waiting changes go on.
    pub fn return_delegation(&self, file: FileId, holder: Holder) {
        self.table().delegations().give_back(file, holder);
        self.returned();
    }

    /// Calls `look` until it finds something: at once, and after each return. `Recalled`: nothing within `patience`.
    pub(crate) async fn once_returned<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<Option<T>, FilesError>,
    ) -> Result<T, FilesError> {
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
        tokio::time::timeout(patience, found).await.unwrap_or(Err(FilesError::Recalled))
    }

    /// Called before a door denies writing of files to others: grants from before a restart are not in the table and
    /// cannot be recalled. `Recalled`: a retry may succeed.
    pub fn before_denial(&self) -> Result<(), FilesError> {
        let mut recallers = self.doors.recallers().into_iter();
        match recallers.all(|(_, recaller)| recaller.are_missing_shut_out()) {
            true => Ok(()),
            false => Err(FilesError::Recalled),
        }
    }

    /// After a change: recalls grants of others that conflict with it, and does not wait for them. Opens that have found
    /// the file before a removal look again.
    pub fn call_back(&self, file: FileId, by: Option<Holder>, change: Change) {
        if matches!(change, Change::Remove | Change::Replace) {
            self.removals.note();
        }
        if change == Change::Rename {
            self.moves.note();
        }
        let deadline = self.recall_deadline();
        let recalls = {
            let mut table = self.table();
            if !table.holders().has_delegations_of_others(by) {
                return;
            }
            table.changes().recall_for(file, by, change, deadline)
        };
        self.send(&recalls);
    }

    /// Calls all layouts of a file back, for its pool is closed to clients. It is not waited for.
    pub fn call_back_layouts(&self, file: FileId) {
        let deadline = self.recall_deadline();
        let recalls = self.table().changes().recall_layouts(file, deadline);
        self.send(&recalls);
    }

    /// Begins the change. `None`: conflicting grants have been recalled instead.
    fn ask(
        self: &Arc<Self>,
        file: FileId,
        by: Option<Holder>,
        change: Change,
    ) -> Result<Option<FileChangeGuard>, FilesError> {
        let deadline = self.recall_deadline();
        let verdict = {
            let mut table = self.table();
            if change.is_deniable() {
                table.file(file).judge_change(by).map_err(|error| FilesError::of_table(file, error))?;
            }
            let verdict = table.changes().ask(file, by, change, deadline);
            if verdict == ChangeVerdict::Proceed {
                table.changes().begin(file);
            }
            verdict
        };
        match verdict {
            ChangeVerdict::Proceed => Ok(Some(FileChangeGuard {
                files: Arc::clone(self),
                file,
                is_rename: change == Change::Rename,
            })),
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

    /// Groups items by the door of their holder.
    pub(crate) fn by_door<T: Copy>(
        &self,
        all: &[T],
        holder: impl Fn(&T) -> Holder,
    ) -> Vec<(Arc<dyn Recaller>, Vec<T>)> {
        if all.is_empty() {
            return Vec::new();
        }
        let of = |door| all.iter().filter(|one| holder(one).door == door).copied().collect::<Vec<T>>();
        let each = self.doors.recallers().into_iter().map(|(door, recaller)| (recaller, of(door)));
        each.filter(|(_, of_door)| !of_door.is_empty()).collect()
    }

    fn send(&self, recalls: &[Recall]) {
        for (recaller, of_door) in self.by_door(recalls, |recall| recall.holder) {
            recaller.recall(&of_door);
        }
    }
}
