//! COPY and MOVE inside the instance (RFC 4918 §9.8, §9.9): the server does them, no byte passes the client.

mod beside;

use std::borrow::Cow;
use std::sync::Arc;

use api::{Activity, Cookie, ExpectedFile, Page, PropertyChange, Replace};
use file_state::Change;
use files::{ContentMode, Entry, FilesError, UploadTarget, UploadTerms};
use http::StatusCode;
use http_server::Response;
use http_wire::dav::Depth;
use http_wire::target::{AbsoluteUrl, Reference, Target};
use types::{Access, Attributes, FileId, FileKind, Name};

use crate::call::Call;
use crate::collection::{Descent, FAILURES_MAX, Failures, PAGE, extended};
use crate::conditions::{ATTEMPTS_MAX, ELSEWHERE, UntilSeen, lock_owner};
use crate::front::Front;
use crate::locks::{Path, PathChange};
use crate::refusal::Refusal;
use crate::resolve::{Last, PathTarget};
use crate::survey::Fate;

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

/// How a copied file gets its name.
#[derive(Clone, Copy)]
struct CopyTerms {
    replace: Replace,
    /// Its directory gets the name that leads to it later.
    is_beside: bool,
}

/// Both ends of a COPY or MOVE, checked.
struct Ends {
    source: PathTarget,
    found: Attributes,
    target: PathTarget,
    /// The path of the target as it was asked for.
    asked: Path,
    may_overwrite: bool,
}

impl Front {
    pub(crate) async fn copy(self: &Arc<Self>, call: &Arc<Call>) -> Result<Response, Refusal> {
        if let Some(response) = self.copy_elsewhere(call).await? {
            return Ok(response);
        }
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Refusal::bad_request("Depth of a COPY is 0 or infinity"));
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut ends = self.ends(call).await?;
            call.demand(Activity::Download, &ends.source.path)?;
            call.demand(Activity::Upload, &ends.target.path)?;
            if ends.found.kind.is_directory() {
                call.demand(Activity::Manage, &ends.target.path)?;
            }
            let is_new = ends.target.found.is_none();
            let change = PathChange::of_tree(&ends.target.path, is_new);
            let changing = self.begin_changes(call, vec![change]).await?;
            let source = self.still_at(call, &call.path, Last::Itself, &ends.source).await;
            if source.is_some() && self.is_target_still(call, &mut ends).await {
                // Unlike a MOVE it ends where its client hangs up, for it may take hours.
                let changing = UntilSeen::new(self, changing);
                return self.copy_between(call, &ends, depth == Depth::Infinity, changing).await;
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    async fn copy_between(
        self: &Arc<Self>,
        call: &Arc<Call>,
        ends: &Ends,
        is_deep: bool,
        changing: UntilSeen,
    ) -> Result<Response, Refusal> {
        if let Err(refusal) = self.judge_source(call, ends, is_deep).await {
            changing.end();
            return Err(refusal);
        }
        let failures = match ends.target.found {
            Some(old) if old.kind.is_directory() || ends.found.kind.is_directory() => {
                self.copy_over(call, ends, &old, is_deep, changing).await?
            }
            _ => {
                let failures = self.copy_tree(call, ends, is_deep).await;
                changing.end();
                failures?
            }
        };
        if !failures.is_empty() {
            return Ok(crate::propfind::failures(&failures));
        }
        Ok(Response::new(created_or_replaced(ends.target.found.is_some())))
    }

    /// Before anything is made for it.
    async fn judge_source(&self, call: &Call, ends: &Ends, is_deep: bool) -> Result<(), Refusal> {
        let is_directory = ends.found.kind.is_directory();
        if is_directory && is_deep && ends.target.path.starts_with(&ends.source.path) {
            return Err(Refusal::conflict("a directory cannot be copied into itself"));
        }
        let needed = if is_directory { Access::READ | Access::EXECUTE } else { Access::READ };
        if ends.found.kind != FileKind::Symlink
            && !self.judge().allows(&call.caller.identity, &ends.found, needed).await?
        {
            return Err(Refusal::forbidden("the source may not be read"));
        }
        Ok(())
    }

    pub(crate) async fn relocate(self: &Arc<Self>, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(response) = self.try_relocate(call).await? {
                return Ok(response);
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// `None`: an end is not what it was when it was found, and everything is to be asked again.
    async fn try_relocate(self: &Arc<Self>, call: &Call) -> Result<Option<Response>, Refusal> {
        let mut ends = self.ends(call).await?;
        call.demand(Activity::Manage, &ends.source.path)?;
        call.demand(Activity::Manage, &ends.target.path)?;
        ends.source.entry()?;
        call.demand_whole(&ends.found)?;
        let changes =
            vec![PathChange::of_move(&ends.source.path), PathChange::of_tree(&ends.target.path, true)];
        let _changing = self.begin_changes(call, changes).await?;
        let Some(source) = self.still_at(call, &call.path, Last::Itself, &ends.source).await else {
            return Ok(None);
        };
        if !self.is_target_still(call, &mut ends).await {
            return Ok(None);
        }
        ends.found = source.existing()?;
        self.judge_move(call, &ends).await?;
        let was_there = ends.target.found.is_some();
        let mut is_removed = false;
        for _ in 0..ATTEMPTS_MAX {
            let (replace, _renaming) = match self.clear_target(call, &ends, &mut is_removed).await? {
                Ok(cleared) => cleared,
                Err(failures) => return Ok(Some(crate::propfind::failures(&failures))),
            };
            let (from, to) = (ends.source.entry()?, ends.target.entry()?);
            let expected = match replace {
                Replace::File(old) => ExpectedFile::Exactly(old),
                _ => ExpectedFile::Absent,
            };
            let (from, to) =
                (Entry::of(from.0, from.1, ends.found.file), Entry { dir: to.0, name: to.1, expected });
            match self.services.files.rename(self.by(&call.caller.identity), from, to, replace).await {
                Ok(_) => {
                    // Locks do not move (RFC 4918 §7.5).
                    self.forget_locks(&ends.source.path);
                    self.forget_locks(&ends.target.path);
                    return Ok(Some(Response::new(created_or_replaced(was_there))));
                }
                Err(FilesError::Moved) if !is_removed => return Ok(None),
                // The destination was judged with the tree that is gone by now: it is not judged again.
                Err(FilesError::Moved) => {
                    let source = self.still_at(call, &call.path, Last::Itself, &ends.source).await;
                    let target = self.resolve(call, &ends.target.path, Last::Itself).await?;
                    if source.is_none() || target.path != ends.target.path {
                        break;
                    }
                    ends.target = target;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// A directory that is overwritten loses its contents before its name: first whether the name may go.
    async fn judge_overwrite(&self, call: &Call, ends: &Ends) -> Result<(), Refusal> {
        match (&ends.target.parent, &ends.target.found) {
            (Some(parent), Some(old)) => self.may_take(&call.caller.identity, parent, old).await,
            _ => Ok(()),
        }
    }

    /// Before anything is removed for it.
    async fn judge_move(&self, call: &Call, ends: &Ends) -> Result<(), Refusal> {
        let who = &call.caller.identity;
        let (source, target) = (&ends.source, &ends.target);
        let (from_dir, to_dir) = (source.entry()?.0, target.entry()?.0);
        if target.path.len() > source.path.len() && target.path.starts_with(&source.path) {
            return Err(Refusal::conflict("a directory cannot be moved into itself"));
        }
        if let Some(parent) = &source.parent {
            self.may_take(who, parent, &ends.found).await?;
        }
        if ends.found.kind.is_directory()
            && from_dir != to_dir
            && !self.judge().allows(who, &ends.found, Access::WRITE).await?
        {
            return Err(Refusal::forbidden("a directory that may not be written is not moved to another"));
        }
        Ok(())
    }

    /// Makes way for what is moved, and tells what it may replace: what was asked for is what goes, neither a name that
    /// appears meanwhile nor another file that gets this one. Or tells what of a tree could not be removed.
    async fn clear_target(
        &self,
        call: &Call,
        ends: &Ends,
        is_removed: &mut bool,
    ) -> Result<Result<(Replace, Option<files::FileChangeGuard>), Failures>, Refusal> {
        self.judge_overwrite(call, ends).await?;
        let Some(old) = ends.target.found else { return Ok(Ok((Replace::Never, None))) };
        if old.kind.is_directory() || ends.found.kind.is_directory() {
            if !*is_removed {
                let failures = self.judge_clearing(call, ends, &old).await?;
                if !failures.is_empty() {
                    return Ok(Err(failures));
                }
            }
            // A move that is refused for what others have of the source leaves the tree.
            let renaming = self.make_way(ends.found.file, Change::Rename).await?;
            *is_removed = true;
            let failures = self.remove_tree(call, &ends.target).await;
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
        let failures = self.survey(call, &ends.target.path, old, Fate::Removed).await?.failures;
        if failures.is_empty() {
            let dirs = (ends.source.entry()?.0, ends.target.entry()?.0);
            self.judge_room_of_move(call, &ends.found, dirs, old).await?;
        }
        Ok(failures)
    }

    /// Looks at the target again, now that its change has begun.
    async fn is_target_still(&self, call: &Call, ends: &mut Ends) -> bool {
        let still = self.still_at(call, &ends.asked, Last::Itself, &ends.target).await;
        still.map(|target| ends.target = target).is_some()
    }

    async fn ends(&self, call: &Call) -> Result<Ends, Refusal> {
        let may_overwrite = call.may_overwrite()?;
        let source = self.resolve(call, &call.path, Last::Itself).await?;
        let found = source.existing()?;
        self.check_conditions(call, &source).await?;
        let (path, is_directory_form) = self.destination(call)?;
        let target = self.resolve(call, &path, Last::Itself).await.map_err(|refusal| {
            if refusal.status == StatusCode::NOT_FOUND {
                return Refusal::conflict("the directory that would hold it does not exist");
            }
            refusal
        })?;
        target.entry()?;
        let is_directory = |found: &Attributes| found.kind.is_directory();
        if is_directory_form && !is_directory(&found) && !target.found.as_ref().is_some_and(is_directory) {
            return Err(Refusal::conflict("a destination that ends with a slash is a directory's"));
        }
        if source.path == target.path {
            return Err(Refusal::forbidden("source and destination are one"));
        }
        if target.found.is_some() {
            if !may_overwrite {
                return Err(Refusal::precondition("destination exists"));
            }
            call.demand(Activity::Delete, &target.path)?;
        }
        refuse_ancestor(&source.path, &target.path)?;
        Ok(Ends { source, found, target, asked: path, may_overwrite })
    }

    /// The path in `Destination`, which must be of this instance, and whether it ends with a slash.
    fn destination(&self, call: &Call) -> Result<(Path, bool), Refusal> {
        let value = call.single("destination")?;
        let value = value.ok_or_else(|| Refusal::bad_request("Destination is missing"))?;
        self.own_target(call, value.as_bytes()).map(|target| (target.path, target.trailing_slash))
    }

    /// The path that a URL of this instance, or a bare path, names.
    pub(crate) fn own_path(&self, call: &Call, url: &[u8]) -> Result<Path, Refusal> {
        self.own_target(call, url).map(|target| target.path)
    }

    fn own_target(&self, call: &Call, url: &[u8]) -> Result<Target, Refusal> {
        let reference = Reference::parse(&without_userinfo(url))
            .map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let target = match reference {
            Reference::Here(target) => target,
            Reference::Absolute(url) if self.is_own(call, &url) => {
                url.target().map_err(|error| Refusal::new(error.status(), error.to_string()))?
            }
            Reference::Absolute(url) => {
                let message = format!("{} is another server", url.authority());
                return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
            }
        };
        self.refuse_reserved(&target.path)?;
        Ok(target)
    }

    pub(crate) fn is_own(&self, call: &Call, url: &AbsoluteUrl) -> bool {
        // As a URL of the same scheme, so that a default port may be written or not on either side.
        let is_same = |own: &str| {
            let own = AbsoluteUrl::parse(&format!("{}://{own}/", url.scheme().name()));
            own.is_ok_and(|own| own.authority() == url.authority())
        };
        call.header(&http::header::HOST).is_some_and(is_same)
            || self.config.authorities.iter().any(|own| is_same(own))
            || is_same(&call.peer.local.to_string())
    }

    async fn copy_tree(
        self: &Arc<Self>,
        call: &Call,
        ends: &Ends,
        is_deep: bool,
    ) -> Result<Failures, Refusal> {
        // Without Delete nothing that appears meanwhile may be replaced.
        let may_replace = ends.may_overwrite && call.caller.may(Activity::Delete, &ends.target.path);
        let replace = if may_replace { Replace::Any } else { Replace::Never };
        if !ends.found.kind.is_directory() {
            let terms = CopyTerms { replace, is_beside: false };
            self.copy_file(call, &ends.found, &ends.target, terms).await?;
            return Ok(Failures::new());
        }
        let target = self.copy_directory(call, &ends.found, &ends.target).await?;
        Ok(if is_deep { self.copy_members(call, ends, target, false).await } else { Failures::new() })
    }

    /// Into a directory that was made for it. `is_beside`: it gets the target's name later.
    async fn copy_members(
        self: &Arc<Self>,
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
            let path = level.way.path(&ends.target.path);
            let who = &call.caller.identity;
            let page = match self.list_to_enter(who, level.source, level.after, PAGE).await {
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
        self: &Arc<Self>,
        call: &Call,
        path: &[Name],
        level: &mut Level,
        page: &Page,
        failures: &mut Failures,
    ) -> Option<Level> {
        for entry in &page.entries {
            level.after = entry.cookie;
            let found = &entry.attributes;
            let place =
                PathTarget { path: extended(path, &entry.name), parent: Some(level.target), found: None };
            let copied = match (found.kind.is_directory(), level.way.down(&entry.name)) {
                (false, _) => {
                    let terms = CopyTerms { replace: Replace::Never, is_beside: level.is_beside };
                    self.copy_file(call, found, &place, terms).await
                }
                (true, Err(refusal)) => Err(refusal),
                (true, Ok(way)) => match self.copy_directory(call, found, &place).await {
                    Ok(target) => {
                        let (source, is_beside) = (found.file, level.is_beside);
                        return Some(Level { source, after: Cookie::START, way, target, is_beside });
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            if let Err(refusal) = copied {
                failures.push((place.path, refusal));
            }
        }
        None
    }

    async fn copy_directory(
        &self,
        call: &Call,
        source: &Attributes,
        target: &PathTarget,
    ) -> Result<Attributes, Refusal> {
        let (dir, name) = target.entry()?;
        let made = self.make_directory(&call.caller.identity, dir, name).await?;
        self.copy_properties(call, source, &made).await?;
        Ok(made)
    }

    /// A file that replaces another takes over its properties, which a copy of one without any is not to have.
    async fn drop_properties(&self, call: &Call, file: &Attributes) -> Result<(), Refusal> {
        let taken_over = self.services.properties.properties(file.file).await?;
        if !taken_over.is_empty() {
            let changes: Vec<_> =
                taken_over.into_iter().map(|property| PropertyChange::Remove(property.name)).collect();
            self.services.files.set_properties(self.by(&call.caller.identity), file, changes, None).await?;
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
        let properties = self.services.properties.properties(source.file).await?;
        if properties.is_empty() {
            return Ok(false);
        }
        let changes: Vec<_> = properties.into_iter().map(PropertyChange::Set).collect();
        self.services.files.set_properties(self.by(&call.caller.identity), target, changes, None).await?;
        Ok(true)
    }

    async fn copy_file(
        self: &Arc<Self>,
        call: &Call,
        source: &Attributes,
        target: &PathTarget,
        terms: CopyTerms,
    ) -> Result<(), Refusal> {
        if let types::FileKind::Symlink = source.kind {
            return self.copy_symlink(call, source, target).await;
        }
        self.check_readable(call, source).await?;
        let (_held, source) = self.hold_for_reading(source.file).await?;
        // It was listed before what lies in front of it was copied.
        self.check_readable(call, &source).await?;
        let CopyTerms { replace, is_beside } = terms;
        let place = target.clone();
        let target = if is_beside { UploadTarget::beside(place) } else { UploadTarget::new(place, None) };
        let (owner, size) = (lock_owner(call)?, Some(source.size));
        let terms = UploadTerms { replace, size, ..UploadTerms::default() };
        let upload = self.begin_upload(call, target, terms).await?;
        let unnamed = *upload.file();
        let content = self.services.files.content(&source, ContentMode::Read).await?;
        let complete = upload.copy_from(&content).await?;
        // Before it has its name: the file with the copy's contents never shows without them.
        let has_properties = self.copy_properties(call, &source, &unnamed).await?;
        let published = self.publish(complete, owner).await?;
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
        let link = self.services.namespace.read_link(source.file).await?;
        if let Some(old) = &target.found {
            self.remove_entry(&call.caller.identity, dir, name, old).await?;
        }
        self.services.files.make_symlink(self.by(&call.caller.identity), dir, name, link).await?;
        Ok(())
    }
}

/// git and lftp write their login into the URLs of a MOVE. The request itself tells the caller.
fn without_userinfo(url: &[u8]) -> Cow<'_, [u8]> {
    let url = url.trim_ascii();
    let authority = url.windows(3).position(|three| three == b"://").map_or(0, |colon| colon + 3);
    // A path may have such characters too.
    if authority == 0 || url.iter().position(|byte| *byte == b'/') != Some(authority - 2) {
        return Cow::Borrowed(url);
    }
    let (scheme, rest) = url.split_at(authority);
    let end = rest.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(rest.len());
    match rest[..end].iter().rposition(|byte| *byte == b'@') {
        Some(at) => Cow::Owned([scheme, &rest[at + 1..]].concat()),
        None => Cow::Borrowed(url),
    }
}

/// A destination is removed before it is overwritten; a source below it would be removed too.
fn refuse_ancestor(source: &[Name], target: &[Name]) -> Result<(), Refusal> {
    if source.starts_with(target) {
        return Err(Refusal::conflict("the destination is a directory above the source"));
    }
    Ok(())
}

fn created_or_replaced(was_there: bool) -> StatusCode {
    if was_there { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
}

#[cfg(test)]
mod tests {
    use http_wire::target::parse_path;

    use super::*;

    #[test]
    fn userinfo_is_taken_out_of_a_url_and_nothing_out_of_a_path() {
        let text = |url: &str| String::from_utf8(without_userinfo(url.as_bytes()).into_owned()).unwrap();
        assert_eq!(text("http://ann:pw@host:80/a@b"), "http://host:80/a@b");
        assert_eq!(text("https://a@b@host"), "https://host");
        for as_it_is in ["http://host/a@b", "http://host?a@b", "/a://b@c/d", "/a@b", "a@b"] {
            assert_eq!(text(as_it_is), as_it_is);
        }
    }

    #[test]
    fn a_directory_above_the_source_is_not_overwritten() {
        let judged = |source, target| {
            refuse_ancestor(&parse_path(source).unwrap(), &parse_path(target).unwrap())
                .map_err(|refusal| refusal.status)
        };
        assert_eq!(judged("/a/b/c", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a/b", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a", "/a/b"), Ok(()));
        assert_eq!(judged("/a/b", "/a/bc"), Ok(()));
    }
}
