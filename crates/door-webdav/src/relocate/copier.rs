//! The copying itself: files, symbolic links and directories with their properties, and all that is in a directory.

use std::sync::Arc;

use api::{Cookie, Page, Properties, PropertyChange, Replace};
use files::{ContentMode, UploadTarget, UploadTerms};
use types::{Attributes, FileId, FileKind, Name};

use super::ends::Ends;
use crate::access::FileAccess;
use crate::call::Call;
use crate::refusal::Refusal;
use crate::removals::Removals;
use crate::resolve::PathTarget;
use crate::tree::{Descent, FAILURES_MAX, Failures, PAGE, extended};
use crate::upload::Uploading;

pub(crate) struct TreeCopier {
    pub access: Arc<FileAccess>,
    pub uploading: Arc<Uploading>,
    pub properties: Arc<dyn Properties>,
    pub removals: Arc<Removals>,
}

/// How a copied file gets its name.
#[derive(Clone, Copy)]
pub(super) struct CopyTerms {
    pub replace: Replace,
    /// Its directory gets the name that leads to it later.
    pub is_beside: bool,
}

/// A directory that is being copied.
struct Level {
    source: FileId,
    /// Entries up to here were copied.
    after: Cookie,
    way: Descent,
    target: Attributes,
    /// As in [`CopyTerms`].
    is_beside: bool,
}

impl TreeCopier {
    /// Into a directory that was made for it. `is_beside`: it gets the name of the destination later.
    pub(super) async fn copy_members(
        &self,
        call: &Call,
        ends: &Ends,
        target: Attributes,
        is_beside: bool,
    ) -> Failures {
        let mut failures = Failures::new();
        let (source, way) = (ends.found.file, Descent::default());
        // As in `remove_tree`, only the directories that lead to where it is.
        let mut open = vec![Level { source, after: Cookie::START, way, target, is_beside }];
        while let Some(mut level) = open.pop() {
            if failures.len() >= FAILURES_MAX {
                break;
            }
            let path = level.way.path(&ends.destination.path);
            let who = &call.caller.identity;
            let page = match self.access.list_to_enter(who, level.source, level.after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    failures.push((path, error.into()));
                    continue;
                }
            };
            let entered = self.copy_files(call, &path, &mut level, &page, &mut failures).await;
            if entered.is_some() || !page.is_last {
                open.push(level);
            }
            open.extend(entered);
        }
        failures
    }

    /// Of a page, up to a directory that is to be entered.
    async fn copy_files(
        &self,
        call: &Call,
        path: &[Name],
        level: &mut Level,
        page: &Page,
        failures: &mut Failures,
    ) -> Option<Level> {
        for entry in &page.entries {
            level.after = entry.cookie;
            let found = &entry.attributes;
            let member =
                PathTarget { path: extended(path, &entry.name), parent: Some(level.target), found: None };
            let copied = match (found.kind.is_directory(), level.way.down(&entry.name)) {
                (false, _) => {
                    let terms = CopyTerms { replace: Replace::Never, is_beside: level.is_beside };
                    self.copy_file(call, found, &member, terms).await
                }
                (true, Err(refusal)) => Err(refusal),
                (true, Ok(way)) => match self.copy_directory(call, found, &member).await {
                    Ok(target) => {
                        let (source, is_beside) = (found.file, level.is_beside);
                        return Some(Level { source, after: Cookie::START, way, target, is_beside });
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            if let Err(refusal) = copied {
                failures.push((member.path, refusal));
            }
        }
        None
    }

    pub(super) async fn copy_directory(
        &self,
        call: &Call,
        source: &Attributes,
        target: &PathTarget,
    ) -> Result<Attributes, Refusal> {
        let (dir, name) = target.entry()?;
        let made = self.access.make_directory(&call.caller.identity, dir, name).await?;
        self.copy_properties(call, source, &made).await?;
        Ok(made)
    }

    /// A file that replaces another takes over its properties, which a copy of one without any is not to have.
    async fn drop_properties(&self, call: &Call, file: &Attributes) -> Result<(), Refusal> {
        let taken_over = self.properties.properties(file.file).await?;
        if !taken_over.is_empty() {
            let changes: Vec<_> =
                taken_over.into_iter().map(|property| PropertyChange::Remove(property.name)).collect();
            let by = self.access.by(&call.caller.identity);
            self.access.files.set_properties(by, file, changes, None).await?;
        }
        Ok(())
    }

    /// Whether there were any.
    async fn copy_properties(
        &self,
        call: &Call,
        source: &Attributes,
        target: &Attributes,
    ) -> Result<bool, Refusal> {
        let properties = self.properties.properties(source.file).await?;
        if properties.is_empty() {
            return Ok(false);
        }
        let changes: Vec<_> = properties.into_iter().map(PropertyChange::Set).collect();
        let by = self.access.by(&call.caller.identity);
        self.access.files.set_properties(by, target, changes, None).await?;
        Ok(true)
    }

    pub(super) async fn copy_file(
        &self,
        call: &Call,
        source: &Attributes,
        target: &PathTarget,
        terms: CopyTerms,
    ) -> Result<(), Refusal> {
        if let FileKind::Symlink = source.kind {
            return self.copy_symlink(call, source, target).await;
        }
        self.access.check_readable(call, source).await?;
        let (_held, source) = self.access.hold_for_reading(source.file).await?;
        // It was listed before what lies in front of it was copied.
        self.access.check_readable(call, &source).await?;
        let CopyTerms { replace, is_beside } = terms;
        let upload_target = match is_beside {
            true => UploadTarget::beside(target.clone()),
            false => UploadTarget::new(target.clone()),
        };
        let (owner, size) = (call.lock_owner()?, Some(source.size));
        let terms = UploadTerms { replace, size, ..UploadTerms::default() };
        let upload = self.uploading.begin(call, upload_target, terms).await?;
        let unnamed = *upload.file();
        let content = self.access.files.content(&source, ContentMode::Read).await?;
        let complete = upload.copy_from(&content).await?;
        // Before it has its name: the file with the copy's contents never shows without them.
        let has_properties = self.copy_properties(call, &source, &unnamed).await?;
        let published = self.uploading.publish(complete, owner).await?;
        if !has_properties {
            self.drop_properties(call, &published.attributes).await?;
        }
        Ok(())
    }

    async fn copy_symlink(
        &self,
        call: &Call,
        source: &Attributes,
        target: &PathTarget,
    ) -> Result<(), Refusal> {
        let (dir, name) = target.entry()?;
        let link = self.access.namespace.read_link(source.file).await?;
        if let Some(old) = &target.found {
            self.removals.remove_entry(&call.caller.identity, dir, name, old).await?;
        }
        self.access.files.make_symlink(self.access.by(&call.caller.identity), dir, name, link).await?;
        Ok(())
    }
}
