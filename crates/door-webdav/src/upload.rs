//! Uploads of the door: judged, begun, and named by its own rules, which are WebDAV locks by path.

use std::sync::Arc;

use api::{Activity, Published};
use files::{Complete, NameToGive, Naming, NamingGuard, Upload, UploadTarget, UploadTerms};
use http::StatusCode;
use types::{Access, ChecksumKind, Name};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::Conditions;
use crate::lock_table::{LockOwner, PathChange};
use crate::path_locks::{Carried, PathChangeGuard, PathLocks};
use crate::refusal::Refusal;
use crate::resolve::{PathTarget, not_made};

pub(crate) struct Uploading {
    pub access: Arc<FileAccess>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
    /// Kept for every upload.
    pub checksums: Vec<ChecksumKind>,
}

impl Uploading {
    /// Where the request's path leads, once everything is judged that can be refused before a byte of the body is sent.
    pub async fn authorize(&self, call: &Call) -> Result<UploadTarget, Refusal> {
        let found = self.access.files.upload_target(&call.caller, &call.path).await;
        let upload_target = found.map_err(|error| not_made(call, &call.path, error))?;
        self.judge(call, upload_target.place()).await?;
        Ok(upload_target)
    }

    async fn judge(&self, call: &Call, target: &PathTarget) -> Result<(), Refusal> {
        call.demand(Activity::Upload, &target.path)?;
        let (_, _) = target.entry()?;
        if let Some(found) = &target.found {
            if found.kind.is_directory() {
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a directory has this name"));
            }
            call.demand(Activity::Delete, &target.path)?;
            if !self.access.judge().allows(&call.caller.identity, found, Access::WRITE).await? {
                return Err(Refusal::forbidden("access denied"));
            }
        } else if call.is_directory_form {
            return Err(Refusal::conflict("a name that ends with a slash is a directory's: use MKCOL"));
        }
        self.conditions.check(call, target).await?;
        Ok(self.locks.judge(&call.lock_owner()?, &change_of(&target.path, target.found.is_none()))?)
    }

    pub async fn begin(
        &self,
        call: &Call,
        target: UploadTarget,
        mut terms: UploadTerms,
    ) -> Result<Upload, Refusal> {
        terms.kinds.extend(&self.checksums);
        Ok(self.access.files.begin_upload(self.access.requests, &call.caller, target, terms).await?)
    }

    pub async fn publish(&self, complete: Complete, owner: LockOwner) -> Result<Published, Refusal> {
        Ok(complete.publish(&self.naming(owner)).await?)
    }

    pub fn naming(&self, owner: LockOwner) -> LockNaming {
        LockNaming { locks: Arc::clone(&self.locks), owner }
    }
}

pub(crate) struct LockNaming {
    locks: Arc<PathLocks>,
    owner: LockOwner,
}

/// Until this is dropped no lock is given that would have forbidden the name.
pub(crate) struct LockNamingGuard {
    // Settled before other changes may begin.
    carried: Carried,
    _changing: PathChangeGuard,
}

impl Naming for LockNaming {
    type Guard = LockNamingGuard;
    type Refused = Refusal;

    async fn begin(&self, name: NameToGive<'_>) -> Result<LockNamingGuard, Refusal> {
        let NameToGive { path, file, is_new, patience } = name;
        let change = change_of(path, is_new);
        let changing = self.locks.begin_within(&self.owner, vec![change], patience).await?;
        Ok(LockNamingGuard { carried: self.locks.carry(path, file)?, _changing: changing })
    }

    fn may_pass(refused: &Refusal) -> bool {
        refused.may_pass()
    }
}

impl NamingGuard for LockNamingGuard {
    fn given(&mut self, published: &Published) {
        self.carried.given(published.replaced.map(|replaced| replaced.file));
    }
}

fn change_of(path: &[Name], is_new: bool) -> PathChange {
    if is_new { PathChange::of_member(path) } else { PathChange::of_resource(path) }
}
