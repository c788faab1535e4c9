//! DELETE (RFC 4918 §9.6).

use std::sync::Arc;

use api::Activity;
use files::FilesError;
use http::StatusCode;
use http_server::Response;

use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions, ELSEWHERE};
use crate::lock_table::PathChange;
use crate::multistatus;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::removals::Removals;
use crate::resolve::{Last, PathTarget, Resolver};

pub(crate) struct Deletes {
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
    pub removals: Arc<Removals>,
}

impl Deletes {
    pub async fn delete(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.resolver.resolve(call, &call.path, Last::Itself).await?;
            call.demand(Activity::Delete, &target.path)?;
            let found = target.existing()?;
            if call.is_directory_form && !found.kind.is_directory() {
                return Err(Refusal::not_found());
            }
            target.entry()?;
            call.demand_whole(&found)?;
            self.conditions.check(call, &target).await?;
            let _changing =
                self.locks.begin(&call.lock_owner()?, vec![PathChange::of_tree(&target.path, true)]).await?;
            if let Some(target) = self.conditions.still_at(call, &call.path, Last::Itself, &target).await {
                if target.existing()?.kind.is_directory() {
                    return self.delete_tree(call, &target).await;
                }
                if self.delete_file(call, &target).await? {
                    return Ok(Response::new(StatusCode::NO_CONTENT));
                }
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// False: the name stands for another file by now, which is to be looked up and judged.
    async fn delete_file(&self, call: &Call, target: &PathTarget) -> Result<bool, Refusal> {
        let (dir, name) = target.entry()?;
        match self.removals.remove_entry(&call.caller.identity, dir, name, &target.existing()?).await {
            Ok(()) => {
                self.locks.forget_tree(&target.path);
                Ok(true)
            }
            Err(FilesError::Moved) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_tree(&self, call: &Call, target: &PathTarget) -> Result<Response, Refusal> {
        let failures = self.removals.remove_tree(call, target).await;
        match failures {
            failures if failures.is_empty() => {
                // Only if all is removed: members that are still there keep their locks.
                self.locks.forget_tree(&target.path);
                Ok(Response::new(StatusCode::NO_CONTENT))
            }
            mut failures if failures.len() == 1 && failures[0].0 == target.path => Err(failures.remove(0).1),
            failures => Ok(multistatus::failures(&failures)),
        }
    }
}
