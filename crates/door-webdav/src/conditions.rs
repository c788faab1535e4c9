//! Conditions of a request that must hold before anything is changed: conditional headers, and `If`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::NamespaceError;
use files::WalkError;
use http_wire::conditional::{self, Current, Verdict};
use http_wire::dav::ResourceState;
use types::{Attributes, Name};

use crate::call::Call;
use crate::own_urls::OwnUrls;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::representation::etag;
use crate::resolve::{Last, PathTarget, Resolver};

/// Paths that lead somewhere else each time when a change of what they name has begun.
pub(crate) const ATTEMPTS_MAX: usize = 8;
pub(crate) const ELSEWHERE: &str = "the path leads to one file after the other";

pub(crate) struct Conditions {
    pub resolver: Arc<Resolver>,
    pub own_urls: Arc<OwnUrls>,
    pub locks: Arc<PathLocks>,
}

impl Conditions {
    /// Of a request that changes something: `If-Match`, `If-None-Match`, `If-Unmodified-Since` (RFC 9110 §13), and `If`.
    pub async fn check(&self, call: &Call, target: &PathTarget) -> Result<(), Refusal> {
        let current_etag = target.found.as_ref().map(etag);
        let current = match (&current_etag, &target.found) {
            (Some(etag), Some(found)) => Some(Current { etag, modified: found.mtime }),
            _ => None,
        };
        if conditional::evaluate(&call.method, &call.headers, current) != Verdict::Proceed {
            return Err(Refusal::precondition("a condition of the request does not hold"));
        }
        self.check_if(call, target).await
    }

    /// RFC 4918 §10.4, of any method.
    pub async fn check_if(&self, call: &Call, target: &PathTarget) -> Result<(), Refusal> {
        let Some(header) = call.if_header()? else { return Ok(()) };
        let mut states = BTreeMap::new();
        for tag in header.resources() {
            let state = match tag {
                None => self.state(target),
                Some(url) => self.tagged_state(call, target, url).await,
            };
            states.insert(tag, state);
        }
        let holds = header.holds(|tag| states.get(&tag).cloned().unwrap_or_default());
        if holds { Ok(()) } else { Err(Refusal::precondition("no list of the If header holds")) }
    }

    /// The target as it is now, if it is the same file (or free name) in the same directory: the file may have been
    /// moved since it was judged, and a change by file id would follow it there. The conditions of the request on its
    /// own path are checked again, since the request may have waited. `None`: everything is to be checked again.
    pub async fn still_at(
        &self,
        call: &Call,
        path: &[Name],
        last: Last,
        before: &PathTarget,
    ) -> Option<PathTarget> {
        let file = |found: &Option<Attributes>| found.as_ref().map(|found| found.file);
        let now = self.resolver.resolve(call, path, last).await.ok()?;
        let is_same = now.path == before.path
            && file(&now.parent) == file(&before.parent)
            && file(&now.found) == file(&before.found);
        let holds = path != call.path || self.check(call, &now).await.is_ok();
        (is_same && holds).then_some(now)
    }

    /// Of what a list names by its URL. It is the same resource by whatever links it is reached.
    async fn tagged_state(&self, call: &Call, target: &PathTarget, url: &str) -> ResourceState {
        let Ok(path) = self.own_urls.path(call, url.as_bytes()) else {
            // A resource elsewhere has no state here.
            return ResourceState::default();
        };
        if path == call.path {
            return self.state(target);
        }
        match self.resolver.walk(call, &path, Last::Followed).await {
            Ok(found) => self.state(&found),
            // Not even its directory is there; a lock further above may cover it.
            Err(WalkError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_))) => {
                self.state(&PathTarget { path, parent: None, found: None })
            }
            Err(_) => ResourceState::default(),
        }
    }

    fn state(&self, target: &PathTarget) -> ResourceState {
        ResourceState {
            tokens: self.locks.covering(&target.path).into_iter().map(|lock| lock.token).collect(),
            etag: target.found.as_ref().map(|found| etag(found).to_string()),
        }
    }
}
