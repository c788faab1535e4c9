//! MKCOL and DELETE; the walk over a tree that DELETE, COPY and MOVE share.

use api::{Activity, Cookie, NamespaceError, Page};
use http::StatusCode;
use http_server::{RequestBody, Response};
use types::{Access, Attributes, FileId, Identity, Name, permission};

use crate::call::Call;
use crate::front::{Front, REQUESTS};
use crate::locks::{Path, Reach};
use crate::refusal::Refusal;
use crate::resolve::{Last, Place};

const DIRECTORY_PERMISSIONS: u32 = 0o755;
/// Entries of a directory that are looked at together.
pub(crate) const PAGE: usize = 512;
/// Failures that a 207 answer lists; what follows is left out.
pub(crate) const FAILURES_MAX: usize = 100;

/// What could not be done below a collection.
pub(crate) type Failures = Vec<(Path, Refusal)>;

impl Front {
    pub(crate) async fn make_collection(
        &self,
        call: &Call,
        mut body: RequestBody,
    ) -> Result<Response, Refusal> {
        if body.next().await?.is_some() {
            // RFC 4918 §9.3: a body that is not understood.
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body"));
        }
        let place = self.resolve_new(call, &call.path).await?;
        call.demand(Activity::Manage, &place.path)?;
        if place.found.is_some() {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "name is taken"));
        }
        self.check_conditions(call, &place)?;
        self.check_member_locks(call, &place.path, Reach::One)?;
        let (dir, name) = place.entry()?;
        self.make_directory(&call.caller.identity, dir, name).await?;
        Ok(Response::new(StatusCode::CREATED))
    }

    /// As `resolve`, for something about to be made: a missing directory on the way is a conflict.
    pub(crate) async fn resolve_new(&self, call: &Call, path: &[Name]) -> Result<Place, Refusal> {
        self.resolve(call, path, Last::Followed).await.map_err(|refusal| {
            if refusal.status == StatusCode::NOT_FOUND {
                return Refusal::conflict("the directory that would hold it does not exist");
            }
            refusal
        })
    }

    pub(crate) async fn make_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
    ) -> Result<Attributes, NamespaceError> {
        let spec = api::CreateSpec {
            kind: api::CreateKind::Directory,
            mode: api::CreateMode::Guarded,
            permissions: DIRECTORY_PERMISSIONS,
            set: api::SetAttributes::default(),
            location: None,
        };
        Ok(self.services.namespace.create(who, dir, name, &spec).await?.attributes)
    }

    /// A page of a directory for who goes on to what is listed. By path that would need search permission: without it
    /// a walk by file ids would come to what the mode bits of a directory above keep from the caller.
    pub(crate) async fn list_to_enter(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        let attributes = self.services.namespace.attributes(dir).await?;
        if !permission::allows(who, &attributes, Access::EXECUTE) {
            return Err(NamespaceError::AccessDenied);
        }
        self.services.namespace.list(who, dir, after, limit).await
    }

    pub(crate) async fn delete(&self, call: &Call) -> Result<Response, Refusal> {
        let place = self.resolve(call, &call.path, Last::Itself).await?;
        call.demand(Activity::Delete, &place.path)?;
        let found = place.existing()?;
        if call.is_directory_form && !found.kind.is_directory() {
            return Err(Refusal::not_found());
        }
        place.entry()?;
        self.check_conditions(call, &place)?;
        self.check_member_locks(call, &place.path, Reach::Tree)?;
        let failures = self.remove_tree(call, &place).await;
        match failures {
            failures if failures.is_empty() => {
                // What is still there keeps its locks.
                self.forget_locks(&place.path);
                Ok(Response::new(StatusCode::NO_CONTENT))
            }
            mut failures if failures.len() == 1 && failures[0].0 == place.path => Err(failures.remove(0).1),
            failures => Ok(crate::propfind::failures(&failures)),
        }
    }

    /// Removes what is there and everything below; what stays is told with its reason.
    pub(crate) async fn remove_tree(&self, call: &Call, place: &Place) -> Failures {
        let mut failures = Failures::new();
        let (Ok((dir, name)), Some(found)) = (place.entry(), place.found) else { return failures };
        if !found.kind.is_directory() {
            if let Err(refusal) = self.remove_entry(&call.caller.identity, dir, name, &found).await {
                failures.push((place.path.clone(), refusal));
            }
            return failures;
        }
        // Depth first; a directory is left by the way it was entered.
        let mut open = vec![(dir, place.path.clone(), found.file, Cookie::START)];
        while let Some((above, path, here, after)) = open.pop() {
            if failures.len() >= FAILURES_MAX {
                break;
            }
            let page = match self.list_to_enter(&call.caller.identity, here, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    failures.push((path, error.into()));
                    continue;
                }
            };
            let mut entered = None;
            for entry in &page.entries {
                if entry.attributes.kind.is_directory() {
                    entered = Some((here, extended(&path, &entry.name), entry.attributes.file, entry.cookie));
                    break;
                }
                let removed =
                    self.remove_entry(&call.caller.identity, here, &entry.name, &entry.attributes).await;
                if let Err(refusal) = removed {
                    failures.push((extended(&path, &entry.name), refusal));
                }
            }
            if let Some((parent, below, file, cookie)) = entered {
                open.push((above, path, here, cookie));
                open.push((parent, below, file, Cookie::START));
            } else if let Some(last) = page.entries.last().filter(|_| !page.is_last) {
                open.push((above, path, here, last.cookie));
            } else if !failures.iter().any(|(failed, _)| failed.starts_with(&path)) {
                let name = path.last().expect("the root is not removed").clone();
                if let Err(error) = self.services.namespace.unlink(&call.caller.identity, above, &name).await
                {
                    failures.push((path, error.into()));
                }
            }
        }
        failures
    }

    pub(crate) async fn remove_entry(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        found: &Attributes,
    ) -> Result<(), Refusal> {
        if found.kind.is_regular() {
            let parent = self.services.namespace.attributes(dir).await?;
            may_take(who, &parent, found)?;
            if found.nlink == 1 {
                self.make_way(found.file).await?;
            } else {
                self.services.access.judge_change(found.file, Some(REQUESTS))?;
            }
        }
        match self.services.namespace.unlink(who, dir, name).await {
            // Somebody else was faster: it is gone all the same.
            Ok(_) | Err(NamespaceError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the namespace will say of the mode bits, before something is done that cannot be undone: a recall, or the
/// removal of what is to be overwritten.
pub(crate) fn may_take(who: &Identity, dir: &Attributes, entry: &Attributes) -> Result<(), Refusal> {
    if !permission::allows(who, dir, Access::WRITE | Access::EXECUTE) {
        return Err(Refusal::forbidden("the directory may not be changed"));
    }
    if permission::sticky_forbids(who, dir, entry) {
        return Err(Refusal::forbidden("in a sticky directory only owners remove"));
    }
    Ok(())
}

pub(crate) fn extended(path: &[Name], name: &Name) -> Path {
    path.iter().chain([name]).cloned().collect()
}
