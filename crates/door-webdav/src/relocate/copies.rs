//! COPY (RFC 4918 §9.8).

use std::sync::Arc;

use api::{Activity, Replace};
use http_server::Response;
use http_wire::dav::Depth;
use types::{Access, FileKind};

use super::beside::Replacements;
use super::copier::{CopyTerms, TreeCopier};
use super::ends::{Ends, EndsResolver, created_or_replaced};
use super::until_seen::UntilSeen;
use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions, ELSEWHERE};
use crate::lock_table::PathChange;
use crate::multistatus;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::resolve::Last;
use crate::tasks::Tasks;
use crate::tree::Failures;

pub(crate) struct Copies {
    pub access: Arc<FileAccess>,
    pub ends: Arc<EndsResolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
    pub copier: Arc<TreeCopier>,
    pub replacements: Arc<Replacements>,
    pub tasks: Arc<Tasks>,
}

impl Copies {
    pub async fn copy(&self, call: &Arc<Call>) -> Result<Response, Refusal> {
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Refusal::bad_request("Depth of a COPY is 0 or infinity"));
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut ends = self.ends.resolve(call).await?;
            call.demand(Activity::Download, &ends.source.path)?;
            call.demand(Activity::Upload, &ends.destination.path)?;
            if ends.found.kind.is_directory() {
                call.demand(Activity::Manage, &ends.destination.path)?;
            }
            let is_new = ends.destination.found.is_none();
            let change = PathChange::of_tree(&ends.destination.path, is_new);
            let changing = self.locks.begin(&call.lock_owner()?, vec![change]).await?;
            let source = self.conditions.still_at(call, &call.path, Last::Itself, &ends.source).await;
            if source.is_some() && self.ends.is_destination_still(call, &mut ends).await {
                // Unlike a MOVE it ends where its client hangs up, for it may take hours.
                let changing = UntilSeen::new(&self.access.files, &self.tasks, changing);
                return self.copy_between(call, &ends, depth == Depth::Infinity, changing).await;
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    async fn copy_between(
        &self,
        call: &Arc<Call>,
        ends: &Ends,
        is_deep: bool,
        changing: UntilSeen,
    ) -> Result<Response, Refusal> {
        if let Err(refusal) = self.judge_source(call, ends, is_deep).await {
            changing.end();
            return Err(refusal);
        }
        let failures = match ends.destination.found {
            Some(old) if old.kind.is_directory() || ends.found.kind.is_directory() => {
                self.replacements.copy_over(call, ends, &old, is_deep, changing).await?
            }
            _ => {
                let failures = self.copy_tree(call, ends, is_deep).await;
                changing.end();
                failures?
            }
        };
        if !failures.is_empty() {
            return Ok(multistatus::failures(&failures));
        }
        Ok(Response::new(created_or_replaced(ends.destination.found.is_some())))
    }

    /// Before anything is made for it.
    async fn judge_source(&self, call: &Call, ends: &Ends, is_deep: bool) -> Result<(), Refusal> {
        let is_directory = ends.found.kind.is_directory();
        if is_directory && is_deep && ends.destination.path.starts_with(&ends.source.path) {
            return Err(Refusal::conflict("a directory cannot be copied into itself"));
        }
        let needed = if is_directory { Access::READ | Access::EXECUTE } else { Access::READ };
        if ends.found.kind != FileKind::Symlink
            && !self.access.judge().allows(&call.caller.identity, &ends.found, needed).await?
        {
            return Err(Refusal::forbidden("the source may not be read"));
        }
        Ok(())
    }

    async fn copy_tree(&self, call: &Call, ends: &Ends, is_deep: bool) -> Result<Failures, Refusal> {
        // Without Delete nothing that appears meanwhile may be replaced.
        let may_replace = ends.may_overwrite && call.caller.may(Activity::Delete, &ends.destination.path);
        let replace = if may_replace { Replace::Any } else { Replace::Never };
        if !ends.found.kind.is_directory() {
            let terms = CopyTerms { replace, is_beside: false };
            self.copier.copy_file(call, &ends.found, &ends.destination, terms).await?;
            return Ok(Failures::new());
        }
        let made = self.copier.copy_directory(call, &ends.found, &ends.destination).await?;
        Ok(if is_deep { self.copier.copy_members(call, ends, made, false).await } else { Failures::new() })
    }
}
