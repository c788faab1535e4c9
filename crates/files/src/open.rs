//! Holding a file open: while it is, its data stays, whatever becomes of its names.

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, Caller, NamespaceError};
use file_state::{Holder, Modes, Owner, Share, Want};
use types::{Access, Attributes, FileId, Name};

use crate::{Change, Files, FilesError, Last, WalkError, walk};

/// Time for a door to revoke grants that were not returned by the deadline.
const REVOCATION: Duration = Duration::from_secs(5);

/// A file that is replaced so often between the look-up and the open makes its reader come again.
const LOOKUPS_MAX: usize = 16;
/// The pause between two look-ups: the file may be replaced once more.
const LOOKUP_AGAIN: Duration = Duration::from_millis(10);

/// An open in the conflict table, closed when it is dropped. Not to be dropped while the table is locked.
#[must_use]
pub struct OpenFile {
    files: Arc<Files>,
    file: FileId,
    owner: Owner,
}

impl OpenFile {
    pub fn file(&self) -> FileId {
        self.file
    }

    pub fn owner(&self) -> Owner {
        self.owner
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.files.table().close(self.file, self.owner);
    }
}

impl Files {
    /// Opens a file for as long as the answer lives. The attributes are those that it had once it was held.
    pub async fn open(
        self: &Arc<Self>,
        file: FileId,
        holder: Holder,
        share: Share,
    ) -> Result<(OpenFile, Attributes), FilesError> {
        self.open_found(&self.attributes(file).await?, holder, share).await
    }

    /// As [`Files::open`], for a caller that has just looked the file up. Lost clients whose opens deny this one
    /// are dislodged. A conflicting delegation of another client is recalled and waited for: `Recalled` if it is not
    /// returned.
    pub async fn open_found(
        self: &Arc<Self>,
        found: &Attributes,
        holder: Holder,
        share: Share,
    ) -> Result<(OpenFile, Attributes), FilesError> {
        let mut entered = self.enter(found, holder, share);
        if matches!(entered, Err(FilesError::Denied))
            && Box::pin(self.dislodge(found.file, Want::Share(share), REVOCATION)).await?
        {
            entered = self.enter(found, holder, share);
        }
        let open = match entered {
            Err(FilesError::Recalled) => {
                Box::pin(self.make_way(found, holder, share)).await?;
                self.enter(found, holder, share)?
            }
            entered => entered?,
        };
        let held = self.opened_attributes(found.file).await?;
        // Unlinked since it was found: the task that frees its data may have looked before it was held.
        if found.nlink > 0 && held.nlink == 0 {
            return Err(NamespaceError::Stale(found.file).into());
        }
        Ok((open, held))
    }

    /// Opens the regular file at a path for a caller that may read it. If it loses its name between the look-up and the
    /// open, the path is walked again: a replaced file is not reported as missing. `Moved`: it was replaced each time.
    pub async fn open_to_read(
        self: &Arc<Self>,
        caller: &Caller,
        path: &[Name],
        holder: Holder,
    ) -> Result<(OpenFile, Attributes), FilesError> {
        for _ in 0..LOOKUPS_MAX {
            let place = walk(&*self.services.namespace, caller, path, Last::Followed).await?;
            let found = place.existing()?;
            if !caller.may(Activity::Download, &place.path) {
                return Err(WalkError::Denied.into());
            }
            if found.kind.is_directory() {
                return Err(NamespaceError::IsDirectory.into());
            }
            if !found.kind.is_regular() {
                return Err(NamespaceError::NotRegular.into());
            }
            if !self.judge().allows(&caller.identity, &found, Access::READ).await? {
                return Err(NamespaceError::AccessDenied.into());
            }
            if let Some(held) = self.open_named(&found, holder).await? {
                return Ok(held);
            }
            tokio::time::sleep(LOOKUP_AGAIN).await;
        }
        Err(FilesError::Moved)
    }

    /// Opens a file to read that was just looked up. `None`: it has lost its name since; whichever file has the name now is
    /// to be looked up instead.
    pub async fn open_named(
        self: &Arc<Self>,
        found: &Attributes,
        holder: Holder,
    ) -> Result<Option<(OpenFile, Attributes)>, FilesError> {
        match self.open_found(found, holder, Share::new(Modes::READ, Modes::NONE)).await {
            Ok((open, held)) => Ok(Some((open, held)).filter(|(_, held)| held.nlink > 0)),
            Err(FilesError::Namespace(NamespaceError::Stale(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file that has no name yet and holds it: between the two nobody takes it for one that was left behind.
    pub async fn make_unnamed(
        self: &Arc<Self>,
        holder: Holder,
        share: Share,
        make: impl Future<Output = Result<Attributes, NamespaceError>>,
    ) -> Result<(OpenFile, Attributes), FilesError> {
        let birth = self.births.begin();
        let made = make.await?;
        let owner = self.owner(holder);
        self.table().open(made.file, owner, share).map_err(|error| FilesError::of_table(made.file, error))?;
        drop(birth);
        Ok((OpenFile { files: Arc::clone(self), file: made.file, owner }, made))
    }

    async fn make_way(
        self: &Arc<Self>,
        found: &Attributes,
        holder: Holder,
        share: Share,
    ) -> Result<(), FilesError> {
        let patience = self.recall_time() + REVOCATION;
        self.before_change(found.file, Some(holder), Change::Access(share), patience).await.map(drop)
    }

    pub(crate) fn enter(
        self: &Arc<Self>,
        found: &Attributes,
        holder: Holder,
        share: Share,
    ) -> Result<OpenFile, FilesError> {
        let (file, owner) = (found.file, self.owner(holder));
        let opened = {
            let mut table = self.table();
            if found.nlink > 0 {
                table.open(file, owner, share)
            } else {
                table.open_unlinked(file, owner, share)
            }
        };
        opened.map_err(|error| FilesError::of_table(file, error))?;
        Ok(OpenFile { files: Arc::clone(self), file, owner })
    }
}
