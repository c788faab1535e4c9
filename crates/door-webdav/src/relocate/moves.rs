//! MOVE (RFC 4918 §9.9).

use std::sync::Arc;

use api::{Activity, ExpectedFile, Replace};
use file_state::Change;
use files::{Entry, FileChangeGuard, FilesError};
use http_server::Response;
use types::{Access, Attributes};

use super::ends::{Ends, EndsResolver, created_or_replaced};
use super::survey::{Fate, Surveyor};
use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions, ELSEWHERE};
use crate::lock_table::PathChange;
use crate::multistatus;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::removals::Removals;
use crate::resolve::{Last, Resolver};
use crate::tree::Failures;

pub(crate) struct Moves {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub ends: Arc<EndsResolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
    pub removals: Arc<Removals>,
    pub surveyor: Arc<Surveyor>,
}

impl Moves {
    pub async fn relocate(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(response) = self.try_relocate(call).await? {
                return Ok(response);
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// `None`: an end is not what it was when it was found, and everything is to be asked again.
    async fn try_relocate(&self, call: &Call) -> Result<Option<Response>, Refusal> {
        let mut ends = self.ends.resolve(call).await?;
        call.demand(Activity::Manage, &ends.source.path)?;
        call.demand(Activity::Manage, &ends.destination.path)?;
        ends.source.entry()?;
        call.demand_whole(&ends.found)?;
        let changes =
            vec![PathChange::of_move(&ends.source.path), PathChange::of_tree(&ends.destination.path, true)];
        let _changing = self.locks.begin(&call.lock_owner()?, changes).await?;
        let Some(source) = self.conditions.still_at(call, &call.path, Last::Itself, &ends.source).await
        else {
            return Ok(None);
        };
        if !self.ends.is_destination_still(call, &mut ends).await {
            return Ok(None);
        }
        ends.found = source.existing()?;
        self.judge_move(call, &ends).await?;
        let was_there = ends.destination.found.is_some();
        let mut is_removed = false;
        for _ in 0..ATTEMPTS_MAX {
            let (replace, _renaming) = match self.clear_destination(call, &ends, &mut is_removed).await? {
                Ok(cleared) => cleared,
                Err(failures) => return Ok(Some(multistatus::failures(&failures))),
            };
            let (from, to) = (ends.source.entry()?, ends.destination.entry()?);
            let expected = match replace {
                Replace::File(old) => ExpectedFile::Exactly(old),
                _ => ExpectedFile::Absent,
            };
            let (from, to) =
                (Entry::of(from.0, from.1, ends.found.file), Entry { dir: to.0, name: to.1, expected });
            match self.access.files.rename(self.access.by(&call.caller.identity), from, to, replace).await {
                Ok(_) => {
                    // Locks do not move (RFC 4918 §7.5).
                    self.locks.forget_tree(&ends.source.path);
                    self.locks.forget_tree(&ends.destination.path);
                    return Ok(Some(Response::new(created_or_replaced(was_there))));
                }
                Err(FilesError::Moved) if !is_removed => return Ok(None),
                // The destination was judged with the tree that is gone by now: it is not judged again.
                Err(FilesError::Moved) => {
                    let source = self.conditions.still_at(call, &call.path, Last::Itself, &ends.source).await;
                    let destination =
                        self.resolver.resolve(call, &ends.destination.path, Last::Itself).await?;
                    if source.is_none() || destination.path != ends.destination.path {
                        break;
                    }
                    ends.destination = destination;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// Before anything is removed for it.
    async fn judge_move(&self, call: &Call, ends: &Ends) -> Result<(), Refusal> {
        let who = &call.caller.identity;
        let (source, destination) = (&ends.source, &ends.destination);
        let (from_dir, to_dir) = (source.entry()?.0, destination.entry()?.0);
        if destination.path.len() > source.path.len() && destination.path.starts_with(&source.path) {
            return Err(Refusal::conflict("a directory cannot be moved into itself"));
        }
        if let Some(parent) = &source.parent {
            self.access.may_take(who, parent, &ends.found).await?;
        }
        if ends.found.kind.is_directory()
            && from_dir != to_dir
            && !self.access.judge().allows(who, &ends.found, Access::WRITE).await?
        {
            return Err(Refusal::forbidden("a directory that may not be written is not moved to another"));
        }
        Ok(())
    }

    /// Makes way for what is moved, and tells what it may replace: what was asked for is what goes, neither a name that
    /// appears meanwhile nor another file that gets this one. Or tells what of a tree could not be removed.
    async fn clear_destination(
        &self,
        call: &Call,
        ends: &Ends,
        is_removed: &mut bool,
    ) -> Result<Result<(Replace, Option<FileChangeGuard>), Failures>, Refusal> {
        ends.judge_overwrite(&self.access, call).await?;
        let Some(old) = ends.destination.found else { return Ok(Ok((Replace::Never, None))) };
        if old.kind.is_directory() || ends.found.kind.is_directory() {
            if !*is_removed {
                let failures = self.judge_clearing(call, ends, &old).await?;
                if !failures.is_empty() {
                    return Ok(Err(failures));
                }
            }
            // A move that is refused for what others have of the source leaves the tree.
            let renaming = self.access.make_way(ends.found.file, Change::Rename).await?;
            *is_removed = true;
            let failures = self.removals.remove_tree(call, &ends.destination).await;
            return Ok(if failures.is_empty() {
                Ok((Replace::Never, Some(renaming)))
            } else {
                Err(failures)
            });
        }
        Ok(Ok((Replace::File(old.file), None)))
    }

    /// Reasons against the removal of a tree for a move, or against the move after it.
    async fn judge_clearing(&self, call: &Call, ends: &Ends, old: &Attributes) -> Result<Failures, Refusal> {
        let failures = self.surveyor.survey(call, &ends.destination.path, old, Fate::Removed).await?.failures;
        if failures.is_empty() {
            let dirs = (ends.source.entry()?.0, ends.destination.entry()?.0);
            self.surveyor.judge_room_of_move(call, &ends.found, dirs, old).await?;
        }
        Ok(failures)
    }
}
