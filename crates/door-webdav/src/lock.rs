//! LOCK and UNLOCK (RFC 4918 §9.10, §9.11). A lock of a file is also an open that denies writing in the conflict table:
//! an NFS client that would open it for writing is refused, and a file that one has open for writing is not locked.

use std::time::Duration;

use api::{Activity, Replace};
use bytes::Bytes;
use file_state::{Modes, Share};
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http_server::{RequestBody, Response, ResponseBody};
use http_wire::dav::{self, ActiveLock, Depth, LockInfo, LockRequest, LockScope, Precondition, Timeout};
use types::{Access, Attributes, FileKind, Name, permission};

use crate::call::Call;
use crate::conditions::submitted;
use crate::front::Front;
use crate::locks::{Lock, LockError, Reach, Scope};
use crate::refusal::Refusal;
use crate::resolve::Place;
use crate::upload::{Received, Terms};

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

impl Front {
    pub(crate) async fn lock(&self, call: &Call, mut body: RequestBody) -> Result<Response, Refusal> {
        let body = body.collect(dav::BODY_BYTES_MAX as u64).await?;
        let request = LockRequest::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let timeout = self.lock_timeout(call);
        let place = self.resolve_new(call, &call.path).await?;
        self.check_conditions(call, &place)?;
        let LockRequest::New(info) = request else { return self.refresh_lock(call, &place, timeout) };
        call.demand(Activity::Upload, &place.path)?;
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Refusal::bad_request("Depth of a LOCK is 0 or infinity"));
        }
        let is_new = place.found.is_none();
        if let Some(found) = &place.found
            && !permission::allows(&call.caller.identity, found, Access::WRITE)
        {
            // A lock keeps others from writing, NFS clients too: not for who may not write itself.
            return Err(Refusal::forbidden("who may not write it may not lock it"));
        }
        let scope = if info.scope == LockScope::Exclusive { Scope::Exclusive } else { Scope::Shared };
        let lock = self.new_lock(call, &place, &info, scope, depth, timeout);
        if is_new {
            self.check_member_locks(call, &place.path, Reach::One)?;
        }
        let now = self.services.clock.monotonic();
        let expired = self.locks.lock().expire(now);
        expired.iter().for_each(|lock| self.release_lock(lock));
        let added = self.locks.lock().add(lock.clone());
        added.map_err(|error| match error {
            LockError::Conflict => conflicting(&lock.root_href),
            LockError::Limit => Refusal::busy("too many locks"),
        })?;
        // Only now: a lock that is refused leaves no empty file.
        if let Err(refusal) = self.hold_locked(call, &place, &lock).await {
            let gone = self.locks.lock().remove(&lock.token);
            gone.iter().for_each(|lock| self.release_lock(lock));
            return Err(refusal);
        }
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let token = HeaderValue::try_from(format!("<{}>", lock.token)).expect("a token is a URN");
        Ok(answer(status, &[&lock]).with(LOCK_TOKEN, token))
    }

    /// Makes the file where the name is free, and denies writing to other doors.
    async fn hold_locked(&self, call: &Call, place: &Place, lock: &Lock) -> Result<(), Refusal> {
        let file = match place.found {
            Some(found) => found,
            None => self.make_empty(call, place, lock).await?,
        };
        let open = self.deny_writing(&file)?;
        let before = self.locks.lock().reopen(&lock.token, &lock.path, open);
        self.release_open(before);
        Ok(())
    }

    fn refresh_lock(&self, call: &Call, place: &Place, timeout: Duration) -> Result<Response, Refusal> {
        let now = self.services.clock.monotonic();
        let tokens = submitted(call)?;
        let mut locks = self.locks.lock();
        let ours = tokens.into_iter().find(|token| {
            locks.covers(token, &place.path)
                && locks.find(token).is_some_and(|lock| lock.principal == *call.caller.name)
        });
        let token =
            ours.ok_or_else(|| Refusal::precondition("no lock of yours is named in the If header"))?;
        let lock = locks.refresh(&token, timeout, now).expect("it was found under the same guard");
        Ok(answer(StatusCode::OK, &[lock]))
    }

    fn lock_timeout(&self, call: &Call) -> Duration {
        let wish = call.headers.get("timeout").and_then(|value| Timeout::parse(value.as_bytes()));
        match wish {
            Some(Timeout::Seconds(seconds)) => {
                Duration::from_secs(seconds.into()).min(self.config.lock_timeout_max)
            }
            Some(Timeout::Infinite) | None => self.config.lock_timeout_max,
        }
    }

    fn new_lock(
        &self,
        call: &Call,
        place: &Place,
        info: &LockInfo,
        scope: Scope,
        depth: Depth,
        timeout: Duration,
    ) -> Lock {
        Lock {
            token: self.new_token(),
            path: place.path.clone(),
            root_href: http_wire::target::encode_path(&place.path, false),
            scope,
            is_deep: depth == Depth::Infinity,
            principal: call.caller.name.to_string(),
            owner: info.owner_xml.clone().unwrap_or_default(),
            timeout,
            expires: self.services.clock.monotonic() + timeout,
            open: None,
        }
    }

    /// RFC 4918 §6.5: a URN with a random UUID (RFC 9562 §5.4).
    fn new_token(&self) -> String {
        let mut bytes = [0; 16];
        self.services.random.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The name has a new file: what denies writing to other doors goes with the name.
    pub(crate) fn carry_locks(&self, path: &[Name], file: &Attributes) {
        let tokens: Vec<String> = {
            let locks = self.locks.lock();
            let stale =
                |lock: &&Lock| lock.open.is_some_and(|(old, _)| old != file.file) && lock.path == path;
            locks.covering(path).filter(stale).map(|lock| lock.token.clone()).collect()
        };
        for token in tokens {
            // The file is new: nobody has it open for writing but who was faster than this line.
            let Ok(open) = self.deny_writing(file) else { continue };
            let before = self.locks.lock().reopen(&token, path, open);
            self.release_open(before);
        }
    }

    fn deny_writing(&self, file: &Attributes) -> Result<Option<(types::FileId, u64)>, Refusal> {
        if file.kind != FileKind::Regular {
            return Ok(None);
        }
        let owner = self.lock_owner();
        let share = Share::new(Modes::READ, Modes::WRITE);
        match self.services.access.table().open(file.file, owner, share) {
            Ok(_) => Ok(Some((file.file, owner.number))),
            Err(_) => Err(Refusal::new(StatusCode::LOCKED, "an NFS client has the file open for writing")),
        }
    }

    /// RFC 4918 §7.3: locking a free name makes an empty file.
    async fn make_empty(&self, call: &Call, place: &Place, lock: &Lock) -> Result<Attributes, Refusal> {
        let (dir, _) = place.entry()?;
        let mut lock_tokens = submitted(call)?;
        lock_tokens.push(lock.token.clone());
        let terms = Terms { replace: Replace::Never, lock_tokens, ..Terms::default() };
        let pending = self.begin_upload(&call.caller, place.path.clone(), dir, terms).await?;
        let published = self.publish(&pending, Received { size: 0, checksums: Vec::new() }).await?;
        Ok(published.attributes)
    }

    pub(crate) async fn unlock(&self, call: &Call) -> Result<Response, Refusal> {
        let value =
            call.headers.get(LOCK_TOKEN).ok_or_else(|| Refusal::bad_request("Lock-Token is missing"))?;
        let token =
            dav::lock_token(value.as_bytes()).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let place = self.resolve(call, &call.path, crate::resolve::Last::Followed).await?;
        let mut locks = self.locks.lock();
        let Some(lock) = locks.find(token).filter(|_| locks.covers(token, &place.path)) else {
            let why = dav::error_body(&Precondition::LockTokenMatchesRequestUri);
            return Err(Refusal::conflict("no such lock covers this").with_xml(why));
        };
        if lock.principal != *call.caller.name && call.caller.role != api::Role::Admin {
            return Err(Refusal::forbidden("the lock is somebody else's"));
        }
        let gone = locks.remove(token);
        drop(locks);
        gone.iter().for_each(|lock| self.release_lock(lock));
        Ok(Response::new(StatusCode::NO_CONTENT))
    }
}

/// As the wire has it, for LOCK and for the `lockdiscovery` property.
pub(crate) fn active(lock: &Lock) -> ActiveLock<'_> {
    ActiveLock {
        scope: if lock.scope == Scope::Exclusive { LockScope::Exclusive } else { LockScope::Shared },
        depth: if lock.is_deep { Depth::Infinity } else { Depth::Zero },
        owner_xml: Some(&lock.owner[..]).filter(|owner| !owner.is_empty()),
        timeout: Timeout::Seconds(u32::try_from(lock.timeout.as_secs()).unwrap_or(u32::MAX)),
        token: &lock.token,
        root_href: &lock.root_href,
    }
}

fn conflicting(root_href: &str) -> Refusal {
    let why = dav::error_body(&Precondition::NoConflictingLock { hrefs: &[root_href] });
    Refusal::new(StatusCode::LOCKED, "locked").with_xml(why)
}

fn answer(status: StatusCode, locks: &[&Lock]) -> Response {
    let active: Vec<ActiveLock<'_>> = locks.iter().map(|lock| active(lock)).collect();
    let xml: Bytes = dav::lock_body(&active);
    Response::new(status)
        .with(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"))
        .with_body(ResponseBody::Full(xml))
}
