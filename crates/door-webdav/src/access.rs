//! Files as requests have them: judged for the user, held open, and freed of what NFS clients have of them.

use std::sync::Arc;
use std::time::Duration;

use api::{Cookie, Namespace, NamespaceError, Page};
use file_state::{Change, Holder, Modes, Share};
use files::{By, FileChangeGuard, Files, FilesError, Judge, OpenFile};
use types::permission::Removal;
use types::{Access, Attributes, FileId, Identity, Name};

use crate::call::Call;
use crate::refusal::Refusal;

/// Where no ACL of the directory above says more.
const DIRECTORY_UMASK: u32 = 0o022;

pub(crate) struct FileAccess {
    pub files: Arc<Files>,
    pub namespace: Arc<dyn Namespace>,
    /// The holder of requests in the conflict table: a request is of no client that could be told apart.
    pub requests: Holder,
    /// How long a change waits for layouts of NFS clients to come back before the client is told to come again.
    pub patience: Duration,
}

impl FileAccess {
    /// Judges access to files, by their ACL or mode.
    pub fn judge(&self) -> Judge<'_> {
        self.files.judge()
    }

    /// The one who acts, for an operation of the files: a user, by a request.
    pub fn by<'a>(&self, identity: &'a Identity) -> By<'a> {
        By { identity, holder: Some(self.requests), patience: self.patience }
    }

    pub async fn check_readable(&self, call: &Call, file: &Attributes) -> Result<(), Refusal> {
        if !file.kind.is_regular() {
            return Err(Refusal::forbidden("not a regular file"));
        }
        if !self.judge().allows(&call.caller.identity, file, Access::READ).await? {
            return Err(Refusal::forbidden("access denied"));
        }
        Ok(())
    }

    /// Holds a file open while the answer lives, with its attributes as they are then. Refused (423) where an NFS client
    /// denies reading.
    pub async fn hold_for_reading(&self, file: FileId) -> Result<(OpenFile, Attributes), Refusal> {
        let share = Share::new(Modes::READ, Modes::NONE);
        Ok(self.files.open(file, self.requests, share).await?)
    }

    /// The namespace's verdict on mode and ACL, before a step that cannot be undone: a recall, or the removal of a file
    /// that is to be overwritten.
    pub async fn may_take(
        &self,
        who: &Identity,
        dir: &Attributes,
        entry: &Attributes,
    ) -> Result<(), Refusal> {
        match self.judge().judge_removal(who, dir, entry).await? {
            Removal::Allowed => Ok(()),
            Removal::Denied => Err(Refusal::forbidden("the directory may not be changed")),
            Removal::Sticky => Err(Refusal::forbidden("in a sticky directory only owners remove")),
        }
    }

    /// Recalls the grants of NFS clients on a file that is about to be changed; none of them is granted anew until the
    /// returned guard is dropped.
    pub async fn make_way(&self, file: FileId, change: Change) -> Result<FileChangeGuard, Refusal> {
        Ok(self.files.before_change(file, Some(self.requests), change, self.patience).await?)
    }

    /// A page of a directory for a walk that enters the listed entries. By path that would need search permission:
    /// without it a walk by file ids would reach files that the mode bits of a directory above keep from the caller.
    pub async fn list_to_enter(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        let attributes = self.namespace.attributes(dir).await?;
        if !self.judge().allows(who, &attributes, Access::EXECUTE).await? {
            return Err(NamespaceError::AccessDenied);
        }
        self.namespace.list(who, dir, after, limit).await
    }

    pub async fn make_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
    ) -> Result<Attributes, FilesError> {
        let made = self.files.make_directory(self.by(who), dir, name, (0o777, DIRECTORY_UMASK));
        Ok(made.await?.attributes)
    }
}
