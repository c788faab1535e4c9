//! MKCOL and DELETE; the walk over a tree that DELETE, COPY and MOVE share.

use std::sync::Arc;

use api::{Activity, Cookie, NamespaceError, Page};
use files::{By, Entry, FilesError};
use http::StatusCode;
use http_server::{RequestBody, Response};
use types::permission::Removal;
use types::{Access, Attributes, FileId, Identity, Name};

use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, ELSEWHERE};
use crate::front::Front;
use crate::locks::{Path, PathChange};
use crate::refusal::Refusal;
use crate::resolve::{Last, PathTarget};

/// Where no ACL of the directory above says more.
const DIRECTORY_UMASK: u32 = 0o022;
/// Entries of a directory that are looked at together.
pub(crate) const PAGE: usize = 512;
/// Failures that a 207 answer lists; what follows is left out.
pub(crate) const FAILURES_MAX: usize = 100;

/// Directories below each other that a walk enters. Paths of requests are not as deep, but trees may be moved deeper.
pub(crate) const DEPTH_MAX: usize = 1_024;

/// Members of a collection for which a request failed, and why.
pub(crate) type Failures = Vec<(Path, Refusal)>;

/// The way down from where a walk began. Places of one walk share what they have in common of it.
#[derive(Clone, Default)]
pub(crate) struct Descent(Option<Arc<Step>>);

struct Step {
    above: Descent,
    name: Name,
    depth: usize,
}

impl Descent {
    pub fn name(&self) -> Option<&Name> {
        self.0.as_ref().map(|step| &step.name)
    }

    pub fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |step| step.depth)
    }

    /// Refused beyond [`DEPTH_MAX`]: however directories are nested, a walk stays bounded.
    pub fn down(&self, name: &Name) -> Result<Descent, Refusal> {
        let depth = self.depth() + 1;
        if depth > DEPTH_MAX {
            return Err(Refusal::conflict(format!("directories are nested deeper than {DEPTH_MAX}")));
        }
        Ok(Descent(Some(Arc::new(Step { above: self.clone(), name: name.clone(), depth }))))
    }

    /// The whole path, for a walk that began at `top`.
    pub fn path(&self, top: &[Name]) -> Path {
        let mut names: Vec<&Name> = Vec::with_capacity(self.depth());
        let mut here = self;
        while let Some(step) = &here.0 {
            names.push(&step.name);
            here = &step.above;
        }
        top.iter().chain(names.into_iter().rev()).cloned().collect()
    }
}

/// A directory whose tree is being removed.
struct Level {
    above: FileId,
    here: FileId,
    way: Descent,
    /// Entries up to here were looked at.
    after: Cookie,
}

impl Front {
    pub(crate) async fn make_collection(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let place = self.resolve_new(call, &call.path).await?;
            if !call.caller.may_make_directory(&place.path) {
                return Err(call.denied());
            }
            if place.found.is_some() {
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "name is taken"));
            }
            self.check_conditions(call, &place).await?;
            let _changing = self.begin_changes(call, vec![PathChange::of_member(&place.path)]).await?;
            if let Some(place) = self.still_at(call, &call.path, Last::Followed, &place).await {
                let (dir, name) = place.entry()?;
                self.make_directory(&call.caller.identity, dir, name).await?;
                return Ok(Response::new(StatusCode::CREATED));
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    pub(crate) async fn make_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
    ) -> Result<Attributes, FilesError> {
        let made = self.services.files.make_directory(self.by(who), dir, name, (0o777, DIRECTORY_UMASK));
        Ok(made.await?.attributes)
    }

    /// A page of a directory for a walk that enters the listed entries. By path that would need search permission:
    /// without it a walk by file ids would reach files that the mode bits of a directory above keep from the caller.
    pub(crate) async fn list_to_enter(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        let attributes = self.services.namespace.attributes(dir).await?;
        if !self.judge().allows(who, &attributes, Access::EXECUTE).await? {
            return Err(NamespaceError::AccessDenied);
        }
        self.services.namespace.list(who, dir, after, limit).await
    }

    pub(crate) async fn delete(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let place = self.resolve(call, &call.path, Last::Itself).await?;
            call.demand(Activity::Delete, &place.path)?;
            let found = place.existing()?;
            if call.is_directory_form && !found.kind.is_directory() {
                return Err(Refusal::not_found());
            }
            place.entry()?;
            call.demand_whole(&found)?;
            self.check_conditions(call, &place).await?;
            let _changing = self.begin_changes(call, vec![PathChange::of_tree(&place.path, true)]).await?;
            if let Some(place) = self.still_at(call, &call.path, Last::Itself, &place).await {
                return self.delete_found(call, &place).await;
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    async fn delete_found(&self, call: &Call, place: &PathTarget) -> Result<Response, Refusal> {
        let failures = self.remove_tree(call, place).await;
        match failures {
            failures if failures.is_empty() => {
                // Only if all is removed: members that are still there keep their locks.
                self.forget_locks(&place.path);
                Ok(Response::new(StatusCode::NO_CONTENT))
            }
            mut failures if failures.len() == 1 && failures[0].0 == place.path => Err(failures.remove(0).1),
            failures => Ok(crate::propfind::failures(&failures)),
        }
    }

    /// Removes what is there and everything below; what stays is told with its reason.
    pub(crate) async fn remove_tree(&self, call: &Call, place: &PathTarget) -> Failures {
        let mut failures = Failures::new();
        let (Ok((dir, name)), Some(found)) = (place.entry(), place.found) else { return failures };
        if !found.kind.is_directory() {
            if let Err(refusal) = self.remove_entry(&call.caller.identity, dir, name, &found).await {
                failures.push((place.path.clone(), refusal));
            }
            return failures;
        }
        if let Err(refusal) = self.may_remove_directory(call, dir, &found).await {
            failures.push((place.path.clone(), refusal));
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
            let page = match self.list_to_enter(who, level.here, level.after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    failures.push((level.way.path(&place.path), error.into()));
                    continue;
                }
            };
            if let Some(below) = self.remove_files(call, place, &mut level, &page, &mut failures).await {
                open.extend([level, below]);
            } else if !page.is_last {
                open.push(level);
            } else {
                self.remove_emptied(call, place, &level, &mut failures).await;
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
        let parent = self.services.namespace.attributes(dir).await?;
        self.may_take(&call.caller.identity, &parent, found).await
    }

    /// Of a page, up to a directory to be entered.
    async fn remove_files(
        &self,
        call: &Call,
        place: &PathTarget,
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
                self.remove_entry(&call.caller.identity, level.here, &entry.name, found).await
            };
            if let Err(refusal) = removed {
                failures.push((extended(&level.way.path(&place.path), &entry.name), refusal));
            }
        }
        None
    }

    /// A directory in which something is left says nothing of itself.
    async fn remove_emptied(&self, call: &Call, place: &PathTarget, level: &Level, failures: &mut Failures) {
        let path = level.way.path(&place.path);
        if failures.iter().any(|(failed, _)| failed.starts_with(&path)) {
            return;
        }
        let name = level.way.name().or(place.path.last()).expect("the root is not removed");
        let entry = Entry::of(level.above, name, level.here);
        if let Err(error) = self.services.files.remove(self.by(&call.caller.identity), entry).await {
            failures.push((path, error.into()));
        }
    }

    /// Of another file that has the name by now nothing was asked: it stays, and the client may come again.
    pub(crate) async fn remove_entry(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        found: &Attributes,
    ) -> Result<(), Refusal> {
        match self.services.files.remove(self.by(who), Entry::of(dir, name, found.file)).await {
            // Somebody else was faster: it is gone all the same.
            Ok(_) | Err(FilesError::Namespace(NamespaceError::NotFound)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The caller of an operation on entries, on behalf of a request.
    pub(crate) fn by<'a>(&self, identity: &'a Identity) -> By<'a> {
        By { identity, holder: Some(self.requests), patience: self.config.recall_patience }
    }
}

/// RFC 4918 §9.3: of a body of MKCOL none is understood.
pub(crate) async fn refuse_body(mut body: RequestBody) -> Result<(), Refusal> {
    match body.next().await? {
        None => Ok(()),
        Some(_) => Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body")),
    }
}

impl Front {
    /// The namespace's verdict on mode and ACL, before a step that cannot be undone: a recall, or the removal of a file
    /// that is to be overwritten.
    pub(crate) async fn may_take(
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
}

pub(crate) fn extended(path: &[Name], name: &Name) -> Path {
    path.iter().chain([name]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descent_is_a_path_below_where_it_began_and_ends_at_its_bound() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let names = |text: &str| text.split('/').map(name).collect::<Path>();
        let above = Descent::default().down(&name("b")).unwrap();
        let (left, right) = (above.down(&name("c")).unwrap(), above.down(&name("d")).unwrap());
        assert_eq!((left.path(&names("a")), left.depth()), (names("a/b/c"), 2));
        assert_eq!(right.path(&[]), names("b/d"));
        let mut here = Descent::default();
        for _ in 0..DEPTH_MAX {
            here = here.down(&name("x")).unwrap();
        }
        assert!(here.down(&name("x")).is_err());
    }
}
