//! The removal of a file, or of a tree with all that is in it, for DELETE, COPY and MOVE.

use std::sync::Arc;

use api::{Cookie, NamespaceError, Page};
use files::{Entry, FilesError};
use types::{Attributes, FileId, Identity, Name};

use crate::access::FileAccess;
use crate::call::Call;
use crate::refusal::Refusal;
use crate::resolve::PathTarget;
use crate::tree::{Descent, FAILURES_MAX, Failures, PAGE, extended};

pub(crate) struct Removals {
    pub access: Arc<FileAccess>,
}

/// A directory whose tree is being removed.
struct Level {
    above: FileId,
    here: FileId,
    way: Descent,
    /// Entries up to here were looked at.
    after: Cookie,
}

impl Removals {
    /// Removes what is there and everything below; what stays is told with its reason.
    pub async fn remove_tree(&self, call: &Call, target: &PathTarget) -> Failures {
        let mut failures = Failures::new();
        let (Ok((dir, name)), Some(found)) = (target.entry(), target.found) else { return failures };
        if !found.kind.is_directory() {
            if let Err(error) = self.remove_entry(&call.caller.identity, dir, name, &found).await {
                failures.push((target.path.clone(), error.into()));
            }
            return failures;
        }
        if let Err(refusal) = self.may_remove_directory(call, dir, &found).await {
            failures.push((target.path.clone(), refusal));
            return failures;
        }
        // Depth first; a directory is left by the way it was entered, so only those are kept that lead to where it is.
        let mut open =
            vec![Level { above: dir, here: found.file, way: Descent::default(), after: Cookie::START }];
        while let Some(mut level) = open.pop() {
            if failures.len() >= FAILURES_MAX {
                break;
            }
            let who = &call.caller.identity;
            let page = match self.access.list_to_enter(who, level.here, level.after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    failures.push((level.way.path(&target.path), error.into()));
                    continue;
                }
            };
            if let Some(below) = self.remove_files(call, target, &mut level, &page, &mut failures).await {
                open.extend([level, below]);
            } else if !page.is_last {
                open.push(level);
            } else {
                self.remove_emptied(call, target, &level, &mut failures).await;
            }
        }
        failures
    }

    /// Before what is in it is removed: a name that stays keeps its contents.
    async fn may_remove_directory(
        &self,
        call: &Call,
        dir: FileId,
        found: &Attributes,
    ) -> Result<(), Refusal> {
        let parent = self.access.namespace.attributes(dir).await?;
        self.access.may_take(&call.caller.identity, &parent, found).await
    }

    /// Of a page, up to a directory to be entered.
    async fn remove_files(
        &self,
        call: &Call,
        target: &PathTarget,
        level: &mut Level,
        page: &Page,
        failures: &mut Failures,
    ) -> Option<Level> {
        for entry in &page.entries {
            level.after = entry.cookie;
            let found = &entry.attributes;
            let removed = if found.kind.is_directory() {
                let judged = self.may_remove_directory(call, level.here, found).await;
                match judged.and_then(|()| level.way.down(&entry.name)) {
                    Ok(way) => {
                        let (above, here) = (level.here, found.file);
                        return Some(Level { above, here, way, after: Cookie::START });
                    }
                    Err(refusal) => Err(refusal),
                }
            } else {
                self.remove_entry(&call.caller.identity, level.here, &entry.name, found)
                    .await
                    .map_err(Refusal::from)
            };
            if let Err(refusal) = removed {
                failures.push((extended(&level.way.path(&target.path), &entry.name), refusal));
            }
        }
        None
    }

    /// A directory in which something is left says nothing of itself.
    async fn remove_emptied(&self, call: &Call, target: &PathTarget, level: &Level, failures: &mut Failures) {
        let path = level.way.path(&target.path);
        if failures.iter().any(|(failed, _)| failed.starts_with(&path)) {
            return;
        }
        let name = level.way.name().or(target.path.last()).expect("the root is not removed");
        let entry = Entry::of(level.above, name, level.here);
        if let Err(error) = self.access.files.remove(self.access.by(&call.caller.identity), entry).await {
            failures.push((path, error.into()));
        }
    }

    /// Of another file that has the name by now nothing was asked: it stays, and the client may come again.
    pub async fn remove_entry(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        found: &Attributes,
    ) -> Result<(), FilesError> {
        match self.access.files.remove(self.access.by(who), Entry::of(dir, name, found.file)).await {
            // Somebody else was faster: it is gone all the same.
            Ok(_) | Err(FilesError::Namespace(NamespaceError::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
