//! Conditions that must hold before anything is changed: conditional headers, `If`, and the locks of others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use api::NamespaceError;
use files::WalkError;
use http::StatusCode;
use http_wire::conditional::{self, Current, Verdict};
use http_wire::dav::{self, IfHeader, Precondition, ResourceState};
use parking_lot::Mutex;
use tokio::sync::Notify;
use types::{Attributes, Name};

use crate::call::Call;
use crate::front::Front;
use crate::locks::{BeginError, LockOwner, Locks, PathChange, Principal, Reach};
use crate::refusal::Refusal;
use crate::representation::etag;
use crate::resolve::{Last, PathTarget};

/// Places that are somewhere else each time when a change of them has begun.
pub(crate) const ATTEMPTS_MAX: usize = 8;
pub(crate) const ELSEWHERE: &str = "the path leads to one file after the other";

/// Changes under way; they end when it is dropped. While it lives no lock is given that would have forbidden them.
pub(crate) struct PathChangeGuard {
    locks: Arc<Mutex<Locks>>,
    ended: Arc<Notify>,
    numbers: Range<u64>,
}

impl Drop for PathChangeGuard {
    fn drop(&mut self) {
        self.locks.lock().end(self.numbers.clone());
        self.ended.notify_waiters();
    }
}

/// Changes that may be dropped while the namespace still has one of them to do: they end when it has.
pub(crate) struct UntilSeen {
    front: Arc<Front>,
    changing: Option<PathChangeGuard>,
}

impl UntilSeen {
    pub fn new(front: &Arc<Front>, changing: PathChangeGuard) -> UntilSeen {
        UntilSeen { front: Arc::clone(front), changing: Some(changing) }
    }

    /// All that was asked for is answered.
    pub fn end(self) {
        drop(self.into_changing());
    }

    /// For a task that goes on to its end.
    pub fn into_changing(mut self) -> Option<PathChangeGuard> {
        self.changing.take()
    }
}

impl Drop for UntilSeen {
    fn drop(&mut self) {
        let Some(changing) = self.changing.take() else { return };
        let files = Arc::clone(&self.front.services.files);
        self.front.changing.follow_up(async move {
            files.all_seen().await;
            drop(changing);
        });
    }
}

impl Front {
    /// Of a request that changes something: `If-Match`, `If-None-Match`, `If-Unmodified-Since` (RFC 9110 §13), and `If`.
    pub(crate) async fn check_conditions(&self, call: &Call, place: &PathTarget) -> Result<(), Refusal> {
        let current_etag = place.found.as_ref().map(etag);
        let current = match (&current_etag, &place.found) {
            (Some(etag), Some(found)) => Some(Current { etag, modified: found.mtime }),
            _ => None,
        };
        if conditional::evaluate(&call.method, &call.headers, current) != Verdict::Proceed {
            return Err(Refusal::precondition("a condition of the request does not hold"));
        }
        self.check_if(call, place).await
    }

    /// RFC 4918 §10.4, of any method.
    pub(crate) async fn check_if(&self, call: &Call, place: &PathTarget) -> Result<(), Refusal> {
        let Some(header) = if_header(call)? else { return Ok(()) };
        let mut states = BTreeMap::new();
        for tag in header.resources() {
            let state = match tag {
                None => self.state(place),
                Some(url) => self.tagged_state(call, place, url).await,
            };
            states.insert(tag, state);
        }
        let holds = header.holds(|tag| states.get(&tag).cloned().unwrap_or_default());
        if holds { Ok(()) } else { Err(Refusal::precondition("no list of the If header holds")) }
    }

    /// Of what a list names by its URL. It is the same resource by whatever links it is reached.
    async fn tagged_state(&self, call: &Call, place: &PathTarget, url: &str) -> ResourceState {
        let Ok(path) = self.own_path(call, url.as_bytes()) else {
            // A resource elsewhere has no state here.
            return ResourceState::default();
        };
        if path == call.path {
            return self.state(place);
        }
        match self.walk(call, &path, Last::Followed).await {
            Ok(found) => self.state(&found),
            // Not even its directory is there; a lock further above may cover it.
            Err(WalkError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_))) => {
                self.state(&PathTarget { path, parent: None, found: None })
            }
            Err(_) => ResourceState::default(),
        }
    }

    fn state(&self, place: &PathTarget) -> ResourceState {
        ResourceState {
            tokens: self.locks.lock().covering(&place.path).map(|lock| lock.token.clone()).collect(),
            etag: place.found.as_ref().map(|found| etag(found).to_string()),
        }
    }

    /// Whether the locks of others, or the caller's own without their tokens, forbid a change. For a look ahead, and for
    /// what is changed before anything else is awaited; else see `begin_changes`.
    pub(crate) fn check_locks(&self, call: &Call, path: &[Name], reach: Reach) -> Result<(), Refusal> {
        let change = PathChange { reach, ..PathChange::of_resource(path) };
        self.judge_change(&Principal::from(&call.caller), &submitted(call)?, &change)
    }

    /// As `check_locks`, where a name comes or goes: a lock of the directory, whatever its depth, protects its members
    /// (RFC 4918 §7.4).
    pub(crate) fn check_member_locks(&self, call: &Call, path: &[Name], reach: Reach) -> Result<(), Refusal> {
        let change = PathChange { reach, ..PathChange::of_member(path) };
        self.judge_change(&Principal::from(&call.caller), &submitted(call)?, &change)
    }

    pub(crate) fn judge_change(
        &self,
        principal: &Principal,
        tokens: &[String],
        change: &PathChange,
    ) -> Result<(), Refusal> {
        match self.locks.lock().judge(change, principal, tokens) {
            None => Ok(()),
            Some(lock) => Err(locked(&lock.root_href)),
        }
    }

    /// Asks as `check_locks` does, and keeps locks that would forbid these changes away until they are done. Waits while
    /// what they change is being moved. Then their places are to be looked at again: see `still_at`.
    pub(crate) async fn begin_changes(
        &self,
        call: &Call,
        changes: Vec<PathChange>,
    ) -> Result<PathChangeGuard, Refusal> {
        let patience = self.config.recall_patience;
        self.begin_changes_of(&Principal::from(&call.caller), &submitted(call)?, changes, patience).await
    }

    pub(crate) async fn begin_changes_of(
        &self,
        principal: &Principal,
        tokens: &[String],
        changes: Vec<PathChange>,
        patience: Duration,
    ) -> Result<PathChangeGuard, Refusal> {
        let begin = || match self.locks.lock().begin(changes.clone(), principal, tokens) {
            Err(BeginError::Moving) => None,
            begun => Some(begun),
        };
        let begun = self.as_changes_end(patience, begin).await.unwrap_or(Err(BeginError::Moving));
        let numbers = begun.map_err(not_begun)?;
        Ok(PathChangeGuard {
            locks: Arc::clone(&self.locks),
            ended: Arc::clone(&self.changes_ended),
            numbers,
        })
    }

    /// Tries again whenever a change has ended.
    pub(crate) async fn as_changes_end<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let done = async {
            loop {
                let ended = self.changes_ended.notified();
                tokio::pin!(ended);
                // Registered before looking, or an end in between would be missed.
                ended.as_mut().enable();
                if let Some(done) = attempt() {
                    return done;
                }
                ended.await;
            }
        };
        tokio::time::timeout(patience, done).await.ok()
    }

    /// The place as it is now, if it is the same file (or free name) in the same directory: the file may have been
    /// moved since it was judged, and a change by file id would follow it there. The conditions of the request on its
    /// own path are checked again, since the request may have waited. `None`: everything is to be checked again.
    pub(crate) async fn still_at(
        &self,
        call: &Call,
        path: &[Name],
        last: Last,
        before: &PathTarget,
    ) -> Option<PathTarget> {
        let file = |found: &Option<Attributes>| found.as_ref().map(|found| found.file);
        let now = self.resolve(call, path, last).await.ok()?;
        let is_same = now.path == before.path
            && file(&now.parent) == file(&before.parent)
            && file(&now.found) == file(&before.found);
        let holds = path != call.path || self.check_conditions(call, &now).await.is_ok();
        (is_same && holds).then_some(now)
    }

    /// The locks of what was removed or moved away.
    pub(crate) fn forget_locks(&self, path: &[Name]) {
        let gone = self.locks.lock().remove_tree(path);
        gone.iter().for_each(|lock| self.release_lock(lock));
    }

    pub(crate) fn forget_members_locks(&self, path: &[Name]) {
        let gone = self.locks.lock().remove_members(path);
        gone.iter().for_each(|lock| self.release_lock(lock));
    }
}

pub(crate) fn if_header(call: &Call) -> Result<Option<IfHeader>, Refusal> {
    let header = call.single("if")?.map(|value| IfHeader::parse(value.as_bytes())).transpose();
    header.map_err(|error| Refusal::bad_request(error.to_string()))
}

pub(crate) fn lock_owner(call: &Call) -> Result<LockOwner, Refusal> {
    Ok(LockOwner { principal: Principal::from(&call.caller), tokens: submitted(call)? })
}

/// The tokens of `If`: that somebody names them is enough, wherever they stand in it.
pub(crate) fn submitted(call: &Call) -> Result<Vec<String>, Refusal> {
    let header = if_header(call)?;
    let tokens = header.iter().flat_map(IfHeader::submitted_tokens);
    Ok(tokens.map(str::to_owned).collect())
}

fn not_begun(error: BeginError) -> Refusal {
    match error {
        BeginError::Locked { root_href } => locked(&root_href),
        BeginError::Moving => Refusal::busy(error.to_string()),
    }
}

/// 423 with the lock's root (RFC 4918 §16, `lock-token-submitted`).
pub(crate) fn locked(root_href: &str) -> Refusal {
    let why = dav::error_body(&Precondition::LockTokenSubmitted { hrefs: &[root_href] });
    Refusal::new(StatusCode::LOCKED, "locked").with_xml(why)
}
