//! LOCK and UNLOCK (RFC 4918 §9.10, §9.11). A lock of a file is also an open that denies writing in the conflict table:
//! an NFS client that would open it for writing is refused, and a file that one has open for writing is not locked. Its
//! delegations are called back.

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, NamespaceError, Replace};
use bytes::Bytes;
use file_state::{Change, Want};
use files::{FilesError, PublishError, Received, UploadError, UploadTarget, UploadTerms};
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http_server::{RequestBody, Response, ResponseBody};
use http_wire::dav::{self, ActiveLock, Depth, LockInfo, LockRequest, LockScope, Precondition, Timeout};
use types::{Access, Attributes, Clock, Random, hex::Hex};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions};
use crate::live::active;
use crate::lock_table::{Lock, LockError, PathChange, Principal, Scope};
use crate::multistatus;
use crate::path_locks::{DENY_WRITING, PathLocks};
use crate::refusal::Refusal;
use crate::resolve::{Last, PathTarget, Resolver};
use crate::upload::Uploading;

const NAME_IS_GIVEN_AWAY: &str = "the name is given to one file after the other";

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

pub(crate) struct Locking {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
    pub uploading: Arc<Uploading>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub timeout_max: Duration,
}

/// A lock whose client has not been told of it: if it never is, the lock goes.
struct Untold<'a> {
    locks: &'a PathLocks,
    token: Option<String>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.locks.remove(&token);
        }
    }
}

impl Locking {
    pub async fn lock(&self, call: &Call, mut body: RequestBody) -> Result<Response, Refusal> {
        let body = body.collect(dav::BODY_BYTES_MAX as u64).await?;
        let request = LockRequest::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let timeout = self.lock_timeout(call)?;
        let target = self.resolver.resolve_new(call, &call.path).await?;
        self.conditions.check(call, &target).await?;
        call.demand(Activity::Upload, &target.path)?;
        let LockRequest::New(info) = request else { return self.refresh_lock(call, &target, timeout) };
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Refusal::bad_request("Depth of a LOCK is 0 or infinity"));
        }
        self.judge_locking(call, &target, &[]).await?;
        let scope = if info.scope == LockScope::Exclusive { Scope::Exclusive } else { Scope::Shared };
        let mut lock = self.new_lock(call, &target, &info, scope, depth, timeout);
        if let Err(error) = self.locks.add(&mut lock).await {
            return not_locked(&lock, error);
        }
        let mut untold = Untold { locks: &self.locks, token: Some(lock.token.clone()) };
        // Only now: a lock that is refused leaves no empty file.
        let is_new = self.hold_locked(call, &lock).await?;
        untold.token = None;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let token = HeaderValue::try_from(format!("<{}>", lock.token)).expect("a token is a URN");
        Ok(answer(status, &[&lock]).with(LOCK_TOKEN, token))
    }

    /// Whether the caller may lock what is there, or make the file that is not.
    async fn judge_locking(&self, call: &Call, target: &PathTarget, own: &[String]) -> Result<(), Refusal> {
        if let Some(found) = &target.found {
            // It keeps others from writing what the credential may not overwrite.
            call.demand(Activity::Delete, &target.path)?;
            if self.access.judge().allows(&call.caller.identity, found, Access::WRITE).await? {
                return Ok(());
            }
            // A lock keeps others from writing, NFS clients too, so it needs permission to write.
            return Err(Refusal::forbidden("who may not write it may not lock it"));
        }
        let mut owner = call.lock_owner()?;
        owner.tokens.extend_from_slice(own);
        Ok(self.locks.judge(&owner, &PathChange::of_member(&target.path))?)
    }

    /// Denies writing to other doors, on a file that is made for it where the name is free. Returns whether it was
    /// made.
    ///
    /// A file found before the lock was in the table does not count: it may have lost its name. From here on no request
    /// changes the name; an NFS client may until the file is held, so the name is looked up again.
    async fn hold_locked(&self, call: &Call, lock: &Lock) -> Result<bool, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.resolver.resolve_new(call, &call.path).await?;
            if target.path != lock.path {
                return Err(Refusal::busy("a link on the way was changed"));
            }
            self.judge_locking(call, &target, std::slice::from_ref(&lock.token)).await?;
            let Some(found) = target.found else {
                match self.make_empty(call, target, lock).await {
                    Ok(()) => return Ok(true),
                    // An NFS client was faster.
                    Err(PublishError::Files(FilesError::Upload(UploadError::Exists))) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            self.take_from_others(&lock.token, &found).await?;
            self.locks.end_denials(&lock.token, |file| file != found.file);
            let Some(parent) = &target.parent else { return Ok(false) };
            let name = target.path.last().expect("what has a parent has a name");
            match self.access.namespace.lookup(&call.caller.identity, parent.file, name).await {
                Ok(again) if again.entry.file == found.file => return Ok(false),
                Ok(_) | Err(NamespaceError::NotFound | NamespaceError::Stale(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Refusal::busy(NAME_IS_GIVEN_AWAY))
    }

    /// As `deny_writing`, of a file that others may have: their delegations are recalled first, for a holder of one
    /// need not be writing, and a writer that was lost is ended.
    async fn take_from_others(&self, token: &str, found: &Attributes) -> Result<(), Refusal> {
        if !found.kind.is_regular() {
            return Ok(());
        }
        self.access.files.before_denial()?;
        let _opening = self.access.make_way(found.file, Change::Access(DENY_WRITING)).await?;
        let Err(refused) = self.locks.deny_writing(token, found) else { return Ok(()) };
        let (want, patience) = (Want::Share(DENY_WRITING), self.access.patience);
        if !self.access.files.dislodge(found.file, want, patience).await? {
            return Err(refused.into());
        }
        Ok(self.locks.deny_writing(token, found)?)
    }

    fn refresh_lock(&self, call: &Call, target: &PathTarget, timeout: Duration) -> Result<Response, Refusal> {
        let lock = self.locks.refresh(&call.lock_owner()?, &target.path, timeout);
        let lock = lock.ok_or_else(|| Refusal::precondition("no lock of yours is named in the If header"))?;
        Ok(answer(StatusCode::OK, &[&lock]))
    }

    fn lock_timeout(&self, call: &Call) -> Result<Duration, Refusal> {
        let wish = call.single("timeout")?.and_then(|value| Timeout::parse(value.as_bytes()));
        Ok(match wish {
            Some(Timeout::Seconds(seconds)) => Duration::from_secs(seconds.into()).min(self.timeout_max),
            Some(Timeout::Infinite) | None => self.timeout_max,
        })
    }

    fn new_lock(
        &self,
        call: &Call,
        target: &PathTarget,
        info: &LockInfo,
        scope: Scope,
        depth: Depth,
        timeout: Duration,
    ) -> Lock {
        Lock {
            token: self.new_token(),
            path: target.path.clone(),
            root_href: http_wire::target::encode_path(&target.path, false),
            scope,
            is_deep: depth == Depth::Infinity,
            principal: Principal::from(&call.caller),
            owner: info.owner_xml.clone().unwrap_or_default(),
            timeout,
            expires: self.clock.monotonic() + timeout,
            opens: Vec::new(),
        }
    }

    /// RFC 4918 §6.5: a URN with a random UUID (RFC 9562 §5.4).
    fn new_token(&self) -> String {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = Hex(&bytes).to_string();
        format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// RFC 4918 §7.3: locking a free name makes an empty file.
    async fn make_empty(
        &self,
        call: &Call,
        target: PathTarget,
        lock: &Lock,
    ) -> Result<(), PublishError<Refusal>> {
        let mut owner = call.lock_owner().map_err(PublishError::Door)?;
        owner.tokens.push(lock.token.clone());
        let terms = UploadTerms { replace: Replace::Never, size: Some(0), ..UploadTerms::default() };
        let upload = self.uploading.begin(call, UploadTarget::new(target), terms).await;
        let upload = upload.map_err(PublishError::Door)?;
        let complete = upload.received(Received { size: 0, checksums: Vec::new() });
        complete.publish(&self.uploading.naming(owner)).await.map(drop)
    }

    pub async fn unlock(&self, call: &Call) -> Result<Response, Refusal> {
        let value = call.single(LOCK_TOKEN)?.ok_or_else(|| Refusal::bad_request("Lock-Token is missing"))?;
        let token =
            dav::lock_token(value.as_bytes()).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let target = self.resolver.resolve(call, &call.path, Last::Followed).await?;
        call.demand(Activity::Upload, &target.path)?;
        self.conditions.check_if(call, &target).await?;
        let Some(lock) = self.locks.find(token, &target.path) else { return Err(not_covering()) };
        if lock.principal != Principal::from(&call.caller) && call.caller.role != api::Role::Admin {
            return Err(Refusal::forbidden("the lock is somebody else's"));
        }
        if !self.locks.remove(token) {
            return Err(not_covering());
        }
        Ok(Response::new(StatusCode::NO_CONTENT))
    }
}

/// Of an UNLOCK (RFC 4918 §9.11.1).
fn not_covering() -> Refusal {
    let why = dav::error_body(&Precondition::LockTokenMatchesRequestUri);
    Refusal::conflict("no such lock covers this").with_xml(why)
}

/// 423 with the root of the lock in the way (RFC 4918 §16, `no-conflicting-lock`); if that is a member of what was to be
/// locked, 207 with the member (§9.10.3).
fn not_locked(lock: &Lock, error: LockError) -> Result<Response, Refusal> {
    let (path, root_href) = match error {
        LockError::Conflict { path, root_href } => (path, root_href),
        LockError::Limit => return Err(Refusal::busy("too many locks")),
        LockError::Changing => return Err(Refusal::busy("it is being changed")),
    };
    let why = dav::error_body(&Precondition::NoConflictingLock { hrefs: &[&root_href] });
    let locked = Refusal::new(StatusCode::LOCKED, "locked").with_xml(why);
    if path.len() <= lock.path.len() {
        return Err(locked);
    }
    let undone = Refusal::new(StatusCode::FAILED_DEPENDENCY, "a member is locked");
    Ok(multistatus::failures(&vec![(path, locked), (lock.path.clone(), undone)]))
}

fn answer(status: StatusCode, locks: &[&Lock]) -> Response {
    let active: Vec<ActiveLock<'_>> = locks.iter().map(|lock| active(lock)).collect();
    let xml: Bytes = dav::lock_body(&active);
    Response::new(status)
        .with(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"))
        .with_body(ResponseBody::Full(xml))
}
