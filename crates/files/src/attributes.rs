//! Changes of attributes: mode, owner, times and ACL, with and without a new length.
//!
//! Delegations of others are recalled first, unless the caller may not make the change anyway. The namespace judges the
//! caller in the transaction that makes the change. From the first question that changes something on, the change comes to
//! its end and keeps its guard until then, also if the caller is dropped.
//!
//! Bytes that were cut off do not come back. So other attributes of the same request are set before the length, which may
//! refuse them; and a namespace that is too busy to hear of a length that the replicas have is told again.

use std::sync::Arc;
use std::time::Duration;

use api::{NamespaceError, SetAttributes, SetTime};
use thiserror::Error;
use types::{Access, Attributes, FileId, Identity, Timestamp, permission};

use crate::replicas::{Resizing, require_possible};
use crate::{By, Change, FileChangeGuard, Files, FilesError};

/// Accesses that let a user who is not the owner change attributes.
const OF_ATTRIBUTES: Access = Access::WRITE_ATTRIBUTES.and(Access::WRITE_ACL).and(Access::WRITE_OWNER);

/// How often a busy namespace is told a length that the replicas have: for about five seconds.
const TELLINGS_MAX: u32 = 12;
/// Before the second telling; each further pause is twice as long, up to the longest.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The attributes that are set when a change of them fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetProgress {
    Nothing,
    AllButSize,
    /// The new length has moved the time of modification, which was to be another.
    AllButModifyTime,
}

#[derive(Debug, Error)]
#[error("{error}")]
pub struct SetAttributesError {
    pub progress: SetProgress,
    #[source]
    pub error: FilesError,
}

impl SetAttributesError {
    fn at(progress: SetProgress) -> impl Fn(FilesError) -> SetAttributesError {
        move |error| SetAttributesError { progress, error }
    }
}

impl Files {
    /// Sets attributes of a file that the caller has just looked at. With a length, the replicas are cut or extended as by
    /// [`Files::set_length`], after the other attributes are set. `size_is_authorized`: the door has judged whether the
    /// caller may set the length; else it needs permission to write.
    ///
    /// `Recalled`: as of [`Files::before_change`]; nothing is set then.
    pub async fn set_attributes(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
        set: SetAttributes,
    ) -> Result<Attributes, SetAttributesError> {
        let nothing = SetAttributesError::at(SetProgress::Nothing);
        let Some(size) = set.size else {
            let id = file.file;
            let change = move |files: Arc<Files>, who: Identity| async move {
                files.services.namespace.set_attributes(&who, id, &set).await
            };
            return self.change_beside_bytes(by, file, change).await.map_err(nothing);
        };
        if !set.size_is_authorized
            && !self
                .judge()
                .allows(by.identity, file, Access::WRITE)
                .await
                .map_err(|error| nothing(error.into()))?
        {
            return Err(nothing(NamespaceError::AccessDenied.into()));
        }
        self.set_with_length(by, file, size, set).await
    }

    /// Sets the length of the replicas, durably, before the namespace says so: old bytes never show behind a new end,
    /// and a length that is acknowledged is on disk. A start after a crash in between finishes a cut. Layouts and
    /// delegations of others are waited for as [`Files::before_change`] does, and so are writes that are under way. If
    /// the caller is dropped after that, the namespace is told the new length all the same.
    ///
    /// The door has judged whether the caller may. Quotas are asked here. `keeps_set_id`: as of the namespace.
    pub async fn set_length(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
        size: u64,
        keeps_set_id: bool,
    ) -> Result<Attributes, FilesError> {
        let set = SetAttributes { keeps_set_id, ..SetAttributes::default() };
        self.set_with_length(by, file, size, set).await.map_err(|failed| failed.error)
    }

    /// Times that the holder of a delegation has kept and now reports. The door has judged them. Nobody else can have a
    /// delegation that says more, so nothing is recalled.
    pub async fn set_delegated_times(
        &self,
        file: FileId,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
    ) -> Result<Attributes, FilesError> {
        let (atime, mtime) = (accessed.map(SetTime::To), modified.map(SetTime::To));
        let set = SetAttributes { atime, mtime, ..SetAttributes::default() };
        // The delegation is the right to set them, whoever owns the file.
        Ok(self.services.namespace.set_attributes(&Identity::root(), file, &set).await?)
    }

    /// Makes a change of what a file has beside its bytes, once delegations of others are back.
    pub(crate) async fn change_beside_bytes<T, W>(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
        change: impl FnOnce(Arc<Files>, Identity) -> W + Send,
    ) -> Result<T, FilesError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, NamespaceError>> + Send + 'static,
    {
        let changing = self.before_setting(by, file).await?;
        let (files, holder, file) = (Arc::clone(self), by.holder, file.file);
        let change = change(Arc::clone(self), by.identity.clone());
        let change = async move {
            let _changing = changing;
            let changed = change.await?;
            // Nothing was recalled for a caller who got the permission only then.
            files.call_back(file, holder, Change::SetAttributes);
            Ok(changed)
        };
        self.tasks.carry_on(change).await
    }

    /// `None`: nothing is recalled for a change that the namespace refuses anyway.
    pub(crate) async fn before_setting(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
    ) -> Result<Option<FileChangeGuard>, FilesError> {
        if !permission::is_owner(by.identity, file) {
            let granted = self.judge().granted(by.identity, file).await?;
            if !granted.intersects(OF_ATTRIBUTES) && !granted.contains(Access::WRITE) {
                return Ok(None);
            }
        }
        self.before_change(file.file, by.holder, Change::SetAttributes, by.patience).await.map(Some)
    }

    async fn set_with_length(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
        size: u64,
        set: SetAttributes,
    ) -> Result<Attributes, SetAttributesError> {
        let nothing = SetAttributesError::at(SetProgress::Nothing);
        let keeps_set_id = set.keeps_set_id;
        let others = beside_size(set);
        if others.is_none() {
            self.judge_length(by.identity, file, size).await.map_err(&nothing)?;
        }
        // Before the others are set: they may take the permission that another attempt needs.
        let resizing = self.begin_resizing(file, size, by.holder, by.patience).await.map_err(nothing)?;
        let identity = by.identity.clone();
        let change = async move { resizing.set(&identity, others, keeps_set_id).await };
        self.tasks.carry_on(change).await
    }

    /// Before a replica grows: bytes that it has count as used.
    async fn judge_length(&self, who: &Identity, file: &Attributes, size: u64) -> Result<(), FilesError> {
        require_possible(size)?;
        if size > file.size {
            self.require_room(who, file.file, size - file.size, 0).await?;
        }
        Ok(())
    }
}

impl Resizing {
    async fn set(
        &self,
        who: &Identity,
        others: Option<SetAttributes>,
        keeps_set_id: bool,
    ) -> Result<Attributes, SetAttributesError> {
        let nothing = SetAttributesError::at(SetProgress::Nothing);
        let Some(others) = others else { return self.set_length(who, keeps_set_id).await.map_err(nothing) };
        self.set_in_namespace(who, &others).await.map_err(|error| nothing(error.into()))?;
        let without_size = SetAttributesError::at(SetProgress::AllButSize);
        // The owner may be another now, whose quota counts.
        self.files.judge_length(who, &self.file, self.size).await.map_err(&without_size)?;
        let set = self.set_length(who, keeps_set_id).await.map_err(without_size)?;
        if others.mtime.is_none() {
            return Ok(set);
        }
        let modified = SetAttributes { mtime: others.mtime, ..SetAttributes::default() };
        let set = self.set_in_namespace(who, &modified).await;
        set.map_err(|error| SetAttributesError::at(SetProgress::AllButModifyTime)(error.into()))
    }

    /// The caller's permission was checked before anything was cut.
    async fn set_length(&self, who: &Identity, keeps_set_id: bool) -> Result<Attributes, FilesError> {
        let set = SetAttributes {
            size: Some(self.size),
            size_is_authorized: true,
            keeps_set_id,
            space_used: Some(self.set_at_replicas().await?),
            ..SetAttributes::default()
        };
        let mut pause = PAUSE;
        // Until it hears of a cut, the namespace says that the file is longer than its replicas.
        for _ in 1..TELLINGS_MAX {
            match self.set_in_namespace(who, &set).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(pause).await,
                told => return self.told(told),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.told(self.set_in_namespace(who, &set).await)
    }

    fn told(&self, told: Result<Attributes, NamespaceError>) -> Result<Attributes, FilesError> {
        let told = told?;
        self.end_cuts();
        Ok(told)
    }

    async fn set_in_namespace(
        &self,
        who: &Identity,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        self.files.services.namespace.set_attributes(who, self.file.file, set).await
    }
}

/// `None`: nothing but the length. A new length sets the time of modification to the present by itself.
fn beside_size(set: SetAttributes) -> Option<SetAttributes> {
    let mtime = set.mtime.filter(|time| *time != SetTime::Now);
    let others = SetAttributes {
        size: None,
        size_is_authorized: false,
        keeps_set_id: false,
        space_used: None,
        mtime,
        ..set
    };
    (others != SetAttributes::default()).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux sends them together for O_TRUNC and `ftruncate`: one call to the namespace, not two.
    #[test]
    fn a_length_with_the_present_time_is_a_length_alone() {
        let size = SetAttributes { size: Some(9), mtime: Some(SetTime::Now), ..SetAttributes::default() };
        assert_eq!(beside_size(size.clone()), None);
        let given = SetAttributes { mtime: Some(SetTime::To(Timestamp::EPOCH)), ..SetAttributes::default() };
        assert_eq!(beside_size(SetAttributes { size: Some(9), ..given.clone() }), Some(given));
    }
}
