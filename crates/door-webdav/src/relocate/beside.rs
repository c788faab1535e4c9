//! A COPY over a tree: the copy is made beside it, under a name that nobody asked for. When all of it is there, the two
//! names change places in one step, and the tree is removed. If the copying ends before, the tree stays as it was.
//!
//! A kill of the server leaves the unfinished copy, or the rest of the tree, under that name.

use std::sync::Arc;

use api::{NamespaceError, Replace};
use http::StatusCode;
use http_wire::target::encode_path;
use types::{Attributes, FileId, Name, Random};

use super::copier::{CopyTerms, TreeCopier};
use super::ends::Ends;
use super::survey::{Fate, Survey, Surveyor};
use super::until_seen::UntilSeen;
use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::ATTEMPTS_MAX;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::removals::Removals;
use crate::resolve::PathTarget;
use crate::tasks::Tasks;
use crate::tree::Failures;

pub(crate) struct Replacements {
    pub access: Arc<FileAccess>,
    pub locks: Arc<PathLocks>,
    pub copier: Arc<TreeCopier>,
    pub removals: Arc<Removals>,
    pub surveyor: Arc<Surveyor>,
    pub tasks: Arc<Tasks>,
    pub random: Arc<dyn Random>,
}

/// The copy while it is made. It is removed where it does not get its name.
struct Beside {
    replacements: Arc<Replacements>,
    call: Arc<Call>,
    /// `None`: it has its name, or is gone.
    target: Option<PathTarget>,
}

impl Beside {
    async fn remove(mut self) {
        if let Some(target) = self.target.take() {
            self.replacements.remove_beside(&self.call, target).await;
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let Some(target) = self.target.take() else { return };
        let (replacements, call) = (Arc::clone(&self.replacements), Arc::clone(&self.call));
        self.replacements.tasks.follow_up(async move { replacements.remove_beside(&call, target).await });
    }
}

impl Replacements {
    /// Judges first, as far as is known, whether that and the removal of what it replaces can be done.
    pub(super) async fn copy_over(
        self: &Arc<Self>,
        call: &Arc<Call>,
        ends: &Ends,
        old: &Attributes,
        is_deep: bool,
        changing: UntilSeen,
    ) -> Result<Failures, Refusal> {
        let prepared = self.prepare(call, ends, old, is_deep).await;
        let changing = changing.into_changing();
        let copy = match prepared? {
            Ok(copy) => copy,
            Err(failures) => return Ok(failures),
        };
        let (replacements, call, destination, old) =
            (Arc::clone(self), Arc::clone(call), ends.destination.clone(), *old);
        // To its end, whether the client waits or not.
        let exchanging = async move {
            let exchanged = replacements.exchange(&call, &destination, &old, copy).await;
            drop(changing);
            exchanged
        };
        let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the copy was not given its name");
        self.tasks.to_its_end(exchanging).await.unwrap_or_else(|| Err(failed()))
    }

    async fn prepare(
        self: &Arc<Self>,
        call: &Arc<Call>,
        ends: &Ends,
        old: &Attributes,
        is_deep: bool,
    ) -> Result<Result<Beside, Failures>, Refusal> {
        let failures = self.judge_copy(call, ends, old, is_deep).await?;
        if !failures.is_empty() {
            return Ok(Err(failures));
        }
        let target = self.beside(&ends.destination);
        // A client that hangs up before the answer has made it all the same.
        let beside =
            Beside { replacements: Arc::clone(self), call: Arc::clone(call), target: Some(target.clone()) };
        match self.fill(call, ends, is_deep, &target).await {
            Ok(failures) if failures.is_empty() => Ok(Ok(beside)),
            outcome => {
                beside.remove().await;
                outcome.map(Err)
            }
        }
    }

    async fn fill(
        &self,
        call: &Arc<Call>,
        ends: &Ends,
        is_deep: bool,
        target: &PathTarget,
    ) -> Result<Failures, Refusal> {
        if !ends.found.kind.is_directory() {
            let terms = CopyTerms { replace: Replace::Never, is_beside: false };
            self.copier.copy_file(call, &ends.found, target, terms).await?;
            return Ok(Failures::new());
        }
        // In the same directory, from which both inherit the same.
        let made = self.copier.copy_directory(call, &ends.found, target).await?;
        Ok(if is_deep { self.copier.copy_members(call, ends, made, true).await } else { Failures::new() })
    }

    async fn judge_copy(
        &self,
        call: &Call,
        ends: &Ends,
        old: &Attributes,
        is_deep: bool,
    ) -> Result<Failures, Refusal> {
        ends.judge_overwrite(&self.access, call).await?;
        let mut source = if is_deep {
            self.surveyor.survey(call, &ends.source.path, &ends.found, Fate::Copied).await?
        } else {
            Survey::default()
        };
        let mut failures = std::mem::take(&mut source.failures);
        failures.append(
            &mut self.surveyor.survey(call, &ends.destination.path, old, Fate::Removed).await?.failures,
        );
        if failures.is_empty() {
            self.surveyor.judge_room(call, ends.destination.entry()?.0, &source).await?;
        }
        Ok(failures)
    }

    /// A free name in the same directory.
    fn beside(&self, destination: &PathTarget) -> PathTarget {
        let name = format!(".forebay-copy-{:016x}", self.random.u64());
        let mut path = destination.path.clone();
        path.pop();
        path.push(Name::new(name.as_bytes()).expect("it is short and has no slash"));
        PathTarget { path, parent: destination.parent, found: None }
    }

    async fn remove_beside(&self, call: &Call, target: PathTarget) {
        let Ok((dir, name)) = target.entry() else { return };
        let mut failures = Failures::new();
        for _ in 0..ATTEMPTS_MAX {
            // A request that is gone by now may have left changes that are still on their way.
            self.access.files.all_seen().await;
            let found = self.access.namespace.lookup(&call.caller.identity, dir, name).await;
            let Ok(found) = found else { return };
            failures = self
                .removals
                .remove_tree(call, &PathTarget { found: Some(found.entry), ..target.clone() })
                .await;
            if failures.is_empty() {
                return;
            }
        }
        if let Some((_, refusal)) = failures.first() {
            let path = encode_path(&target.path, true);
            tracing::warn!(
                path,
                reason = refusal.message,
                "cannot remove an incomplete copy of a directory tree"
            );
        }
    }

    /// Judges once more: the copying may have taken hours.
    async fn exchange(
        &self,
        call: &Call,
        destination: &PathTarget,
        old: &Attributes,
        mut copy: Beside,
    ) -> Result<Failures, Refusal> {
        let target = copy.target.clone().expect("it is taken only when it is removed");
        match self.try_exchange(call, destination, old, target.entry()?).await {
            Ok(failures) if failures.is_empty() => {}
            outcome => {
                copy.remove().await;
                return outcome;
            }
        }
        copy.target = None;
        self.locks.forget_members(&destination.path);
        Ok(self.removals.remove_tree(call, &PathTarget { found: Some(*old), ..target }).await)
    }

    async fn try_exchange(
        &self,
        call: &Call,
        destination: &PathTarget,
        old: &Attributes,
        (dir, copy): (FileId, &Name),
    ) -> Result<Failures, Refusal> {
        let (namespace, who) = (&self.access.namespace, &call.caller.identity);
        let name = destination.entry()?.1;
        let has_changed = || Refusal::busy("the name was given to another file meanwhile");
        match namespace.lookup(who, dir, name).await {
            Ok(found) if found.entry.file == old.file => {}
            Ok(_) | Err(NamespaceError::NotFound) => return Err(has_changed()),
            Err(error) => return Err(error.into()),
        }
        let failures = self.surveyor.survey(call, &destination.path, old, Fate::Removed).await?.failures;
        if !failures.is_empty() {
            return Ok(failures);
        }
        self.access.files.exchange(self.access.by(who), (dir, copy), (name, old.file)).await?;
        Ok(failures)
    }
}
